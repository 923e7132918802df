"""Determine the dialect of a csv file: its separator, its header, and what the cells of a column hold."""

import logging
import math
import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from fastsketch._core.escaping import escaped
from fastsketch._core.validation import as_flag
from fastsketch.data.files._input import SourceError

LOGGER = logging.getLogger("fastsketch")
ZIP = b"PK\x03\x04"
WORKBOOK = "it is an Excel workbook or another zip archive: save the sheet as CSV UTF-8; fs.load reads a saved model"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# The number of first lines that decide separator, header, and what a column holds.
DECIDING_LINES = 1000

# A column of numbers may have this share of words, which are then taken for mistakes and reported.
MAX_MISTAKE_SHARE = 0.05
# MIN_CODES cells with digits below a name without digits show that it is a header. MIN_IDS distinct integers in a
# column are reported as possible ids.
MIN_CODES, MIN_IDS = 10, 20
# n random numbers ascend with probability 1 / n!, six with 1 / 720: such a first row is taken for a header.
MIN_ASCENDING = 6
# MISSING: cells that denote a missing number. OTHER_MISSING: other usual spellings, which the user can add by
# `na_values`.
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
OTHER_MISSING = frozenset({"-", "--", ".", "#n/a", "#na", "<na>", "n.a.", "nil", "missing", "unknown"})
_NUMBER = re.compile(r"[ \t]*[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[ \t]*").fullmatch
_DIGIT = re.compile(r"\d").search
_YEAR = re.compile(r"19[0-9]{2}|20[0-9]{2}|2100").fullmatch
_POINT_FOR_COMMA = str.maketrans(".,", ",.")
_INF = ("inf", "infinity")

# Kinds of cells with digits that are not read as numbers: {description: (pattern, what the user can do)}.
NUMBER, DATE, WORD = "a number", "a date or a time", "a word"
_DIGITS = r"[+-]?[0-9][0-9.,' \u00a0\u202f]*"
_CURRENCIES = ("EUR", "USD", "GBP", "CHF", "JPY", "CNY", "INR")
_MONEY = rf"(?:[$\u00a2-\u00a5\u20a0-\u20cf]|{'|'.join(_CURRENCIES)})"
_CLOCK = r"[0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]+)?)?(?: ?[AaPp][Mm])?(?:Z| ?[+-][0-9]{2}:?[0-9]{2})?"
_MONTH = r"[^\W\d_]{3,9}"
_DAY = (
    r"(?:[0-9]{4}([-/.])[0-9]{1,2}\1[0-9]{1,2}|[0-9]{1,2}([-/.])[0-9]{1,2}\2(?:[0-9]{4}|[0-9]{2})"
    rf"|[0-9]{{1,2}}[-. ]{{1,2}}{_MONTH}[-., ]{{1,2}}(?:[0-9]{{4}}|[0-9]{{2}})|{_MONTH}\.? [0-9]{{1,2}}, [0-9]{{4}})"
)
_FIGURE_KINDS = {
    DATE: (rf"{_DAY}(?:[T ,]{{1,2}}{_CLOCK})?|{_CLOCK}", "leave the column out"),
    "a percentage": (rf"{_DIGITS} ?%", "take the percent sign away"),
    "an amount of money": (rf"{_MONEY} ?{_DIGITS}|{_DIGITS} ?{_MONEY}", "take the currency away"),
    "a number with points and a comma": (
        r"[+-]?[0-9]{1,3}(?:\.[0-9]{3})+,[0-9]+",
        "--set thousands=. --set decimal=, reads it (thousands='.', decimal=',')",
    ),
    "a number with a comma before three digits": (
        r"[+-]?[1-9][0-9]{0,2},[0-9]{3}",
        "--set thousands=, (thousands=',') reads it if it divides thousands; if not, --set decimal=, reads it as "
        "the point (decimal=',')",
    ),
    "a number with a comma": (r"[+-]?[0-9]+,[0-9]+", "--set decimal=, reads it as the point (decimal=',')"),
    "a number with a point before three digits": (
        r"[+-]?[1-9][0-9]{0,2}\.[0-9]{3}",
        "--set thousands=. (thousands='.') reads it if it divides thousands; if not, it is read without --set "
        "decimal=, (decimal=',')",
    ),
    "a number with a point": (r"[+-]?[0-9]+\.[0-9]+", "it is read without --set decimal=, (decimal=',')"),
    "a number with separators": (
        r"[+-]?[0-9]{1,3}(?:(?:[ ,'\u00a0\u202f][0-9]{3})+(?:\.[0-9]+)?|(?:\.[0-9]{3}){2,})",
        "leave them out, or say which: --set thousands=X (thousands='X')",
    ),
}
_PATTERNS = [(kind, re.compile(pattern).fullmatch) for kind, (pattern, _) in _FIGURE_KINDS.items()]

HEADER_REPEATED = "the header stands there again: leave the line out"
SEPARATOR_HINT = "tabs, semicolons and commas divide columns, or what --set separator=X says (separator=...)"
HEADER_UNDECIDED = (
    "nothing tells whether this is a header: say --set header=yes or --set header=no (header=True or header=False)"
)

Row = tuple[int, list[str]]  # (number of its line, cells)


class Dialect(NamedTuple):
    """The csv options that the caller has specified; the first lines of the file determine the others."""

    header: bool | None = None
    separator: str | None = None
    decimal: str = "."
    thousands: str | None = None  # the character between groups of three digits
    comment: str | None = None  # lines that begin with it are skipped
    na_values: frozenset[str] = frozenset()  # spellings of a missing number beyond MISSING, in lower case
    multiline: bool = False  # whether a quoted cell may hold line ends

    def missing(self, text: str) -> bool:
        """Return True if a stripped cell denotes a missing number."""
        return text.lower() in MISSING or text.lower() in self.na_values

    def plain(self, text: str) -> str:
        """Return the text of a number with a decimal point and without thousands separators, so that ``float`` can
        parse it.

        Whitespace of any kind around it is removed: ``float`` does not accept all that ``str.strip`` removes.
        """
        text = text.strip()
        text = text.replace(self.thousands, "") if self.thousands else text
        return text if self.decimal == "." else text.translate(_POINT_FOR_COMMA)


PLAIN = Dialect()


def as_dialect(
    header: Any = None,
    separator: Any = None,
    decimal: Any = ".",
    thousands: Any = None,
    comment: Any = None,
    na_values: Any = (),
    multiline: Any = False,
) -> Dialect:
    """Validate csv options and return them as a Dialect. Raise TypeError or ValueError for an invalid option."""
    is_one_character = (
        isinstance(separator, str) and len(separator) == 1 and separator.isascii() and not separator.isalnum()
    )
    if separator is not None and (not is_one_character or separator in '"+-.\r\n\0'):
        raise ValueError(f"separator must be one character that stands in no number or word, got {separator!r}")
    if decimal not in (".", ","):
        raise ValueError(f"decimal must be '.' or ',', got {decimal!r}")
    if thousands is not None and (
        thousands not in (".", ",", " ", "'", "_", "\u00a0", "\u202f") or thousands == decimal
    ):
        raise ValueError(f"thousands must be one of . , ' _ or a blank, and not the decimal point, got {thousands!r}")
    if comment is not None and (not isinstance(comment, str) or not comment.strip() or '"' in comment):
        raise ValueError(f"comment must be the characters that comment lines begin with, got {comment!r}")
    spellings = [na_values] if isinstance(na_values, str) else list(na_values)
    if not_strings := [text for text in spellings if not isinstance(text, str)]:
        raise TypeError(f"na_values must be strings, got {not_strings[0]!r}")
    return Dialect(
        None if header is None else as_flag(header, "header"),
        separator,
        decimal,
        thousands,
        comment,
        frozenset(text.strip().lower() for text in spellings),
        as_flag(multiline, "multiline"),
    )


def as_utf8(start: bytes) -> str:
    """Return advice on converting a file that begins with these bytes to UTF-8, for an error message."""
    if start.startswith(ZIP):
        return WORKBOOK
    if start.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        return "iconv -f UTF-16 -t UTF-8 makes such text of it"
    if b"\0" in start[:2]:
        order = "BE" if start.startswith(b"\0") else "LE"
        return f"iconv -f UTF-16{order} -t UTF-8 makes such text of it"
    return "iconv -f CP1252 -t UTF-8 makes such text of it, if CP1252 is how it was written"


def separator_of(name: str, lines: Sequence[tuple[int, str]], dialect: Dialect) -> str:
    """Return the separator of a csv file: that of the dialect, or else tab, semicolon or comma by its first lines.

    If the first line has semicolons and commas, the one that occurs equally often in all lines is taken. With a decimal
    comma only semicolons are considered. SourceError if that does not decide.
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


class OpenQuote(ValueError):
    """Raised if a quoted cell does not end on its line."""


def cells_of(line: str, separator: str) -> list[str]:
    """Split a csv line into cells. Raise ValueError for quotes that do not enclose a whole cell."""
    if '"' not in line:
        return line.split() if separator == " " else line.split(separator)
    cells: list[str] = []
    position = 0
    while True:
        start = _after_blanks(line, position)
        if line[start : start + 1] == '"':
            text, position = _quoted(line, start, len(cells) + 1)
            end = _after_blanks(line, position)
            if end < len(line) and line[end] != separator and separator != " ":
                raise ValueError(f"column {len(cells) + 1} goes on after its closing quote")
        else:
            end = line.find(separator, position)
            end = len(line) if end < 0 else end
            text = line[position:end]
            if '"' in text:
                raise ValueError(f'column {len(cells) + 1} holds a quote: write it as "..." with "" for each quote')
        cells.append(text)
        if end >= len(line):
            return cells
        position = end + 1


def _after_blanks(line: str, position: int) -> int:
    """Return the first position from `position` on that is not a blank."""
    while line.startswith(" ", position):
        position += 1
    return position


def _quoted(line: str, start: int, column: int) -> tuple[str, int]:
    """Return the text of the quoted cell that begins at `start`, and the position after its closing quote."""
    position = start + 1
    while (end := line.find('"', position)) >= 0:
        if line[end + 1 : end + 2] != '"':
            return line[start + 1 : end].replace('""', '"'), end + 1
        position = end + 2
    raise OpenQuote(
        f"the quote that opens column {column} does not close on this line: --set multiline=yes (multiline=True) reads "
        "cells of several lines"
    )


# -- headers -----------------------------------------------------------------------------------------------------------
def detect_header(rows: Sequence[Sequence[str]], dialect: Dialect = PLAIN) -> bool | None:
    """Detect from its cells whether the first row of a csv file is a header. Return True, False, or None if that is
    undecided.

    A row that numbers the columns is a header (``_numbering``). So is a row with a name above a column of numbers,
    dates or similar figures, or with a name without digits above at least CODES cells that all contain digits (ids).

    The first row is no header if it has a figure, if it has a cell that is neither name nor figure above a column of
    figures, or if each of its cells occurs again below it.

    If there is evidence for both, the result is None. It is also None if the figures of the first row are unlike those
    below and it has names without digits that do not occur again, as in `Kunde,Artikel,2024` above `anna,milk,3`.
    """
    if numbering := _numbering(rows, dialect):
        return {"header": True, "row": False, "undecided": None}[numbering]
    pairs = _cells_with_columns(rows)
    of_kind: dict[str, list[tuple[str, Sequence[str]]]] = {"name": [], "figure": [], "": [], "missing": []}
    for cell, column in pairs:
        kind = kind_of(cell, dialect)
        other_kind = "name" if is_name(cell, dialect) else "missing" if not cell else ""
        of_kind["figure" if kind not in (None, WORD) else other_kind].append((cell, column))
    names, figures, neither = of_kind["name"], of_kind["figure"], of_kind[""]
    row = any(_is_name_above_figures(cell, column, dialect) for cell, column in neither)
    if any(
        _is_name_above_codes(cell, column) or _is_name_above_figures(cell, column, dialect) for cell, column in names
    ):
        return None if row or figures else True
    repeated_cells = [cell for cell, column in pairs if cell and cell in map(str.strip, column)]
    is_data = bool(repeated_cells) or all(_DIGIT(cell) for cell, _ in names)
    row = row or any(is_data or _is_like(cell, column, dialect) for cell, column in figures)
    return False if row or len(repeated_cells) == sum(bool(cell) for cell, _ in pairs) else None


def is_numbering(rows: Sequence[Sequence[str]], dialect: Dialect = PLAIN) -> bool:
    """Return True if the first row is a header that numbers the columns, such as 0, 1, 2."""
    return _numbering(rows, dialect) == "header"


def _numbering(rows: Sequence[Sequence[str]], dialect: Dialect) -> str:
    """Classify a first row that may number the columns. Return "header", "row", "undecided", or "" if it does not
    number them.

    pandas writes such a header for a matrix without column names. "header": the numbers are 0, 1, ..., or 1, 2, ..., or
    years, or six or more that ascend, or three or more at equal distances; other cells are empty, or words that do not
    occur below. "row": the same, but the first row occurs again below. "undecided": the numbers are 0, 1, ... or 1, 2,
    ..., and most rows below count in the same way.
    """
    head = [cell.strip() for cell in rows[0]]
    is_number = [kind_of(cell, dialect) == NUMBER for cell in head]
    places = [k for k, number in enumerate(is_number) if number]
    others = [k for k, number in enumerate(is_number) if head[k] and not number]
    below = [[row[k].strip() for k in places] for row in rows[1:] if len(row) == len(head)]
    if len(places) < (2 if others else 1) or not below or not all(is_name(head[k], dialect) for k in others):
        return ""
    numbers = [float(dialect.plain(head[k])) for k in places]
    n, steps = len(numbers), [b - a for a, b in pairwise(numbers)]
    counted, years = numbers in (list(range(n)), list(range(1, n + 1))), all(_YEAR(head[k]) for k in places)
    is_even = _are_even(numbers)
    if not (counted or years or is_even or (n >= MIN_ASCENDING and min(steps) > 0)):
        return ""
    if any(row[k].strip() == head[k] for row in rows[1:] if len(row) == len(head) for k in others):
        return "row"
    if [head[k] for k in places] in below:
        return "row"
    values = [[_number_or_nan(cell, dialect) for cell in row] for row in below]
    if years and not counted:
        n_alike = sum(all(map(_YEAR, row)) for row in below)
    elif n == 1:  # if the column continues to count, its first cell is a number like the others
        n_alike = len(values) * (values[:2] == [[numbers[0] + 1], [numbers[0] + 2]])
    elif counted:
        n_alike = sum([b - a for a, b in pairwise(row)] == steps for row in values)
    else:
        n_alike = sum(_are_even(row) if is_even else all(a < b for a, b in pairwise(row)) for row in values)
    if counted:  # with few rows, one of them may count by chance
        return "undecided" if 2 * n_alike > len(below) else "header"
    return "" if n_alike > MAX_MISTAKE_SHARE * len(below) else "header"


def _are_even(numbers: Sequence[float]) -> bool:
    """Return True if three or more numbers ascend at equal distances."""
    steps = [b - a for a, b in pairwise(numbers)]
    return len(steps) > 1 and steps[0] > 0 and max(steps) - min(steps) <= 1e-9 * max(map(abs, numbers))


def _number_or_nan(cell: str, dialect: Dialect) -> float:
    """Convert a cell to a number; NaN if it is none."""
    return float(dialect.plain(cell)) if kind_of(cell, dialect) == NUMBER else math.nan


def _cells_with_columns(rows: Sequence[Sequence[str]]) -> list[tuple[str, Sequence[str]]]:
    """Return a list of pairs (cell of the first row, cells below it), one for each column."""
    head, *others = rows
    columns = list(zip(*(row for row in others if row != head), strict=True)) or [()] * len(head)
    return [(cell.strip(), column) for cell, column in zip(head, columns, strict=True)]


def _is_like(figure: str, column: Sequence[str], dialect: Dialect) -> bool:
    """Return True if a number or date in the first row looks like a value of its column rather than like the column's
    name.

    It does not if it is a date above numbers, or a number outside their range by a factor of ten.
    """
    kinds = {kind_of(cell, dialect) for cell in column}
    if kind_of(figure, dialect) != NUMBER:
        return kind_of(figure, dialect) != DATE or DATE in kinds or NUMBER not in kinds
    sizes = [abs(float(dialect.plain(cell))) for cell in column if kind_of(cell, dialect) == NUMBER]
    sizes = [size for size in sizes if math.isfinite(size)] or [1.0]
    return min(sizes) / 10 <= abs(float(dialect.plain(figure))) <= 10 * max(sizes)


def _is_name_above_codes(name: str, column: Sequence[str]) -> bool:
    """Return True if the first cell of a column has no digits while all cells below have some, which suggests a
    header.
    """
    return not _DIGIT(name) and len(column) >= MIN_CODES and all(map(_DIGIT, column))


def _is_name_above_figures(name: str, column: Sequence[str], dialect: Dialect) -> bool:
    """Return True if the cells below a name are numbers or dates, with at most 5% words, which suggests a header.

    The column must not contain `name`.
    """
    n_known = n_words = 0
    for cell in column:
        kind = kind_of(cell, dialect)
        n_known, n_words = n_known + (kind is not None), n_words + (kind == WORD)
        if n_words > MAX_MISTAKE_SHARE * len(column):
            return False
    return n_known > 0 and n_words <= MAX_MISTAKE_SHARE * n_known and name not in column


def is_name(cell: str, dialect: Dialect = PLAIN) -> bool:
    """Return True if a cell may be a column name: a word that does not begin like a number."""
    text = cell.strip().lower()
    return kind_of(text, dialect) == WORD and not text[0].isdigit() and text[0] not in "+-." and text not in _INF


def log_header_choice(location: str, rows: Sequence[Sequence[str]], dialect: Dialect) -> None:
    """Log that the first row was taken for a header.

    If only ids or one or two numbers decided that, the first row may be data: the log entry is a warning then.
    """
    ids = [cell for cell, column in _cells_with_columns(rows) if _is_name_above_codes(cell, column)]
    is_clear = not ids or any(
        _is_name_above_figures(cell, column, dialect) for cell, column in _cells_with_columns(rows)
    )
    if is_numbering(rows, dialect):
        is_clear = sum(kind_of(cell, dialect) == NUMBER for cell in rows[0]) > 2
    text = "%s is taken for a header: %s (--set header=no, header=False, if it is none)"
    LOGGER.log(logging.INFO if is_clear else logging.WARNING, text, escaped(location), listed(rows[0]))


def log_id_like_columns(file_name: str, columns: Mapping[str, Sequence[str]], advice: str) -> None:
    """Log numeric columns that look like identifiers.

    That is, at least 20 integers that are all distinct, or of which at least one has leading zeros.
    """
    names = [name for name, cells in columns.items() if len(cells) >= MIN_IDS and _may_be_ids([*map(str.strip, cells)])]
    if names:
        explanation = "hold another whole number in every row, or zeros in front, and are read as numbers"
        LOGGER.info("%s: these columns %s: %s (%s)", escaped(file_name), explanation, listed(names), escaped(advice))


def _may_be_ids(cells: Sequence[str]) -> bool:
    """Return True if the cells of a column look like identifiers: integers that are all distinct, or of which one has
    leading zeros.
    """
    if not all(map(str.isdecimal, cells)):
        return False
    return len(set(cells)) == len(cells) or any(cell[0] == "0" and len(cell) > 1 for cell in cells)


def listed(cells: Sequence[str], n: int = 4) -> str:
    """Format the first n cells of a row for a message."""
    return ", ".join(repr(cell.strip()[:40]) for cell in cells[:n]) + (", ..." if len(cells) > n else "")


# -- cells -------------------------------------------------------------------------------------------------------------
def as_number(text: str, dialect: Dialect = PLAIN) -> float:
    """Convert the text of a cell to a finite float. Raise ValueError if that is impossible."""
    plain = dialect.plain(text)
    if _NUMBER(plain) and math.isfinite(value := float(plain)):
        return value
    raise ValueError(no_number(text, dialect))


def no_number(text: str, dialect: Dialect = PLAIN) -> str:
    """Return the reason, for an error message, why a cell is not a number, with advice if its kind is recognised."""
    kind = kind_of(text, dialect)
    hint = f" but {kind}: {remedy(kind)}" if kind in _FIGURE_KINDS else ""
    return f"{text.strip()[:40]!r} is no finite decimal number{hint}"


def remedy(kind: str) -> str:
    """Return advice for the user about a cell of this kind, such as a percentage or a date."""
    return _FIGURE_KINDS[kind][1]


def is_numeric(cells: Iterable[str], dialect: Dialect) -> bool:
    """Return True if at least 95% of the cells that are not missing are numbers."""
    kinds = [kind for kind in (kind_of(cell, dialect) for cell in cells) if kind is not None]
    return len(kinds) > 0 and len(kinds) - kinds.count(NUMBER) <= MAX_MISTAKE_SHARE * len(kinds)


def kind_of(text: str, dialect: Dialect = PLAIN) -> str | None:
    """Return what a cell holds: NUMBER, DATE, WORD, another kind such as "a percentage", or None if it is missing."""
    text = text.strip()
    if dialect.missing(text):
        return None
    if text[0].isalpha() and " " not in text and not text.startswith(_CURRENCIES):
        return WORD  # the usual case, decided without the slower patterns
    if _NUMBER(dialect.plain(text)):
        return NUMBER
    for kind, fits in _PATTERNS:
        if fits(text):
            return kind
    return WORD
