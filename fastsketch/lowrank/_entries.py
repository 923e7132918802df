"""Training and held-out entries of a fit, with statistics of the training entries."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch.lowrank._data import Array, Observed

Floats = NDArray[np.float64]
Counts = tuple[NDArray[np.int64], NDArray[np.int64]]


@dataclass(frozen=True)
class Entries:
    """Training and held-out entries of a fit, with a scale for each row and column (1 without degree scaling)."""

    data: Observed
    held_out: Observed | None  # held-out entries
    row_scale: Array  # (m,) degree scaling of the rows
    column_scale: Array  # (n,) degree scaling of the columns
    offsets: tuple[Floats, Floats] | None = None  # (m,) and (n,) that were subtracted from `data` and `held`

    def subtract_offsets(self, rows: Floats, columns: Floats) -> "Entries":
        """Return new entries in which the offsets of rows (m,) and columns (n,) are subtracted from all values,
        training and held-out.
        """
        held_out = None if self.held_out is None else self.held_out.subtract_offsets(rows, columns)
        previous = (0.0, 0.0) if self.offsets is None else self.offsets
        offsets = previous[0] + rows, previous[1] + columns
        return replace(self, data=self.data.subtract_offsets(rows, columns), held_out=held_out, offsets=offsets)

    @property
    def m(self) -> int:
        return self.data.m

    @property
    def n(self) -> int:
        return self.data.n

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.data.o.dtype

    @property
    def n_observations(self) -> int:
        return len(self.data.o)

    @property
    def n_held_out(self) -> int:
        return 0 if self.held_out is None else len(self.held_out.o)

    @property
    def has_weights(self) -> bool:
        return len(self.data.c) > 0

    @property
    def n_nonempty(self) -> tuple[int, int]:
        """Return the number of rows and the number of columns that have at least one training entry."""
        rows, columns = self.data.counts
        return int(np.count_nonzero(rows)), int(np.count_nonzero(columns))

    @cached_property
    def largest_weight(self) -> float:
        """Return the largest weight of a training entry."""
        return float(self.data.c.max(initial=0.0)) if self.has_weights else 1.0

    @cached_property
    def count_distribution(self) -> tuple[Counts, Counts]:
        """Return, for rows and for columns, each number of training entries that occurs and how often it occurs.

        Each one is (distinct numbers of entries, how many rows or columns have them).
        """
        rows, columns = (np.unique(counts[counts > 0], return_counts=True) for counts in self.data.counts)
        return rows, columns


HoldOut = Callable[[], Entries]  # returns the entries of the fit with some of them held out
