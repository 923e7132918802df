"""Tables in memory, of any library that hands them over by Arrow's C interface: polars, pyarrow and others."""

import sys
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.io.arrow import Batch, Stream, fields
from fastsketch.data.files._input import SourceError
from fastsketch.data.sources._foreign import damaged
from fastsketch.data.sources._formats import Options, known_as
from fastsketch.data.sources._parquet import first_width, index_columns
from fastsketch.data.sources._pieces import OfBatch, Piece, Values, believed, chunks_of, values_of
from fastsketch.data.sources._source import Source
from fastsketch.data.sources._table_columns import Chosen, Field, choose, named


def open_table(x: Any, options: Options) -> Source:
    """Return the columns of numbers of an object with ``__arrow_c_stream__``."""
    if known_as("pyarrow", "RecordBatch")(x):
        x = sys.modules["pyarrow"].Table.from_batches([x])
    name = f"the {type(x).__name__}"
    if hasattr(x, "slice") and hasattr(x, "__len__"):
        return TableSource(x, name, options)
    return StreamSource(x, name, options)


_is_of_pyarrow = known_as("pyarrow", "Table", "RecordBatch", "RecordBatchReader")


def _index_of(x: Any, fields: list[Field]) -> list[str]:
    return index_columns(getattr(getattr(x, "schema", None), "metadata", None), fields)


class _Checked:
    """A stream of pyarrow's batches, whose counts and offsets are held against buffers: only pyarrow knows how long."""

    def __init__(self, x: Any) -> None:
        self._schema: Any = x.schema
        self._batches: Iterator[Any] = iter(x.to_batches() if hasattr(x, "to_batches") else x)

    def fields(self) -> list[Field]:
        """See Stream."""
        return fields(self._schema.__arrow_c_schema__())

    def next(self) -> Batch | None:
        """See Stream."""
        batch = next(self._batches, None)
        return None if batch is None else believed(batch)


def _stream(x: Any, name: str) -> Stream | _Checked:
    with damaged(name, "table"):
        stream = _Checked(x) if _is_of_pyarrow(x) else Stream(x.__arrow_c_stream__())
        stream.fields()
        return stream


def _pieces(stream: Stream | _Checked, chosen: Chosen, name: str) -> Iterator[Piece]:
    while True:
        with damaged(name, "table"):
            batch = stream.next()
        if batch is None:
            return
        yield OfBatch(batch, chosen)


class TableSource(Source):
    """Some columns of a table in memory, which can be sliced by rows and streamed again."""

    waits = False

    def __init__(self, x: Any, name: str, options: Options) -> None:
        self._table: Any = x
        self.name = name
        stream = _stream(x, name)
        fields = stream.fields()
        beside = None if options.beside is None else named(fields, options.beside, name, "beside")
        self._chosen = choose(
            fields,
            options.columns,
            of=name,
            numeric=options.numeric,
            left_out=[*_index_of(x, fields), *([] if beside is None else [beside])],
            dtype=options.dtype,
            width=lambda k: _first_width(_stream(x, name), k, name),
        )
        self.taken, self.beside, self._beside = options.columns, options.beside, beside
        self.dtype = self._chosen.dtype
        self.n_features, self.feature_names = self._chosen.n_features, self._chosen.feature_names
        self.n_rows = self.size = len(x)

    def only(self, columns: Sequence[int]) -> Source | None:
        """See Source."""
        chosen = self._chosen.only(columns)
        if chosen is None:
            return None
        return self.varied(_chosen=chosen, n_features=chosen.n_features, feature_names=chosen.feature_names)

    def between(self, start: int, stop: int) -> Source:
        """See Source."""
        n = stop - start
        return self.varied(_table=self._table.slice(start, n), first_row=self.first_row + start, n_rows=n, size=n)

    def read(self, start_row: int = 0) -> Iterator[tuple[NDArray[Any], int]]:
        """See Source."""
        if start_row >= self.size:
            return
        n = self.size - start_row
        stream = _stream(self._table.slice(start_row, n) if start_row else self._table, self.name)
        for rows in chunks_of(
            _pieces(stream, self._chosen, self.name),
            skip=0,
            n_rows=n,
            n_features=self.n_features,
            dtype=self._chosen.dtype,
            name=self.name,
            first=self.first_row + start_row,
        ):
            start_row += len(rows)
            yield rows, start_row

    def read_beside(self, start_row: int = 0) -> Iterator[tuple[NDArray[Any], NDArray[Any], int]]:
        """See Source."""
        column: Any = self._table.slice(start_row, self.size - start_row)[self._beside]
        with damaged(self.name, "table"):
            values = Values(iter([_values(column)]), 0)
        for rows, position in self.read(start_row):
            yield rows, values.next(len(rows)), position

    def identity(self) -> dict[str, Any]:
        """See Source: the shape, names, and digests of the first and the last rows."""
        from fastsketch.data.sources._identity import of_rows

        few = min(16, self.size)
        ends = [self.between(0, few), self.between(self.size - few, self.size)]
        rows = [np.array(rows) for end in ends for rows, _ in end.read()]
        return {
            "format": "table",
            "shape": [self.size, self.n_features],
            "dtype": str(self.dtype),
            "columns": list(self._chosen.names),
            "rows": [self.first_row, self.size],
            "digest": of_rows(*rows),
        }


def _values(column: Any) -> NDArray[Any]:
    if hasattr(column, "to_pylist"):
        return values_of(column)
    values = cast("NDArray[Any]", column.to_numpy())
    if values.dtype.kind in "biuf" and not column.is_null().any():
        return values
    out = np.empty(len(column), object)
    out[:] = column.to_list()
    return out


def _first_width(stream: Stream | _Checked, column: int, name: str) -> int:
    with damaged(name, "table"):
        while (batch := stream.next()) is not None:
            if batch.n_rows:
                return first_width(batch, column)
    return 1


class StreamSource(Source):
    """Some columns of a stream of batches, which comes once."""

    repeatable = waits = False
    n_rows: int | None = None

    def __init__(self, x: Any, name: str, options: Options) -> None:
        self.name = name
        if options.beside is not None:
            raise ValueError(f"beside: {name} comes once; make a table of it first")
        self._stream: Stream | _Checked | None = _stream(x, name)
        self._read: list[Batch] = []
        fields = self._stream.fields()
        self._chosen = choose(
            fields,
            options.columns,
            of=name,
            numeric=options.numeric,
            left_out=_index_of(x, fields),
            dtype=options.dtype,
            width=self._width,
        )
        # the batches that were read for the length of a list, with the columns as they are now known
        self._first: list[Piece] = [OfBatch(batch, self._chosen) for batch in self._read]
        self._read = []
        self.taken = options.columns
        self.dtype = self._chosen.dtype
        self.n_features, self.feature_names = self._chosen.n_features, self._chosen.feature_names

    def _width(self, column: int) -> int:
        assert self._stream is not None
        with damaged(self.name, "table"):
            if not self._read and (batch := self._stream.next()) is not None:
                self._read.append(batch)
            return first_width(self._read[0], column) if self._read else 1

    def read(self, start_row: int = 0) -> Iterator[tuple[NDArray[Any], int]]:
        """See Source."""
        if self._stream is None:
            raise SourceError(f"{self.name} has been read: it gives its rows once")
        stream, self._stream = self._stream, None
        pieces, self._first = self._first, []
        for rows in chunks_of(
            _after(pieces, _pieces(stream, self._chosen, self.name)),
            skip=start_row,
            n_rows=None,
            n_features=self.n_features,
            dtype=self._chosen.dtype,
            name=self.name,
            first=start_row,
        ):
            yield rows, 0

    def identity(self) -> dict[str, Any]:
        """See Source: SourceError."""
        raise SourceError(f"{self.name} gives its rows once")


def _after(first: list[Piece], rest: Iterator[Piece]) -> Iterator[Piece]:
    yield from first
    yield from rest
