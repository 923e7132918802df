"""Answers of a fitted low-rank model: scores, predictions, recommendations, neighbours."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._core.validation import Rows, as_integer, as_real
from fastsketch._frame.model import Model
from fastsketch.data.names._triples import Table
from fastsketch.lowrank._data import Array
from fastsketch.lowrank._fitted import Fitted
from fastsketch.lowrank._ids import Ids, left_out
from fastsketch.lowrank._queries import Scale, recommended


class LowRankAnswers(Model, abstract=True):
    """Answers of a fitted low-rank model; a subclass has ``_scale``.

    Rows and columns are asked for by their indices, or by their ids if the fit was given ids.
    """

    def _begin(self) -> None:
        self._ids = Ids()
        self._fitted: Fitted | None = None

    def _known(self) -> Fitted:
        """Return the fitted state, or raise ValueError."""
        if self._fitted is None:
            raise ValueError("the model has not been fitted: call fit first")
        return self._fitted

    def _scale(self) -> Scale:
        raise NotImplementedError

    # -- scores ----------------------------------------------------------------------------------------------------
    def decision_function(self, rows: ArrayLike, columns: ArrayLike, *, rank: int | None = None) -> Array:
        """Return the scores z of pairs (rows[k], columns[k]), (k,) in the dtype of the fit.

        Index -1, or an id that the model does not know, is one never seen.

        Parameters
        ----------
        rows, columns : array_like of int, or of ids (k,)
        rank : int, optional
            Of the model that answers; by default ``selected_rank``.
        """
        fitted = self._known()
        rank = fitted.rank(rank)
        return fitted.pairs(*self._ids.pairs(rows, columns, fitted.shape), rank)

    def decision_block(self, rows: ArrayLike, columns: ArrayLike | None = None, *, rank: int | None = None) -> Array:
        """Return the scores of all pairs of rows and columns (all columns if None), (len(rows), len(columns)).

        Parameters
        ----------
        rows, columns : array_like of int, or of ids
        rank : int, optional
            Of the model that answers; by default ``selected_rank``.
        """
        fitted = self._known()
        m, n = fitted.shape
        which = np.arange(n) if columns is None else self._ids.places(columns, 1, n, "columns")
        return fitted.block(self._ids.places(rows, 0, m, "rows"), which, fitted.rank(rank))

    def predict(self, rows: ArrayLike, columns: ArrayLike, *, rank: int | None = None) -> Array:
        """Predict pairs on the scale of X: labels -1 and +1, rates of "poisson", else the scores; clipped.

        Index -1, or an id that the model does not know, stands for a row or column never seen: biases answer. A score
        of 0 is the more frequent label, without biases +1.

        Parameters
        ----------
        rows, columns : array_like of int, or of ids (k,)
        rank : int, optional
            Of the model that answers; by default ``selected_rank``.

        Examples
        --------
        >>> import fastsketch as fs
        >>> ratings = {
        ...     "ann": {"Alien": 5, "Heat": 4, "Ran": 1},
        ...     "bob": {"Alien": 4, "Heat": 5, "Ran": 2, "Ikiru": 1},
        ...     "cat": {"Alien": 1, "Ran": 5, "Ikiru": 4},
        ...     "dan": {"Heat": 1, "Ran": 4, "Ikiru": 5},
        ... }
        >>> model = fs.LowRankModel(1, ridge=0.1).fit(ratings)
        >>> model.predict(["ann", "cat"], ["Ikiru", "Heat"]).round()
        array([1., 2.])
        """
        return self._scale().predicted(self.decision_function(rows, columns, rank=rank))

    def predict_proba(self, rows: ArrayLike, columns: ArrayLike, *, rank: int | None = None) -> Array:
        """Predict probabilities of the label +1 of pairs, for loss="logistic"; ValueError for other losses.

        Parameters
        ----------
        rows, columns : array_like of int, or of ids (k,)
        rank : int, optional
            Of the model that answers; by default ``selected_rank``.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> friends = np.where(np.eye(2).repeat(10, 0).repeat(10, 1) > 0, 1.0, -1.0)  # two camps
        >>> friends[0, 1] = friends[0, 15] = np.nan  # not known: a friend, and one of the others
        >>> model = fs.LowRankModel(1, loss="logistic", ridge=0.1, biases=False).fit(friends)
        >>> model.predict_proba([0, 0], [1, 15]).round(1)
        array([1., 0.])
        """
        return self._scale().probability(self.decision_function(rows, columns, rank=rank))

    def predict_block(self, rows: ArrayLike, columns: ArrayLike | None = None, *, rank: int | None = None) -> Array:
        """Predict all pairs of rows and columns (all columns if None), (len(rows), len(columns)).

        Parameters
        ----------
        rows, columns : array_like of int, or of ids
        rank : int, optional
            Of the model that answers; by default ``selected_rank``.

        Examples
        --------
        >>> import fastsketch as fs
        >>> ratings = {
        ...     "ann": {"Alien": 5, "Heat": 4, "Ran": 1},
        ...     "bob": {"Alien": 4, "Heat": 5, "Ran": 2, "Ikiru": 1},
        ...     "cat": {"Alien": 1, "Ran": 5, "Ikiru": 4},
        ...     "dan": {"Heat": 1, "Ran": 4, "Ikiru": 5},
        ... }
        >>> model = fs.LowRankModel(1, ridge=0.1).fit(ratings)
        >>> model.predict_block(["ann", "dan"]).shape, list(model.column_ids)
        ((2, 4), ['Alien', 'Heat', 'Ikiru', 'Ran'])
        """
        return self._scale().predicted(self.decision_block(rows, columns, rank=rank))

    def complete(self, *, max_memory: float = 1e9) -> Array:
        """Predict all entries of the matrix, those that were observed too, (m, n) in the dtype of the fit.

        Parameters
        ----------
        max_memory : float, default 1e9
            Bytes that the result may take; ValueError for a larger one: ``predict_block`` predicts some rows at a time.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> seen = np.array([[1.0, 2.0, 3.0], [2.0, np.nan, 6.0], [3.0, 6.0, 9.0]])
        >>> fs.LowRankModel(1, ridge=0.01, biases=False, sweeps=9).fit(seen).complete().round()[1]
        array([2., 4., 6.])
        """
        fitted, limit = self._known(), as_real(max_memory, "max_memory", 0.0, 1e300, low_open=True)
        (m, n), need = fitted.shape, fitted.left.itemsize * fitted.row.size * fitted.column.size
        if need > limit:
            raise ValueError(
                f"the {m:,} x {n:,} predictions take {need:,} bytes, more than max_memory={limit:g}: predict_block "
                "predicts some rows at a time"
            )
        return self._scale().predicted(fitted.block(np.arange(m), np.arange(n), fitted.selected_rank))

    def factors(self, rank: int | None = None) -> tuple[Array, Array]:
        """Return (A (m, rank), B (n, rank)): the low-rank part of the scores is A B', each rank balanced between them.

        Parameters
        ----------
        rank : int, optional
            By default ``selected_rank``.

        Examples
        --------
        >>> import fastsketch as fs
        >>> ratings = {
        ...     "ann": {"Alien": 5, "Heat": 4, "Ran": 1},
        ...     "bob": {"Alien": 4, "Heat": 5, "Ran": 2, "Ikiru": 1},
        ...     "cat": {"Alien": 1, "Ran": 5, "Ikiru": 4},
        ...     "dan": {"Heat": 1, "Ran": 4, "Ikiru": 5},
        ... }
        >>> model = fs.LowRankModel(1, ridge=0.1).fit(ratings)
        >>> import numpy as np
        >>> a, b = model.factors()
        >>> level, rows, columns = model.bias_terms()
        >>> scores = level + rows[:, None] + columns + a @ b.T
        >>> bool(np.allclose(scores, model.decision_block(["ann", "bob", "cat", "dan"]), atol=1e-4))
        True
        """
        fitted = self._known()
        return fitted.factors(fitted.rank(rank))

    def bias_terms(self) -> tuple[float, Array, Array]:
        """Return (level, row biases (m,), column biases (n,))."""
        fitted = self._known()
        return fitted.level, fitted.row.copy(), fitted.column.copy()

    # -- uses --------------------------------------------------------------------------------------------------------
    def recommend(
        self,
        rows: ArrayLike,
        n: int = 10,
        *,
        exclude: Rows | Table | None = None,
        allow: ArrayLike | None = None,
        rank: int | None = None,
    ) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """Return the n columns of the highest score for every row, best first.

        The highest predictions are a poor list of what a person would like next: what people rate at all says more than
        how they rate it. For recommendations learn from events, with SketchedEASE.

        Parameters
        ----------
        rows : array_like of int, or of ids
            -1, or an unknown id, is a row never seen: the columns of the highest bias.
        n : int
        exclude : scipy.sparse (len(rows), n_columns) or (m, n_columns), or a table by ids, optional
            Columns stored in a row are left out: pass the X of the fit for what has been seen.
        allow : vector of int, or of ids, optional
            The columns that may be recommended, to all rows; IndexError, of ids KeyError, for those that the model does
            not know.
        rank : int, optional

        Returns
        -------
        (columns, predictions) : (len(rows), n) int64 and float64
            Predictions are on the scale of X, of "logistic" the probability of +1; -1 and NaN where fewer than n are
            left. Of a model with ids the columns are these: int64 of integers, else objects, None where none is left.

        Examples
        --------
        >>> import fastsketch as fs
        >>> ratings = {
        ...     "ann": {"Alien": 5, "Heat": 4, "Ran": 1},
        ...     "bob": {"Alien": 4, "Heat": 5, "Ran": 2, "Ikiru": 1},
        ...     "cat": {"Alien": 1, "Ran": 5, "Ikiru": 4},
        ...     "dan": {"Heat": 1, "Ran": 4, "Ikiru": 5},
        ... }
        >>> model = fs.LowRankModel(1, ridge=0.1).fit(ratings)
        >>> films, predictions = model.recommend(["ann"], 1, exclude=ratings)
        >>> films
        array([['Ikiru']], dtype=object)
        """
        fitted = self._known()
        rank, (m, columns) = fitted.rank(rank), fitted.shape
        chosen = self._ids.places(rows, 0, m, "rows")
        by_id = left_out(exclude, rows, self._ids)
        best, predictions = recommended(
            chosen,
            n,
            own=fitted.own(chosen, rank),
            other=fitted.other(np.arange(columns), rank),
            scale=self._scale(),
            exclude=exclude if by_id is None else by_id,
            allow=self._ids.known(allow, 1, "allow"),
            n_rows=m if by_id is None else None,
        )
        return self._ids.named(best, 1), predictions

    def similar(
        self, index: Any, n: int = 10, *, axis: int = 0, rank: int | None = None
    ) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """Find the n rows (axis=0) or columns (axis=1) whose factors are closest to that of `index` by cosine.

        Returns (indices, cosines), best first, `index` itself left out. Of a model with ids `index` is one, KeyError if
        it is unknown, and so are the indices.

        Parameters
        ----------
        index : int, or an id
        n : int, default 10
        axis : {0, 1}
        rank : int, optional
            Of the model that answers; by default ``selected_rank``.

        Examples
        --------
        >>> import fastsketch as fs
        >>> ratings = {
        ...     "ann": {"Alien": 5, "Heat": 4, "Ran": 1},
        ...     "bob": {"Alien": 4, "Heat": 5, "Ran": 2, "Ikiru": 1},
        ...     "cat": {"Alien": 1, "Ran": 5, "Ikiru": 4},
        ...     "dan": {"Heat": 1, "Ran": 4, "Ikiru": 5},
        ... }
        >>> model = fs.LowRankModel(1, ridge=0.1).fit(ratings)
        >>> users, cosines = model.similar("ann", 1)
        >>> users
        array(['bob'], dtype=object)
        """
        axis = as_integer(axis, "axis", 0)
        if axis > 1:
            raise ValueError(f"axis must be 0 or 1, got {axis}")
        n = as_integer(n, "n", 1)
        side = self.factors(rank)[axis].astype(np.float64)
        index = self._ids.one(index, axis, len(side), "index")
        if index < 0:
            raise ValueError("index must be one of the fit, got -1")
        size = np.linalg.norm(side, axis=1)
        cosines = side @ side[index] / np.maximum(size * size[index], 1e-300)
        cosines[index] = -np.inf
        best = np.argsort(-cosines, kind="stable")[: min(n, len(side) - 1)]
        return self._ids.named(best, axis), cosines[best]
