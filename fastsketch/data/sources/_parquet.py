"""Parquet files, by groups of rows and of columns.

A file is decoded a few columns at a time, which stay in the caches until they have become rows: that is several times
as fast as all columns side by side, and takes a fraction of the memory. Where a group of rows is too large to be held
as rows, all its columns are decoded side by side, a chunk of rows at a time.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.io.arrow import fields
from fastsketch.data.files._input import SourceError
from fastsketch.data.sources._ahead import Spaces
from fastsketch.data.sources._file_sources import FileSource
from fastsketch.data.sources._foreign import damaged, needs
from fastsketch.data.sources._formats import Options
from fastsketch.data.sources._pieces import (
    ColumnSource,
    OfArray,
    OfBatch,
    Piece,
    Ragged,
    SideBySide,
    believed,
    first_width,
    too_short,
    values_of,
)
from fastsketch.data.sources._source import Source, rows_of_chunk, rows_of_part
from fastsketch.data.sources._table_columns import Chosen

# Rows that are held at a time, in bytes of rows: a group with more is read a chunk at a time.
HELD_BYTES = 112 << 20
# Bytes of decoded columns that are made at a time: what they are made from and what they become fits in the caches.
DECODED_BYTES = 2 << 20
# Bytes that are read ahead of all columns of a group of rows that is not held, together.
BUFFERED_BYTES = 16 << 20


class ParquetSource(ColumnSource, FileSource):
    """Some columns of a Parquet file."""

    what = "Parquet file"

    def __init__(self, path: Path, options: Options) -> None:
        super().__init__(path)
        with damaged(path, self.what), self._opened() as file:
            schema, about = file.schema_arrow, file.metadata
            groups = [about.row_group(k).num_rows for k in range(about.num_row_groups)]
            columns = fields(schema.__arrow_c_schema__())

        def width(k: int) -> int:
            with damaged(path, self.what), self._opened() as file:
                batches = file.iter_batches(16, columns=[columns[k][0]], use_threads=False)
                return first_width(map(believed, batches), 0)

        self._ends: NDArray[np.int64] = np.cumsum(groups, dtype=np.int64)
        self.n_rows = self.size = sum(groups)
        self._describe(columns, options, schema.metadata, width)
        counts = Counter(name for name, *_ in columns)
        several = next((name for name in self._chosen.names if counts[name] > 1), None)
        if several is not None:
            raise SourceError(f"{path} has {counts[several]} columns {several!r}: rename them")

    def _opened(self, **options: Any) -> Any:
        """Return the file, opened by pyarrow."""
        return needs("pyarrow", "Parquet files", "pyarrow.parquet").ParquetFile(self.path, pre_buffer=False, **options)

    def parts(self, n_bytes: int, *, multiple: int = 1) -> list[Source]:
        """See Source: cut at the ends of groups of rows, or so few rows before as `multiple` makes necessary."""
        step = rows_of_part(self, n_bytes, multiple)
        cuts = [0]
        for end in (self._ends - self.first_row).tolist():
            place = min(end, self.size) // multiple * multiple
            if place - cuts[-1] >= step and place < self.size:
                cuts.append(place)
        return [self.between(start, stop) for start, stop in zip(cuts, [*cuts[1:], self.size], strict=True)]

    def _group_of(self, row: int) -> tuple[int, int]:
        group = int(np.searchsorted(self._ends, row, side="right"))
        return group, row - (int(self._ends[group - 1]) if group else 0)

    def _values(self, group: int) -> Iterator[NDArray[Any]]:
        groups, name = list(range(group, len(self._ends))), self._chosen.beside_name
        with self._opened() as file:
            for batch in file.iter_batches(1 << 16, row_groups=groups, columns=[name], use_threads=False):
                yield values_of(batch.column(name))

    def _pieces(self, group: int) -> Iterator[Piece]:
        before = int(self._ends[group - 1]) if group else 0
        space = Spaces(1)
        chunk = rows_of_chunk(self)
        with self._opened() as file:
            while group < len(self._ends) and before < self._stop:
                together = [group]  # small groups of rows, as many as make a chunk
                while together[-1] + 1 < len(self._ends) and int(self._ends[together[-1] + 1]) - before <= chunk:
                    together.append(together[-1] + 1)
                n = int(self._ends[together[-1]]) - before
                if n:
                    yield from self._of_groups(file, together, before, n, space)
                before, group = before + n, together[-1] + 1

    def _of_groups(self, file: Any, groups: list[int], before: int, n: int, space: Spaces) -> Iterator[Piece]:
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
        held = space.next((n * chosen.n_features,), chosen.dtype)
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
        columns = range(len(self._chosen.columns))
        buffer = max(4096, min(1 << 20, BUFFERED_BYTES // len(columns)))
        with self._opened(buffer_size=buffer) as file:
            yield from self._some_columns(file, groups, columns, min(n, rows_of_chunk(self)))
