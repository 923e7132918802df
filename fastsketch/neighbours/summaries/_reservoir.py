"""A uniform sample of the rows of a stream that merges: row j of block i has its own priority, the least are kept."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.bottom_k import BottomK, Piece, Priorities
from fastsketch._core.random import Key, raw_numbers
from fastsketch.data.files import _checks as checks


class Reservoir(BottomK):
    """At most `size` rows, those of the smallest priorities."""

    def __init__(self, size: int, n_features: int, *, dtype: np.dtype[Any], seed: int) -> None:
        super().__init__(size, Piece(np.empty((0, n_features), dtype), np.empty(0, np.uint64)))
        self._seed = seed
        self._current: tuple[int, Priorities] | None = None  # the block being filled, and the priorities of its rows

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
        piece = Piece(rows, self._priorities(block, block_rows)[first : first + len(rows)])
        if self._limit is None:
            piece = Piece(np.array(rows), piece.priority)  # a copy: the rows belong to the caller
        self.offer(piece)

    def may_keep(self, n: int, *, block: int, first: int, block_rows: int) -> bool:
        """Return whether any of n rows may be among the least: a single row of a long stream mostly may not."""
        return n != 1 or self._limit is None or self._priorities(block, block_rows)[first] < self._limit

    def _priorities(self, block: int, block_rows: int) -> Priorities:
        """Return the priorities of the rows of a block, which are drawn once."""
        if self._current is None or self._current[0] != block:
            self._current = block, raw_numbers(self._seed, Key.RESERVOIR, block, 0, block_rows)
        return self._current[1]

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
        self._hold(Piece(rows, priority))
