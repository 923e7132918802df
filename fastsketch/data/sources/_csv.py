"""Parse csv files with polars, in pieces of whole lines.

polars fills short rows with nulls without an error, and its errors name neither row nor file. Therefore the separators
of a piece are counted if its last column has nulls, and a piece that polars refuses is parsed again in Python line by
line. That either reads what polars does not (blanks around cells, blank lines) or raises an error with line and column.

polars was chosen over pyarrow because it takes 1.2 to 1.6 times less processor time on pieces of a csv file of 201 MB.
Both round decimal numbers correctly.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import unquote

from fastsketch._core.warning import warn_caller
from fastsketch.data.files._input import InputFile, SourceError, iterate_whole_lines
from fastsketch.data.files._table import (
    BYTE_ORDER_MARK,
    DECIDING_LINES,
    HEADER_REPEATED,
    HEADER_UNDECIDED,
    MISSING,
    OTHER_MISSING,
    SEPARATOR_HINT,
    WORD,
    Dialect,
    OpenQuote,
    Row,
    as_number,
    as_utf8,
    cells_of,
    detect_header,
    is_name,
    is_numbering,
    kind_of,
    listed,
    log_header_choice,
    no_number,
    separator_of,
)
from fastsketch.data.sources._foreign import needs
from fastsketch.data.sources._source import LONGEST_LINE

# The name that Hive gives to the partition of a missing value.
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
RETURN = "a carriage return within the line (lines end in \\n or \\r\\n)"
# Bytes of text that are read to find columns and header.
HEAD_BYTES = 64 << 10
# Characters that str.strip() removes and polars does not.
_BLANKS_OF_PYTHON = b"\x1c", b"\x1d", b"\x1e", b"\x1f"


def partition_cells(name: str) -> dict[str, str]:
    """Return the columns and cells that the names of a file's folders hold: column=value (Hive partitions).

    SourceError if two folders are called after one column.
    """
    folders = [part.split("=") for part in Path(name).parent.parts if re.fullmatch(r"\w+=[^=]*", part)]
    cells = {unquote(column): "" if cell == NULL_PARTITION else unquote(cell) for column, cell in folders}
    if len(cells) < len(folders):
        raise SourceError(f"{name}: two of its folders are called after one column: rename one of them")
    return cells


class Csv:
    """Parser of a csv file: finds separator, header and columns from the first lines, then parses pieces with polars.

    Parameters
    ----------
    name : str
        Name of the file for messages.
    start : bytes
        The first lines.
    dialect : Dialect
    numbers : bool, default False
        Whether the rows are read as numbers. Then a first line of words is a header if ``detect_header`` is undecided,
        and columns that are not read may contain bytes that are not UTF-8.

    Attributes
    ----------
    separator : str
    width, header_bytes : int
        Number of columns, 0 if there are no rows; bytes up to the end of the header.
    begins : int
        The line of the header, or of the first row.
    names : list of str or None
        The cells of the header without surrounding blanks; None without a header.
    first : list of (line, cells)
        The first rows, at most DECIDING_LINES.
    numbered : bool
        Whether the header numbers the columns.
    hint : callable
        Returns the end of a message about a cell that is no number, for the position of its column.
    """

    unit = "line"

    def __init__(self, name: str, start: bytes, dialect: Dialect, *, numbers: bool = False) -> None:
        self.name, self.dialect, self._numbers = name, dialect, numbers
        self.newline = b"\r" if b"\r" in start and b"\n" not in start else b"\n"
        self.hint: Callable[[int], str] = _no_hint
        self._has_nulls = False
        self._schemas: dict[Any, dict[str, Any]] = {}
        start = start.removeprefix(BYTE_ORDER_MARK)
        lines = start.split(self.newline)
        self._refuse_bytes(self.newline.join(lines[:2]) if numbers else start, 1, strict=True)
        shown = [line.decode(errors="replace") for line in lines[: 2 * DECIDING_LINES]]
        comment = dialect.comment or "\n"
        numbered = [(k, line) for k, line in enumerate(shown, 1) if line.strip() and not line.startswith(comment)]
        self.separator = separator_of(name, numbered[:DECIDING_LINES], dialect)
        self.width = self._text_width = self.begins = self._header_lines = self.header_bytes = 0
        self.numbered = False
        is_comment = any(line.startswith("#") for _, line in numbered[:1])
        self.comment_hint = "; --set comment=# (comment='#') skips lines of comments" if is_comment else ""
        self._head: list[str] | None = None
        self._numbering = b""  # the header's line, if it could be a row of numbers
        self.names: list[str] | None = None
        self.first: list[Row] = []
        self._partitions: list[str] = []
        self._read_first(start)
        if not self.first:
            return
        self.begins, self.width = self.first[0][0], len(self.first[0][1])
        self._text_width = self.width  # without the columns of the folders
        self.numbered = is_numbering([cells for _, cells in self.first], dialect)
        if self._has_header():
            self._head = self.first.pop(0)[1]
            self.names = [cell.strip() for cell in self._head]
            self._header_lines = self.begins + sum(cell.count("\n") for cell in self._head)
            self.header_bytes = sum(len(line) + 1 for line in lines[: self._header_lines])
            written = self.newline.join(lines[self.begins - 1 : self._header_lines])
            self._refuse_bytes(written, self.begins, strict=True)
            if all(kind_of(name, dialect) != WORD for name in self._head):
                self._numbering = lines[self.begins - 1].rstrip(b"\r")
            if again := [number for number, cells in self.first if cells == self._head]:
                raise self.error(again[0], HEADER_REPEATED)
            cells_by_name = partition_cells(name)
            partitions = {column: cells_by_name[column] for column in cells_by_name if column not in self.names}
            self.names += partitions
            self._partitions = list(partitions.values())
            self.first = [(number, [*cells, *self._partitions]) for number, cells in self.first]
            self.width += len(partitions)
        elif partitions := partition_cells(name):
            columns = ", ".join(map(repr, partitions))
            warn_caller(
                f"{name} has no header: the columns {columns}, after which its folders are called, are not read"
            )

    def _read_first(self, start: bytes) -> None:
        """Parse the first rows of the file into the attribute `first`.

        In files of numbers it stops at a row of another length, because reading the rows raises that error later.
        """
        try:
            for number, cells in self.records(start, 0):
                if self.first and len(cells) != len(self.first[0][1]):
                    raise self._uneven(number, len(cells))
                self.first.append((number, cells))
                if len(self.first) == DECIDING_LINES:
                    return
        except SourceError:
            if not (self._numbers and self.first):
                raise

    def _has_header(self) -> bool:
        if self.dialect.header is not None:
            return self.dialect.header
        head, rows = self.first[0][1], [cells for _, cells in self.first]
        told = detect_header(rows, self.dialect)
        if told is None and self._numbers:
            if all(is_name(cell, self.dialect) for cell in head):
                told = True  # as a row of numbers it would be refused
            elif len(rows) == 1 and WORD not in (kind_of(cell, self.dialect) for cell in head):
                told = False
        if told is None:
            divided = "" if self.width > 1 else f"; {SEPARATOR_HINT}"
            raise self.error(self.begins, f"{listed(head)}: {HEADER_UNDECIDED}{divided}")
        if told:
            log_header_choice(f"{self.name}, line {self.begins}", rows, self.dialect)
        return told

    def error(self, number: int, why: object) -> SourceError:
        """Return a SourceError that names a line."""
        return SourceError(f"{self.name}, line {number}: {why}")

    def _uneven(self, number: int, n: int) -> SourceError:
        """Return a SourceError for a line whose number of cells, n, differs from that of the first line."""
        width = self._text_width or len(self.first[0][1])
        return self.error(number, f"there are {n} columns, in the first line {width}{self.comment_hint}")

    def called(self, column: int) -> str:
        """Describe a column by its number and name for an error message; `column` counts from 0."""
        name = f" ({self.names[column]!r})" if self.names and self.names[column] else ""
        return f"column {column + 1}{name}"

    # -- pieces of text --------------------------------------------------------------------------------------------
    def pieces(self, file: InputFile, n_bytes: int, *, is_part: bool = False) -> Iterator[tuple[bytes, int]]:
        """Yield (whole lines, number of lines before them) of a csv file, about n_bytes at a time, without the header.

        With is_part=True the file begins after the end of a line, and has no header.
        """
        line, skip = 0, 0 if is_part else self._header_lines
        newline, last_end = self.newline, self._last_end
        for piece in iterate_whole_lines(file, n_bytes, LONGEST_LINE, newline=newline, last_end=last_end):
            if not line and not is_part:
                piece = piece.removeprefix(BYTE_ORDER_MARK)
            while piece and line < skip:
                _, _, piece = piece.partition(newline)
                line += 1
            if piece:
                yield piece, line
            line += piece.count(newline)

    def _last_end(self, data: bytes) -> int:
        """Return the position after the last line end that is not within quotes."""
        stop = data.rfind(self.newline) + 1
        while self.dialect.multiline and stop and data.count(b'"', 0, stop) % 2:
            stop = data.rfind(self.newline, 0, data.rfind(b'"', 0, stop)) + 1
        return stop

    def records(self, piece: bytes, line: int) -> Iterator[Row]:
        """Yield (line number, cells) of each row, parsed in Python. Raise SourceError for a line that is not a valid
        row.
        """
        text = piece.decode(errors="replace").removesuffix(self.newline.decode())
        lines = iter(enumerate(text.split(self.newline.decode()), line + 1))
        ignored = "\r " if self.separator == "\t" else "\r \t"  # at the end of a line, as polars reads it
        for number, row in lines:
            blank = not row.strip(" \r" if self.separator == "\t" else None)
            if blank or (self.dialect.comment and row.startswith(self.dialect.comment)):
                continue
            while True:
                try:
                    cells = cells_of(row.rstrip(ignored), self.separator)
                    break
                except OpenQuote as error:
                    following = next(lines, None) if self.dialect.multiline else None
                    if following is None:
                        raise self.error(number, error) from None
                    row += f"\n{following[1]}"
                except ValueError as error:
                    raise self.error(number, error) from None
            if "\r" in row.rstrip(ignored) and not self.dialect.multiline:
                raise self.error(number, RETURN)
            yield number, cells

    # -- data frames -----------------------------------------------------------------------------------------------
    def frame(self, piece: bytes, line: int, numbers: Sequence[int], texts: Sequence[int] = ()) -> Any:
        """Parse some columns of a piece of text into a polars data frame whose columns are named by their positions.

        Parameters
        ----------
        piece : bytes
        line : int
            The number of lines before the piece.
        numbers, texts : sequences of int
            Columns of float64, null where a number is missing; and of strings without the blanks around them, null
            where a cell is empty.

        Raises
        ------
        SourceError
            If a row has another number of cells, or a cell is no number: with its line and column.
        """
        pl = needs("polars", "csv files")
        if any(k >= self._text_width for k in (*numbers, *texts)):
            return self._with_partitions(pl, piece, line, numbers, texts)
        self._refuse_bytes(piece, line + 1, strict=bool(texts))
        if self._numbering and self._numbering in piece:
            self._refuse_header(piece, line)
        if not self._has_nulls:  # searching for spellings of missing numbers takes 1.5 times as long
            with suppress(pl.exceptions.PolarsError, pl.exceptions.PanicException, _Refused):
                return self._parsed(pl, piece, numbers, texts)
        self._has_nulls = True
        with suppress(pl.exceptions.PolarsError, pl.exceptions.PanicException, _Refused):
            return self._parsed(pl, piece, numbers, texts)
        if not (b'"' in piece or self.separator in " \t" or self.newline == b"\r"):
            # polars keeps blanks around cells, and reads a blank line as a row
            blank = rb"(?m)[ \t]+(?=[%b\r\n])|(?:(?<=%b)|^)[ \t]+|^\s*\n".replace(
                b"%b", re.escape(self.separator.encode())
            )
            with suppress(pl.exceptions.PolarsError, pl.exceptions.PanicException, _Refused):
                return self._parsed(pl, re.sub(blank, b"", piece), numbers, texts)
        return self._from_cells(pl, piece, line, numbers, texts)

    def _with_partitions(self, pl: Any, piece: bytes, line: int, numbers: Sequence[int], texts: Sequence[int]) -> Any:
        """Return a data frame of columns, of which some are named by folders and have the same cell in each row."""
        width = self._text_width
        in_text = [[k for k in columns if k < width] for columns in (numbers, texts)]
        frame = self.frame(piece, line, *in_text) if any(in_text) else self.frame(piece, line, [], [0])
        for k in (k for k in (*numbers, *texts) if k >= width):
            cell: Any = self._partitions[k - width].strip()
            if k in texts:
                cell, kind = cell or None, pl.String
            else:
                try:
                    cell, kind = None if self.dialect.missing(cell) else as_number(cell, self.dialect), pl.Float64
                except ValueError:
                    raise self.error(self.begins, f"{self.called(k)}: {self.why(cell, k)}") from None
            frame = frame.with_columns(pl.lit(cell, kind).alias(str(k)))
        return frame.select([str(k) for k in (*numbers, *texts)])

    def _parsed(self, pl: Any, piece: bytes, numbers: Sequence[int], texts: Sequence[int]) -> Any:
        as_written = self.dialect.decimal == "." and self.dialect.thousands is None
        frames: list[Any] = []
        if numbers:
            frame = self._columns(pl, piece, numbers, pl.Float64 if as_written else pl.String)
            if not as_written:
                frame = self._as_numbers(pl, frame)
            # polars accepts inf and nan. A finite sum excludes them; if it overflowed, all entries are checked.
            if not all(math.isfinite(value or 0.0) for value in frame.sum().row(0)) and (
                not frame.select(pl.all_horizontal(pl.all().is_finite().all())).item()
            ):
                raise _Refused
            frames.append(frame)
        if texts:
            if any(byte in piece for byte in _BLANKS_OF_PYTHON):
                raise _Refused
            stripped = pl.all().str.strip_chars()
            frame = self._columns(pl, piece, texts, pl.String).with_columns(stripped)
            frames.append(frame.with_columns(pl.when(pl.all() != "").then(pl.all())))
        return frames[0] if len(frames) == 1 else frames[0].hstack(frames[1])

    def _columns(self, pl: Any, piece: bytes, columns: Sequence[int], kind: Any) -> Any:
        """Return columns of one type, parsed with polars, as a data frame.
        _Refused is raised if polars may have misread them.

        The last column of the file is always parsed, because its nulls reveal short rows.
        """
        # Several blanks separate columns too, polars drops a byte order mark that is part of a cell, and it panics at
        # some quotes if lines end in a carriage return.
        if self.separator == " " or piece.startswith(BYTE_ORDER_MARK) or (self.newline == b"\r" and b'"' in piece):
            raise _Refused
        last, is_number, comment = self._text_width - 1, kind == pl.Float64, self.dialect.comment
        if kind not in self._schemas:
            self._schemas[kind] = {f"column_{k + 1}": kind for k in range(self._text_width)}
        schema = self._schemas[kind] if last in columns else {**self._schemas[kind], f"column_{last + 1}": pl.String}
        frame = pl.read_csv(
            piece,
            has_header=False,
            schema=schema,
            columns=None if len(columns) == self._text_width else sorted({*columns, last}),
            separator=self.separator,
            comment_prefix=comment,
            eol_char=self.newline.decode(),
            null_values=self._null_values() if is_number and self._has_nulls else None,
            encoding="utf8-lossy" if is_number else "utf8",
        )
        quoted = b'"' in piece
        if quoted or self._text_width == 1 or frame.get_columns()[-1].null_count():
            self._refuse_uneven(self._unquoted(piece) if quoted else piece, len(frame), piece)
        if b"\r" in piece and self.newline == b"\n" and piece.count(b"\r\n") != piece.count(b"\r"):
            raise _Refused
        at = {int(name[7:]) - 1: column for name, column in zip(frame.columns, frame.get_columns(), strict=True)}
        return pl.DataFrame([at[k].alias(str(k)) for k in columns])

    def _unquoted(self, piece: bytes) -> bytes:
        """Return a piece of text without its quoted cells.

        A quote that remains does not enclose a whole cell.
        """
        mark = re.escape(self.separator.encode())
        return re.sub(rb'(?<![^%b\n\r])"(?:[^"]|"")*"(?=[%b\r\n])' % (mark, mark), b"", piece)

    def _refuse_uneven(self, unquoted: bytes, n_rows: int, piece: bytes) -> None:
        """Raise _Refused if there may be short rows, blank lines, or quotes that do not enclose a cell."""
        if not self.dialect.multiline and unquoted.count(self.newline) != piece.count(self.newline):
            raise _Refused
        unquoted = unquoted.replace(self.newline, b"\n")  # the end of a line to the patterns below
        if self.dialect.comment:
            unquoted = re.sub(rb"(?m)^" + re.escape(self.dialect.comment.encode()) + rb".*\n", b"", unquoted)
        lines, n_separators = unquoted.count(b"\n"), unquoted.count(self.separator.encode())
        broken = b'"' in unquoted or (not self.dialect.multiline and lines != n_rows)
        if broken or n_separators != n_rows * (self._text_width - 1):
            raise _Refused
        if self._text_width == 1 and re.search(rb"(?m)^[ \t\r]*$", unquoted[:-1]):
            raise _Refused

    def _as_numbers(self, pl: Any, frame: Any) -> Any:
        """Return a data frame with columns of strings converted to numbers, written as the dialect describes."""
        text = pl.all().str.strip_chars(" \t\r")
        missing = text.str.to_lowercase().is_in([*MISSING, *self.dialect.na_values])
        if self.dialect.thousands:
            text = text.str.replace_all(self.dialect.thousands, "", literal=True)
        if self.dialect.decimal == ",":
            text = text.str.replace_all(".", "x", literal=True).str.replace_all(",", ".", literal=True)
        read = frame.select(pl.when(~missing).then(text))
        out = read.select(pl.all().cast(pl.Float64, strict=False))
        if out.select(pl.sum_horizontal(pl.all().null_count())).item() != sum(read.null_count().row(0)):
            raise _Refused
        return out

    def _null_values(self) -> list[str]:
        """Return the spellings of missing numbers in lower, upper and title case."""
        texts = {*MISSING, *self.dialect.na_values} - {""}
        return sorted({*texts, *map(str.upper, texts), *map(str.title, texts)} | {"NaN"})

    def _from_cells(self, pl: Any, piece: bytes, line: int, numbers: Sequence[int], texts: Sequence[int]) -> Any:
        """Parse some columns in Python into the data frame that polars would return. Raise SourceError at the first
        invalid line.
        """
        columns: dict[int, list[Any]] = {k: [] for k in (*numbers, *texts)}
        for number, cells in self.records(piece, line):
            if len(cells) != self._text_width:
                raise self._uneven(number, len(cells))
            for k in numbers:
                text = cells[k].strip()
                try:
                    columns[k].append(None if self.dialect.missing(text) else as_number(text, self.dialect))
                except ValueError:
                    raise self.error(number, f"{self.called(k)}: {self.why(cells[k], k)}") from None
            for k in texts:
                columns[k].append(cells[k].strip() or None)
        kinds = {str(k): pl.Float64 if k in numbers else pl.String for k in columns}
        return pl.DataFrame({str(k): values for k, values in columns.items()}, schema=kinds)

    def why(self, cell: str, column: int) -> str:
        """Describe why a cell is not a number, and what the user can do about it."""
        if self._head and cell in self._head[column : column + 1]:
            return HEADER_REPEATED
        if cell.strip().lower() in OTHER_MISSING:
            said = f"--set na_values={cell.strip()} (na_values=[{cell.strip()!r}]) reads it as missing"
            return f"{no_number(cell, self.dialect)}: {said}, and fill= (--fill) fills it in"
        return f"{no_number(cell, self.dialect)}{self.hint(column)}"

    # -- what is refused -------------------------------------------------------------------------------------------
    def _refuse_bytes(self, text: bytes, line: int, *, strict: bool) -> None:
        """Raise SourceError if the text contains a NUL byte or, with strict=True, is not UTF-8."""
        if (at := text.find(b"\0")) >= 0:
            self._no_text(text, at, line, "holds a NUL byte")
        try:
            text.decode() if strict else None
        except UnicodeDecodeError as error:
            self._no_text(text, error.start, line, f"holds the byte 0x{text[error.start]:02x}, which is no UTF-8")

    def _no_text(self, text: bytes, at: int, line: int, why: str) -> NoReturn:
        line += text.count(self.newline, 0, at)
        raise SourceError(f"{self.name} is not text: line {line} {why}: {as_utf8(text[:4] if line == 1 else b'')}")

    def _refuse_header(self, piece: bytes, line: int) -> None:
        """Raise SourceError if the header line occurs again among the rows, as in concatenated files."""
        for number, row in enumerate(piece.split(self.newline), line + 1):
            if row.rstrip(b"\r") == self._numbering:
                raise self.error(number, HEADER_REPEATED)


def _no_hint(column: int) -> str:
    return ""


class _Refused(ValueError):
    """Raised if polars would accept rows that break a rule of the format, or may have misread them."""


def first_lines(file: InputFile, n_lines: int, *, wait: bool = True) -> bytes:
    """Return the first lines of a text: about 64 kB, or more until there are more than `n_lines` lines.

    The bytes remain to be read. With wait=False, at most two lines of a slow stream are waited for.
    """
    size = HEAD_BYTES
    while True:
        head = file.head(size, lines=0 if wait else 2)
        newline = b"\n" if b"\n" in head else b"\r"
        complete = len(head) < size and (wait or head.count(newline) < 2)
        if complete or size > LONGEST_LINE:
            return head
        if head.count(newline) > n_lines:
            return head[: head.rfind(newline) + 1]
        size *= 2


def first_cells(frames: Iterable[Any], columns: Sequence[int], dialect: Dialect) -> dict[int, list[str]]:
    """Return {column: cells}, the first cells of each column that are not missing; [] for an empty column."""
    left, found = list(columns), dict[int, list[str]]()
    for frame in frames:
        for k in left.copy():
            cells = frame[str(k)].drop_nulls().head(DECIDING_LINES).to_list()
            if any(kind_of(cell, dialect) is not None for cell in cells):
                found[k] = cells
                left.remove(k)
        if not left:
            break
    return found | {k: [] for k in left}
