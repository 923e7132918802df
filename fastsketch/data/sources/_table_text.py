"""Tables of numbers in text (.csv, .tsv): dense rows, their columns named by a header."""

import io
import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.io import table as kernel
from fastsketch.data.files._input import InputFile, SourceError, whole_lines
from fastsketch.data.files._table import (
    AGAIN,
    BYTE_ORDER_MARK,
    UNDIVIDED,
    UNREAD,
    WORD,
    Row,
    is_numeric,
    kind_of,
    listed,
    no_number,
    say_ids,
    text_cells,
)
from fastsketch.data.sources import _source
from fastsketch.data.sources._column_names import positions
from fastsketch.data.sources._formats import Options
from fastsketch.data.sources._source import LONGEST_LINE
from fastsketch.data.sources._streams import Stream
from fastsketch.data.sources._table_columns import CHOOSE
from fastsketch.data.sources._text import TextSource

# Of text that is looked at to tell columns and header.
LOOK_BYTES = 64 << 10


class TableText(TextSource):
    """Rows of numbers in text, with tabs, semicolons, commas or what `dialect` says between columns.

    A number is decimal and finite; a cell that is empty, or NA, n/a, NaN, null, none or ?, is missing: NaN. Columns
    that are not asked for may hold anything. The first line is a header if `dialect` says so, if a column is asked for
    by its name, or by what stands in the first lines (``tell_header``); where that does not tell, it is an error.
    """

    dtype = np.dtype(np.float64)

    def __init__(self, path: Path, options: Options, stream: Stream | None = None) -> None:
        super().__init__(path, stream)
        beside, dialect = options.beside, options.dialect
        if dialect.header is None and options.named:
            dialect = dialect._replace(header=True)
        first_lines = self._head()
        with InputFile(Path(self.name), io.BytesIO(first_lines)) as head:
            cells = text_cells(head, dialect, block_bytes=LOOK_BYTES, longest=LONGEST_LINE, numbers=True)
        if not cells.width:
            raise SourceError(f"{self.name} holds no rows")
        self._dialect, self._decimal, self._delimiter = dialect, dialect.decimal, cells.separator
        self._width, self._header = cells.width, cells.names is not None
        if self._width == 1 and cells.first and all(kind_of(row[0], self._decimal) == WORD for _, row in cells.first):
            raise cells.error(cells.begins, f"{listed(cells.names or cells.first[0][1])}: {UNDIVIDED}")
        self._header_line = first_lines.split(b"\n")[cells.begins - 1].removeprefix(BYTE_ORDER_MARK).rstrip(b"\r")
        names = None if cells.names is None else _names(cells.names, f"{self.name}, line {cells.begins}")
        self.feature_names, self.n_features = names, self._width
        self._columns: list[int] = list(range(self._width))
        self._beside: int | None = None
        if beside is not None:
            self._beside = positions(self, [beside], "beside")[0]
            self._columns.remove(self._beside)
            if not self._columns:
                raise SourceError(f"beside: {self.name} has no column but {beside!r}, and none is left for the rows")
            self.beside = beside
        if options.numeric:
            self._columns = self._numeric(cells.first, names)
        if options.columns is None:
            known = {names[k] if names else str(k): [row[k] for _, row in cells.first] for k in self._columns}
            say_ids(self.name, known, "--columns names the others, columns=")
        self._all_names = names
        self._set_columns()

    def _set_columns(self) -> None:
        names = self._all_names
        self.n_features = len(self._columns)
        self.feature_names = None if names is None else tuple(names[k] for k in self._columns)
        places = np.full(self._width, kernel.SKIP, np.int32)
        places[self._columns] = np.arange(len(self._columns), dtype=np.int32)
        if self._beside is not None:
            places[self._beside] = kernel.BESIDE
        self._places: NDArray[np.int32] = places

    def only(self, columns: Sequence[int]) -> Self:
        """See Source."""
        part = self.varied(_columns=[self._columns[k] for k in columns])
        part._set_columns()
        return part

    def _numeric(self, rows: list[Row], names: Sequence[str] | None) -> list[int]:
        """Return the columns that hold numbers in the first lines.

        SourceError shows the first cell that is no number if there are none.
        """
        numeric = [k for k in self._columns if is_numeric((cells[k] for _, cells in rows), self._decimal)]
        if not numeric:
            odd = [(number, k, text) for number, cells in rows for k, text in enumerate(cells) if text.strip()]
            odd.sort(key=lambda cell: kind_of(cell[2], self._decimal) == WORD)  # figures first
            said = [f": line {n}, column {k + 1}: {no_number(text, self._decimal)}" for n, k, text in odd[:1]]
            raise SourceError(f"{self.name} has no columns of numbers{''.join(said)}")
        left = [str(k) if names is None else names[k] for k in self._columns if k not in numeric]
        if left:
            why = f"{self.name}: columns that hold no numbers are left out: {listed(left)}"
            warnings.warn(why, UserWarning, stacklevel=2)
        return numeric

    def _head(self) -> bytes:
        """Return the first lines, two at least if there are two; those of a stream will be read again.

        What is no text after the second is replaced: it may be in a column that is not read.
        """
        size = LOOK_BYTES
        while True:
            if self._stream is not None:
                head = self._stream.head(size, lines=2)
            else:
                with InputFile(self.path) as text:
                    head = text.read(size)
            if head.count(b"\n") > 1:
                first, second, rest = head[: head.rfind(b"\n") + 1].split(b"\n", 2)
                return b"\n".join([first, second, rest.replace(b"\0", b"?").decode(errors="replace").encode()])
            if len(head) < size or size > LONGEST_LINE:
                return head
            size *= 2

    # -- rows ------------------------------------------------------------------------------------------------------
    def _blocks(self, file: InputFile) -> Iterator[tuple[NDArray[np.float64], NDArray[Any]]]:
        # numbers of text take more room than their digits: of "0," four times
        line, block_bytes = 0, max(1, _source.CHUNK_BYTES // 4)
        left_out = self._header and not self._from
        repeated = self._repeated_header()
        for piece in whole_lines(file, block_bytes, LONGEST_LINE):
            start = 0
            if not line and not self._from and bytes(piece[:3]) == BYTE_ORDER_MARK:
                start = 3
            while left_out and start < len(piece):
                with piece[start : start + (1 << 12)] as near, piece[start:] as rest:
                    end = bytes(near).find(b"\n")
                    end = start + (bytes(rest).find(b"\n") if end < 0 else end)
                left_out = not bytes(piece[start:end]).strip()
                start, line = end + 1, line + 1
            with piece[start:] as text:  # released, or the buffer that it stands in cannot change its length
                if repeated is not None and (found := repeated.search(text)):
                    number = self.line_at(line + bytes(text[: found.start()]).count(b"\n"))
                    raise SourceError(f"{self.name}, line {number}: {AGAIN}")
                rows, values, newlines = self._parsed(text, line)
            line += newlines
            yield rows, values

    def _repeated_header(self) -> re.Pattern[bytes] | None:
        """Return what finds the header among the rows, if it would be read as one: where the names are numbers."""
        names = self.feature_names
        if names is None or any(kind_of(name, self._decimal) == WORD for name in names):
            return None
        return re.compile(rb"^" + re.escape(self._header_line) + rb"\r?$", re.MULTILINE)

    def _parsed(self, text: Any, line: int) -> tuple[NDArray[np.float64], NDArray[Any], int]:
        beside = self._beside is not None
        try:
            rows, cells, _, newlines = kernel.parse_block(
                text, ord(self._delimiter), self._places, self.n_features, beside=beside, decimal=ord(self._decimal)
            )
        except kernel.BadCell as error:
            before, column, why = error.args
            where = "" if column is None else self._column_words(column)
            hint = ""
            if error.cell is not None:
                why = no_number(error.cell, self._decimal)
                if self._all_names and column is not None and error.cell == self._all_names[column]:
                    why = AGAIN
                elif error.cell.strip().lower() in UNREAD:
                    why += ": what is missing is nothing, NA, n/a, NaN, null, none or ?, and fill= (--fill) fills it in"
                elif len(self._columns) == self._width:
                    hint = f": {CHOOSE}, unless this is one"
            raise SourceError(f"{self.name}, line {self.line_at(line + before)}: {where}{why}{hint}") from None
        if cells is None:
            return rows, np.empty(0, object), newlines
        values = np.empty(len(rows), object)
        content = bytes(text)
        for k, (start, length) in enumerate(cells.tolist()):
            cell = content[start : start + length].replace(b'""', b'"')
            try:
                values[k] = cell.decode() or None
            except UnicodeDecodeError:
                number = self.line_at(line + content.count(b"\n", 0, start))
                raise SourceError(
                    f"{self.name}, line {number}: {self._column_words(self._beside or 0)}no UTF-8"
                ) from None
        return rows, values, newlines

    def _column_words(self, column: int) -> str:
        name = f" ({self._all_names[column]!r})" if self._all_names else ""
        return f"column {column + 1}{name}: "

    # -- lines -----------------------------------------------------------------------------------------------------
    def is_row(self, line: bytes) -> bool:
        """See TextSource."""
        return bool(line.strip(b" \r\n" if self._delimiter == "\t" else None))

    def line_of(self, row: int) -> int | None:
        """See TextSource."""
        return super().line_of(row + int(self._header and not self._from))

    def identity(self) -> dict[str, Any]:
        """See Source."""
        about = super().identity()
        about |= {"header": self._header}
        about |= {} if self._decimal == "." else {"decimal": self._decimal}
        about |= {} if self._dialect.separator is None else {"separator": self._delimiter}
        everything = self._columns == list(range(self._width))
        return about if everything else {**about, "columns": self._columns, "beside": self._beside}


def _names(cells: Sequence[str], of: str) -> tuple[str, ...]:
    """Return names of columns: those without one are called by their numbers."""
    names = [cell.strip() or str(place) for place, cell in enumerate(cells, 1)]
    if len(set(names)) < len(names):
        twice = next(name for place, name in enumerate(names) if name in names[:place])
        raise SourceError(f"{of}: two columns are called {twice!r}: rename one of them")
    return tuple(names)
