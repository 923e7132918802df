"""A uniform sample of the rows of a stream that merges: row j of block i has its own priority, the least are kept."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch._random import Key, raw_numbers

Priorities = NDArray[np.uint64]

# Rows copied at a time, so that no second sample is held.
COPIED_ROWS = 256


class Reservoir:
    """At most `size` rows, those of the smallest priorities. Its arrays are replaced, never changed."""

    def __init__(self, size: int, n_features: int, *, dtype: np.dtype[Any], seed: int) -> None:
        self._size, self._seed = size, seed
        self._pieces: list[tuple[NDArray[Any], Priorities]] = [
            (np.empty((0, n_features), dtype), np.empty(0, np.uint64))
        ]
        self._waiting = 0
        self._limit: np.uint64 | None = None  # no row of a higher priority can be among the least
        self._current: tuple[int, Priorities] | None = None  # the block being filled, and the priorities of its rows

    def copy(self) -> "Reservoir":
        """An independent reservoir: arrays are shared, as none changes."""
        other = object.__new__(Reservoir)
        other.__dict__.update(self.__dict__, _pieces=list(self._pieces))
        return other

    def take(self, rows: NDArray[Any], *, block: int, first: int, block_rows: int) -> None:
        """Offer rows `first`, `first` + 1, ... of a block."""
        if self._current is None or self._current[0] != block:
            self._current = block, raw_numbers(self._seed, Key.RESERVOIR, block, 0, block_rows)
        self._offer(rows, self._current[1][first : first + len(rows)])

    def _offer(self, rows: NDArray[Any], priority: Priorities) -> None:
        """Keep what may be among the least."""
        if self._limit is not None:
            chosen = np.flatnonzero(priority < self._limit)
            if not chosen.size:
                return
            rows, priority = rows[chosen], priority[chosen]
        # a copy: what came in belongs to the caller
        self._pieces.append((np.array(rows, self._pieces[0][0].dtype), np.array(priority)))
        self._waiting += len(rows)
        if self._waiting > self._size // 2:  # sooner costs time, later memory
            self.settled()

    def merge(self, other: "Reservoir") -> None:
        """Offer all rows of another reservoir."""
        self._offer(*other.settled())

    def settled(self) -> tuple[NDArray[Any], Priorities]:
        """(rows, priorities), the least first."""
        if len(self._pieces) > 1:
            priority = np.concatenate([part for _, part in self._pieces])
            order = np.argsort(priority, kind="stable")[: self._size]
            place = np.full(len(priority), -1)
            place[order] = np.arange(len(order))
            rows = np.empty((len(order), self._pieces[0][0].shape[1]), self._pieces[0][0].dtype)
            first = 0
            for piece, _ in self._pieces:
                for start in range(0, len(piece), COPIED_ROWS):
                    part = piece[start : start + COPIED_ROWS]
                    wanted = place[first + start : first + start + len(part)]
                    kept = wanted >= 0
                    rows[wanted[kept]] = part[kept]
                first += len(piece)
            priority = priority[order]
            self._pieces, self._waiting = [(rows, priority)], 0
            self._limit = priority[-1] if len(priority) >= self._size else None
        return self._pieces[0]

    def restore(self, rows: NDArray[Any], priority: Priorities) -> None:
        """Take what ``settled`` of an equal reservoir gave; ValueError if it does not fit."""
        width = self._pieces[0][0].shape[1]
        if rows.ndim != 2 or rows.shape[1] != width or priority.shape != rows.shape[:1] or priority.dtype != np.uint64:
            raise ValueError("the reservoir does not fit the model")
        self._offer(rows, priority)
