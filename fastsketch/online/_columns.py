"""Which columns a model of sparse rows has met: each has a slot, and the arrays of its states one entry for each slot.

Slots are given out in the order in which columns first appear, so that neither the width of the rows, nor the room that
arrays have, nor the batches that rows come in change a bit of what is learned. A model has one map for all its states.
"""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.online.columns import INTERCEPT, ColumnMap, row_scores
from fastsketch.io import _checks as checks
from fastsketch.online._state import Counts, Csr, Floats

# Slots that the arrays of a new state have room for, at most.
FEW_SLOTS = 64


class Columns:
    """The columns by slot.

    n_slots, an argument of its methods, is how many have occurred in the rows that the states have learned from: slots
    beyond them are left of a batch that was refused or interrupted.
    """

    __slots__ = ("_map",)

    def __init__(self, columns: Counts | None = None) -> None:
        self._map = ColumnMap(columns)

    @classmethod
    def all_of(cls, d: int) -> Self:
        """Every column has its own number for a slot."""
        return cls(np.arange(d))

    def __len__(self) -> int:
        return len(self._map)

    def enter(self, rows: Csr, n_slots: int) -> Csr:
        """The rows in slots; a column that comes for the first time gets the next one."""
        self._map.forget(n_slots)
        return Csr(rows.data, self._map.add(rows.indices), rows.indptr)

    def scores(self, rows: Csr, coef: Floats) -> Floats:
        """x'w of rows (n, any width), (n,), w being given by slot: columns that have none count nothing."""
        return row_scores(rows.data, self._map.find(rows.indices, len(coef)), rows.indptr, coef)

    def array(self, n_slots: int) -> Counts:
        """The columns by slot, (n_slots,)."""
        return self._map.array()[:n_slots]

    def by_column(self, coef: Floats, d: int | None) -> Floats:
        """Coefficients by slot as coefficients by column, (d,), or as many as the largest column asks for."""
        columns = self.array(len(coef))
        own = columns != INTERCEPT
        columns, coef = columns[own], coef[own]
        out = np.zeros(width_of(columns) if d is None else d)
        out[columns] = coef
        return out


def width_of(columns: Counts) -> int:
    """The largest of some columns, plus 1."""
    return int(columns[columns != INTERCEPT].max(initial=-1)) + 1


def validated(arrays: Mapping[str, NDArray[Any]], n_slots: int, d: int | None) -> None:
    """Raise ValueError unless array 'columns' holds distinct columns, for n_slots slots at least, below d."""
    columns = arrays["columns"]
    checks.array_of(arrays, "columns", (columns.size,), np.dtype(np.int64))
    if columns.size < n_slots:
        raise ValueError(f"array 'columns' has {columns.size} entries for {n_slots} slots")
    own = columns[columns != INTERCEPT]
    most = INTERCEPT if d is None else d
    if own.size and not 0 <= own.min() <= own.max() < most:
        raise ValueError(f"array 'columns' must lie in [0, {most}), got {own.min()} and {own.max()}")
    if len(np.unique(columns)) < columns.size:
        raise ValueError("array 'columns' must not hold a column twice")
