"""Rows with the keys of their groups, from a source or an array."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.validation import as_array, as_integer
from fastsketch.data.sources import asked_as, open_rows
from fastsketch.sketching._groups._keys import keys_at

# (rows, their keys, the number of the first row, position after them)
Keyed = Iterator[tuple[Any, list[Any], int, int]]


class KeyedRows:
    """Rows, and beside each the key of its group, from a column that the rows then lack, or from an array."""

    def __init__(self, x: Any, by: Any, *, columns: Any, options: dict[str, Any]) -> None:
        if by is None:
            raise TypeError("by must be the name or position of a column, or the keys of the rows, got None")
        self._by: NDArray[Any] | None = None
        if isinstance(by, str | int | np.integer) and not isinstance(by, bool):
            column = by if isinstance(by, str) else as_integer(by, "by", -(1 << 62))
            with asked_as("by"):
                self.source = open_rows(x, columns=columns, beside=column, **options)
            return
        self.source, self._by = open_rows(x, columns=columns, **options), as_array(by, "by")
        if self._by.dtype.kind == "U" and isinstance(by, list | tuple):
            self._by = np.asarray(by, object)  # NumPy makes strings of the numbers among strings, and drops final NULs
        if self._by.ndim != 1:
            raise ValueError(f"by must be a column, or the keys of the rows (n,), got shape {self._by.shape}")
        if self.source.n_rows is not None and len(self._by) != self.source.n_rows:
            raise ValueError(f"by has {len(self._by)} keys, {self.source.name} has {self.source.n_rows} rows")

    def chunks(self) -> Keyed:
        """Yield chunks of rows; they hold until the next is asked for."""
        first = 0
        for rows, values, position in self.source.chunks_beside() if self._by is None else self._beside(self._by):
            yield rows, keys_at(values, self.source, first), first, position
            first += rows.shape[0]

    def _beside(self, keys: NDArray[Any]) -> Iterator[tuple[Any, NDArray[Any], int]]:
        first = 0
        for rows, position in self.source.chunks():
            stop = first + rows.shape[0]
            if stop > len(keys):
                raise ValueError(f"by has {len(keys)} keys, {self.source.name} has more rows")
            yield rows, keys[first:stop], position
            first = stop
        if first < len(keys):
            raise ValueError(f"by has {len(keys)} keys, {self.source.name} has {first} rows")
