"""``EASERecommender``: recommendation of items, as a scikit-learn estimator."""

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
from fastsketch.data.names._triples import as_triples_of_estimator
from fastsketch.recommending import SketchedEASE
from fastsketch.recommending._best_items import Recommendations
from fastsketch.recommending._item_events import convert_events
from fastsketch.recommending.ranking import ndcg_at
from fastsketch.recommending.ranking._splits import split_shown_hidden
from fastsketch.sklearn._estimator import (
    MergingEstimator,
    as_unweighted_source,
    checked,
    estimator,
    restored_on_error,
    seed_of,
    weights_of_fit,
)

# Share of a user's items that ``score`` gives to the model, and the length of the lists that it rates.
SHOWN, LENGTH = 0.8, 20


@estimator
class EASERecommender(MergingEstimator):
    """Recommender of items by the EASE model, learned in one pass over the users.

    A sample is a user, a feature is an item, and a value says how much the user has had of the item; 0 means nothing.

    Parameters
    ----------
    sketch_size, ridge, method, activity_power, dropout, decay, reservoir_size, kept_events, popularity_power
        See ``fastsketch.SketchedEASE``; the defaults are the same.
    random_state : int, RandomState or None, default 0
        Seed of the model.

    Attributes
    ----------
    model_ : fastsketch.SketchedEASE
        The fitted model, which also has ``similar_items``, ``explain`` and ``select_ridge``.
    ridge_ : float
        The ridge in use, given or chosen.
    popularity_ : ndarray (n_features,)
        Weighted sum of squares of every item's column.
    n_features_in_, n_samples_seen_ : int
    feature_names_in_ : ndarray of str
        Names of the items, if X was a data frame.
    item_ids_ : fastsketch.data.IdMap or None
        Ids of the items, if X was a table of ids. Recommendations are then ids.

    Raises
    ------
    TypeError, ValueError
        From ``fit`` and ``partial_fit``, if a parameter is out of range or X has negative or missing values.

    Notes
    -----
    CSR rows are not converted to dense arrays. X may also be a table of ids, ``fastsketch.data.Triples`` or {user:
    [items]}; its users are then the samples, in the order in which they appear. The model has the dtype of X: float32
    halves the memory, without a visible effect on recommendations. There is no y. Cross-validation splits the users,
    and ``score`` measures how well hidden items of unseen users are found, so ``GridSearchCV`` works as usual.

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
    popularity_power: float = 0.2
    random_state: int | RandomState | None = 0

    def fit(self, X: Batch, y: Any = None, *, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the model to the users of X, one in each row.

        Anything learned before is forgotten.

        Parameters
        ----------
        X : array_like or sparse (n_samples, n_features), source, or table of ids
            Nonnegative.
        y : ignored
        sample_weight : array_like (n_samples,), optional
            Nonnegative weights of the users. A source takes none.

        Returns
        -------
        self
        """
        if (table := as_triples_of_estimator(X)) is not None:
            with restored_on_error(self):
                return self._learn_table(table, None, sample_weight)
        if (source := as_unweighted_source(X, sample_weight)) is not None:
            return self._fit_source(source)
        with restored_on_error(self):
            rows = self._checked(X, reset=True)
            weights = weights_of_fit(sample_weight, rows.shape[0])
            self._teach(self._template(rows.shape[0], rows.shape[1], rows.dtype), rows, weights)
        return self

    def partial_fit(self, X: Batch, y: Any = None, *, sample_weight: ArrayLike | None = None) -> Self:
        """Update the model with a batch of further users.

        Parameters
        ----------
        X : array_like or sparse (n_samples, n_features), source, or table of ids
            Nonnegative.
        y : ignored
        sample_weight : array_like (n_samples,), optional
            Nonnegative weights of the users. A source takes none.

        Returns
        -------
        self
        """
        if (table := as_triples_of_estimator(X)) is not None:
            self._check_parameters()
            with self._atomic_batch():
                return self._learn_table(table, getattr(self, "model_", None), sample_weight)
        if (source := as_unweighted_source(X, sample_weight)) is not None:
            return self._partial_fit_source(source)
        with self._atomic_batch():
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
        """Update the given model, or a new one if it is None, with a table of ids, and return self."""
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
        """Return the number of items, which grows when a table has new ids."""
        return self._learner.n_features

    @n_features_in_.setter
    def n_features_in_(self, n_features: int) -> None:
        """Accept any number and ignore it, since the model counts the items.

        scikit-learn sets this attribute.
        """

    # -- answers ---------------------------------------------------------------------------------------------------
    def decision_function(self, X: Rows) -> NDArray[Any]:
        """Compute the score of every item for the user of each row, including items already seen.

        Parameters
        ----------
        X : array_like or sparse (n_samples, n_features), or table of ids

        Returns
        -------
        ndarray (n_samples, n_features)
        """
        return self._learner.decision_block(self._as_query_rows(X))

    def _as_query_rows(self, X: Any) -> Any:
        """Return query rows in the form that the model takes: checked rows, or a table of ids."""
        table = as_triples_of_estimator(X)
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
        """Recommend n items to the user of each row, and return (items, scores), both (n_samples, n), best first.

        Parameters
        ----------
        X : array_like or sparse (n_samples, n_features), or table of ids
        n, exclude_seen, exclude, allow
            As for ``fastsketch.SketchedEASE.recommend``.

        Returns
        -------
        Recommendations
            ``items`` and ``scores``, (n_samples, n) each.
        """
        model = self._learner
        return model.recommend(self._as_query_rows(X), n, exclude_seen=exclude_seen, exclude=exclude, allow=allow)

    def score(self, X: Rows, y: Any = None, *, sample_weight: ArrayLike | None = None) -> float:
        """Compute the mean NDCG@20 of recommendations, given 80% of each user's items to find the others.

        The split follows from random_state if that is an integer, and is then the same for every model. Users with
        fewer than two items are left out.

        Parameters
        ----------
        X : array_like or sparse (n_samples, n_features), or table of ids
        y : ignored
        sample_weight : array_like (n_samples,), optional
            Weights of the users.

        Returns
        -------
        float
        """
        model, rows = self._learner, self._as_query_rows(X)
        if isinstance(rows, Triples):
            rows = convert_events(
                rows, model.item_ids, self.n_features_in_, model.resolved["dtype"], model._column_order
            )[0]
        events = csr_array(rows, copy=True)
        events.eliminate_zeros()
        users = np.flatnonzero(np.diff(events.indptr) > 1)
        if not users.size:
            raise ValueError("X must have a row that holds two items: one to be shown, one to be guessed")
        shown, hidden = split_shown_hidden(events, users, SHOWN, model.seed)
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
        """Return the ids of the items, or None if no table of ids was learned."""
        return self._learner.item_ids

    @property
    def ridge_(self) -> float:
        """Return the ridge penalty in use, given or chosen."""
        return self._learner.facts()["ridge"]

    @property
    def popularity_(self) -> NDArray[np.float64]:
        """Return the popularity of each item: the weighted sum of squares of its column."""
        return self._learner.popularity

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        return tags
