"""Rows with the keys of their groups, from a source or an array."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._core.validation import as_integer
from fastsketch.data.sources import Source, open_rows
from fastsketch.sketching._groups._keys import KeyError_, as_keys

# (rows, their keys, the number of the first row, position after them)
Keyed = Iterator[tuple[Any, list[Any], int, int]]
Column = str | int


class KeyedRows:
    """Rows, and beside each the key of its group."""

    source: Source

    def chunks(self) -> Keyed:
        """Yield chunks of rows; they hold until the next is asked for."""
        raise NotImplementedError


class ByColumn(KeyedRows):
    """Keys are a column of the source, which its rows then lack."""

    def __init__(self, x: Any, by: Column, *, columns: Any, options: dict[str, Any]) -> None:
        try:
            self.source = open_rows(x, columns=columns, beside=by, **options)
        except ValueError as error:
            if not str(error).startswith("beside: "):
                raise
            raise type(error)(str(error).replace("beside", "by", 1)) from None

    def chunks(self) -> Keyed:
        first = 0
        for rows, values, position in self.source.chunks_beside():
            yield rows, keys_at(values, self.source, first), first, position
            first += rows.shape[0]


class ByArray(KeyedRows):
    """Keys are an array of their own."""

    def __init__(self, x: Any, by: ArrayLike, *, columns: Any, options: dict[str, Any]) -> None:
        self.source = open_rows(x, columns=columns, **options)
        self._by: NDArray[Any] = np.asarray(by)
        if self._by.ndim != 1:
            raise ValueError(f"by must be a column, or the keys of the rows (n,), got shape {self._by.shape}")
        if self.source.n_rows is not None and len(self._by) != self.source.n_rows:
            raise ValueError(f"by has {len(self._by)} keys, {self.source.name} has {self.source.n_rows} rows")

    def chunks(self) -> Keyed:
        first = 0
        for rows, position in self.source.chunks():
            stop = first + rows.shape[0]
            if stop > len(self._by):
                raise ValueError(f"by has {len(self._by)} keys, {self.source.name} has more rows")
            yield rows, keys_at(self._by[first:stop], self.source, first), first, position
            first = stop
        if first < len(self._by):
            raise ValueError(f"by has {len(self._by)} keys, {self.source.name} has {first} rows")


def keyed(x: Any, by: Any, *, columns: Any, options: dict[str, Any]) -> KeyedRows:
    """Return rows of anything that has rows, by a column or by keys of their own."""
    if isinstance(by, str):
        return ByColumn(x, by, columns=columns, options=options)
    if isinstance(by, int | np.integer) and not isinstance(by, bool):
        return ByColumn(x, as_integer(by, "by", -(1 << 62)), columns=columns, options=options)
    if by is None:
        raise TypeError("by must be the name or position of a column, or the keys of the rows, got None")
    return ByArray(x, by, columns=columns, options=options)


def keys_at(values: ArrayLike, source: Source, first: int) -> list[Any]:
    """Return the keys of a chunk; an error names the place of the row."""
    try:
        return as_keys(values)
    except KeyError_ as error:
        raise ValueError(f"{source.where(first + error.row)}: the row {error.why}") from None
