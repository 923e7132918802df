"""Matrix completion as scikit-learn has transformers."""

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from fastsketch.lowrank import LowRankModel


class LowRankCompleter(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Completes a matrix by a low-rank model: transform folds rows in, inverse_transform fills every entry.

    Parameters
    ----------
    rank : int, default 10
        At most; no more than the smaller side of X.
    loss, refine, biases, scaling, loss_parameter, shrink, sweeps, ridge, bias_ridge, clip
        Those of fastsketch.LowRankModel; sweeps is 2 by default.
    random_state : int, default 0

    Attributes
    ----------
    model_ : fastsketch.LowRankModel
    rank_ : int
    components_ : ndarray (rank_, n_features_in_)
    n_features_in_ : int

    Notes
    -----
    Every stored entry of a sparse X is an observation, zeros too; in a dense X NaN is missing. ``transform`` gives the
    factors of each row and its bias as last column.

    Examples
    --------
    >>> import numpy as np
    >>> from fastsketch.sklearn import LowRankCompleter
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.standard_normal((200, 3)) @ rng.standard_normal((3, 40))
    >>> X = np.where(rng.random(truth.shape) < 0.5, truth, np.nan)
    >>> model = LowRankCompleter(3, ridge=0.1, sweeps=10, scaling=False)
    >>> filled = model.inverse_transform(model.fit_transform(X))
    >>> bool(np.abs(filled - truth).mean() < 0.1)
    True
    """

    def __init__(
        self,
        rank=10,
        *,
        loss="square",
        refine="economic",
        biases=True,
        scaling=True,
        loss_parameter=None,
        shrink=1.0,
        sweeps=2,
        ridge=10.0,
        bias_ridge=3.0,
        clip=None,
        random_state=0,
    ):
        self.rank = rank
        self.loss = loss
        self.refine = refine
        self.biases = biases
        self.scaling = scaling
        self.loss_parameter = loss_parameter
        self.shrink = shrink
        self.sweeps = sweeps
        self.ridge = ridge
        self.bias_ridge = bias_ridge
        self.clip = clip
        self.random_state = random_state

    def fit(self, X, y=None):
        """Fit the observed entries of X, array with NaN or sparse (n_samples, n_features)."""
        X = self._checked(X, reset=True)
        rank = min(self.rank, *X.shape) if isinstance(self.rank, (int, np.integer)) else self.rank
        model = LowRankModel(
            rank,
            self.loss,
            self.refine,
            self.biases,
            self.scaling,
            sweeps=self.sweeps,
            loss_parameter=self.loss_parameter,
            shrink=self.shrink,
            ridge=self.ridge,
            bias_ridge=self.bias_ridge,
            clip=self.clip,
            seed=self.random_state,
        )
        self.model_ = model.fit(X)
        self._n_features_out = self.rank_ + 1
        return self

    def _checked(self, X, reset):
        return validate_data(
            self, X, reset=reset, accept_sparse="csr", dtype=(np.float64, np.float32), ensure_all_finite="allow-nan"
        )

    @property
    def rank_(self):
        check_is_fitted(self, "model_")
        return self.model_.rank_

    @property
    def components_(self):
        check_is_fitted(self, "model_")
        return self.model_.factors()[1].T

    def transform(self, X):
        """Factors of every row and its bias, (n_samples, rank_ + 1): what fits its observed entries."""
        check_is_fitted(self, "model_")
        X = self._checked(X, reset=False)
        folded = self.model_.fold_in(X)
        return np.hstack([folded.factors, folded.biases[:, None]])

    def inverse_transform(self, X):
        """Every entry of rows with these factors and biases, (n_samples, n_features_in_), on the scale of the data."""
        check_is_fitted(self, "model_")
        X = check_array(X)
        if X.shape[1] != self.rank_ + 1:
            raise ValueError(f"X must have {self.rank_ + 1} columns, got {X.shape[1]}")
        level, _, column = self.model_.bias_terms()
        return self.model_._finish(level + X[:, -1:] + column + X[:, :-1] @ self.components_)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
