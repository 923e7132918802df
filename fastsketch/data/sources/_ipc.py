"""Arrow IPC: the file format (Feather), batch after batch, and the stream format, in order."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.io.arrow import fields
from fastsketch.data.files._input import SourceError
from fastsketch.data.sources._foreign import damaged, needs
from fastsketch.data.sources._formats import Options
from fastsketch.data.sources._parquet import first_width, index_columns
from fastsketch.data.sources._pieces import OfBatch, Piece, Values, believed, chunks_of, values_of
from fastsketch.data.sources._source import Source, rows_of_part
from fastsketch.data.sources._table_columns import Chosen, TableFile, choose, named

WHAT = "Arrow file"
# A batch with more bytes of rows is not read whole: it is mapped, for so many at a time, or its pages would pile up.
HELD_BYTES = 64 << 20


def open_ipc(path: Path, options: Options) -> Source:
    """Return the columns of numbers in an Arrow file, or in a file with a stream of Arrow batches."""
    with path.open("rb") as file:
        start = file.read(8)
    if start[:4] == b"FEA1":
        raise SourceError(f"{path} is of Feather's first version: write it again as Feather 2 or Parquet")
    is_file = start[:6] == b"ARROW1"
    with damaged(path, WHAT), closing(_IpcReader(path, is_file)) as reader:
        found = fields(reader.schema.__arrow_c_schema__())
        beside = None if options.beside is None else named(found, options.beside, str(path), "beside")
        chosen = choose(
            found,
            options.columns,
            of=str(path),
            numeric=options.numeric,
            left_out=[*index_columns(reader.schema.metadata, found), *([] if beside is None else [beside])],
            dtype=options.dtype,
            width=lambda k: _first_width(path, is_file, k),
        )
    rows: tuple[int, ...] | None = None
    if is_file:
        with damaged(path, WHAT), closing(_IpcReader(path, is_file, chosen.columns[:1])) as reader:
            rows = tuple(batch.num_rows for batch in reader.batches(0))
    return IpcSource(
        path, rows, chosen, options, None if beside is None else [field[0] for field in found].index(beside)
    )


def _first_width(path: Path, is_file: bool, column: int) -> int:
    with closing(_IpcReader(path, is_file, [column])) as reader:
        batch = next((batch for batch in reader.batches(0) if batch.num_rows), None)
        return 1 if batch is None else first_width(believed(batch), 0)


class _IpcReader:
    """Some columns (None: all) of a file, in their order there."""

    def __init__(
        self, path: Path, is_file: bool, columns: Sequence[int] | None = None, *, mapped: bool = False
    ) -> None:
        pyarrow = needs("pyarrow", "Arrow files")
        ipc = needs("pyarrow", "Arrow files", "pyarrow.ipc")
        included = None if columns is None else sorted(columns)
        options = ipc.IpcReadOptions(included_fields=included, use_threads=False)
        self._file: Any = pyarrow.memory_map(str(path)) if mapped else pyarrow.OSFile(str(path))
        try:
            self._is_file = is_file
            self._reader: Any = (ipc.open_file if is_file else ipc.open_stream)(self._file, options=options)
        except BaseException:
            self._file.close()
            raise
        self.schema: Any = self._reader.schema

    def batches(self, first: int) -> Iterator[Any]:
        """Yield the batches from a number on; a stream begins where it is."""
        if self._is_file:
            for k in range(first, self._reader.num_record_batches):
                yield self._reader.get_batch(k)
        else:
            yield from self._reader

    def batch(self, k: int) -> Any:
        """Return batch k of a file."""
        return self._reader.get_batch(k)

    def close(self) -> None:
        """Return the file; mapped batches are gone then."""
        self._file.close()


class IpcSource(TableFile):
    """Some columns of an Arrow file; of a stream of batches `rows` is None."""

    def __init__(
        self, path: Path, rows: tuple[int, ...] | None, chosen: Chosen, options: Options, beside: int | None
    ) -> None:
        super().__init__(path)
        self.taken, self.beside, self._beside = options.columns, options.beside, beside
        self._ends = None if rows is None else np.cumsum(rows, dtype=np.int64)
        self.n_rows: int | None = None if rows is None else sum(rows)
        self._length = self.n_rows
        self.size = self.n_rows or 0
        self._take(chosen)

    def parts(self, n_bytes: int, *, multiple: int = 1) -> list[Source]:
        """See Source: batches are read by rows, so that any place will do."""
        if self.n_rows is None:
            return [self]
        step = rows_of_part(self, n_bytes, multiple)
        cuts = range(0, max(1, self.n_rows), step)
        return [self.between(start, min(start + step, self.n_rows)) for start in cuts]

    def identity(self) -> dict[str, Any]:
        """See Source."""
        found = {**super().identity(), "columns": list(self._chosen.columns)}
        return found if self.n_rows == self._length else {**found, "rows": [self.first_row, self.n_rows]}

    def read(self, start_row: int = 0) -> Iterator[tuple[NDArray[Any], int]]:
        """See Source."""
        place = self.first_row + start_row
        n = None if self.n_rows is None else self.n_rows - start_row
        if n is not None and n <= 0:
            return
        self.check_unchanged()
        first, skip = self._batch_of(place)
        with damaged(self.path, WHAT, self.check_unchanged):
            for rows in chunks_of(
                self._pieces(first),
                skip=skip,
                n_rows=n,
                n_features=self.n_features,
                dtype=self._chosen.dtype,
                name=self.name,
                first=place,
            ):
                start_row += len(rows)
                yield rows, start_row if self.size else 0
        self.check_unchanged()

    def _batch_of(self, row: int) -> tuple[int, int]:
        """Return (batch, rows of it before) of a row."""
        if self._ends is None:
            return 0, row
        batch = int(np.searchsorted(self._ends, row, side="right"))
        return batch, row - (int(self._ends[batch - 1]) if batch else 0)

    def _pieces(self, first: int) -> Iterator[Piece]:
        # of the columns that are read, in the order of the file, which is where
        here = {column: k for k, column in enumerate(sorted(self._chosen.columns))}
        chosen = Chosen(
            tuple(here[column] for column in self._chosen.columns),
            self._chosen.names,
            self._chosen.widths,
            self._chosen.dtype,
        )
        columns, row_bytes = self._chosen.columns, self.n_features * self._chosen.dtype.itemsize
        if self._ends is None:
            with closing(_IpcReader(self.path, False, columns)) as reader:
                for batch in reader.batches(0):
                    yield OfBatch(believed(batch), chosen)
            return
        for k in range(first, len(self._ends)):
            n = int(self._ends[k] - (self._ends[k - 1] if k else 0))
            step = max(1, HELD_BYTES // row_bytes) if n * row_bytes > HELD_BYTES else max(1, n)
            start = 0
            while start < n:
                with closing(_IpcReader(self.path, True, columns, mapped=step < n)) as reader:
                    batch = reader.batch(k)
                    if batch.num_rows != n:
                        raise SourceError(f"{self.name} has changed since it was opened")
                    if step < n and any(buffer is not None and buffer.parent is None for buffer in _buffers(batch)):
                        step = n  # it was compressed, and is in memory as a whole
                    yield OfBatch(believed(batch.slice(start, step)), chosen)
                    del batch
                start += step

    def read_beside(self, start_row: int = 0) -> Iterator[tuple[NDArray[Any], NDArray[Any], int]]:
        """See Source: values of the type that the column has, strings as objects."""
        assert self._beside is not None
        first, skip = self._batch_of(self.first_row + start_row)
        with (
            damaged(self.path, WHAT, self.check_unchanged),
            closing(_IpcReader(self.path, self._ends is not None, [self._beside])) as reader,
        ):
            values = Values((values_of(batch.column(0)) for batch in reader.batches(first)), skip)
            for rows, position in self.read(start_row):
                yield rows, values.next(len(rows)), position


def _buffers(batch: Any) -> list[Any]:
    return [buffer for column in batch.columns for buffer in column.buffers()]
