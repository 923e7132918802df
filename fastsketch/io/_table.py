"""Tables of row id, column id and value in text: read strictly, because what is skipped or guessed is not missed."""

import math
import re
import sys
from collections.abc import Callable, Iterator
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch.io._input import InputFile, SourceError, whole_lines

BLOCK_BYTES = 1 << 20
# Ids, a number and what else stands beside them: a longer line has lost its end.
LONGEST_LINE = 1 << 20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"

_NUMBER = re.compile(r"[ \t]*[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[ \t]*").fullmatch
# How the names of the first two columns begin, in a header of a table without values.
_USERS = ("user", "customer", "visitor", "member", "session", "person", "client", "account", "uid", "row")
_ITEMS = ("item", "movie", "film", "product", "article", "track", "song", "artist", "book", "page", "sku", "column")
# Letters that stand for a value, and are no name of a column.
_NO_NAMES = {"nan", "inf", "infinity", "na", "n/a", "null", "none"}


class Ids(NamedTuple):
    """A column of ids: each id once, in the order of first appearance, and which of them stands in every line."""

    names: list[str]
    places: NDArray[np.intp]  # (n,) into names


class Table(NamedTuple):
    """What a table holds."""

    rows: Ids
    columns: Ids
    values: NDArray[np.float64]  # (n,), or (0,) if they were not asked for


def read_table(path: str | PathLike[str], *, values: bool) -> Table:
    """The lines of a file: row id, column id and, if `values`, a number; "-" is standard input.

    UTF-8 text (.gz, .bz2, .xz too), with tabs, semicolons or commas between columns as the first line has them. Every
    line has as many columns as the first; those beyond the third are not looked at. The first line is a header if its
    third column is a word without digits or, where that is not read, if its first two begin with words such as "user"
    and "item" and hold no digits. A number is decimal and finite. An id is not empty; blanks around it do not
    count. A column that begins with a quote ends with one on the same line, and "" within it is a quote; no other
    column holds quotes. Lines that are blank are skipped.

    Raises
    ------
    SourceError
        If the file is missing, damaged or empty, or a line breaks one of these rules (the message names it).
    """
    path = Path(path)
    with InputFile(path, sys.stdin.buffer if str(path) == "-" else None).held() as file:
        return parse_table(file, values=values)


def parse_table(file: InputFile, *, values: bool) -> Table:
    """The table in an open file: see read_table."""
    row_names: dict[str, int] = {}
    column_names: dict[str, int] = {}
    rows: list[int] = []
    columns: list[int] = []
    numbers: list[float] = []
    wanted = 3 if values else 2

    def is_header(first: list[str]) -> bool:
        return is_name(first[2]) if values else names_ids(first[0], first[1])

    for number, fields in records(file, wanted, is_header):
        try:
            row, column = pair(fields)
            if values:
                numbers.append(as_number(fields[2]))
        except ValueError as error:
            raise at_line(file, number, error) from None
        rows.append(row_names.setdefault(row, len(row_names)))
        columns.append(column_names.setdefault(column, len(column_names)))
    if not rows:
        raise SourceError(f"{file.path} holds no lines")
    return Table(
        Ids(list(row_names), np.array(rows, np.intp)),
        Ids(list(column_names), np.array(columns, np.intp)),
        np.array(numbers, np.float64),
    )


# -- lines and their columns -------------------------------------------------------------------------------------------
def records(file: InputFile, wanted: int, is_header: Callable[[list[str]], bool]) -> Iterator[tuple[int, list[str]]]:
    """(number of the line, its columns), all as many as the first, which is left out if it is a header."""
    delimiter, width = ",", 0
    for number, line in _lines(file):
        try:
            if width == 0:
                delimiter = delimiter_of(line)
            fields = line.split(delimiter) if '"' not in line else fields_of(line, delimiter)
            if width == 0:
                width = len(fields)
                if width < wanted:
                    between = " (tabs, semicolons or commas divide a line)" if width == 1 else ""
                    raise ValueError(f"{wanted} columns are needed, there are {width}{between}")
                if is_header(fields):
                    continue
            if len(fields) != width:
                raise ValueError(f"there are {len(fields)} columns, in the first line {width}")
        except ValueError as error:
            raise at_line(file, number, error) from None
        yield number, fields


def at_line(file: InputFile, number: int, error: ValueError) -> SourceError:
    """What is wrong with a line."""
    return SourceError(f"{file.path}, line {number}: {error}")


def pair(fields: list[str]) -> tuple[str, str]:
    """The first two columns, ids without the blanks around them."""
    row, column = fields[0].strip(), fields[1].strip()
    if not row or not column:
        raise ValueError(f"column {2 if row else 1} is empty")
    return row, column


def _lines(file: InputFile) -> Iterator[tuple[int, str]]:
    """The lines that are not blank, without their ends, and their numbers from 1."""
    number = 0
    for piece in whole_lines(file, BLOCK_BYTES, LONGEST_LINE):
        block = bytes(piece) if number else bytes(piece).removeprefix(BYTE_ORDER_MARK)
        if (at := block.find(b"\0")) >= 0:
            raise _no_text(file.path, number + 1 + block.count(b"\n", 0, at), "holds a NUL byte")
        try:
            text = block.decode()
        except UnicodeDecodeError as error:
            place = number + 1 + block.count(b"\n", 0, error.start)
            raise _no_text(file.path, place, f"holds the byte 0x{block[error.start]:02x}, which is no UTF-8") from None
        for line in text[:-1].split("\n"):
            number += 1
            if "\r" in line:
                line = line.rstrip("\r")
                if "\r" in line:
                    raise SourceError(
                        f"{file.path}, line {number}: a carriage return within the line (lines end in \\n or \\r\\n)"
                    )
            if line and not line.isspace():
                yield number, line


def _no_text(path: Path, line: int, why: str) -> SourceError:
    return SourceError(f"{path} is not text: line {line} {why}")


def delimiter_of(line: str) -> str:
    """What divides the columns of a line: tabs, semicolons or commas."""
    plain = re.sub(r'"[^"]*"', "", line)
    return "\t" if "\t" in plain else ";" if ";" in plain and "," not in plain else ","


def fields_of(line: str, delimiter: str) -> list[str]:
    """The columns of a line with quotes; ValueError for those that do not enclose one."""
    found: list[str] = []
    at = 0
    while True:
        start = at + len(line[at:]) - len(line[at:].lstrip(" "))
        if line[start : start + 1] == '"':
            text, at = _quoted(line, start, len(found) + 1)
            end = at + len(line[at:]) - len(line[at:].lstrip(" "))
            if end < len(line) and line[end] != delimiter:
                raise ValueError(f"column {len(found) + 1} goes on after its closing quote")
        else:
            end = line.find(delimiter, at)
            end = len(line) if end < 0 else end
            text = line[at:end]
            if '"' in text:
                raise ValueError(f'column {len(found) + 1} holds a quote: write it as "..." with "" for each quote')
        found.append(text)
        if end >= len(line):
            return found
        at = end + 1


def _quoted(line: str, start: int, column: int) -> tuple[str, int]:
    """(text of the quoted column that begins at start, place after its closing quote)."""
    at = start + 1
    while (end := line.find('"', at)) >= 0:
        if line[end + 1 : end + 2] != '"':
            return line[start + 1 : end].replace('""', '"'), end + 1
        at = end + 2
    raise ValueError(f"the quote that opens column {column} does not close on this line")


def is_name(text: str) -> bool:
    """Whether a column of the first line is a name, and no value: letters, and no digit."""
    name = text.strip().lower()
    return name not in _NO_NAMES and any(c.isalpha() for c in name) and not any(c.isdigit() for c in name)


def names_ids(first: str, second: str) -> bool:
    """Whether these name columns of users and items: with such words in front, and no digits (user1 is an id)."""
    names = [name.strip().lower() for name in (first, second) if is_name(name)]
    return len(names) == 2 and names[0].startswith(_USERS) and names[1].startswith(_ITEMS)


def as_number(text: str) -> float:
    """A decimal number that is finite."""
    if _NUMBER(text) and math.isfinite(value := float(text)):
        return value
    raise ValueError(f"{text.strip()[:40]!r} is no finite decimal number")
