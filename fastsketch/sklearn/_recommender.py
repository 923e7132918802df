"""Recommending items as a scikit-learn estimator."""

# scikit-learn has no types.
# pyright: basic

from dataclasses import KW_ONLY
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from fastsketch._core.validation import Rows, as_weights
from fastsketch._frame.batches import Batch
from fastsketch.data.names import IdMap, Triples
from fastsketch.data.names._id_map import positions
from fastsketch.data.names._triples import table_of
from fastsketch.recommending import SketchedEASE
from fastsketch.recommending._best_items import Recommendations
from fastsketch.recommending._item_events import events_of
from fastsketch.recommending.ranking import ndcg_at
from fastsketch.recommending.ranking._splits import shown_and_hidden
from fastsketch.sklearn._estimator import (
    MergingEstimator,
    as_unweighted_source,
    checked,
    estimator,
    seed_of,
    weights_of_fit,
    whole_or_as_before,
)

# What ``score`` shows of a row, and the length of the lists that it counts hits in.
SHOWN, LENGTH = 0.8, 20


@estimator
class EASERecommender(MergingEstimator):
    """Recommender of items by EASE, learned in one pass over users' rows, for GridSearchCV, pipelines and streams.

    Parameters
    ----------
    sketch_size, ridge, method, activity_power, dropout, decay, reservoir_size, kept_events
        Those of fastsketch.SketchedEASE, with its defaults.
    random_state : int, RandomState or None, default 0
        An integer is the seed of the model.

    Attributes
    ----------
    model_ : fastsketch.SketchedEASE
        With everything else: similar_items, explain, select_ridge, save.
    ridge_ : float
        In use: the one that was given, or was chosen.
    popularity_ : ndarray (n_features,)
        Weighted sum of squares of every item's column.
    n_features_in_, n_samples_seen_ : int
    feature_names_in_ : ndarray of str
        Names of the items, if X was a data frame: ``feature_names_in_[items]``.
    item_ids_ : fastsketch.data.IdMap or None
        Ids of the items, if X was a table of them: then answers are ids.

    Raises
    ------
    TypeError, ValueError
        From ``fit`` and ``partial_fit``, if a parameter is out of range, or X holds negative or NaN values.

    Notes
    -----
    A sample is a user, a feature an item, a value how much a user has had of an item: 0, not stored, for nothing.
    CSR rows stay sparse. X may also be a table by ids, ``fastsketch.data.Triples`` or {user: [items]}: its users
    are the samples, in the order in which they appear. The model has the dtype of X: float32 takes half the memory, and
    loses nothing that a recommendation would show. There is no y: cross-validation splits users, so a model is scored
    on users that it has never seen, by what it guesses of each one's row from the rest of it (``score``).

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.model_selection import GridSearchCV
    >>> from fastsketch.sklearn import EASERecommender
    >>> rng = np.random.default_rng(0)
    >>> taste = rng.integers(5, size=(300, 1)) == np.arange(60) % 5  # every user likes a fifth of the items
    >>> X = (rng.random((300, 60)) < np.where(taste, 0.6, 0.05)).astype(float)
    >>> search = GridSearchCV(EASERecommender(32), {"ridge": [1.0, 100.0, 10_000.0]}, cv=3).fit(X[:200])
    >>> items, scores = search.best_estimator_.recommend(X[200:], 3)
    >>> bool(np.mean(np.take_along_axis(taste[200:], items, axis=1)) > 0.9)
    True
    """

    _MODEL: ClassVar = "model_"
    _KIND: ClassVar = SketchedEASE

    sketch_size: int = 256
    _: KW_ONLY
    ridge: float | None = None
    method: Literal["isvd", "rfd"] = "isvd"
    activity_power: float = 0.5
    dropout: float = 0.5
    decay: float = 1.0
    reservoir_size: int = 500
    kept_events: int = 4_000_000
    random_state: int | RandomState | None = 0

    def fit(self, X: Batch, y: Any = None, *, sample_weight: ArrayLike | None = None) -> Self:
        """Forget everything and learn from X, nonnegative: array or sparse (n_samples, n_features), source, or table.

        sample_weight (n_samples,), nonnegative: how much each user counts. A source takes none.
        """
        if (table := table_of(X)) is not None:
            with whole_or_as_before(self):
                return self._learn_table(table, None, sample_weight)
        if (source := as_unweighted_source(X, sample_weight)) is not None:
            return self._fit_source(source)
        with whole_or_as_before(self):
            rows = self._checked(X, reset=True)
            weights = weights_of_fit(sample_weight, rows.shape[0])
            self._teach(self._template(rows.shape[0], rows.shape[1], rows.dtype), rows, weights)
        return self

    def partial_fit(self, X: Batch, y: Any = None, *, sample_weight: ArrayLike | None = None) -> Self:
        """Learn from the rows of more users, in batches of any size, or from a source of rows.

        Parameters
        ----------
        X : array_like or sparse (n_samples, n_features), source, or table
            Nonnegative.
        y : ignored
        sample_weight : array_like (n_samples,), optional
            How much each user counts.
        """
        if (table := table_of(X)) is not None:
            self._check_parameters()
            with self._whole_batch():
                return self._learn_table(table, getattr(self, "model_", None), sample_weight)
        if (source := as_unweighted_source(X, sample_weight)) is not None:
            return self._partial_fit_source(source)
        with self._whole_batch():
            rows = self._checked_more(X)
            self._teach(self._model_for(rows), rows, as_weights(sample_weight, rows.shape[0]))
        return self

    def _template(self, n_rows: int | None, n_features: int, dtype: Any) -> SketchedEASE:
        parameters = self.get_params(deep=False)
        seed = seed_of(parameters.pop("random_state"))
        return SketchedEASE(**parameters, dtype=dtype, seed=seed)

    def _checked(self, X: Any, *, reset: bool) -> Any:
        return checked(self, X, reset=reset, dtype=[np.float64, np.float32], ensure_non_negative=True)

    def _learn_table(self, table: Triples, model: SketchedEASE | None, sample_weight: Any) -> Self:
        if not len(table):
            raise ValueError("X must have at least one line, got a table of none")
        if model is None:
            model = self._template(None, 1, np.float32 if table.values is None else table.values.dtype)
        if model.n_features is None:
            self._drop("feature_names_in_")
        self._teach(model, table, sample_weight)
        return self

    @property
    def n_features_in_(self) -> int:
        """Return the number of items, which grows when tables bring new ids."""
        return self._learner.n_features

    @n_features_in_.setter
    def n_features_in_(self, n_features: int) -> None:
        """Leave out the number of columns that scikit-learn sets when it checks rows: the model has it."""

    # -- answers ---------------------------------------------------------------------------------------------------
    def decision_function(self, X: Rows) -> NDArray[Any]:
        """Compute scores (n_samples, n_features) of all items for the user of every row, those of its own items too.

        Parameters
        ----------
        X : array_like or sparse (n_samples, n_features), or table
        """
        return self._learner.decision_block(self._asked(X))

    def _asked(self, X: Any) -> Any:
        """Return rows, or a table, that the model answers."""
        table = table_of(X)
        return self._checked(X, reset=False) if table is None else table

    def recommend(
        self,
        X: Rows,
        n: int = 10,
        *,
        exclude_seen: bool = True,
        exclude: Rows | None = None,
        allow: ArrayLike | None = None,
    ) -> Recommendations:
        """Recommend the n items of the highest score for the user of every row of X, best first.

        Returns (items, scores), (n_samples, n) both, as ``fastsketch.SketchedEASE.recommend`` has them.

        Parameters
        ----------
        X : array_like or sparse (n_samples, n_features), or table
        n, exclude_seen, exclude, allow
            As for ``fastsketch.SketchedEASE.recommend``.
        """
        model = self._learner
        return model.recommend(self._asked(X), n, exclude_seen=exclude_seen, exclude=exclude, allow=allow)

    def score(self, X: Rows, y: Any = None, *, sample_weight: ArrayLike | None = None) -> float:
        """Compute the mean ``NDCG@20`` over the rows of X, 80% of whose items are shown, the others to be guessed.

        Which are shown follows from random_state if that is an integer, and is the same for every model then. Rows of
        fewer than two items do not count. sample_weight (n_samples,): how much each row counts.
        """
        model, rows = self._learner, self._asked(X)
        if isinstance(rows, Triples):
            rows = events_of(rows, model.item_ids, self.n_features_in_, model.resolved["dtype"], model._column_order)[0]
        events = csr_array(rows, copy=True)
        events.eliminate_zeros()
        users = np.flatnonzero(np.diff(events.indptr) > 1)
        if not users.size:
            raise ValueError("X must have a row that holds two items: one to be shown, one to be guessed")
        shown, hidden = shown_and_hidden(events, users, SHOWN, model.seed)
        items, scores = model.recommend(shown, LENGTH)
        values = ndcg_at(positions(items, scores, model.item_ids), hidden)
        if sample_weight is None:
            return float(values.mean())
        weights = as_weights(sample_weight, rows.shape[0])
        assert weights is not None
        if not weights[users].any():
            raise ValueError("sample_weight must not be zero for all rows of two items or more")
        return float(np.average(values, weights=weights[users]))

    @property
    def item_ids_(self) -> IdMap | None:
        """Return the ids of the items, if the model learned from a table."""
        return self._learner.item_ids

    @property
    def ridge_(self) -> float:
        """Return the ridge in use."""
        return self._learner.facts()["ridge"]

    @property
    def popularity_(self) -> NDArray[np.float64]:
        """Return the weighted sum of squares of every item's column."""
        return self._learner.popularity

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        return tags
