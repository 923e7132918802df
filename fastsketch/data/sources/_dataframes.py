"""Tables in memory, of any library that hands them over by Arrow's C interface: polars, pyarrow and others."""

import sys
from collections.abc import Iterator
from itertools import chain
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.io.arrow import Batch, Stream, fields
from fastsketch.data.sources._foreign import damaged
from fastsketch.data.sources._formats import Options, known_as
from fastsketch.data.sources._identity import of_ends
from fastsketch.data.sources._pieces import ColumnSource, OfBatch, Piece, believed, first_width, values_of
from fastsketch.data.sources._source import Source
from fastsketch.data.sources._table_columns import Field


def open_table(x: Any, options: Options) -> Source:
    """Return the columns of numbers of an object with ``__arrow_c_stream__``."""
    if known_as("pyarrow", "RecordBatch")(x):
        x = sys.modules["pyarrow"].Table.from_batches([x])
    name = f"the {type(x).__name__}"
    if hasattr(x, "slice") and hasattr(x, "__len__"):
        return TableSource(x, name, options)
    return StreamSource(x, name, options)


_is_of_pyarrow = known_as("pyarrow", "Table", "RecordBatch", "RecordBatchReader")


def _streamed(x: Any, name: str) -> tuple[list[Field], Iterator[Batch]]:
    """Return the columns of a table, and its batches; those of pyarrow are held against the length of their buffers."""
    with damaged(name, "table"):
        if _is_of_pyarrow(x):
            batches = x.to_batches() if hasattr(x, "to_batches") else x
            return fields(x.schema.__arrow_c_schema__()), map(believed, batches)
        stream = Stream(x.__arrow_c_stream__())
        return stream.fields(), iter(stream.next, None)


def _metadata(x: Any) -> Any:
    return getattr(getattr(x, "schema", None), "metadata", None)


class TableSource(ColumnSource):
    """Some columns of a table in memory, which can be sliced by rows and streamed again."""

    waits = False

    def __init__(self, x: Any, name: str, options: Options) -> None:
        self._table, self.name = x, name

        def width(k: int) -> int:
            with damaged(name, self.what):
                return first_width(_streamed(x, name)[1], k)

        self._describe(_streamed(x, name)[0], options, _metadata(x), width)
        self.n_rows = self.size = len(x)

    def between(self, start: int, stop: int) -> Source:
        """See Source."""
        n = stop - start
        return self.varied(_table=self._table.slice(start, n), first_row=self.first_row + start, n_rows=n, size=n)

    def _group_of(self, row: int) -> tuple[int, int]:
        return row - self.first_row, 0  # each row may begin a slice

    def _pieces(self, group: int) -> Iterator[Piece]:
        rows = self._table.slice(group, self.size - group) if group else self._table
        for batch in _streamed(rows, self.name)[1]:
            yield OfBatch(batch, self._chosen)

    def _values(self, group: int) -> Iterator[NDArray[Any]]:
        column: Any = self._table.slice(group, self.size - group)[self._chosen.beside_name]
        if hasattr(column, "to_pylist"):
            yield values_of(column)
            return
        values = cast("NDArray[Any]", column.to_numpy())
        if values.dtype.kind not in "biuf" or column.is_null().any():
            values = np.empty(len(column), object)
            values[:] = column.to_list()
        yield values

    def identity(self) -> dict[str, Any]:
        """See Source: the shape, names, and digests of the first and the last rows."""
        return {**super().identity(), **of_ends(self, "table")}


class StreamSource(ColumnSource):
    """Some columns of a stream of batches, which comes once."""

    repeatable = waits = False
    n_rows: int | None = None

    def __init__(self, x: Any, name: str, options: Options) -> None:
        self.name = name
        if options.beside is not None:
            raise ValueError(f"beside: {name} comes once; make a table of it first")
        columns, self._batches = _streamed(x, name)
        self._describe(columns, options, _metadata(x), self._width)

    def _width(self, column: int) -> int:
        with damaged(self.name, self.what):
            first = next(self._batches, None)
            self._batches = chain([] if first is None else [first], self._batches)
            return first_width([] if first is None else [first], column)

    def _pieces(self, group: int) -> Iterator[Piece]:
        for batch in self._batches:
            yield OfBatch(batch, self._chosen)
