"""Tables in text: lines, their cells, and whether the first line is a header: read strictly, and never guessed."""

import logging
import math
import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from fastsketch._core.escaping import escaped
from fastsketch._core.validation import as_flag
from fastsketch.data.files._input import InputFile, SourceError, whole_lines

LOGGER = logging.getLogger("fastsketch")
BLOCK_BYTES = 1 << 20
# Ids, a number and what else stands beside them: a longer line has lost its end.
LONGEST_LINE = 1 << 20
ZIP, WORKBOOK = b"PK\x03\x04", "it is an Excel workbook or another zip archive: save the sheet as CSV UTF-8"
# Rows that are split into cells at a time: of more the garbage collector goes through the cells that wait.
ROWS_AT_A_TIME = 256
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# Lines that tell what divides columns, whether there is a header, and what a column holds.
DECIDING_LINES = 1000

# Of a column's cells, the share that may be words by mistake: whether it is one of numbers is asked then.
MISTAKES = 0.05
# Cells with digits that tell what has none from them; whole numbers that are pointed out if each is another.
CODES, MANY = 10, 20
# Cells that stand for a number that is not there (csrc/fs_table.h), and others that people write so.
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
UNREAD = frozenset({"-", "--", ".", "#n/a", "#na", "<na>", "n.a.", "nil", "missing", "unknown"})
_NUMBER = re.compile(r"[ \t]*[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[ \t]*").fullmatch
_DIGIT = re.compile(r"\d").search
_YEAR = re.compile(r"19[0-9]{2}|20[0-9]{2}|2100").fullmatch
_POINT_FOR_COMMA = str.maketrans(".,", ",.")
_INF = ("inf", "infinity")

# What stands in digits and is no number that is read, by name, and what to do about it.
NUMBER, DATE, WORD = "a number", "a date or a time", "a word"
_DIGITS = r"[+-]?[0-9][0-9.,' \u00a0\u202f]*"
_MONEY = r"(?:[$\u00a2-\u00a5\u20a0-\u20cf]|EUR|USD|GBP|CHF|JPY|CNY|INR)"
_CLOCK = r"[0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]+)?)?(?: ?[AaPp][Mm])?(?:Z| ?[+-][0-9]{2}:?[0-9]{2})?"
_MONTH = r"[^\W\d_]{3,9}"
_DAY = (
    r"(?:[0-9]{4}([-/.])[0-9]{1,2}\1[0-9]{1,2}|[0-9]{1,2}([-/.])[0-9]{1,2}\2(?:[0-9]{4}|[0-9]{2})"
    rf"|[0-9]{{1,2}}[-. ]{{1,2}}{_MONTH}[-., ]{{1,2}}(?:[0-9]{{4}}|[0-9]{{2}})|{_MONTH}\.? [0-9]{{1,2}}, [0-9]{{4}})"
)
_FIGURES = {
    DATE: (rf"{_DAY}(?:[T ,]{{1,2}}{_CLOCK})?|{_CLOCK}", "leave the column out"),
    "a percentage": (rf"{_DIGITS} ?%", "take the percent sign away"),
    "an amount of money": (rf"{_MONEY} ?{_DIGITS}|{_DIGITS} ?{_MONEY}", "take the currency away"),
    "a number with points and a comma": (
        r"[+-]?[0-9]{1,3}(?:\.[0-9]{3})+,[0-9]+",
        "take its points away; --set decimal=, reads the comma (decimal=',')",
    ),
    "a number with a comma before three digits": (
        r"[+-]?[1-9][0-9]{0,2},[0-9]{3}",
        "take it away if it divides thousands; if not, --set decimal=, reads it as the point (decimal=',')",
    ),
    "a number with a comma": (r"[+-]?[0-9]+,[0-9]+", "--set decimal=, reads it as the point (decimal=',')"),
    "a number with a point before three digits": (
        r"[+-]?[1-9][0-9]{0,2}\.[0-9]{3}",
        "take it away if it divides thousands; if not, it is read without --set decimal=, (decimal=',')",
    ),
    "a number with a point": (r"[+-]?[0-9]+\.[0-9]+", "it is read without --set decimal=, (decimal=',')"),
    "a number with separators": (
        r"[+-]?[0-9]{1,3}(?:(?:[ ,'\u00a0\u202f][0-9]{3})+(?:\.[0-9]+)?|(?:\.[0-9]{3}){2,})",
        "leave them out",
    ),
}
_PATTERNS = [(kind, re.compile(pattern).fullmatch) for kind, (pattern, _) in _FIGURES.items()]

Row = tuple[int, list[str]]  # (number of its line, cells)
Block = tuple[int, list[str]]  # (number of the first line, lines)


class Dialect(NamedTuple):
    """How a table is written, as far as somebody has said it: the first lines tell the rest."""

    header: bool | None = None
    separator: str | None = None
    decimal: str = "."


def as_dialect(header: Any = None, separator: Any = None, decimal: Any = ".") -> Dialect:
    """Return checked arguments as a dialect; TypeError or ValueError names one that is none."""
    one = isinstance(separator, str) and len(separator) == 1 and separator.isascii() and not separator.isalnum()
    if separator is not None and (not one or separator in '"+-.\r\n\0'):
        raise ValueError(f"separator must be one character that stands in no number or word, got {separator!r}")
    if decimal not in (".", ","):
        raise ValueError(f"decimal must be '.' or ',', got {decimal!r}")
    return Dialect(None if header is None else as_flag(header, "header"), separator, decimal)


# -- rows of cells -----------------------------------------------------------------------------------------------------
class Cells:
    """The rows of a table as cells of text, without its header; iterating gives (number of the line, cells), once.

    Parameters
    ----------
    name : str
        Of the file, in messages.
    rows : iterator of Row
        All of one length, the header among them.
    dialect : Dialect
    position : callable
        Gives how much has been read, in the units of ``size``.
    size : int
    unit : str, default "line"
        What a row is in messages.
    wanted : int, default 1
        Cells that a row has at least.
    numbers : bool, default False
        Whether a row holds numbers: one of words alone is a header then, and one with words or years is no row.

    Attributes
    ----------
    names : list of str or None
        The cells of the header, without the blanks around them.
    first : list of Row
        The first rows, at most DECIDING_LINES of them.
    width, begins : int
        Cells of a row; the line of the first, be it a header. 0 if there is none.
    separator : str
        What divides the cells of text.

    Raises
    ------
    SourceError
        If rows are too short, or nothing tells whether the first is a header.
    """

    def __init__(
        self,
        name: str,
        rows: Iterator[Row],
        dialect: Dialect,
        *,
        position: Callable[[], int] = lambda: 0,
        size: int = 0,
        unit: str = "line",
        wanted: int = 1,
        numbers: bool = False,
    ) -> None:
        self.name, self.unit, self.position, self.size, self._numbers = name, unit, position, size, numbers
        self.decimal, self.separator = dialect.decimal, ""
        self.first = list(islice(rows, DECIDING_LINES))
        self._rest: Iterator[Row] = rows
        self._head: list[str] | None = None
        self.names: list[str] | None = None
        self.width = self.begins = 0
        if not self.first:
            return
        self.begins, self.width = self.first[0][0], len(self.first[0][1])
        if self.width < wanted:
            divided = "" if self.width > 1 else f"; {UNDIVIDED}"
            raise self.error(self.begins, f"{wanted} columns are needed, there are {self.width}{divided}")
        if self._has_header(dialect):
            self._head = self.first.pop(0)[1]
            self.names = [cell.strip() for cell in self._head]
            if again := [number for number, cells in self.first if cells == self._head]:
                raise self.error(again[0], AGAIN)

    def _has_header(self, dialect: Dialect) -> bool:
        if dialect.header is not None:
            return dialect.header
        head = self.first[0][1]
        rows = [cells for _, cells in self.first]
        told = tell_header(rows, dialect.decimal)
        if self._numbers and not told:
            if told is None and all(is_name(cell, dialect.decimal) for cell in head):
                told = True  # as a row it would be refused
            else:
                odd = begins_with_years(rows) or WORD in (kind_of(cell, dialect.decimal) for cell in head)
                told = None if odd else False
        if told is None:
            divided = "" if self.width > 1 else f"; {UNDIVIDED}"
            raise self.error(self.begins, f"{listed(head)}: {UNTOLD}{divided}")
        if told:
            say_header(f"{self.name}, {self.unit} {self.begins}", rows, dialect.decimal)
        return told

    def __iter__(self) -> Iterator[Row]:
        return chain(self.first, self._checked())

    def _checked(self) -> Iterator[Row]:
        for number, cells in self._rest:
            if cells == self._head:
                raise self.error(number, AGAIN)
            yield number, cells

    def error(self, number: int, why: object) -> SourceError:
        """Return the error for a row; below 0 it is the names of columns that are no row of text."""
        return SourceError(f"{self.name}{'' if number < 0 else f', {self.unit} {number}'}: {why}")

    def called(self, column: int) -> str:
        """Return how messages name a column, which is counted from 0."""
        name = f" ({self.names[column]!r})" if self.names and self.names[column] else ""
        return f"column {column + 1}{name}"


RETURN = "a carriage return within the line (lines end in \\n or \\r\\n)"
AGAIN = "the header stands there again: leave the line out"
UNDIVIDED = "tabs, semicolons and commas divide columns, or what --set separator=X says (separator=...)"
UNTOLD = "nothing tells whether this is a header: say --set header=yes or --set header=no (header=True or header=False)"


def text_cells(
    file: InputFile, dialect: Dialect, *, block_bytes: int = BLOCK_BYTES, longest: int = LONGEST_LINE, **options: Any
) -> Cells:
    """Return the rows of a table in text, of an open file.

    UTF-8 with tabs, semicolons, commas or what `dialect` has between columns; every line has as many as the first. A
    cell that begins with a quote ends with one on the same line, and "" within it is a quote; no other cell holds
    quotes. Lines that are blank are skipped. `options` are those of ``Cells``; rows of `numbers` end before one that
    is no such row, unless it is the first: whoever parses them says what is wrong with it.
    """
    blocks, held, first = _lines(file, block_bytes, longest), list[Block](), list[tuple[int, str]]()
    while len(first) < DECIDING_LINES and (block := next(blocks, None)) is not None:
        held.append(block)
        near = enumerate(block[1][: 2 * DECIDING_LINES], block[0])
        first += [(number, line) for number, line in near if line.strip()]
    separator = separator_of(str(file.path), first[:DECIDING_LINES], dialect)
    rows = chain.from_iterable(_split(file, chain(held, blocks), separator, strict=not options.get("numbers")))
    cells = Cells(str(file.path), rows, dialect, position=lambda: file.place, **options)
    cells.separator = separator
    return cells


def _split(file: InputFile, blocks: Iterable[Block], separator: str, *, strict: bool) -> Iterator[list[Row]]:
    """Yield rows, some at a time, up to one that has other columns: an error, or, unless `strict`, the end."""
    width, plain = 0, separator != " "
    for first, lines in blocks:
        for start in range(0, len(lines), ROWS_AT_A_TIME):
            rows: list[Row] = []
            for number, line in enumerate(lines[start : start + ROWS_AT_A_TIME], first + start):
                if not line or line.isspace():
                    continue
                try:
                    cells = line.split(separator) if plain and '"' not in line else cells_of(line, separator)
                    if len(cells) != (width := width or len(cells)):
                        raise ValueError(f"there are {len(cells)} columns, in the first line {width}")
                except ValueError as error:
                    yield rows
                    if strict or not width:
                        raise SourceError(f"{file.path}, line {number}: {error}") from None
                    return
                rows.append((number, cells))
            yield rows


def _lines(file: InputFile, block_bytes: int, longest: int) -> Iterator[Block]:
    """Yield (number of the first line, from 1, and the lines, without their ends) of each block of text."""
    number, start = 0, b""
    for piece in whole_lines(file, block_bytes, longest):
        start = start or bytes(piece[:4])
        block = bytes(piece) if number else bytes(piece).removeprefix(BYTE_ORDER_MARK)
        if (at := block.find(b"\0")) >= 0:
            raise _no_text(file.path, number + 1 + block.count(b"\n", 0, at), "holds a NUL byte", start)
        try:
            text = block.decode()
        except UnicodeDecodeError as error:
            place = number + 1 + block.count(b"\n", 0, error.start)
            why = f"holds the byte 0x{block[error.start]:02x}, which is no UTF-8"
            raise _no_text(file.path, place, why, start) from None
        lines = text[:-1].split("\n")
        if "\r" in text:
            lines = [line.rstrip("\r") for line in lines]
            if odd := [place for place, line in enumerate(lines, number + 1) if "\r" in line]:
                raise SourceError(f"{file.path}, line {odd[0]}: {RETURN}")
        yield number + 1, lines
        number += len(lines)


def _no_text(path: Path, line: int, why: str, start: bytes) -> SourceError:
    return SourceError(f"{path} is not text: line {line} {why}: {as_utf8(start)}")


def as_utf8(start: bytes) -> str:
    """Return how a file that begins so, and is no UTF-8, is made such text."""
    if start.startswith(ZIP):
        return WORKBOOK
    if start.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        return "iconv -f UTF-16 -t UTF-8 makes such text of it"
    return "iconv -f CP1252 -t UTF-8 makes such text of it, if CP1252 is how it was written"


def separator_of(name: str, lines: Sequence[tuple[int, str]], dialect: Dialect) -> str:
    """Return what divides the columns of these lines: what the dialect says, or tabs, semicolons or commas.

    Where the first line holds semicolons and commas, it is semicolons if commas stand in numbers, or the one that
    divides all lines into as many columns: else SourceError.
    """
    if lines and re.fullmatch("sep=.", lines[0][1].strip(), re.IGNORECASE):
        raise SourceError(f"{name}, line {lines[0][0]}: leave out {lines[0][1].strip()!r}, which Excel alone reads")
    if dialect.separator:
        return dialect.separator
    plain = [re.sub(r'"[^"]*"', "", line) for _, line in lines]
    if not plain or "\t" in plain[0]:
        return "\t" if plain else ","
    if ";" not in plain[0] or "," not in plain[0]:
        return ";" if ";" in plain[0] else ","
    even = [
        mark for mark in (";" if dialect.decimal == "," else ";,") if len({line.count(mark) for line in plain}) == 1
    ]
    if len(even) != 1:
        raise SourceError(
            f"{name}, line {lines[0][0]}: semicolons or commas may divide it: say which by --set 'separator=;' or "
            "--set separator=, (separator=...)"
        )
    return even[0]


def cells_of(line: str, separator: str) -> list[str]:
    """Return the cells of a line; ValueError for quotes that do not enclose one."""
    if '"' not in line:
        return line.split() if separator == " " else line.split(separator)
    cells: list[str] = []
    at = 0
    while True:
        start = _after_blanks(line, at)
        if line[start : start + 1] == '"':
            text, at = _quoted(line, start, len(cells) + 1)
            end = _after_blanks(line, at)
            if end < len(line) and line[end] != separator and separator != " ":
                raise ValueError(f"column {len(cells) + 1} goes on after its closing quote")
        else:
            end = line.find(separator, at)
            end = len(line) if end < 0 else end
            text = line[at:end]
            if '"' in text:
                raise ValueError(f'column {len(cells) + 1} holds a quote: write it as "..." with "" for each quote')
        cells.append(text)
        if end >= len(line):
            return cells
        at = end + 1


def _after_blanks(line: str, at: int) -> int:
    while line.startswith(" ", at):
        at += 1
    return at


def _quoted(line: str, start: int, column: int) -> tuple[str, int]:
    """Return (text of the quoted column that begins at start, place after its closing quote)."""
    at = start + 1
    while (end := line.find('"', at)) >= 0:
        if line[end + 1 : end + 2] != '"':
            return line[start + 1 : end].replace('""', '"'), end + 1
        at = end + 2
    raise ValueError(f"the quote that opens column {column} does not close on this line: a cell holds no line ends")


# -- headers -----------------------------------------------------------------------------------------------------------
def tell_header(rows: Sequence[Sequence[str]], decimal: str = ".") -> bool | None:
    """Return whether the first row is a header, None if nothing tells.

    It is one if a name in it stands above a column of numbers, dates and the like, or a name without digits above
    CODES or more cells that all hold some (ids), and none if a figure stands in it, or what is no name above figures,
    or if each of its cells stands again below it, in another row. With both nothing tells, and nothing does where the
    figures are unlike those below, beside names without digits none of which comes again: `Kunde,Artikel,2024` above
    `anna,milk,3`.
    """
    pairs = _pairs(rows)
    names = [(cell, column) for cell, column in pairs if is_name(cell, decimal)]
    figures = [(cell, column) for cell, column in pairs if kind_of(cell, decimal) not in (None, WORD)]
    neither = [pair for pair in pairs if pair[0] and pair not in names and pair not in figures]
    row = any(_of_figures(cell, column, decimal) for cell, column in neither)
    if any(_of_codes(cell, column) or _of_figures(cell, column, decimal) for cell, column in names):
        return None if row or figures else True
    again = [cell for cell, column in pairs if cell and cell in map(str.strip, column)]
    told = bool(again) or all(_DIGIT(cell) for cell, _ in names)
    row = row or any(told or _is_like(cell, column, decimal) for cell, column in figures)
    return False if row or len(again) == sum(bool(cell) for cell, _ in pairs) else None


def _pairs(rows: Sequence[Sequence[str]]) -> list[tuple[str, Sequence[str]]]:
    """Return each cell of the first row, and what stands below it."""
    head, *others = rows
    columns = list(zip(*(row for row in others if row != head), strict=True)) or [()] * len(head)
    return [(cell.strip(), column) for cell, column in zip(head, columns, strict=True)]


def _is_like(figure: str, column: Sequence[str], decimal: str) -> bool:
    """Return whether a figure may be one of a column: no date above numbers, none ten times beyond all of them."""
    kinds = {kind_of(cell, decimal) for cell in column}
    if kind_of(figure, decimal) != NUMBER:
        return kind_of(figure, decimal) != DATE or DATE in kinds or NUMBER not in kinds
    sizes = [_size(cell, decimal) for cell in column if kind_of(cell, decimal) == NUMBER]
    sizes = [size for size in sizes if math.isfinite(size)] or [1.0]
    return min(sizes) / 10 <= _size(figure, decimal) <= 10 * max(sizes)


def _size(number: str, decimal: str) -> float:
    return abs(float(number if decimal == "." else number.translate(_POINT_FOR_COMMA)))


def _of_codes(name: str, column: Sequence[str]) -> bool:
    return not _DIGIT(name) and len(column) >= CODES and all(map(_DIGIT, column))


def _of_figures(name: str, column: Sequence[str], decimal: str) -> bool:
    """Return whether a column holds figures, few mistakes aside, and the cell above it does not occur in it."""
    known = words = 0
    for cell in column:
        kind = kind_of(cell, decimal)
        known, words = known + (kind is not None), words + (kind == WORD)
        if words > MISTAKES * len(column):
            return False
    return known > 0 and words <= MISTAKES * known and name not in column


def begins_with_years(rows: Sequence[Sequence[str]]) -> bool:
    """Return whether years (1900 to 2100) stand above other cells: whether they are names of columns is not told."""
    head, *below = [[_YEAR(cell.strip()) is not None for cell in row] for row in rows]
    return all(head) and len(below) > 0 and sum(map(sum, below)) <= MISTAKES * sum(map(len, below))


def is_name(cell: str, decimal: str = ".") -> bool:
    """Return whether a cell may be the name of a column: a word that does not begin as a number does (4.o)."""
    text = cell.strip().lower()
    return kind_of(text, decimal) == WORD and not text[0].isdigit() and text[0] not in "+-." and text not in _INF


def say_header(where: str, rows: Sequence[Sequence[str]], decimal: str) -> None:
    """Tell whoever listens to this logger, as the command line does, that the first row was taken for a header.

    Where ids alone told it, which the row may be one of, it is a warning: Python prints it where nobody listens.
    """
    ids = [cell for cell, column in _pairs(rows) if _of_codes(cell, column)]
    sure = not ids or any(_of_figures(cell, column, decimal) for cell, column in _pairs(rows))
    text = "%s is taken for a header: %s (--set header=no, header=False, if it is none)"
    LOGGER.log(logging.INFO if sure else logging.WARNING, text, escaped(where), listed(rows[0]))


def say_ids(of: str, columns: Mapping[str, Sequence[str]], otherwise: str) -> None:
    """Tell of columns of numbers which may be ids: whole ones in many rows, each another or with zeros in front."""
    names = [name for name, cells in columns.items() if len(cells) >= MANY and _may_be_ids([*map(str.strip, cells)])]
    if names:
        said = "hold another whole number in every row, or zeros in front, and are read as numbers"
        LOGGER.info("%s: these columns %s: %s (%s)", escaped(of), said, listed(names), escaped(otherwise))


def _may_be_ids(cells: Sequence[str]) -> bool:
    if not all(map(str.isdecimal, cells)):
        return False
    return len(set(cells)) == len(cells) or any(cell[0] == "0" and len(cell) > 1 for cell in cells)


def listed(cells: Sequence[str]) -> str:
    """Return the first cells of a row as a message shows them."""
    return ", ".join(repr(cell.strip()[:40]) for cell in cells[:4]) + (", ..." if len(cells) > 4 else "")


# -- cells -------------------------------------------------------------------------------------------------------------
def as_number(text: str, decimal: str = ".") -> float:
    """Return a cell as a decimal number that is finite; ValueError says what it is if it is none."""
    plain = text if decimal == "." else text.translate(_POINT_FOR_COMMA)
    if _NUMBER(plain) and math.isfinite(value := float(plain)):
        return value
    raise ValueError(no_number(text, decimal))


def no_number(text: str, decimal: str = ".") -> str:
    """Return what is wrong with a cell that is no number, and what to do if it is something known."""
    kind = kind_of(text, decimal)
    hint = f" but {kind}: {remedy(kind)}" if kind in _FIGURES else ""
    return f"{text.strip()[:40]!r} is no finite decimal number{hint}"


def remedy(kind: str) -> str:
    """Return what to do about a figure of this kind that is no number."""
    return _FIGURES[kind][1]


def is_numeric(cells: Iterable[str], decimal: str) -> bool:
    """Return whether a column holds numbers, and nothing else but for mistakes."""
    kinds = [kind for kind in (kind_of(cell, decimal) for cell in cells) if kind is not None]
    return len(kinds) > 0 and len(kinds) - kinds.count(NUMBER) <= MISTAKES * len(kinds)


def kind_of(text: str, decimal: str = ".") -> str | None:
    """Return what a cell holds: NUMBER, DATE, another figure by its name, or WORD; None if it is missing."""
    text = text.strip()
    if text.lower() in MISSING:
        return None
    if _NUMBER(text if decimal == "." else text.translate(_POINT_FOR_COMMA)):
        return NUMBER
    for kind, fits in _PATTERNS:
        if fits(text):
            return kind
    return WORD
