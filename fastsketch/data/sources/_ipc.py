"""Arrow IPC: the file format (Feather), batch after batch, and the stream format, in order."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.io.arrow import fields
from fastsketch.data.files._input import SourceError
from fastsketch.data.sources._file_sources import FileSource
from fastsketch.data.sources._foreign import damaged, needs
from fastsketch.data.sources._formats import Options
from fastsketch.data.sources._pieces import ColumnSource, OfBatch, Piece, believed, first_width, values_of
from fastsketch.data.sources._source import Source

# A batch with more bytes of rows is not read whole: it is mapped, for so many at a time, or its pages would pile up.
HELD_BYTES = 64 << 20


class IpcSource(ColumnSource, FileSource):
    """Some columns of an Arrow file, or of a file with a stream of batches, which does not say how many rows it has."""

    what = "Arrow file"
    n_rows: int | None = None

    def __init__(self, path: Path, options: Options) -> None:
        super().__init__(path)
        with path.open("rb") as file:
            start = file.read(8)
        if start[:4] == b"FEA1":
            raise SourceError(f"{path} is of Feather's first version: write it again as Feather 2 or Parquet")
        self._is_file = start[:6] == b"ARROW1"
        with damaged(path, self.what), self._opened() as reader:
            schema = reader.schema
            columns = fields(schema.__arrow_c_schema__())

        def width(k: int) -> int:
            with damaged(path, self.what), self._opened([k]) as reader:
                return first_width(map(believed, self._batches(reader)), 0)

        self._describe(columns, options, schema.metadata, width)
        if self._is_file:
            with damaged(path, self.what), self._opened(self._chosen.columns[:1]) as reader:
                rows = [batch.num_rows for batch in self._batches(reader)]
            self._ends: NDArray[np.int64] = np.cumsum(rows, dtype=np.int64)
            self.n_rows = self.size = sum(rows)

    @contextmanager
    def _opened(self, columns: Sequence[int] | None = None, *, mapped: bool = False) -> Generator[Any]:
        """Open a reader of some columns (None: all), in their order in the file; mapped batches are gone after it."""
        pyarrow = needs("pyarrow", "Arrow files")
        ipc = needs("pyarrow", "Arrow files", "pyarrow.ipc")
        included = None if columns is None else sorted(columns)
        options = ipc.IpcReadOptions(included_fields=included, use_threads=False)
        with (pyarrow.memory_map if mapped else pyarrow.OSFile)(str(self.path)) as file:
            yield (ipc.open_file if self._is_file else ipc.open_stream)(file, options=options)

    def _batches(self, reader: Any, first: int = 0) -> Iterator[Any]:
        """Return the batches from a number on; a stream begins where it is."""
        return map(reader.get_batch, range(first, reader.num_record_batches)) if self._is_file else reader

    def parts(self, n_bytes: int, *, multiple: int = 1) -> list[Source]:
        """See Source; a method of its own, so that files that are joined are cut one by one."""
        return super().parts(n_bytes, multiple=multiple)

    def _group_of(self, row: int) -> tuple[int, int]:
        batch = int(np.searchsorted(self._ends, row, side="right")) if self._is_file else 0
        return batch, row - (int(self._ends[batch - 1]) if batch else 0)

    def _pieces(self, group: int) -> Iterator[Piece]:
        # of the columns that are read, in the order of the file, which is where
        here = {column: k for k, column in enumerate(sorted(self._chosen.columns))}
        columns, row_bytes = self._chosen.columns, self.n_features * self._chosen.dtype.itemsize
        chosen = replace(self._chosen, columns=tuple(here[column] for column in columns))
        if not self._is_file:
            with self._opened(columns) as reader:
                for batch in reader:
                    yield OfBatch(believed(batch), chosen)
            return
        for k in range(group, len(self._ends)):
            n = int(self._ends[k] - (self._ends[k - 1] if k else 0))
            step = max(1, HELD_BYTES // row_bytes) if n * row_bytes > HELD_BYTES else max(1, n)
            start = 0
            while start < n:
                with self._opened(columns, mapped=step < n) as reader:
                    batch = reader.get_batch(k)
                    if batch.num_rows != n:
                        raise SourceError(f"{self.name} has changed since it was opened")
                    buffers = [buffer for column in batch.columns for buffer in column.buffers() if buffer is not None]
                    if step < n and any(buffer.parent is None for buffer in buffers):
                        step = n  # it was compressed, and is in memory as a whole
                    yield OfBatch(believed(batch.slice(start, step)), chosen)
                    del batch, buffers
                start += step

    def _values(self, group: int) -> Iterator[NDArray[Any]]:
        with self._opened([self._chosen.beside]) as reader:
            for batch in self._batches(reader, group):
                yield values_of(batch.column(0))
