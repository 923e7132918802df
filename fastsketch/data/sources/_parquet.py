"""Parquet files, by groups of rows and of columns.

A file is decoded a few columns at a time, which stay in the caches until they have become rows: that is several times
as fast as all columns side by side, and takes a fraction of the memory. Where a group of rows is too large to be held
as rows, all its columns are decoded side by side, a chunk of rows at a time.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.io.arrow import Batch, fields
from fastsketch.data.files._input import SourceError
from fastsketch.data.sources._foreign import damaged, needs
from fastsketch.data.sources._formats import Options
from fastsketch.data.sources._pieces import (
    OfArray,
    OfBatch,
    Piece,
    Ragged,
    SideBySide,
    Values,
    believed,
    chunks_of,
    rows_of_chunk,
    too_short,
    values_of,
)
from fastsketch.data.sources._source import Source, rows_of_part
from fastsketch.data.sources._table_columns import Chosen, Field, TableFile, choose, named

# Rows that are held at a time, in bytes of rows: a group with more is read a chunk at a time.
HELD_BYTES = 112 << 20
# Bytes of decoded columns that are made at a time: what they are made from and what they become fits in the caches.
DECODED_BYTES = 2 << 20
# Bytes that are read ahead of all columns of a group of rows that is not held, together.
BUFFERED_BYTES = 16 << 20


def open_parquet(path: Path, options: Options) -> Source:
    """Return the columns of numbers in a Parquet file."""
    pyarrow = needs("pyarrow", "Parquet files", "pyarrow.parquet")
    with damaged(path, "Parquet file"), pyarrow.ParquetFile(path, pre_buffer=False) as file:
        schema, about = file.schema_arrow, file.metadata
        groups = tuple(about.row_group(k).num_rows for k in range(about.num_row_groups))
        found = fields(schema.__arrow_c_schema__())
        beside = None if options.beside is None else named(found, options.beside, str(path), "beside")
        chosen = choose(
            found,
            options.columns,
            of=str(path),
            numeric=options.numeric,
            left_out=[*index_columns(schema.metadata, found), *([] if beside is None else [beside])],
            dtype=options.dtype,
            width=lambda k: _width(file, found[k][0], groups),
        )
        counts = Counter(name for name, *_ in found)
        several = next((name for name in chosen.names if counts[name] > 1), None)
        if several is not None:
            raise SourceError(f"{path} has {counts[several]} columns {several!r}: rename them")
        return ParquetSource(path, groups, chosen, options, beside)


def index_columns(metadata: dict[bytes, bytes] | None, found: Sequence[Field]) -> list[str]:
    """Return columns that are the index of a pandas table, by the note that pandas leaves in what it writes."""
    try:
        noted = json.loads((metadata or {}).get(b"pandas", b"{}")).get("index_columns", [])
    except (ValueError, AttributeError):
        noted = []
    return [name for name, *_ in found if name in noted or re.fullmatch(r"__index_level_\d+__", name)]


def _width(file: Any, name: str, groups: Sequence[int]) -> int:
    """Return the length of the first list in a column."""
    for k, rows in enumerate(groups):
        if rows:
            batch = next(file.iter_batches(16, row_groups=[k], columns=[name], use_threads=False))
            return first_width(believed(batch), 0)
    return 1


def first_width(batch: Batch, column: int) -> int:
    """Return the length of the first list in a column that is one."""
    for row in range(batch.n_rows):
        if not batch.is_null(column, row):
            return batch.width(column, row)
    return 1


class ParquetSource(TableFile):
    """Some columns of a Parquet file."""

    def __init__(
        self, path: Path, groups: tuple[int, ...], chosen: Chosen, options: Options, beside: str | None
    ) -> None:
        super().__init__(path)
        self._ends: NDArray[np.int64] = np.cumsum(groups, dtype=np.int64)
        self.taken, self.beside, self._beside = options.columns, options.beside, beside
        self.size = int(self._ends[-1]) if groups else 0
        self.n_rows = self._length = self.size
        self._take(chosen)

    def parts(self, n_bytes: int, *, multiple: int = 1) -> list[Source]:
        """See Source: cut at the ends of groups of rows, or so few rows before as `multiple` makes necessary."""
        step = rows_of_part(self, n_bytes, multiple)
        cuts = [0]
        for end in (self._ends - self.first_row).tolist():
            place = min(end, self.size) // multiple * multiple
            if place - cuts[-1] >= step and place < self.size:
                cuts.append(place)
        return [self.between(start, stop) for start, stop in zip(cuts, [*cuts[1:], self.size], strict=True)]

    def identity(self) -> dict[str, Any]:
        """See Source."""
        found = {**super().identity(), "columns": list(self._chosen.columns)}
        return found if self.size == self._length else {**found, "rows": [self.first_row, self.size]}

    def read(self, start_row: int = 0) -> Iterator[tuple[NDArray[Any], int]]:
        """See Source."""
        place, n = self.first_row + start_row, self.size - start_row
        if n <= 0:
            return
        self.check_unchanged()
        pyarrow = needs("pyarrow", "Parquet files", "pyarrow.parquet")
        group = int(np.searchsorted(self._ends, place, side="right"))
        skip = place - (int(self._ends[group - 1]) if group else 0)
        with (
            damaged(self.path, "Parquet file", self.check_unchanged),
            pyarrow.ParquetFile(self.path, pre_buffer=False) as file,
        ):
            pieces = self._pieces(file, group, place + n)
            for rows in chunks_of(
                pieces,
                skip=skip,
                n_rows=n,
                n_features=self.n_features,
                dtype=self._chosen.dtype,
                name=self.name,
                first=place,
            ):
                start_row += len(rows)
                yield rows, start_row
        self.check_unchanged()

    def read_beside(self, start_row: int = 0) -> Iterator[tuple[NDArray[Any], NDArray[Any], int]]:
        """See Source: values of the type that the column has, strings as objects."""
        pyarrow = needs("pyarrow", "Parquet files", "pyarrow.parquet")
        with (
            damaged(self.path, "Parquet file", self.check_unchanged),
            pyarrow.ParquetFile(self.path, pre_buffer=False) as file,
        ):
            first = self.first_row + start_row
            group = int(np.searchsorted(self._ends, first, side="right"))
            skip = first - (int(self._ends[group - 1]) if group else 0)
            groups = list(range(group, len(self._ends)))
            batches = file.iter_batches(1 << 16, row_groups=groups, columns=[self._beside], use_threads=False)
            values = Values((values_of(batch.column(self._beside)) for batch in batches), skip)
            for rows, position in self.read(start_row):
                yield rows, values.next(len(rows)), position

    def _pieces(self, file: Any, group: int, stop: int) -> Iterator[Piece]:
        """Yield the rows from a group of rows on, until row `stop`."""
        before = int(self._ends[group - 1]) if group else 0
        space = _Space(self._chosen.dtype)
        chunk = rows_of_chunk(self.n_features, self._chosen.dtype)
        while group < len(self._ends) and before < stop:
            together = [group]  # small groups of rows, as many as make a chunk
            while together[-1] + 1 < len(self._ends) and int(self._ends[together[-1] + 1]) - before <= chunk:
                together.append(together[-1] + 1)
            n = int(self._ends[together[-1]]) - before
            if n:
                yield from self._of_groups(file, together, before, n, space)
            before, group = before + n, together[-1] + 1

    def _of_groups(self, file: Any, groups: list[int], before: int, n: int, space: "_Space") -> Iterator[Piece]:
        """Yield the n rows of some groups; `space` is memory for them, and is used again."""
        chosen = self._chosen
        n_bytes = n * chosen.n_features * chosen.dtype.itemsize
        if len(chosen.columns) == 1 or n_bytes > HELD_BYTES:
            yield from self._side_by_side(groups, n)
            return
        at_a_time = max(1, DECODED_BYTES * len(chosen.columns) // n_bytes)
        if at_a_time >= len(chosen.columns):
            yield from self._some_columns(file, groups, range(len(chosen.columns)), n)
            return
        held = space.of(n * chosen.n_features)
        pieces: list[tuple[slice, OfArray]] = []
        places = [*chosen.places().tolist(), chosen.n_features]
        for first in range(0, len(chosen.columns), at_a_time):
            some = range(first, min(first + at_a_time, len(chosen.columns)))
            columns = slice(places[some[0]], places[some[-1] + 1])
            rows = held[n * columns.start : n * columns.stop].reshape(n, -1)
            done = 0
            for piece in self._some_columns(file, groups, some, n):
                try:
                    piece.put(0, rows[done : done + piece.n_rows])
                except Ragged as error:
                    raise error.at(self.name, before + done + error.row) from None
                done += piece.n_rows
            if done != n:
                raise too_short(self.name, before + done, before + n)
            pieces.append((columns, OfArray(rows)))
        yield SideBySide(pieces, n)

    def _some_columns(self, file: Any, groups: list[int], some: Sequence[int], batch_rows: int) -> Iterator[OfBatch]:
        """Yield the rows of some groups in some of the chosen columns."""
        chosen = self._chosen
        names = [chosen.names[k] for k in some]
        for batch in file.iter_batches(batch_rows, row_groups=groups, columns=names, use_threads=False):
            # columns come in the order of the file, and by a name of several parts others may come with them
            at = {name: k for k, name in enumerate(batch.schema.names)}
            columns = tuple(at[name] for name in names)
            widths = tuple(chosen.widths[k] for k in some)
            yield OfBatch(believed(batch), Chosen(columns, tuple(names), widths, chosen.dtype))

    def _side_by_side(self, groups: list[int], n: int) -> Iterator[Piece]:
        """Yield all columns together, as many rows at a time as make a chunk."""
        pyarrow = needs("pyarrow", "Parquet files", "pyarrow.parquet")
        chosen = self._chosen
        step = min(n, rows_of_chunk(chosen.n_features, chosen.dtype))
        buffer = max(4096, min(1 << 20, BUFFERED_BYTES // len(chosen.columns)))
        with pyarrow.ParquetFile(self.path, pre_buffer=False, buffer_size=buffer) as file:
            yield from self._some_columns(file, groups, range(len(chosen.columns)), step)


class _Space:
    """Memory for the rows of one group after another."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._memory: NDArray[Any] = np.empty(0, dtype)

    def of(self, size: int) -> NDArray[Any]:
        """Return room for so many entries, uninitialised."""
        if self._memory.size < size:
            self._memory = np.empty(0, self._memory.dtype)  # before there are two
            self._memory = np.empty(size, self._memory.dtype)
        return self._memory[:size]
