"""Matrix completion as scikit-learn has transformers."""

# scikit-learn has no types.
# pyright: basic

from dataclasses import KW_ONLY
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_array

from fastsketch._core.losses import LOSSES, LossName
from fastsketch._core.validation import Rows
from fastsketch.data.files import _checks as checks
from fastsketch.data.names import IdMap
from fastsketch.data.names._triples import table_of
from fastsketch.lowrank import LowRankModel
from fastsketch.lowrank._arguments import as_range
from fastsketch.sklearn._column_units import ColumnUnits
from fastsketch.sklearn._estimator import ModelEstimator, checked, consistent_rows, estimator, seed_of

UNITS = ("unit_mean", "unit_scale")  # in files
OF_NUMBERS = [name for name, about in LOSSES.items() if about.targets == "real"]


@estimator
class LowRankCompleter(OneToOneFeatureMixin, TransformerMixin, ModelEstimator):
    """Completes a matrix by a low-rank model: transform fills what is missing of rows.

    Parameters
    ----------
    rank : int, default 10
        At most; no more than the smaller side of X.
    loss, refine, max_refine_steps, biases, scaling, loss_parameter, learning_rate, sweeps, ridge, bias_ridge
        Those of fastsketch.LowRankModel, with its defaults.
    step_rule, step_size, inner_criterion, inner_tolerance, max_inner_rank, max_power_iterations, clip
        Likewise.
    random_state : int, RandomState or None, default 0
        An integer is the seed of the model.

    Attributes
    ----------
    model_ : fastsketch.LowRankModel
    rank_ : int
    components_ : ndarray (rank, n_features)
    n_features_in_ : int
    column_ids_ : fastsketch.data.IdMap or None
        Ids of the columns, if X was a table of them.
    mean_, scale_ : ndarray (n_features,) or None
        What ``model_`` has the columns less, and divided by; None if it has them as they are.

    Notes
    -----
    Numbers of columns whose standard deviations and root mean squares differ by more than eight times, as those of
    measurements in units of their own do and ratings do not, are learned less their means and divided by the former.
    ``model_`` is then of these numbers.

    Every stored entry of a sparse X is an observation, zeros too; in a dense X NaN is missing, and so are the masked
    entries of a masked array, which ``transform`` fills. X may also be a table by
    ids, ``fastsketch.data.Triples`` or {row: {column: value}}: its rows are the samples, in ``transform`` in the
    order in which they appear. ``LowRankFactors`` gives the factors of rows.

    Examples
    --------
    >>> import numpy as np
    >>> from fastsketch.sklearn import LowRankCompleter
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.standard_normal((200, 3)) @ rng.standard_normal((3, 40))
    >>> X = np.where(rng.random(truth.shape) < 0.5, truth, np.nan)
    >>> filled = LowRankCompleter(3, sweeps=10).fit_transform(X)
    >>> bool(np.isfinite(filled).all()), bool(np.abs(filled - truth).mean() < 0.1)
    (True, True)
    """

    _MODEL: ClassVar = "model_"
    _KIND: ClassVar = LowRankModel

    rank: int = 10
    _: KW_ONLY
    loss: LossName = "square"
    refine: Literal["economic", "full", "none"] = "economic"
    max_refine_steps: int | None = 2
    biases: bool = True
    scaling: bool = True
    loss_parameter: float | None = None
    learning_rate: float = 0.7
    sweeps: int | None = None
    ridge: float | Literal["learned"] | None = None
    bias_ridge: float | None = None
    step_rule: Literal["line_search", "inverse_sqrt"] = "line_search"
    step_size: float = 1.0
    inner_criterion: Literal["current", "previous"] = "current"
    inner_tolerance: float = 0.99
    max_inner_rank: int = 2
    max_power_iterations: int = 8
    clip: tuple[float, float] | None = None
    random_state: int | RandomState | None = 0

    def fit(self, X: Rows, y: Any = None) -> Self:
        """Fit the observed entries of X, array with NaN or sparse (n_samples, n_features), or a table by ids."""
        table = table_of(X)
        parameters = self.get_params(deep=False)
        seed = seed_of(parameters.pop("random_state"))
        if table is None:
            rows = self._checked(X, reset=True)
            shape: tuple[int, ...] = rows.shape
        else:
            rows, shape = table, (len(table.user_ids), len(table.item_ids))
        if isinstance(self.rank, int | np.integer):
            parameters["rank"] = min(self.rank, *shape)
        units = ColumnUnits.of(rows) if table is None and self.loss in OF_NUMBERS else None
        if units is not None:
            if self.clip is not None:
                as_range(self.clip, "clip")
            rows, parameters["clip"] = units.into(rows), None
        self.model_ = LowRankModel(**parameters, seed=seed).fit(rows)
        self._units = units
        if table is not None:
            self._drop("feature_names_in_")
            self.n_features_in_ = len(table.item_ids)
        else:
            self._name_features(self.model_)
        self._fix_parameters()
        return self

    def _checked(self, X: Any, *, reset: bool) -> Any:
        options: dict[str, Any] = {"dtype": [np.float64, np.float32], "ensure_all_finite": "allow-nan"}
        if isinstance(X, np.ma.MaskedArray) and X.dtype.kind in "fiub":
            masked: Any = X.astype(X.dtype if X.dtype.kind == "f" else np.float64)
            X = masked.filled(np.nan)
        return checked(self, X, sum_duplicates=False, reset=reset, **options)

    @property
    def rank_(self) -> int:
        """Return the rank that predictions take."""
        return self._learner.selected_rank

    @property
    def column_ids_(self) -> IdMap | None:
        """Return the ids of the columns, if the model was fitted to a table."""
        return self._learner.column_ids

    @property
    def components_(self) -> NDArray[Any]:
        """Return the factors of the columns, (rank, n_features)."""
        return self._learner.factors()[1].T

    @property
    def mean_(self) -> NDArray[np.float64] | None:
        """Return what is subtracted from the columns, (n_features,), or None."""
        return None if self._units_of() is None else self._units_of().mean

    @property
    def scale_(self) -> NDArray[np.float64] | None:
        """Return what the columns are divided by, (n_features,), or None."""
        return None if self._units_of() is None else self._units_of().scale

    def _own(self) -> dict[str, NDArray[Any]]:
        units = self._units_of()
        return {} if units is None else dict(zip(UNITS, (units.mean, units.scale), strict=True))

    def _restore_own(self, arrays: dict[str, NDArray[Any]]) -> None:
        self._units = None
        if arrays:
            shape = (self._learner.shape[1],)
            mean, scale = (checks.array_of(arrays, name, shape, np.dtype(np.float64)) for name in UNITS)
            if not (np.isfinite(mean).all() and np.isfinite(scale).all() and (scale > 0).all()):
                raise ValueError(f"{' and '.join(UNITS)} must be finite, the latter positive")
            self._units = ColumnUnits(mean, scale)

    def _units_of(self) -> Any:
        """Return the units of the columns; a model that was given has none."""
        self._learner  # noqa: B018  (refuses to answer before fit)
        return getattr(self, "_units", None)

    def _rows(self, X: Any) -> Any:
        table, units = table_of(X), self._units_of()
        if table is not None:
            return table
        rows = self._checked(X, reset=False)
        return rows if units is None else units.into(rows)

    def _back(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return predicted rows in the units of the columns."""
        units = self._units_of()
        return rows if units is None else units.back(rows, self.clip)

    def transform(self, X: Rows) -> NDArray[Any]:
        """Return rows without gaps, (n_samples, n_features): observed entries as they are, the others as predicted.

        Parameters
        ----------
        X : sparse (n_samples, n_features), array with NaN for what is missing, or table
        """
        model, rows = self._learner, self._rows(X)
        out = self._back(model.fold_in(rows).predict_block().astype(self.components_.dtype))
        as_given = rows if self._units_of() is None else self._checked(X, reset=False)
        model._observed(as_given, None, 0)[0].write_over(out)
        return out

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


@estimator
class LowRankFactors(LowRankCompleter):
    """Represents rows by the factors of a low-rank model: transform fits them to what is observed of a row.

    Parameters
    ----------
    rank : int, default 10
        At most; no more than the smaller side of X.
    loss, refine, max_refine_steps, biases, scaling, loss_parameter, learning_rate, sweeps, ridge, bias_ridge
        Those of fastsketch.LowRankModel, with its defaults.
    step_rule, step_size, inner_criterion, inner_tolerance, max_inner_rank, max_power_iterations, clip
        Likewise.
    random_state : int, RandomState or None, default 0
        An integer is the seed of the model.

    Attributes
    ----------
    model_, rank_, components_, n_features_in_, column_ids_, mean_, scale_
        Those of LowRankCompleter.

    Examples
    --------
    >>> import numpy as np
    >>> from fastsketch.sklearn import LowRankFactors
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.standard_normal((200, 3)) @ rng.standard_normal((3, 40))
    >>> X = np.where(rng.random(truth.shape) < 0.5, truth, np.nan)
    >>> model = LowRankFactors(3, sweeps=10)
    >>> rows = model.fit_transform(X)
    >>> rows.shape, bool(np.abs(model.inverse_transform(rows) - truth).mean() < 0.1)
    ((200, 4), True)
    """

    @property
    def _n_features_out(self) -> int:
        return self.rank_ + 1

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return a name for each column of ``transform``: lowrankfactors0, lowrankfactors1 and so on.

        Parameters
        ----------
        input_features : ignored
        """
        return ClassNamePrefixFeaturesOutMixin.get_feature_names_out(cast("Any", self), input_features)

    def transform(self, X: Rows) -> NDArray[Any]:
        """Return the factors of every row and its bias, (n_samples, rank + 1), fitted to its observed entries.

        Parameters
        ----------
        X : sparse (n_samples, n_features), array with NaN for what is missing, or table
        """
        folded = self._learner.fold_in(self._rows(X))
        return np.hstack([folded.factors, folded.biases[:, None]])

    def inverse_transform(self, X: Rows) -> NDArray[Any]:
        """Return every entry of rows with these factors and biases, (n_samples, n_features), as predicted.

        Parameters
        ----------
        X : array_like (n_samples, rank + 1)
            What ``transform`` gave.
        """
        model, rows = self._learner, check_array(consistent_rows(X))
        if rows.shape[1] != self.rank_ + 1:
            raise ValueError(f"X must have {self.rank_ + 1} columns, got {rows.shape[1]}")
        level, _, column = model.bias_terms()
        return self._back(model._scale().predicted(level + rows[:, -1:] + column + rows[:, :-1] @ self.components_))
