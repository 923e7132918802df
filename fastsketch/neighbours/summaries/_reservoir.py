"""Bottom-k reservoir sample of a stream; priorities of rows are random functions of their blocks and positions."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.bottom_k import BottomK, Piece, Priorities
from fastsketch._core.random import Key, raw_numbers
from fastsketch.data.files import _checks as checks


class Reservoir(BottomK):
    """A uniform sample of at most `size` rows: those of the smallest priorities."""

    def __init__(self, size: int, n_features: int, *, dtype: np.dtype[Any], seed: int) -> None:
        super().__init__(size, Piece(np.empty((0, n_features), dtype), np.empty(0, np.uint64)))
        self._seed = seed
        self._current: tuple[int, Priorities] | None = None  # the last block, and the priorities of its rows

    def take(self, rows: NDArray[Any], *, block: int, first: int, block_rows: int) -> None:
        """Offer the rows [first, first + n) of a block to the sample."""
        piece = Piece(rows, self._priorities(block, block_rows)[first : first + len(rows)])
        if self._limit is None:
            piece = Piece(np.array(rows), piece.priority)  # the caller may change the rows
        self.offer(piece)

    def may_keep(self, n: int, *, block: int, first: int, block_rows: int) -> bool:
        """Return whether the sample may change: False only for a single row (n = 1) of a priority above the limit."""
        return n != 1 or self._limit is None or self._priorities(block, block_rows)[first] < self._limit

    def _priorities(self, block: int, block_rows: int) -> Priorities:
        """Return the priorities of the rows of a block, drawn once for each block."""
        if self._current is None or self._current[0] != block:
            self._current = block, raw_numbers(self._seed, Key.RESERVOIR, block, 0, block_rows)
        return self._current[1]

    def validate(self, rows: NDArray[Any], priority: Priorities, *, n_rows: int) -> None:
        """Raise ValueError unless these can be the arrays of ``settled`` after n_rows rows."""
        wanted, shape = self._empty.rows, (min(self._size, n_rows), self._empty.rows.shape[1])
        arrays = {"reservoir_rows": rows, "reservoir_priority": priority}
        checks.finite(arrays, "reservoir_rows", shape, wanted.dtype)
        checks.array_of(arrays, "reservoir_priority", shape[:1], np.dtype(np.uint64))
        if (priority[1:] < priority[:-1]).any():
            raise ValueError("the priorities of the reservoir are not in order")

    def restore(self, rows: NDArray[Any], priority: Priorities) -> None:
        """Replace the sample by arrays that have passed ``validate``."""
        self._hold(Piece(rows, priority))
