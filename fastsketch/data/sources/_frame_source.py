"""Sources of numeric rows from Parquet, Arrow IPC, and data frames."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.escaping import escaped
from fastsketch.data.files._input import SourceError
from fastsketch.data.sources._foreign import damaged, needs
from fastsketch.data.sources._formats import Options
from fastsketch.data.sources._frames import FileFrames, Frames, MemoryFrames
from fastsketch.data.sources._identity import fingerprint_of_ends
from fastsketch.data.sources._source import RowSource, Source, rows_of_chunk
from fastsketch.data.sources._stamped_file import StampedFile
from fastsketch.data.sources._table_columns import Chosen, choose

# Bytes of rows that polars decodes at a time, which are in memory together. Parquet pages at both ends of a slice are
# decoded twice: slices of 32 MB took twice as long as slices of 80 MB.
SLICE_BYTES = 80 << 20


def open_frame(x: Any, options: Options) -> Source:
    """Open the numeric columns of a data frame as a source."""
    return FrameSource(MemoryFrames(x), options)


def open_table_file(path: Path, options: Options) -> Source:
    """Open the numeric columns of a Parquet or Arrow IPC file as a source."""
    file = StampedFile(path)
    return FrameSource(FileFrames(path, escaped(path)), options, file)


class FrameSource(RowSource):
    """A source that reads some columns of a Parquet file, Arrow file or data frame as rows, and perhaps an extra
    column.
    """

    what = "table"

    def __init__(self, frames: Frames, options: Options, file: StampedFile | None = None) -> None:
        self._frames, self.name, self.file = frames, frames.name, file
        self.waits = file is not None
        self.taken, self.beside = options.columns, options.beside
        self.n_rows = self.size = frames.n_rows
        with damaged(self.name, self.what):
            chosen = choose(frames, options)
        # invalid column labels are a wrong argument, not a damaged table, so this is outside ``damaged``
        named = not isinstance(frames, MemoryFrames) or frames.named(chosen.columns) is not None
        self._take(replace(chosen, named=named))

    def _take(self, chosen: Chosen) -> None:
        self._chosen, self.dtype = chosen, chosen.dtype
        self.n_features, self.feature_names = chosen.n_features, chosen.feature_names

    def only(self, columns: Sequence[int]) -> Source | None:
        """Return a source that reads only the features at these positions, or None if a column holds lists."""
        chosen = self._chosen.only(columns)
        if chosen is None:
            return None
        part = self.varied()
        part._take(chosen)
        return part

    def identity(self) -> dict[str, Any]:
        """Return JSON values that identify the rows: the file or a digest of some rows, and the columns."""
        about = fingerprint_of_ends(self, type(self).__name__) if self.file is None else {}
        return {**about, **super().identity(), "columns": list(self._chosen.columns)}

    def _chunks(self, start: int) -> Iterator[NDArray[Any]]:
        for rows, _ in self._pieces(start, None):
            yield rows

    def read_beside(self, start_row: int = 0) -> Iterator[tuple[Any, NDArray[Any], int]]:
        """Yield (rows, values of the extra column `beside`, position in the source) for each chunk.

        The values have the type of the column; strings are Python objects.
        """
        if self.beside is None:
            yield from super().read_beside(start_row)
        self.check_unchanged()
        for rows, values in self._pieces(self.first_row + start_row, self._chosen.beside):
            start_row += len(rows)
            yield rows, values, start_row
        self.check_unchanged()

    def _pieces(self, start: int, beside: str | None) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        """Yield (rows, values of the extra column) in chunks, starting at row `start` of the table."""
        chosen, step = self._chosen, rows_of_chunk(self)
        at_a_time = max(1, SLICE_BYTES // (step * chosen.n_features * chosen.dtype.itemsize)) * step
        columns: list[str] = list(chosen.columns)
        if beside is not None and beside not in columns:
            columns.append(beside)
        with damaged(self.name, self.what, self.check_unchanged):
            for first in range(start, self._stop, at_a_time):
                piece = self._frames.checked_rows(first, min(first + at_a_time, self._stop), columns)
                for place in range(0, len(piece), step):
                    some = piece.slice(place, step)
                    values = np.empty(0) if beside is None else as_values(some[beside])
                    yield as_rows(some, chosen, self.name, first + place), values
                piece = some = None  # free the slice before the next one is decoded


def as_rows(frame: Any, chosen: Chosen, name: str, first: int) -> NDArray[Any]:
    """Convert columns of a polars data frame to an array (n, d). Nulls become NaN; a column of lists becomes several
    columns.
    """
    pl = needs("polars", "tables")
    to = pl.Float32 if chosen.dtype == np.float32 else pl.Float64
    if all(width is None for width in chosen.widths):
        frame = pl.DataFrame([frame[name] for name in chosen.columns])
        if set(frame.dtypes) != {to}:  # a cast to the same type takes a fifth of the time of reading Parquet
            frame = frame.cast(to)
        return frame.to_numpy(order="c")
    out = np.empty((len(frame), chosen.n_features), chosen.dtype)
    place = 0
    for column, width in zip(chosen.columns, chosen.widths, strict=True):
        values = frame[column]
        if width is None:
            out[:, place] = values.cast(to).to_numpy()
            place += 1
            continue
        lists = values.cast(pl.List(to))
        lengths = lists.list.len().fill_null(width).to_numpy()
        if (lengths != width).any():
            row = int(np.argmax(lengths != width))
            why = f"column {column!r} has {lengths[row]} entries, in the rows before it has {width}"
            raise SourceError(f"{name}, row {first + row}: {why}")
        missing = lists.is_null().to_numpy()
        out[missing, place : place + width] = np.nan
        out[~missing, place : place + width] = lists.drop_nulls().explode().to_numpy().reshape(-1, width)
        place += width
    return out


def as_values(column: Any) -> NDArray[Any]:
    """Convert a polars column to an array: numeric if all its entries are numbers, of Python objects otherwise."""
    if column.null_count() == 0 and (column.dtype.is_numeric() or column.dtype == needs("polars", "tables").Boolean):
        return column.to_numpy()
    out = np.empty(len(column), object)
    out[:] = column.to_list()
    return out
