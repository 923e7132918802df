"""Indices that are asked for, the best columns of rows, and new rows or columns folded in."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._core.losses import LOSSES, expected
from fastsketch._core.sparse import as_csr
from fastsketch._core.validation import MOST_SIZE, Rows, as_array, as_integer, as_subset, is_sparse
from fastsketch._kernels.linalg.best import best_columns
from fastsketch.data.names._id_map import IdMap, taken
from fastsketch.data.names._triples import Table, Triples, as_triples, placed
from fastsketch.lowrank._data import Array
from fastsketch.lowrank._fitted import Side, score_block


@dataclass(frozen=True)
class Scale:
    """The way from scores to the scale of the observations: labels, probabilities, rates or numbers."""

    loss: str
    clip: tuple[float, float] | None
    level: float

    def predicted(self, z: Array) -> Array:
        """Return labels -1 and +1, rates, or the scores themselves; the latter two within `clip`."""
        if LOSSES[self.loss].targets == "label":
            # a tie, as of a row and column never seen, goes to the more frequent label; without biases the level is 0
            return np.where(z > 0, 1.0, np.where(z < 0, -1.0, 1.0 if self.level >= 0 else -1.0))
        out = np.asarray(expected(self.loss, z))
        return out if self.clip is None else np.clip(out, *self.clip)

    def probability(self, z: Array) -> Array:
        """Return the probability of the label +1."""
        if self.loss != "logistic":
            raise ValueError(f"predict_proba is for loss='logistic' alone, got loss={self.loss!r}")
        return np.asarray(expected(self.loss, z))

    def ranked(self, z: Array) -> Array:
        """Return the figure that a recommendation shows: the probability where there is one, else the prediction."""
        return self.probability(z) if self.loss == "logistic" else self.predicted(z)


def as_indices(values: ArrayLike, size: int, name: str) -> NDArray[np.int64]:
    """Return a vector of integers in [-1, size), or raise TypeError, ValueError or IndexError."""
    out = as_array(values, name)
    if out.size == 0:
        return out.astype(np.int64).reshape(-1)
    if out.dtype.kind not in "iu":
        raise TypeError(f"{name} must be integers, got dtype {out.dtype}")
    out = np.atleast_1d(out)
    if out.ndim != 1:
        raise ValueError(f"{name} must be a vector, got shape {out.shape}")
    if out.min() < -1 or out.max() >= size:
        raise IndexError(
            f"{name} must lie in [0, {size}), or be -1 for one never seen, got "
            f"{int(out.min() if out.min() < -1 else out.max())}"
        )
    return out.astype(np.int64)


def recommended(
    rows: NDArray[np.int64],
    n: Any,
    *,
    own: Side,
    other: Side,
    scale: Scale,
    exclude: Any,
    allow: ArrayLike | None,
    n_rows: int | None,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return (columns, predictions) (len(rows), n), best first, of those in `allow` without those stored in `exclude`.

    own: of these rows; other: of all columns; n_rows: of the model, None if line k of `exclude` is that of rows[k]. Of
    equal scores the first column is first.
    """
    n = as_integer(n, "n", 1, MOST_SIZE)
    columns = len(other.biases)
    if exclude is not None:
        if not is_sparse(exclude):
            raise TypeError(f"exclude must be a scipy.sparse matrix, got {type(exclude).__name__}")
        exclude = as_csr(exclude, "exclude")
        if exclude.shape[1] != columns or exclude.shape[0] not in (len(rows), n_rows):
            raise ValueError(
                f"exclude must have {columns} columns and {len(rows)} or {n_rows} rows, got shape {exclude.shape}"
            )
    allowed = None if allow is None else as_subset(allow, columns, "allow").astype(np.int32)
    left_out: list[tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]] = []
    if exclude is not None:
        line = rows if exclude.shape[0] == n_rows else np.arange(len(rows))  # of each of `rows`
        left_out.append((exclude.indptr.astype(np.int64), exclude.indices.astype(np.int32), line))
    most = min(n, columns)
    best, values = np.empty((len(rows), most), np.int64), np.empty((len(rows), most))
    best_columns(
        *(own.factors, other.factors, best, values),
        base=own.biases,
        column=other.biases,
        left_out=left_out,
        allowed=allowed,
    )
    chosen, predicted = np.full((len(rows), n), -1, np.int64), np.full((len(rows), n), np.nan)
    chosen[:, :most] = best
    left = best >= 0
    predicted[:, :most] = np.where(left, scale.ranked(np.where(left, values, 0.0)), np.nan)
    return chosen, predicted


class FoldedIn:
    """New rows or columns fitted to a model, which another fit of the model does not change.

    ``LowRankModel.fold_in`` makes one.

    Attributes
    ----------
    axis : int
        0: they are rows; 1: columns.
    factors : ndarray (k, rank)
    biases : ndarray (k,)
    ids : IdMap or None
        What the new ones are called, if they came in a table; they are asked for by their ids then.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> ratings = np.array([[5.0, 4, 1, 2], [4, 5, 2, 1], [1, 2, 5, 4], [2, 1, 4, 5]])
    >>> model = fs.LowRankModel(2, ridge=0.01).fit(ratings)
    >>> new = model.fold_in(np.array([[5.0, np.nan, 1, np.nan]]))
    >>> new
    <FoldedIn: 1 rows, rank 2>
    >>> new.predict([0, 0], [1, 3]).round(1)
    array([3.8, 2.2])
    """

    axis: int
    factors: Array
    biases: Array
    ids: IdMap | None

    def __init__(self, *, axis: int, new: Side, known: Side, scale: Scale, ids: IdMap | None, known_ids: IdMap | None):
        """Take the factors and biases of the new ones and of what they were fitted to, and the ids of both."""
        self.axis, self.factors, self.biases, self.ids = axis, new.factors, new.biases, ids
        self._known, self._known_ids, self._scale = known, known_ids, scale

    def __len__(self) -> int:
        return len(self.biases)

    def __repr__(self) -> str:
        return f"<FoldedIn: {len(self)} {'columns' if self.axis else 'rows'}, rank {self.factors.shape[1]}>"

    def _sides(self) -> tuple[Side, Side]:
        own, other = (np.ascontiguousarray(side) for side in (self.factors, self._known.factors))
        base = self._scale.level + self.biases.astype(np.float64)
        return Side(own, base), Side(other, self._known.biases.astype(np.float64))

    def decision_function(self, new: ArrayLike, known: ArrayLike) -> NDArray[np.float64]:
        """Return the scores of pairs (new one, known column or row); known -1, or an unknown id, is one never seen.

        Parameters
        ----------
        new : array_like of int, or of ids (k,)
            Which of the new ones.
        known : array_like of int, or of ids (k,)
            Columns of the model for new rows, rows for new columns.
        """
        new = as_indices(new, len(self), "new") if self.ids is None else self.ids.known(new, "new")
        ids, (factors, biases) = self._known_ids, self._known
        known = as_indices(known, len(biases), "known") if ids is None else ids.places(known, "known")
        if new.shape != known.shape or (new < 0).any():
            raise ValueError("new and known must have the same shape, and new no -1")
        inner = biases[known] + np.einsum("kq,kq->k", self.factors[new], factors[known])
        return np.asarray(self._scale.level + self.biases[new] + np.where(known >= 0, inner, 0.0), np.float64)

    def predict(self, new: ArrayLike, known: ArrayLike) -> NDArray[np.float64]:
        """Predict pairs, as the model does.

        Parameters
        ----------
        new : array_like of int, or of ids (k,)
            Which of the new ones.
        known : array_like of int, or of ids (k,)
            Columns of the model for new rows, rows for new columns.
        """
        return self._scale.predicted(self.decision_function(new, known))

    def predict_proba(self, new: ArrayLike, known: ArrayLike) -> NDArray[np.float64]:
        """Predict probabilities of the label +1 of pairs, for loss="logistic".

        Parameters
        ----------
        new : array_like of int, or of ids (k,)
            Which of the new ones.
        known : array_like of int, or of ids (k,)
            Columns of the model for new rows, rows for new columns.
        """
        return self._scale.probability(self.decision_function(new, known))

    def decision_block(self) -> NDArray[np.float64]:
        """Return the scores of every new one with all known columns (or rows), (k, n)."""
        own, other = self._sides()
        wide = (side._replace(factors=side.factors.astype(np.float64)) for side in (own, other))
        return score_block(*wide, np.float64)

    def predict_block(self) -> NDArray[np.float64]:
        """Predict every new one with all known columns (or rows), (k, n)."""
        return self._scale.predicted(self.decision_block())

    def recommend(
        self, n: int = 10, *, exclude: Rows | Table | None = None, allow: ArrayLike | None = None
    ) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """Recommend as LowRankModel.recommend, for the new ones; exclude: their X.

        Parameters
        ----------
        n : int, default 10
        exclude : scipy.sparse (len(self), n_known), or a table by ids, optional
        allow : vector of int, or of ids, optional
            What may be recommended, to all of them.

        Returns
        -------
        (columns, predictions) : ndarray (len(self), n) both
        """
        own, other = self._sides()
        ids, rows = self._known_ids, np.arange(len(self))
        if exclude is not None and (table := as_triples(exclude, None, "exclude")) is not None:
            exclude = self._left_out(table)
        if allow is not None and ids is not None:
            allow = np.unique(ids.known(allow, "allow"))
        columns, predictions = recommended(
            rows, n, own=own, other=other, scale=self._scale, exclude=exclude, allow=allow, n_rows=len(self)
        )
        return columns if ids is None else taken(ids, columns), predictions

    def _left_out(self, table: Triples) -> Any:
        if self.ids is None or self._known_ids is None:
            raise ValueError("exclude is a table: only new ones out of a table, of a model with ids, can read it")
        users, items, n = table.user_ids, table.item_ids, len(self._known_ids)
        if self.axis == 0:
            return placed(table, self.ids.places(users), self._known_ids.places(items), (len(self), n))
        return placed(table, self._known_ids.places(users), self.ids.places(items), (n, len(self))).T
