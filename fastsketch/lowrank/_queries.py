"""Queries of a low-rank model: index checks, recommendations, and the results of fold-in."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._core.losses import LOSSES, expected
from fastsketch._core.sparse import as_csr
from fastsketch._core.validation import MOST_SIZE, Rows, as_array, as_integer, as_subset, is_sparse
from fastsketch._kernels.linalg.best import best_columns
from fastsketch.data.names._id_map import IdMap, ids_at
from fastsketch.data.names._triples import Table, Triples, as_triples, to_csr_matrix
from fastsketch.lowrank._data import Array
from fastsketch.lowrank._fitted import Side, score_block


@dataclass(frozen=True)
class Scale:
    """Converter of a model's scores to predictions: labels, probabilities, rates or numbers."""

    loss: str
    clip: tuple[float, float] | None
    level: float

    def to_predictions(self, z: Array) -> Array:
        """Return predictions for scores: labels -1 and +1, or rates or numbers that are clipped to `clip`."""
        if LOSSES[self.loss].targets == "label":
            # a score of 0, as of an unknown row and column, is the more frequent label; without biases the level is 0
            return np.where(z > 0, 1.0, np.where(z < 0, -1.0, 1.0 if self.level >= 0 else -1.0))
        out = np.asarray(expected(self.loss, z))
        return out if self.clip is None else np.clip(out, *self.clip)

    def to_probabilities(self, z: Array) -> Array:
        """Convert scores to probabilities of the label +1. Raise ValueError unless the loss is "logistic"."""
        if self.loss != "logistic":
            raise ValueError(f"predict_proba is for loss='logistic' alone, got loss={self.loss!r}")
        return np.asarray(expected(self.loss, z))

    def to_recommendation_values(self, z: Array) -> Array:
        """Return the values that ``recommend`` reports for scores: probabilities for "logistic", else predictions."""
        return self.to_probabilities(z) if self.loss == "logistic" else self.to_predictions(z)


def as_indices(values: ArrayLike, size: int, name: str) -> NDArray[np.int64]:
    """Validate a vector of indices in [-1, size) and return it as int64. Raise IndexError if one is out of range."""
    indices = as_array(values, name)
    if indices.size == 0:
        return indices.astype(np.int64).reshape(-1)
    if indices.dtype.kind not in "iu":
        raise TypeError(f"{name} must be integers, got dtype {indices.dtype}")
    indices = np.atleast_1d(indices)
    if indices.ndim != 1:
        raise ValueError(f"{name} must be a vector, got shape {indices.shape}")
    if indices.min() < -1 or indices.max() >= size:
        raise IndexError(
            f"{name} must lie in [0, {size}), or be -1 for one never seen, got "
            f"{int(indices.min() if indices.min() < -1 else indices.max())}"
        )
    return indices.astype(np.int64)


def recommend_columns(
    rows: NDArray[np.int64],
    n: Any,
    *,
    row_side: Side,
    column_side: Side,
    scale: Scale,
    exclude: Any,
    allow: ArrayLike | None,
    n_rows: int | None,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the n columns of highest score for each row, and their predictions, both (k, n), best first.

    Parameters
    ----------
    rows : (k,) array of int64
    n : int
    row_side, column_side : Side
        Factors and biases of these rows, and of all columns.
    scale : Scale
    exclude : scipy.sparse or None
        Its stored entries are not recommended. If it has `n_rows` rows, line i belongs to row i of the model. Otherwise
        it has k lines, and line i belongs to rows[i].
    allow : array_like or None
        The only columns that may be recommended, to all rows.
    n_rows : int or None
        Number of rows of the model.

    Returns
    -------
    (columns, predictions) : (k, n) arrays
        Best first, -1 and NaN if fewer than n columns remain. Of equal scores the smaller column comes first.
    """
    n = as_integer(n, "n", 1, MOST_SIZE)
    n_columns = len(column_side.biases)
    if exclude is not None:
        if not is_sparse(exclude):
            raise TypeError(f"exclude must be a scipy.sparse matrix, got {type(exclude).__name__}")
        exclude = as_csr(exclude, "exclude")
        if exclude.shape[1] != n_columns or exclude.shape[0] not in (len(rows), n_rows):
            raise ValueError(
                f"exclude must have {n_columns} columns and {len(rows)} or {n_rows} rows, got shape {exclude.shape}"
            )
    allowed = None if allow is None else as_subset(allow, n_columns, "allow").astype(np.int32)
    exclusions: list[tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]] = []
    if exclude is not None:
        line_of_row = rows if exclude.shape[0] == n_rows else np.arange(len(rows))  # of each of `rows`
        exclusions.append((exclude.indptr.astype(np.int64), exclude.indices.astype(np.int32), line_of_row))
    n_returned = min(n, n_columns)
    best_columns_, values = np.empty((len(rows), n_returned), np.int64), np.empty((len(rows), n_returned))
    best_columns(
        *(row_side.factors, column_side.factors, best_columns_, values),
        base=row_side.biases,
        column=column_side.biases,
        left_out=exclusions,
        allowed=allowed,
    )
    recommended, predicted = np.full((len(rows), n), -1, np.int64), np.full((len(rows), n), np.nan)
    recommended[:, :n_returned] = best_columns_
    is_found = best_columns_ >= 0
    predicted[:, :n_returned] = np.where(
        is_found, scale.to_recommendation_values(np.where(is_found, values, 0.0)), np.nan
    )
    return recommended, predicted


class FoldedIn:
    """New rows or columns with factors fitted to an existing model: the result of ``LowRankModel.fold_in``.

    It does not change if the model is fitted again.

    Attributes
    ----------
    axis : int
        0 for new rows, 1 for new columns.
    factors : ndarray (k, rank)
        Factors of the new rows or columns.
    biases : ndarray (k,)
        Their biases.
    ids : IdMap or None
        Their ids if they were given as a table; methods then take these ids instead of indices.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> ratings = np.array([[5.0, 4, 1, 2], [4, 5, 2, 1], [1, 2, 5, 4], [2, 1, 4, 5]])
    >>> model = fs.LowRankModel(2, ridge=0.01).fit(ratings)
    >>> new = model.fold_in(np.array([[5.0, np.nan, 1, np.nan]]))
    >>> new
    <FoldedIn: 1 rows, rank 2>
    >>> new.predict([0, 0], [1, 3]).round(1)
    array([3.6, 2.4])
    """

    axis: int
    factors: Array
    biases: Array
    ids: IdMap | None

    def __init__(self, *, axis: int, new: Side, known: Side, scale: Scale, ids: IdMap | None, known_ids: IdMap | None):
        """Store the factors, biases and ids of the new rows (or columns), and of the model's columns (or rows)."""
        self.axis, self.factors, self.biases, self.ids = axis, new.factors, new.biases, ids
        self._known, self._known_ids, self._scale = known, known_ids, scale

    def __len__(self) -> int:
        return len(self.biases)

    def __repr__(self) -> str:
        return f"<FoldedIn: {len(self)} {'columns' if self.axis else 'rows'}, rank {self.factors.shape[1]}>"

    def _new_and_model_sides(self) -> tuple[Side, Side]:
        new_factors, model_factors = (np.ascontiguousarray(factors) for factors in (self.factors, self._known.factors))
        base = self._scale.level + self.biases.astype(np.float64)
        return Side(new_factors, base), Side(model_factors, self._known.biases.astype(np.float64))

    def decision_function(self, new: ArrayLike, known: ArrayLike) -> NDArray[np.float64]:
        """Return the scores (k,) of pairs of a new row and a column of the model, or of a new column and a row.

        Parameters
        ----------
        new : array_like of int, or of ids (k,)
            New rows or columns.
        known : array_like of int, or of ids (k,)
            Columns of the model for new rows, rows for new columns. For index -1, or an unknown id, the score is the
            level plus the bias of the new one.

        Returns
        -------
        ndarray (k,)
        """
        new = as_indices(new, len(self), "new") if self.ids is None else self.ids.known(new, "new")
        ids, (factors, biases) = self._known_ids, self._known
        known = as_indices(known, len(biases), "known") if ids is None else ids.places(known, "known")
        if new.shape != known.shape or (new < 0).any():
            raise ValueError("new and known must have the same shape, and new no -1")
        inner = biases[known] + np.einsum("kq,kq->k", self.factors[new], factors[known])
        return np.asarray(self._scale.level + self.biases[new] + np.where(known >= 0, inner, 0.0), np.float64)

    def predict(self, new: ArrayLike, known: ArrayLike) -> NDArray[np.float64]:
        """Predict the values of pairs of a new row (or column) and a column (or row) of the model.

        Parameters
        ----------
        new : array_like of int, or of ids (k,)
            New rows or columns.
        known : array_like of int, or of ids (k,)
            Columns of the model for new rows, rows for new columns.

        Returns
        -------
        ndarray (k,)
        """
        return self._scale.to_predictions(self.decision_function(new, known))

    def predict_proba(self, new: ArrayLike, known: ArrayLike) -> NDArray[np.float64]:
        """Predict the probability of the label +1 for pairs of a new row (or column) and a known column (or row).

        Parameters
        ----------
        new : array_like of int, or of ids (k,)
            New rows or columns.
        known : array_like of int, or of ids (k,)
            Columns of the model for new rows, rows for new columns.

        Returns
        -------
        ndarray (k,)
        """
        return self._scale.to_probabilities(self.decision_function(new, known))

    def decision_block(self) -> NDArray[np.float64]:
        """Compute the scores of each new row with all columns of the model (or of each new column with all rows)."""
        new_side, model_side = (
            side._replace(factors=side.factors.astype(np.float64)) for side in self._new_and_model_sides()
        )
        return score_block(new_side, model_side, np.float64)

    def predict_block(self) -> NDArray[np.float64]:
        """Predict the values of each new row in all columns of the model (or of each new column in all rows)."""
        return self._scale.to_predictions(self.decision_block())

    def recommend(
        self, n: int = 10, *, exclude: Rows | Table | None = None, allow: ArrayLike | None = None
    ) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """Find the n columns with the highest scores for each new row (or rows for each new column), best first.

        Parameters
        ----------
        n : int, default 10
        exclude : scipy.sparse (k, n_columns), or a table by ids, optional
            Stored entries are not recommended: pass the X of ``fold_in`` to exclude what is known.
        allow : vector of int, or of ids, optional
            The only columns (or rows) that may be recommended.

        Returns
        -------
        (columns, predictions) : ndarray (k, n) both
            As from ``LowRankModel.recommend``.
        """
        new_side, model_side = self._new_and_model_sides()
        ids, rows = self._known_ids, np.arange(len(self))
        if exclude is not None and (table := as_triples(exclude, None, "exclude")) is not None:
            exclude = self._exclusion_matrix(table)
        if allow is not None and ids is not None:
            allow = np.unique(ids.known(allow, "allow"))
        columns, predictions = recommend_columns(
            rows,
            n,
            row_side=new_side,
            column_side=model_side,
            scale=self._scale,
            exclude=exclude,
            allow=allow,
            n_rows=len(self),
        )
        return columns if ids is None else ids_at(ids, columns), predictions

    def _exclusion_matrix(self, table: Triples) -> Any:
        if self.ids is None or self._known_ids is None:
            raise ValueError("exclude is a table: only new ones out of a table, of a model with ids, can read it")
        users, items, n = table.user_ids, table.item_ids, len(self._known_ids)
        if self.axis == 0:
            return to_csr_matrix(table, self.ids.places(users), self._known_ids.places(items), (len(self), n))
        return to_csr_matrix(table, self._known_ids.places(users), self.ids.places(items), (n, len(self))).T
