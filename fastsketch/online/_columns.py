"""Which columns a model of sparse rows has met: each has a slot, and the arrays of its states one entry for each slot.

Slots are given out in the order in which columns first appear, so that neither the width of the rows, nor the room that
arrays have, nor the batches that rows come in change a bit of what is learned. A model has one map for all its states.
"""

from collections.abc import Mapping
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.online.columns import INTERCEPT, ColumnMap, row_scores
from fastsketch._sparse import MOST_COLUMNS
from fastsketch._validation import as_integer
from fastsketch.io import _checks as checks
from fastsketch.online._state import Counts, Csr, Floats

# Slots that the arrays of a new state have room for, at most.
FEW_SLOTS = 64


class Columns:
    """The width of the rows, and the columns by slot.

    n_slots, an argument of its methods, is how many have occurred in the rows that the states have learned from: slots
    beyond them are left of a batch that was refused or interrupted. For dense rows there are no slots.
    """

    __slots__ = ("_map", "width")

    def __init__(self, width: int | None, columns: Counts | None = None) -> None:
        self.width = width  # None: any
        self._map = ColumnMap(columns)

    @classmethod
    def beginning(cls, width: int | None, *, all_at_once: bool, intercept: bool = False) -> Self:
        """Before the first row; all_at_once: every column has its own number for a slot, the intercept the last one."""
        if not all_at_once or width is None:
            return cls(width)
        columns = np.arange(width, dtype=np.int64)
        return cls(width, np.append(columns, INTERCEPT) if intercept else columns)

    def copied(self, n_slots: int) -> Self:
        """The same with a map of its own."""
        return type(self)(self.width, self.array(n_slots))

    def __len__(self) -> int:
        return len(self._map)

    @property
    def most(self) -> int:
        """Columns that there may be."""
        return MOST_COLUMNS if self.width is None else self.width

    def first_room(self) -> int:
        """Slots that the arrays of a new state have room for."""
        return max(len(self), min(self.most, FEW_SLOTS))

    def enter(self, rows: Csr, n_slots: int) -> Csr:
        """The rows in slots; a column that comes for the first time gets the next one."""
        self._map.forget(n_slots)
        return Csr(rows.data, self._map.add(rows.indices), rows.indptr)

    def found(self, rows: Csr, n_slots: int) -> Csr:
        """The rows in slots, n_slots in the place of those that columns do not have below it."""
        return rows._replace(indices=self._map.find(rows.indices, n_slots))

    def array(self, n_slots: int) -> Counts:
        """The columns by slot, (n_slots,)."""
        return self._map.array()[:n_slots]

    def by_column(self, coef: Floats) -> Floats:
        """Coefficients (..., n_slots) by slot as coefficients (..., d) by column."""
        columns = self.array(coef.shape[-1])
        own = columns != INTERCEPT  # which is no column of the rows
        width = self.width if self.width is not None else int(columns[own].max(initial=-1)) + 1
        out = np.zeros((*coef.shape[:-1], width))
        out[..., columns[own]] = coef[..., own]
        return out

    def intercept(self, coef: Floats) -> Floats:
        """What coefficients (..., n_slots) by slot give the column of the intercept, (...)."""
        return coef[..., self.array(coef.shape[-1]) == INTERCEPT].sum(axis=-1)

    # -- files -------------------------------------------------------------------------------------------------------
    @classmethod
    def read_back(cls, state: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """From a model's state and arrays."""
        return cls(state["n_features"], arrays["columns"] if state["sparse"] else None)

    @classmethod
    def checked(
        cls, state: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], *, is_open: bool, intercept: bool
    ) -> Self:
        """Raise ValueError unless columns and width fit each other; returns the width, without columns."""
        bases = [array for name, array in arrays.items() if name.rpartition(".")[2] == "base"]
        slots = max((base.shape[-1] for base in bases if base.ndim), default=0)
        width = state["n_features"]
        if width is not None:
            as_integer(width, "n_features", 1, MOST_COLUMNS + 1)
        if (width is None) != (is_open and state["sparse"]):
            raise ValueError(f"its rows have {width} columns, which does not go with open_columns={is_open}")
        if not state["sparse"]:
            if "columns" in arrays:
                raise ValueError("array 'columns' does not belong to a model of dense rows")
            if slots != cast(int, width) + intercept:
                raise ValueError(f"array 'base' has {slots} columns, its rows {width}")
            return cls(width)
        size = arrays["columns"].size if "columns" in arrays else 0
        columns = checks.array_of(arrays, "columns", (size,), checks.INT64)
        if columns.size != slots:
            raise ValueError(f"array 'columns' has {columns.size} entries for {slots} slots")
        if (columns == INTERCEPT).any() and not intercept:
            raise ValueError("array 'columns' has an intercept, its parameters have none")
        own, most = columns[columns != INTERCEPT], MOST_COLUMNS if width is None else width
        if own.size and not 0 <= own.min() <= own.max() < most:
            raise ValueError(f"array 'columns' must lie in [0, {most}), got {own.min()} and {own.max()}")
        if len(np.unique(columns)) < columns.size:
            raise ValueError("array 'columns' must not hold a column twice")
        return cls(width)


def products(rows: Csr, coef: Floats) -> Floats:
    """x'w of rows in slots (n,), or (n, k) for k vectors w: slots beyond them count nothing."""
    if coef.ndim == 1:
        return row_scores(*rows, coef)
    return np.stack([row_scores(*rows, w) for w in coef], axis=1)
