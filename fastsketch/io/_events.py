"""Events in text: user, item and, if there are such columns, a value and a time; and lists of ids."""

import datetime
import sys
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch.io._input import InputFile, SourceError
from fastsketch.io._table import Ids, as_number, at_line, is_name, names_ids, pair, records


class Events(NamedTuple):
    """Events in the order of their lines."""

    users: Ids
    items: Ids
    values: NDArray[np.float64] | None  # (n,), None if there is no column of values
    times: NDArray[np.float64] | None  # (n,), None if they were not asked for; seconds since 1970 for dates
    lines: NDArray[np.int64]  # (n,) where each of them stands


def read_events(
    path: str | PathLike[str],
    *,
    values: bool | None = None,
    header: bool | None = None,
    time_column: int | None = None,
) -> Events:
    """The lines of a file: user, item, and a value if there is a third column; "-" is standard input.

    Text by the rules of read_table. `values`: whether the third column is read, None for when there is one and it is
    not that of times. `header`: whether the first line is one; None: it is if its third column is a word without
    digits, or, where there is none to be read, if its first two columns begin with words such as "user" and "item" and
    hold no digits. `time_column`: number of a column, from 1, that holds a number or an ISO date in every line.

    Raises
    ------
    SourceError
        If the file is missing, damaged or empty, or a line breaks one of these rules (the message names it).
    """
    path = Path(path)
    must, numeric = bool(values), values is not False or time_column == 3
    values = time_column != 3 if values is None else values
    user_names: dict[str, int] = {}
    item_names: dict[str, int] = {}
    users: list[int] = []
    items: list[int] = []
    numbers: list[float] = []
    times: list[float] = []
    lines: list[int] = []
    as_time = None
    with InputFile(path, sys.stdin.buffer if str(path) == "-" else None).held() as file:

        def is_header(first: list[str]) -> bool:
            if header is not None:
                return header
            if numeric and len(first) > 2:
                return is_name(first[2])
            return names_ids(first[0], first[1])

        wanted = max(3 if must else 2, time_column or 0)
        for number, fields in records(file, wanted, is_header):
            try:
                user, item = pair(fields)
                if values and len(fields) > 2:
                    numbers.append(_as_value(fields[2]))
                if time_column is not None:
                    text = fields[time_column - 1].strip()
                    as_time = as_time or (_as_date if _is_date(text) else as_number)
                    times.append(as_time(text))
            except ValueError as error:
                raise at_line(file, number, error) from None
            users.append(user_names.setdefault(user, len(user_names)))
            items.append(item_names.setdefault(item, len(item_names)))
            lines.append(number)
    if not users:
        raise SourceError(f"{path} holds no events")
    return Events(
        Ids(list(user_names), np.array(users, np.intp)),
        Ids(list(item_names), np.array(items, np.intp)),
        np.array(numbers) if numbers else None,
        None if time_column is None else np.array(times),
        np.array(lines),
    )


def read_ids(path: str | PathLike[str]) -> dict[str, int]:
    """The ids in the first column of a file, each with the line that it first stands in; there is no header."""
    path, found = Path(path), dict[str, int]()
    with InputFile(path, sys.stdin.buffer if str(path) == "-" else None) as file:
        for number, fields in records(file, 1, lambda _: False):
            if not (name := fields[0].strip()):
                raise SourceError(f"{path}, line {number}: column 1 is empty")
            found.setdefault(name, number)
    if not found:
        raise SourceError(f"{path} holds no lines")
    return found


def _as_value(text: str) -> float:
    try:
        return as_number(text)
    except ValueError as error:
        raise ValueError(f"{error}: the third column is taken for values, but with --no-values") from None


def _is_date(text: str) -> bool:
    try:
        datetime.datetime.fromisoformat(text)
    except ValueError:
        return False
    return not text.isdecimal()  # 20240131 may be anything


def _as_date(text: str) -> float:
    """Seconds since 1970, in UTC where nothing else is said."""
    try:
        when = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text[:40]!r} is no date like 2024-01-31 or 2024-01-31T12:00:00") from None
    return (when if when.tzinfo else when.replace(tzinfo=datetime.UTC)).timestamp()
