"""Read csv files of numbers as dense rows."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.warning import warn_caller
from fastsketch.data.files._input import InputFile, SourceError
from fastsketch.data.files._table import NUMBER, SEPARATOR_HINT, WORD, is_numeric, kind_of, listed, log_id_like_columns
from fastsketch.data.sources import _source
from fastsketch.data.sources._column_names import positions, unique_names
from fastsketch.data.sources._csv import Csv, first_cells, first_lines
from fastsketch.data.sources._formats import Options
from fastsketch.data.sources._source import Source
from fastsketch.data.sources._table_columns import refuse_columns
from fastsketch.data.sources._text import TextSource


class TableText(TextSource):
    """A source that reads the rows of a csv file of numbers.

    A number is decimal and finite. A cell that is empty, or NA, n/a, NaN, null, none or ?, is missing and read as NaN.
    Columns that are not selected may hold anything. The first line is a header if the dialect says so, if a column is
    selected by name, or if ``detect_header`` finds one; if that is undecided, it is an error.
    """

    dtype = np.dtype(np.float64)

    def __init__(self, path: Path, options: Options, stream: InputFile | None = None) -> None:
        super().__init__(path, stream)
        beside, dialect = options.beside, options.dialect
        if dialect.header is None and options.named:
            dialect = dialect._replace(header=True)
        self._csv = Csv(self.name, self._head(), dialect, numbers=True)
        if not self._csv.width:
            raise SourceError(f"{self.name} holds no rows")
        self._newline = self._csv.newline
        rows, width = [cells for _, cells in self._csv.first], self._csv.width
        if width == 1 and rows and all(kind_of(row[0], dialect) == WORD for row in rows):
            first = listed(self._csv.names or rows[0])
            raise self._csv.error(self._csv.begins, f"{first}: {SEPARATOR_HINT}{self._csv.comment_hint}")
        names = self._csv.names
        self.n_features = width
        self.feature_names = None if not names else unique_names(names, f"{self.name}, line {self._csv.begins}")
        self._columns: list[int] = list(range(width))
        self._beside: int | None = None
        if beside is not None:
            self._beside = positions(self, [beside], "beside")[0]
            self._columns.remove(self._beside)
            if not self._columns:
                raise SourceError(f"beside: {self.name} has no column but {beside!r}, and none is left for the rows")
            self.beside = beside
        self._all_names = self.feature_names
        self._odd: list[tuple[int, int, str]] = []  # line, column and text of cells that are no numbers
        if options.columns is None:
            self._columns = self._of_numbers(rows, leave_out=options.numeric)
            known = {self._called(k): [row[k] for row in rows] for k in self._columns}
            log_id_like_columns(self.name, known, "--columns names the others, columns=")
        self._set_columns()

    def _set_columns(self) -> None:
        names = self._all_names
        self.n_features = len(self._columns)
        self.feature_names = names and tuple(names[k] for k in self._columns)

    def _called(self, column: int) -> str:
        return self._all_names[column] if self._all_names else str(column)

    def only(self, columns: Sequence[int]) -> Self:
        """Return a source that reads only the columns at these positions, in this order."""
        part = self.varied(_columns=[self._columns[k] for k in columns])
        part._set_columns()
        return part

    def _of_numbers(self, rows: list[list[str]], *, leave_out: bool) -> list[int]:
        """Return the positions of the columns that hold numbers if `leave_out` is true, otherwise those of all columns.

        A warning names the columns that are left out. If a column is empty in the first lines, its first cells that are
        not missing decide. The positions and texts of cells that are not numbers are stored for a later error.
        """
        dialect, found = self._csv.dialect, {k: [row[k] for row in rows] for k in self._columns}
        empty = [k for k, cells in found.items() if rows and all(kind_of(cell, dialect) is None for cell in cells)]
        if empty and leave_out and self.repeatable:
            with self.opened() as file:
                pieces = self._csv.pieces(file, 1 << 20)
                found |= first_cells((self._csv.frame(*piece, [], empty) for piece in pieces), empty, dialect)
        kinds = {k: is_numeric(cells, dialect) for k, cells in found.items()}
        # an empty column may hold numbers further on, unless the whole file has been searched
        numbers = [k for k, is_number in kinds.items() if is_number or not rows]
        others = sorted(set(self._columns) - set(numbers))
        odd = ((number, k, row[k]) for number, row in self._csv.first for k in others)
        self._odd = sorted(
            (cell for cell in odd if kind_of(cell[2], dialect) not in (None, NUMBER)),
            key=lambda cell: kind_of(cell[2], dialect) == WORD,  # name a date or another figure rather than a word
        )
        if leave_out and not numbers:
            first = [f": line {n}: {self._csv.called(k)}: {self._csv.why(text, k)}" for n, k, text in self._odd[:1]]
            raise SourceError(f"{self.name} has no columns of numbers{''.join(first)}")
        if others and leave_out:
            left = listed([self._called(k) for k in others], 20)
            warn_caller(f"{self.name}: columns that hold no numbers are left out: {left}")
        return numbers if leave_out else self._columns

    def _refuse_words(self) -> None:
        """Raise SourceError if the first lines of a selected column hold no numbers; it names all such columns."""
        odd = [cell for cell in self._odd if cell[1] in set(self._columns)]
        for number, k, text in odd[:1]:
            others = sorted({k for _, k, _ in odd})
            said = f", line {number}: {self._csv.called(k)}: {self._csv.why(text, k)}"
            refuse_columns(self.name, [self._called(k) for k in others], said, some=len(others) < len(self._columns))

    def _head(self) -> bytes:
        """Return the first lines of the file or stream without consuming them."""
        if self._stream is not None:
            return first_lines(self._stream, 1, wait=False)
        with InputFile(self.path) as text:
            return first_lines(text, 1)

    # -- rows ------------------------------------------------------------------------------------------------------
    def _blocks(self, file: InputFile) -> Iterator[tuple[NDArray[np.float64], NDArray[Any]]]:
        # numbers need more memory than their text: "0," needs four times as much
        self._refuse_words()
        texts = [] if self._beside is None else [self._beside]
        for piece, line in self._csv.pieces(file, max(1, _source.CHUNK_BYTES // 4), is_part=self._from > 0):
            try:
                frame = self._csv.frame(piece, line, self._columns, texts)
            except SourceError:
                if self._from:  # repeat, so that the error names the line in the file
                    self._csv.frame(piece, self.line_at(line) - 1, self._columns, texts)
                raise
            values = np.empty(0, object)
            if texts:
                values = self._values(frame.drop_in_place(str(self._beside)).to_list())
            yield frame.to_numpy(order="c"), values

    def _values(self, cells: list[str | None]) -> NDArray[Any]:
        """Return the cells of the extra column as an object array; numbers get a decimal point and no thousands
        separator.
        """
        dialect = self._csv.dialect
        if dialect.decimal != "." or dialect.thousands:
            cells = [dialect.plain(cell) if cell and kind_of(cell, dialect) == "a number" else cell for cell in cells]
        out = np.empty(len(cells), object)
        out[:] = cells
        return out

    def parts(self, n_bytes: int, *, multiple: int = 1) -> list[Source]:
        """Return a list of sources of byte ranges of about n_bytes each.
        It has one source of all the text if quoted cells may hold line ends.
        """
        if self._csv.dialect.multiline:
            return [self]
        return super().parts(max(n_bytes, self._csv.header_bytes), multiple=multiple)

    # -- lines -----------------------------------------------------------------------------------------------------
    def line_of(self, row: int) -> int | None:
        """Return the line number of a row of this part, or None for a stream; rows count from 0, lines from 1."""
        if not self.repeatable:
            return None
        with InputFile(self.path, start=self._from, stop=self._to if self._is_part() else None) as file:
            for piece, line in self._csv.pieces(file, _source.CHUNK_BYTES, is_part=self._from > 0):
                for number, _ in self._csv.records(piece, line):
                    if row == 0:
                        return self.line_at(number - 1)
                    row -= 1
        return None

    def identity(self) -> dict[str, Any]:
        """Return JSON values that identify the rows: the file, the byte range, the csv dialect and the columns."""
        dialect = self._csv.dialect
        about = {**super().identity(), "header": self._csv.names is not None}
        about |= {} if dialect.separator is None else {"separator": self._csv.separator}
        told = ("decimal", "thousands", "comment", "multiline")
        about |= {name: getattr(dialect, name) for name in told if getattr(dialect, name) not in (".", None, False)}
        about |= {"na_values": sorted(dialect.na_values)} if dialect.na_values else {}
        everything = self._columns == list(range(self._csv.width))
        return about if everything else {**about, "columns": self._columns, "beside": self._beside}
