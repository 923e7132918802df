"""Read csv, Parquet and Arrow files and data frames in pieces, as polars data frames of numbers and text.

The tables are csv files, Parquet and Arrow files, and data frames.
"""

import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch.data.files._input import InputFile, SourceError
from fastsketch.data.files._table import DECIDING_LINES, SEPARATOR_HINT, Dialect, as_number
from fastsketch.data.sources._csv import Csv, first_lines
from fastsketch.data.sources._foreign import damaged, needs
from fastsketch.data.sources._formats import is_typed_file
from fastsketch.data.sources._frames import FileFrames, Frames, MemoryFrames

# Bytes of text, and rows of other tables, that are read into one data frame.
PIECE_BYTES, PIECE_ROWS = 1 << 20, 1 << 16

# Returns the number of each row of a data frame for messages, (n,): its line in text, otherwise its row.
Numbers = Callable[[], NDArray[np.int64]]


@contextmanager
def open_table(table: Any, dialect: Dialect, *, min_columns: int = 1, buffered: bool = False) -> "Generator[Table]":
    """Open a csv file, a Parquet or Arrow file, or a data frame as a table; "-" is standard input.

    Parameters
    ----------
    table : str, path or data frame
    dialect : Dialect
        Of text.
    min_columns : int, default 1
        Least number of columns that the table must have.
    buffered : bool, default False
        Whether the caller keeps all rows in memory; then ``max_unpacked_bytes`` limits what a csv file unpacks to.

    Raises
    ------
    SourceError
        If the file is missing, damaged or no table, or has fewer columns.
    ImportError
        If polars is not installed.
    """
    if not isinstance(table, str | PathLike):
        yield _require_columns(TypedTable(MemoryFrames(table)), min_columns)
        return
    path = Path(cast("str | PathLike[str]", table))
    standard = str(path) == "-"
    if not standard and is_typed_file(path):
        yield _require_columns(TypedTable(FileFrames(path, str(path))), min_columns)
        return
    with InputFile(path, sys.stdin.buffer if standard else None) as file:
        yield _require_columns(
            CsvTable(file.limited() if buffered else file, dialect, 0 if standard else path.stat().st_size), min_columns
        )


def _require_columns(table: Any, min_columns: int) -> Any:
    """Return a table. SourceError if it has fewer than `min_columns` columns."""
    if 0 < table.width < min_columns:
        hint = "" if table.width > 1 or table.unit == "row" else f"; {SEPARATOR_HINT}"
        raise table.error(table.begins, f"{min_columns} columns are needed, there are {table.width}{hint}")
    return table


class CsvTable(Csv):
    """An open csv file whose rows are read once, in pieces."""

    def __init__(self, file: InputFile, dialect: Dialect, size: int) -> None:
        self._file, self.size = file, size
        super().__init__(str(file.path), first_lines(file, DECIDING_LINES), dialect)

    def position(self) -> int:
        """Return the number of bytes of the file that have been read."""
        return self._file.place

    def frames(self, numbers: Sequence[int], texts: Sequence[int]) -> Iterator[tuple[Any, Numbers]]:
        """Yield (polars data frame, function that returns line numbers) for each piece of the file.

        The columns of the data frame are called by their positions. The function returns the line number of each row,
        (n,).
        """
        for piece, line in self.pieces(self._file, PIECE_BYTES):
            frame = self.frame(piece, line, numbers, texts)
            yield frame, partial(self._lines, piece, line, len(frame))

    def _lines(self, piece: bytes, line: int, n: int) -> NDArray[np.int64]:
        """Return the line number of each of the n rows of a piece, which follows line `line`."""
        if b'"' not in piece and piece.count(self.newline) == n:
            return np.arange(line + 1, line + 1 + n)
        return np.array([number for number, _ in self.records(piece, line)])


class TypedTable:
    """A Parquet or Arrow file, or a data frame, read in pieces like a CsvTable.

    Columns that are the index of a pandas data frame are left out.
    """

    unit, begins, numbered = "row", -1, False

    def __init__(self, frames: Frames) -> None:
        self._frames, self.name, self.size, self._rows_read = frames, frames.name, frames.n_rows, 0
        self.hint: Callable[[int], str] = lambda column: ""
        self.dialect = Dialect(header=True)
        self.names: list[str] = [name for name in frames.schema if name not in frames.index]
        self.width = len(self.names)
        with damaged(self.name, "table"):
            head = frames.rows(0, min(self.size, DECIDING_LINES), self.names)
            columns = [[cell or "" for cell in self._texts(head[name])] for name in self.names]
        self.first = [(k, list(cells)) for k, cells in enumerate(zip(*columns, strict=True))]

    @property
    def all_names(self) -> list[str]:
        """The names of all columns, with those of the index."""
        return list(self._frames.schema)

    def column(self, name: str) -> Any:
        """Return a column, also of the index, as an array, a list or a polars series."""
        with damaged(self.name, "table"):
            return self._frames.column(name)

    def position(self) -> int:
        """Return the number of rows that have been read."""
        return self._rows_read

    def error(self, number: int, why: object) -> SourceError:
        """Return a SourceError that names a row of the table."""
        return SourceError(f"{self.name}{'' if number < 0 else f', row {number}'}: {why}")

    def called(self, column: int) -> str:
        """Describe a column by its number and name for an error message; `column` counts from 0."""
        return f"column {column + 1} ({self.names[column]!r})"

    def frames(self, numbers: Sequence[int], texts: Sequence[int]) -> Iterator[tuple[Any, Numbers]]:
        """Yield (polars data frame, function that returns row numbers) for each piece of the table."""
        pl = needs("polars", "tables")
        names = [self.names[k] for k in (*numbers, *texts)]
        with damaged(self.name, "table"):
            for first_row in range(0, self.size, PIECE_ROWS):
                piece = self._frames.checked_rows(first_row, min(first_row + PIECE_ROWS, self.size), names)
                columns = [self._numbers(piece[self.names[k]], k, first_row).alias(str(k)) for k in numbers]
                columns += [self._texts(piece[self.names[k]]).alias(str(k)) for k in texts]
                self._rows_read += len(piece)
                yield pl.DataFrame(columns), partial(np.arange, first_row, self._rows_read)

    def _numbers(self, column: Any, position: int, first_row: int) -> Any:
        """Convert a column to float64. Raise SourceError at the first row that does not hold a number."""
        pl = needs("polars", "tables")
        if column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.Null):
            return column.cast(pl.Float64).fill_nan(None)
        values: list[float | None] = []
        for row, text in enumerate(self._texts(column)):
            try:
                values.append(None if self.dialect.missing(text or "") else as_number(text, self.dialect))
            except ValueError as error:
                raise self.error(first_row + row, f"{self.called(position)}: {error}{self.hint(position)}") from None
        return pl.Series(values, dtype=pl.Float64)

    def _texts(self, column: Any) -> Any:
        """Convert a column to strings; floats without a fraction become integers, and dates become ISO format.

        An integer column with missing entries is a column of floats in pandas.
        """
        pl, kind = needs("polars", "tables"), column.dtype
        if kind.is_float():
            column = column.fill_nan(None)
            is_integer = (column == column.floor()) & (column.abs() <= 2.0**53)
            texts = column.cast(pl.String)
            return texts.zip_with(
                ~is_integer.fill_null(value=False), column.cast(pl.Int64, strict=False).cast(pl.String)
            )
        if kind.is_temporal() and kind != pl.Duration:
            return column.dt.to_string("iso").str.replace(r"\.0+$", "")
        if kind.is_nested() or kind in (pl.Binary, pl.Object):
            raise SourceError(f"{self.name}: column {column.name!r} holds {kind}, no numbers or text")
        texts = column.cast(pl.String).str.strip_chars()
        return texts.set(texts == "", None)


# An open table; see Csv for its attributes.
Table: TypeAlias = CsvTable | TypedTable
