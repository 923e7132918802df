"""Tables of numbers in text (.csv, .tsv): dense rows, their columns named by a header."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.io import table as kernel
from fastsketch.io._input import InputFile, SourceError, whole_lines
from fastsketch.io._svmlight import LONGEST_LINE
from fastsketch.io._table import BYTE_ORDER_MARK, as_number, delimiter_of, fields_of
from fastsketch.sources import _source
from fastsketch.sources._select import positions
from fastsketch.sources._streams import Stream
from fastsketch.sources._text import TextSource

# Cells that stand for a number that is not there (csrc/fs_table.h).
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
# Of text that is looked at to tell columns and header.
LOOK_BYTES = 64 << 10


class TableText(TextSource):
    """Rows of numbers in text, with tabs, semicolons or commas between columns as the first line has them.

    A number is decimal and finite; a cell that is empty, or NA, n/a, NaN, null, none or ?, is missing: NaN. Columns
    that are not asked for may hold anything. The first line is a header if `header` says so; if that is None, it is one
    if its cells are words, or, where some are words and some numbers, if a column of words goes on with numbers.
    """

    dtype = np.dtype(np.float64)

    def __init__(
        self,
        path: Path,
        *,
        header: bool | None = None,
        beside: str | int | None = None,
        file: Stream | None = None,
    ) -> None:
        super().__init__(path, file)
        self._delimiter, lines = self._first_lines(file)
        self._width = len(lines[0])
        self._header = self._is_header(lines, header)
        names = _names(lines[0], self.name) if self._header else None
        self.feature_names, self.n_features = names, self._width
        self._columns: list[int] = list(range(self._width))
        self._beside: int | None = None
        if beside is not None:
            self._beside = positions(self, [beside], "beside")[0]
            self._columns.remove(self._beside)
            if not self._columns:
                raise SourceError(f"{self.name} has no column but {beside!r}")
            self.beside = beside
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

    # -- the first lines -------------------------------------------------------------------------------------------
    def _first_lines(self, file: Stream | None) -> tuple[str, list[list[str]]]:
        """(delimiter, cells of the first line and, if there is one, of the second)."""
        found: list[list[str]] = []
        delimiter = ","
        for number, line in self._look(file):
            try:
                text = line.removesuffix(b"\r").decode()
            except UnicodeDecodeError as error:
                raise SourceError(f"{self.name}, line {number}: it is no UTF-8 ({error.reason})") from None
            if not text.strip():
                continue
            if not found:
                delimiter = delimiter_of(text)
            try:
                found.append(text.split(delimiter) if '"' not in text else fields_of(text, delimiter))
            except ValueError as error:
                raise SourceError(f"{self.name}, line {number}: {error}") from None
            if len(found) == 2:
                break
        if not found:
            raise SourceError(f"{self.name} holds no rows")
        return delimiter, found

    def _look(self, file: Stream | None) -> Iterator[tuple[int, bytes]]:
        """The first lines, and their numbers; of a stream as many as are needed, and they will be read again."""
        if file is None:
            with InputFile(self.path) as text:
                number = 0
                for block in whole_lines(text, LOOK_BYTES, LONGEST_LINE):
                    for line in bytes(block).removesuffix(b"\n").split(b"\n"):
                        number += 1
                        yield number, line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line
            return
        size = LOOK_BYTES
        while True:
            head = file.head(size, lines=2)
            full = len(head) < size or head.count(b"\n") >= 2
            if full or size > LONGEST_LINE:
                break
            size *= 2
        yield from enumerate(head.removeprefix(BYTE_ORDER_MARK).split(b"\n")[:3], 1)

    def _is_header(self, lines: list[list[str]], header: bool | None) -> bool:
        if header is not None:
            return header
        words = [_is_word(cell) for cell in lines[0]]
        if not any(words):
            return False
        if all(word or not cell.strip() for word, cell in zip(words, lines[0], strict=True)):
            return True
        if len(lines) > 1 and len(lines[1]) == len(words):
            following = [_is_word(cell) for cell in lines[1]]
            if any(word and not other for word, other in zip(words, following, strict=True)):
                return True
        word = lines[0][words.index(True)].strip()
        raise SourceError(
            f"{self.name}: the first line holds {word[:40]!r} and numbers too: is it a header? Say header=True or "
            "header=False"
        )

    # -- rows ------------------------------------------------------------------------------------------------------
    def read(self, start_row: int = 0) -> Iterator[tuple[NDArray[np.float64], int]]:
        """See Source."""
        for rows, _, position in self._blocks(start_row):
            yield rows, position

    def read_beside(self, start_row: int = 0) -> Iterator[tuple[NDArray[np.float64], NDArray[Any], int]]:
        """See Source: the values are str, None where a cell is empty."""
        for rows, values, position in self._blocks(start_row):
            yield rows, np.empty(0, object) if values is None else values, position

    def _blocks(self, start_row: int) -> Iterator[tuple[NDArray[np.float64], NDArray[Any] | None, int]]:
        # numbers of text take more room than their digits: of "0," four times
        row, line, block_bytes = 0, 0, max(1, _source.CHUNK_BYTES // 4)
        left_out = self._header and not self._from
        with self.opened() as file:
            for piece in whole_lines(file, block_bytes, LONGEST_LINE):
                text = piece
                if not line and not self._from and bytes(piece[:3]) == BYTE_ORDER_MARK:
                    text = piece[3:]
                while left_out and len(text):
                    end = bytes(text[: 1 << 12]).find(b"\n")
                    end = bytes(text).find(b"\n") if end < 0 else end
                    left_out = not bytes(text[:end]).strip()
                    rest, line = text[end + 1 :], line + 1
                    if text is not piece:
                        text.release()
                    text = rest
                rows, values, newlines = self._parsed(text, line)
                line += newlines
                first, row = row, row + len(rows)
                if text is not piece:
                    text.release()  # or the buffer that it stands in cannot change its length
                if row <= start_row:
                    continue
                skipped = max(0, start_row - first)
                position = min(self.size, file.place) if self.repeatable else file.place
                yield rows[skipped:], None if values is None else values[skipped:], position

    def _parsed(self, text: Any, line: int) -> tuple[NDArray[np.float64], NDArray[Any] | None, int]:
        beside = self._beside is not None
        try:
            rows, cells, _, newlines = kernel.parse_block(
                text, ord(self._delimiter), self._places, self.n_features, beside=beside
            )
        except kernel.BadCell as error:
            before, column, why = error.args
            where = "" if column is None else self._column_words(column)
            word = why.endswith("decimal number") and len(self._columns) == self._width
            hint = ": choose those of numbers (columns= of fs.open_rows, --columns), unless this is one" if word else ""
            raise SourceError(f"{self.name}, line {self.line_at(line + before)}: {where}{why}{hint}") from None
        if cells is None:
            return rows, None, newlines
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
        found = super().identity()
        found |= {"header": self._header}
        everything = self._columns == list(range(self._width))
        return found if everything else {**found, "columns": self._columns, "beside": self._beside}


def _is_word(cell: str) -> bool:
    """Whether a cell holds something, and no number."""
    text = cell.strip()
    if text.lower() in MISSING:
        return False
    try:
        as_number(text)
    except ValueError:
        return True
    return False


def _names(cells: Sequence[str], of: str) -> tuple[str, ...]:
    """Names of columns: those without one are called by their numbers."""
    names = [cell.strip() or str(place) for place, cell in enumerate(cells, 1)]
    if len(set(names)) < len(names):
        twice = next(name for place, name in enumerate(names) if name in names[:place])
        raise SourceError(f"{of}: two columns are called {twice!r}")
    return tuple(names)
