"""Bottom-k reservoir sampling: rows get random priorities, and the k rows of the smallest priorities are the sample.

Cohen and Kaplan (2007, PODC, "Summarizing data using bottom-k sketches"). The sample does not depend on the order of
rows, and the samples of two streams merge into that of both, as priorities depend on the row only.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.validation import is_sparse

Priorities = NDArray[np.uint64]

# Share of the rows or entries that a model holds out, for a choice or an error: `validation_fraction` of scikit-learn.
VALIDATION_FRACTION = 0.1
# Folds of a cross-validation, or one of so many users that is held out: `cv` of scikit-learn's `cross_val_score`.
CV_FOLDS = 5
# Rows copied at a time, so that there is never a second copy of the whole sample.
COPIED_ROWS = 256
# After MAX_SMALL_PIECES consecutive pieces of at most SMALL_PIECE_ROWS rows these are joined, as every update copies
# the list of pieces.
SMALL_PIECE_ROWS, MAX_SMALL_PIECES = 8, 32


class Piece(NamedTuple):
    """Some rows of a stream with their random priorities and weights. Its arrays are never changed.

    rows (n, d) are an array or CSR, priority and weight have shape (n,).
    """

    rows: Any
    priority: Priorities
    weight: NDArray[np.float64] | None = None

    def select(self, positions: Any) -> "Piece":
        """Select rows by indices, a mask or a slice, and return them as a new Piece."""
        return Piece(
            self.rows[positions], self.priority[positions], None if self.weight is None else self.weight[positions]
        )


class BottomK:
    """Uniform random sample of at most `size` rows (bottom-k reservoir): those with the smallest random priorities.

    Between two cleanups it holds up to twice as many rows.
    """

    def __init__(self, size: int, empty: Piece) -> None:
        self._size, self._empty = size, empty
        self._replace_sample(empty)

    def _replace_sample(self, sample: Piece) -> None:
        """Set the sample to rows that are already sorted by priority."""
        n = len(sample.priority)
        self._pieces, self._n_stored, self._is_sorted, self._n_small = [sample], n, True, 0
        # rows of higher priority cannot belong to the sample
        self._limit: np.uint64 | None = sample.priority[-1] if n >= self._size else None

    def copy(self) -> Self:
        """Return an independent copy of the reservoir; the arrays are shared, because they never change."""
        duplicate = object.__new__(type(self))
        duplicate.__dict__.update(self.__dict__, _pieces=list(self._pieces))
        return duplicate

    @property
    def n_held(self) -> int:
        """Return the number of rows in memory. It may be up to twice the sample size, since surplus rows are dropped
        only now and then.
        """
        return self._n_stored

    def indices_that_may_enter(self, priority: Priorities) -> NDArray[np.intp]:
        """Return the indices of those new rows whose priorities (n,) are small enough to enter the sample.
        The caller then copies only these rows.
        """
        candidates = np.arange(len(priority)) if self._limit is None else np.flatnonzero(priority < self._limit)
        if len(candidates) > self._size > 0:
            candidates = np.sort(candidates[np.argpartition(priority[candidates], self._size - 1)[: self._size]])
        return candidates

    def merge(self, other: Self) -> None:
        """Offer the rows of another reservoir to this one, in place. The other one does not change."""
        for piece in other._pieces:
            self.add_piece(piece)

    def add_piece(self, piece: Piece) -> None:
        """Offer rows to the sample, in place. Those with large priorities are ignored.

        The rows are copied, except while the sample is not full.
        """
        if self._limit is not None:
            entering = np.flatnonzero(piece.priority < self._limit)
            if not entering.size:
                return
            piece = piece.select(entering)
        n = len(piece.priority)
        self._pieces.append(piece)
        self._n_small = self._n_small + 1 if n <= SMALL_PIECE_ROWS else 0
        if self._n_small == MAX_SMALL_PIECES:
            self._pieces[-MAX_SMALL_PIECES:] = _regrouped(self._pieces[-MAX_SMALL_PIECES:])
            self._n_small = 0
        self._n_stored += n
        self._is_sorted = False
        if self._n_stored > 2 * self._size:  # more often costs time, less often memory
            self._drop_large_priorities()

    def _drop_large_priorities(self) -> None:
        """Drop surplus rows: those whose priorities are too large for the sample."""
        priority = np.concatenate([piece.priority for piece in self._pieces])
        limit = np.partition(priority, self._size - 1)[self._size - 1]
        self._pieces = [
            piece.select(keep) for piece in _regrouped(self._pieces) if (keep := piece.priority <= limit).any()
        ]
        self._n_stored, self._limit, self._n_small = sum(len(piece.priority) for piece in self._pieces), limit, 0

    def sorted_sample(self) -> Piece:
        """Return the sample as one Piece, sorted by priority. It is also stored in this form, so that the next call is
        fast.
        """
        pieces = self._pieces  # read once, as another thread may sort it meanwhile
        if len(pieces) == 1 and self._is_sorted:
            return pieces[0]
        priority = np.concatenate([piece.priority for piece in pieces])
        order = np.argsort(priority, kind="stable")[: self._size]
        weights = [piece.weight for piece in pieces if piece.weight is not None]
        weight = np.concatenate(weights)[order] if len(weights) == len(pieces) else None
        if any(is_sparse(piece.rows) for piece in pieces):
            rows = stacked([piece.rows for piece in pieces])[order]
        else:
            target = np.full(len(priority), -1)
            target[order] = np.arange(len(order))
            rows = np.empty((len(order), *pieces[0].rows.shape[1:]), np.result_type(*(p.rows.dtype for p in pieces)))
            start = 0
            for piece in _regrouped(pieces):
                targets = target[start : start + len(piece.priority)]
                keep = targets >= 0
                rows[targets[keep]] = piece.rows[keep]
                start += len(piece.priority)
        sample = Piece(rows, priority[order], weight)
        self._replace_sample(sample)
        return sample


def stacked(parts: list[Any]) -> Any:
    """Return matrices of rows stacked vertically: CSR if all are sparse, else a dense array."""
    if len(parts) == 1:
        return parts[0]
    if all(is_sparse(rows) for rows in parts):
        from scipy.sparse import vstack

        return vstack(parts, format="csr")
    return np.concatenate([rows.toarray() if is_sparse(rows) else rows for rows in parts])


def _regrouped(pieces: list[Piece]) -> Iterator[Piece]:
    """Yield the rows of `pieces` again, in the same order, in pieces of about COPIED_ROWS rows each."""
    group: list[Piece] = []
    n = 0
    for piece in pieces:
        for start in range(0, len(piece.priority), COPIED_ROWS):
            group.append(piece.select(slice(start, start + COPIED_ROWS)))
            n += len(group[-1].priority)
            if n >= COPIED_ROWS:
                yield _concatenate_pieces(group)
                group, n = [], 0
    if group:
        yield _concatenate_pieces(group)


def _concatenate_pieces(group: list[Piece]) -> Piece:
    """Return one Piece with the rows of several pieces in the same order."""
    if len(group) == 1:
        return group[0]
    weights = [piece.weight for piece in group if piece.weight is not None]
    return Piece(
        stacked([piece.rows for piece in group]),
        np.concatenate([piece.priority for piece in group]),
        np.concatenate(weights) if len(weights) == len(group) else None,
    )
