"""A uniform sample of the rows of a stream that merges: row j of block i has its own priority, the least are kept."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.random import Key, raw_numbers
from fastsketch.data.files import _checks as checks

Priorities = NDArray[np.uint64]

# Rows copied at a time: no second sample is held, and memory comes in pieces that are soon used again.
COPIED_ROWS = 256
# Neighbouring pieces of a few rows that are joined: every update copies the list of pieces.
FEW, JOINED = 8, 32


class _Piece(NamedTuple):
    """Some rows (n, d) with their priorities (n,); neither array is ever changed."""

    rows: NDArray[Any]
    priority: Priorities


class Reservoir:
    """At most `size` rows, those of the smallest priorities."""

    def __init__(self, size: int, n_features: int, *, dtype: np.dtype[Any], seed: int) -> None:
        self._size, self._seed = size, seed
        self._empty = _Piece(np.empty((0, n_features), dtype), np.empty(0, np.uint64))
        self._hold(self._empty)
        self._current: tuple[int, Priorities] | None = None  # the block being filled, and the priorities of its rows

    def _hold(self, sample: _Piece) -> None:
        """Make these rows, in order, the whole sample."""
        self._pieces, self._n_held, self._in_order, self._n_small = [sample], len(sample.rows), True, 0
        # no row of a higher priority can be among the least
        self._limit: np.uint64 | None = sample.priority[-1] if self._n_held >= self._size else None

    def copy(self) -> "Reservoir":
        """Return an independent reservoir: arrays are shared, as none changes."""
        other = object.__new__(Reservoir)
        other.__dict__.update(self.__dict__, _pieces=list(self._pieces))
        return other

    def expect(self, n: int, *, block: int, first: int, block_rows: int) -> None:
        """Bound the priorities that count by those of the next n rows too: of these, what cannot stay is not copied."""
        ahead = [piece.priority for piece in self._pieces]
        while n > 0:
            n_here = min(n, block_rows - first)
            ahead.append(raw_numbers(self._seed, Key.RESERVOIR, block, 0, first + n_here)[first:])
            n, block, first = n - n_here, block + 1, 0
        priority = np.concatenate(ahead)
        if len(priority) > self._size:
            largest = np.partition(priority, self._size - 1)[self._size - 1]
            self._limit = largest + np.uint64(largest < np.iinfo(np.uint64).max)  # which stays itself

    def take(self, rows: NDArray[Any], *, block: int, first: int, block_rows: int) -> None:
        """Offer rows `first`, `first` + 1, ... of a block."""
        piece = _Piece(rows, self._priorities(block, block_rows)[first : first + len(rows)])
        if self._limit is None:
            piece = _Piece(np.array(rows), piece.priority)  # a copy: the rows belong to the caller
        self._offer(piece)

    def may_keep(self, n: int, *, block: int, first: int, block_rows: int) -> bool:
        """Return whether any of n rows may be among the least: a single row of a long stream mostly may not."""
        return n != 1 or self._limit is None or self._priorities(block, block_rows)[first] < self._limit

    def _priorities(self, block: int, block_rows: int) -> Priorities:
        """Return the priorities of the rows of a block, which are drawn once."""
        if self._current is None or self._current[0] != block:
            self._current = block, raw_numbers(self._seed, Key.RESERVOIR, block, 0, block_rows)
        return self._current[1]

    def merge(self, other: "Reservoir") -> None:
        """Offer all rows of another reservoir."""
        for piece in other._pieces:
            self._offer(piece)

    def _offer(self, piece: _Piece) -> None:
        """Keep the rows that may be among the least: copies, or the piece itself before there is a limit."""
        if self._limit is not None:
            chosen = np.flatnonzero(piece.priority < self._limit)
            if not chosen.size:
                return
            piece = _Piece(piece.rows[chosen], piece.priority[chosen])
        self._pieces.append(piece)
        self._n_small = self._n_small + 1 if len(piece.rows) <= FEW else 0
        if self._n_small == JOINED:
            self._pieces[-JOINED:] = _regrouped(self._pieces[-JOINED:])
            self._n_small = 0
        self._n_held += len(piece.rows)
        self._in_order = False
        if self._n_held > 2 * self._size:  # sooner costs time, later memory
            self._trim()

    def _trim(self) -> None:
        """Drop the rows that are not among the least."""
        priority = np.concatenate([piece.priority for piece in self._pieces])
        limit = np.partition(priority, self._size - 1)[self._size - 1]
        self._pieces = [
            _Piece(piece.rows[kept], piece.priority[kept])
            for piece in _regrouped(self._pieces)
            if (kept := piece.priority <= limit).any()
        ]
        self._n_held, self._limit, self._n_small = sum(len(piece.rows) for piece in self._pieces), limit, 0

    def settled(self) -> tuple[NDArray[Any], Priorities]:
        """Return (rows, priorities), the least first."""
        if not self._in_order:
            priority = np.concatenate([piece.priority for piece in self._pieces])
            order = np.argsort(priority, kind="stable")[: self._size]
            place = np.full(len(priority), -1)
            place[order] = np.arange(len(order))
            rows = np.empty((len(order), self._empty.rows.shape[1]), self._empty.rows.dtype)
            first = 0
            for piece in _regrouped(self._pieces):
                wanted = place[first : first + len(piece.rows)]
                kept = wanted >= 0
                rows[wanted[kept]] = piece.rows[kept]
                first += len(piece.rows)
            self._hold(_Piece(rows, priority[order]))
        return self._pieces[0]

    def validate(self, rows: NDArray[Any], priority: Priorities, *, n_rows: int) -> None:
        """Raise ValueError unless this is what ``settled`` of a reservoir of n_rows rows could give."""
        wanted, shape = self._empty.rows, (min(self._size, n_rows), self._empty.rows.shape[1])
        arrays = {"reservoir_rows": rows, "reservoir_priority": priority}
        checks.finite(arrays, "reservoir_rows", shape, wanted.dtype)
        checks.array_of(arrays, "reservoir_priority", shape[:1], np.dtype(np.uint64))
        if (priority[1:] < priority[:-1]).any():
            raise ValueError("the priorities of the reservoir are not in order")

    def restore(self, rows: NDArray[Any], priority: Priorities) -> None:
        """Take the arrays that ``settled`` of an equal reservoir gave, or that have passed ``validate``."""
        self._hold(_Piece(rows, priority))


def _regrouped(pieces: list[_Piece]) -> Iterator[_Piece]:
    """Return the same rows in the same order, about COPIED_ROWS at a time."""
    group: list[_Piece] = []
    n = 0
    for piece in pieces:
        for start in range(0, len(piece.rows), COPIED_ROWS):
            part = slice(start, start + COPIED_ROWS)
            group.append(_Piece(piece.rows[part], piece.priority[part]))
            n += len(group[-1].rows)
            if n >= COPIED_ROWS:
                yield _joined(group)
                group, n = [], 0
    if group:
        yield _joined(group)


def _joined(group: list[_Piece]) -> _Piece:
    if len(group) == 1:
        return group[0]
    return _Piece(np.concatenate([piece.rows for piece in group]), np.concatenate([piece.priority for piece in group]))
