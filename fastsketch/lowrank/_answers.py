"""Methods of a fitted low-rank model: scores, predictions, recommendations, similar rows or columns."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._core.validation import Rows, as_integer, as_real
from fastsketch._frame.model import Model
from fastsketch.data.names._triples import Table
from fastsketch.lowrank._data import Array
from fastsketch.lowrank._fitted import Fitted
from fastsketch.lowrank._ids import Ids, exclusion_matrix
from fastsketch.lowrank._queries import Scale, recommend_columns


class LowRankAnswers(Model, abstract=True):
    """Base class of LowRankModel with its prediction and recommendation methods. A subclass must define ``_scale``.

    Rows and columns are given by index, or by id if the fit had ids.
    """

    def _begin(self) -> None:
        self._ids = Ids()
        self._fitted: Fitted | None = None

    def _require_fitted(self) -> Fitted:
        """Return the fitted model. Raise ValueError if ``fit`` has not been called."""
        if self._fitted is None:
            raise ValueError("the model has not been fitted: call fit first")
        return self._fitted

    def _scale(self) -> Scale:
        raise NotImplementedError

    # -- scores ----------------------------------------------------------------------------------------------------
    def decision_function(self, rows: ArrayLike, columns: ArrayLike, *, rank: int | None = None) -> Array:
        """Compute the model's scores of the matrix entries at (rows[k], columns[k]).

        Parameters
        ----------
        rows, columns : array_like of int, or of ids (k,)
            Index -1, or an unknown id, is an unseen row or column, which has no bias and no factors.
        rank : int, optional
            Rank of the model; ``selected_rank`` by default.

        Returns
        -------
        ndarray (k,)
            In the dtype of the fit.
        """
        fitted = self._require_fitted()
        rank = fitted.validate_rank(rank)
        return fitted.score_pairs(*self._ids.pair_positions(rows, columns, fitted.shape), rank)

    def decision_block(self, rows: ArrayLike, columns: ArrayLike | None = None, *, rank: int | None = None) -> Array:
        """Compute the model's scores of the submatrix of the given rows and columns.

        Parameters
        ----------
        rows : array_like of int, or of ids
        columns : array_like of int, or of ids, optional
            All columns by default.
        rank : int, optional
            Rank of the model; ``selected_rank`` by default.

        Returns
        -------
        ndarray (len(rows), len(columns))
            In the dtype of the fit.
        """
        fitted = self._require_fitted()
        m, n = fitted.shape
        column_positions = np.arange(n) if columns is None else self._ids.positions(columns, 1, n, "columns")
        return fitted.score_block(self._ids.positions(rows, 0, m, "rows"), column_positions, fitted.validate_rank(rank))

    def predict(self, rows: ArrayLike, columns: ArrayLike, *, rank: int | None = None) -> Array:
        """Predict the values of the matrix entries at (rows[k], columns[k]).

        Predictions are labels -1 and +1, rates for "poisson", and otherwise the scores. Rates and scores are clipped to
        ``clip``. For a score of 0 the more frequent label is predicted, or +1 without biases.

        Parameters
        ----------
        rows, columns : array_like of int, or of ids (k,)
            Index -1, or an unknown id, is an unseen row or column: the bias of the other side, if that is known, and
            the level are its prediction.
        rank : int, optional
            Rank of the model; ``selected_rank`` by default.

        Returns
        -------
        ndarray (k,)
            In the dtype of the fit.

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
        return self._scale().to_predictions(self.decision_function(rows, columns, rank=rank))

    def predict_proba(self, rows: ArrayLike, columns: ArrayLike, *, rank: int | None = None) -> Array:
        """Predict the probability of the label +1 at the entries (rows[k], columns[k]), for the logistic loss.

        Parameters
        ----------
        rows, columns : array_like of int, or of ids (k,)
            As for ``predict``.
        rank : int, optional
            Rank of the model; ``selected_rank`` by default.

        Returns
        -------
        ndarray (k,)
            In the dtype of the fit.

        Raises
        ------
        ValueError
            For another loss.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> friends = np.where(np.eye(2).repeat(10, 0).repeat(10, 1) > 0, 1.0, -1.0)  # two camps
        >>> friends[0, 1] = friends[0, 15] = np.nan  # not known: a friend, and one of the others
        >>> model = fs.LowRankModel(1, loss="logistic", ridge=0.1, biases=False).fit(friends)
        >>> model.predict_proba([0, 0], [1, 15]).round(1)
        array([1., 0.])
        """
        return self._scale().to_probabilities(self.decision_function(rows, columns, rank=rank))

    def predict_block(self, rows: ArrayLike, columns: ArrayLike | None = None, *, rank: int | None = None) -> Array:
        """Predict the values of the submatrix of the given rows and columns.

        Parameters
        ----------
        rows : array_like of int, or of ids
        columns : array_like of int, or of ids, optional
            All columns by default.
        rank : int, optional
            Rank of the model; ``selected_rank`` by default.

        Returns
        -------
        ndarray (len(rows), len(columns))
            In the dtype of the fit.

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
        return self._scale().to_predictions(self.decision_block(rows, columns, rank=rank))

    def complete(self, *, max_memory: float = 1e9) -> Array:
        """Return the whole matrix of predictions.

        Observed entries are predicted too, and not copied.

        Parameters
        ----------
        max_memory : float, default 1e9
            Largest size of the result in bytes.

        Returns
        -------
        ndarray (m, n)
            In the dtype of the fit.

        Raises
        ------
        ValueError
            If the result would be larger. ``predict_block`` predicts some rows at a time.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> seen = np.array([[1.0, 2.0, 3.0], [2.0, np.nan, 6.0], [3.0, 6.0, 9.0]])
        >>> fs.LowRankModel(1, ridge=0.01, biases=False, sweeps=9).fit(seen).complete().round()[1]
        array([2., 4., 6.])
        """
        fitted, limit = self._require_fitted(), as_real(max_memory, "max_memory", 0.0, 1e300, low_open=True)
        (m, n), need = fitted.shape, fitted.left.itemsize * fitted.row.size * fitted.column.size
        if need > limit:
            raise ValueError(
                f"the {m:,} x {n:,} predictions take {need:,} bytes, more than max_memory={limit:g}: predict_block "
                "predicts some rows at a time"
            )
        return self._scale().to_predictions(fitted.score_block(np.arange(m), np.arange(n), fitted.selected_rank))

    def factors(self, rank: int | None = None) -> tuple[Array, Array]:
        """Return the factors A of rows and B of columns, whose product A B' is the low-rank part of the scores.

        Parameters
        ----------
        rank : int, optional
            Rank of the model; ``selected_rank`` by default.

        Returns
        -------
        (A, B) : ndarrays (m, rank) and (n, rank)
            Copies, in which corresponding columns have entries of about the same size.

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
        fitted = self._require_fitted()
        return fitted.factors(fitted.validate_rank(rank))

    def bias_terms(self) -> tuple[float, Array, Array]:
        """Return the global bias, and copies of the row biases (m,) and the column biases (n,)."""
        fitted = self._require_fitted()
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
        """Recommend n columns for each given row: those with the highest scores, best first.

        The items of the highest predicted rating are often not those that a person would choose next, since which items
        people rate says more than how they rate them. To recommend items, learn from events with ``SketchedEASE``.

        Parameters
        ----------
        rows : array_like of int, or of ids
            For -1, or an unknown id, these are the columns with the highest biases.
        n : int, default 10
        exclude : scipy.sparse (len(rows), n_columns) or (m, n_columns), or a table by ids, optional
            Stored entries of a row are not recommended: pass the X of the fit to exclude what was observed.
        allow : vector of int, or of ids, optional
            The only columns that may be recommended, to all rows. IndexError for an unknown column, KeyError for an
            unknown id.
        rank : int, optional
            Rank of the model; ``selected_rank`` by default.

        Returns
        -------
        columns : ndarray (len(rows), n)
            Indices (int64), -1 if fewer than n columns remain. With ids: int64 for integer ids, else objects, with None
            if fewer remain.
        predictions : ndarray (len(rows), n) of float64
            As from ``predict``, for "logistic" the probability of +1; NaN if fewer than n columns remain.

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
        fitted = self._require_fitted()
        rank, (m, columns) = fitted.validate_rank(rank), fitted.shape
        row_positions = self._ids.positions(rows, 0, m, "rows")
        exclusion = exclusion_matrix(exclude, rows, self._ids)
        best, predictions = recommend_columns(
            row_positions,
            n,
            row_side=fitted.row_side(row_positions, rank),
            column_side=fitted.column_side(np.arange(columns), rank),
            scale=self._scale(),
            exclude=exclude if exclusion is None else exclusion,
            allow=self._ids.sorted_positions(allow, 1, "allow"),
            n_rows=m if exclusion is None else None,
        )
        return self._ids.ids_at(best, 1), predictions

    def similar(
        self, index: Any, n: int = 10, *, axis: int = 0, rank: int | None = None
    ) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """Find the n rows (or columns) most similar to a given one, by the cosine of their factors.

        Parameters
        ----------
        index : int, or an id
            KeyError for an unknown id.
        n : int, default 10
        axis : {0, 1}, default 0
        rank : int, optional
            Rank of the model; ``selected_rank`` by default.

        Returns
        -------
        (indices, cosines) : ndarray (n,) both
            Best first, without `index` itself; shorter if there are fewer others. With ids, ids instead of indices.

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
        factors = self.factors(rank)[axis].astype(np.float64)
        index = self._ids.position(index, axis, len(factors), "index")
        if index < 0:
            raise ValueError("index must be one of the fit, got -1")
        lengths = np.linalg.norm(factors, axis=1)
        cosines = factors @ factors[index] / np.maximum(lengths * lengths[index], 1e-300)
        cosines[index] = -np.inf
        best = np.argsort(-cosines, kind="stable")[: min(n, len(factors) - 1)]
        return self._ids.ids_at(best, axis), cosines[best]
