"""Bottom-k reservoir sample of a stream, with random priorities that depend on the block and position of a row."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.bottom_k import BottomK, Piece, Priorities
from fastsketch._core.random import Key, raw_numbers
from fastsketch.data.files import _checks as checks


class Reservoir(BottomK):
    """Uniform random sample of at most `size` rows of a stream.

    The rows of the smallest priorities are kept.
    """

    def __init__(self, size: int, n_features: int, *, dtype: np.dtype[Any], seed: int) -> None:
        super().__init__(size, Piece(np.empty((0, n_features), dtype), np.empty(0, np.uint64)))
        self._seed = seed
        self._current: tuple[int, Priorities] | None = None  # the last block, and the priorities of its rows

    def add_rows(self, rows: NDArray[Any], *, block: int, first_row: int, block_rows: int) -> None:
        """Offer the rows [first_row, first_row + n) of a block to the sample.

        The sample keeps the rows of the smallest random priorities.
        """
        piece = Piece(rows, self._priorities(block, block_rows)[first_row : first_row + len(rows)])
        if self._limit is None:
            piece = Piece(np.array(rows), piece.priority)  # the caller may change the rows
        self.add_piece(piece)

    def may_keep(self, n: int, *, block: int, first_row: int, block_rows: int) -> bool:
        """Return True if any of n new rows may enter the sample. If not, the caller can skip ``add_rows``.

        False is returned only for a single row, n = 1, whose priority is not below the limit.
        """
        return n != 1 or self._limit is None or self._priorities(block, block_rows)[first_row] < self._limit

    def _priorities(self, block: int, block_rows: int) -> Priorities:
        """Return the random priorities of the rows of a block. Those of the last block are cached."""
        if self._current is None or self._current[0] != block:
            self._current = block, raw_numbers(self._seed, Key.RESERVOIR, block, 0, block_rows)
        return self._current[1]

    def validate(self, rows: NDArray[Any], priority: Priorities, *, n_rows: int) -> None:
        """Raise ValueError if these arrays cannot be a sample of n_rows rows, as ``sorted_sample`` returns it."""
        expected_rows, shape = self._empty.rows, (min(self._size, n_rows), self._empty.rows.shape[1])
        arrays = {"reservoir_rows": rows, "reservoir_priority": priority}
        checks.finite(arrays, "reservoir_rows", shape, expected_rows.dtype)
        checks.array_of(arrays, "reservoir_priority", shape[:1], np.dtype(np.uint64))
        if (priority[1:] < priority[:-1]).any():
            raise ValueError("the priorities of the reservoir are not in order")

    def restore(self, rows: NDArray[Any], priority: Priorities) -> None:
        """Replace the sample by rows and priorities that have passed ``validate``."""
        self._replace_sample(Piece(rows, priority))
