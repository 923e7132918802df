"""Tables of user, item and, if there are such columns, a value and a time, as text has them; and lists of ids."""

import datetime
import sys
import warnings
from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch.data.files._input import InputFile, SourceError
from fastsketch.data.files._table import DATE, MISSING, NUMBER, Cells, Dialect, as_number, kind_of, text_cells
from fastsketch.data.names._cells import open_cells
from fastsketch.data.sources._column_names import positions_of

# Numbers that all lie between are seconds since some day in 1973, or nanoseconds: nobody rates like this.
OLDEST_TIME, LATEST_TIME = 1e8, 1e19
OF_TIMES = {"time", "timestamp", "date", "datetime", "ts", "unixtime", "unix_time", "datum", "zeit", "zeitstempel"}
# How those are taken as values that are left out by default.
NAMED = "--columns of three, columns=, takes it as it is"

# Names, or numbers from 0.
ColumnNames = Sequence[str | int]


class Events(NamedTuple):
    """Events in the order of their lines; ids without the blanks around them."""

    users: list[str]
    items: list[str]
    values: NDArray[np.float64] | None  # (n,), None if there is no column of values
    times: NDArray[np.float64] | None  # (n,), None if they were not asked for; seconds since 1970 for dates
    lines: NDArray[np.int64]  # (n,) where each of them stands
    width: int  # columns of the table


def read_events(
    table: Any,
    dialect: Dialect,
    *,
    columns: ColumnNames | None = None,
    values: bool | None = None,
    time: str | int | None = None,
) -> Events:
    """Read the rows of a table as events.

    Parameters
    ----------
    table : str, path or data frame
        See open_cells.
    dialect : Dialect
        There is a header where a column is given by its name.
    columns : sequence of str or int, optional
        Names, or numbers from 0, of the columns of users, items and, if there are any, values: by default the first.
    values : bool, optional
        Whether there is a column of values. By default it is the third, unless there is none, it is that of times, or
        it looks like one (dates, seconds since 1970, or its name), which a warning says.
    time : str or int, optional
        Name, or number from 0, of a column that holds a number or an ISO date in every line.

    Raises
    ------
    SourceError
        If the file is missing, damaged or empty, or a line has no ids, or no number where one is to be; the message
        names line and column.
    ValueError
        If there is no such column.
    """
    wanted = max(3 if values else 2, time + 1 if isinstance(time, int) else 0)
    if any(isinstance(column, str) for column in (*(columns or ()), time)):
        if dialect.header is False:
            raise ValueError("columns has names, and with header=False there are none: give numbers")
        dialect = dialect._replace(header=True)
    elif columns is not None:
        wanted = max(wanted, 1 + max(column for column in columns if isinstance(column, int)))
    with open_cells(table, dialect, wanted=wanted, held=True) as cells:
        return events_of(cells, columns=columns, values=values, time=time)


def events_of(
    cells: Cells,
    *,
    columns: ColumnNames | None = None,
    values: bool | None = None,
    time: str | int | None = None,
) -> Events:
    """Read the rows of an open table as events: see read_events."""
    if not cells.first:
        raise SourceError(f"{cells.name} holds no {cells.unit}s")
    names: Sequence[Any] = range(cells.width) if cells.names is None else cells.names
    try:
        places = list(range(min(3, cells.width)))
        places = places if columns is None else positions_of(columns, names, cells.width, "the table")
        at = None if time is None else positions_of([time], names, cells.width, "the table")[0]
    except ValueError as error:
        raise cells.error(cells.begins, error) from None
    value = places[2] if len(places) > 2 and places[2] != at and values is not False else None
    if value is not None and values is None and columns is None and (held := _times_in(cells, value)):
        said = f"{cells.name}: {cells.called(value)} holds {held}, and no values ({NAMED})"
        warnings.warn(said, UserWarning, stacklevel=3)
        value = None
    hint = "--columns names others, columns=" if values else "--columns of two (columns=) leaves the column out"
    return _read(cells, places[0], places[1], value, at, hint)


def _times_in(cells: Cells, column: int) -> str | None:
    """Return how a message calls the times in a column, by its name or its first cells; None if it holds others."""
    known = [row[column] for _, row in cells.first if kind_of(row[column], cells.decimal) is not None]
    kinds = {kind_of(cell, cells.decimal) for cell in known}
    if kinds == {DATE}:
        return DATE
    named = cells.names is not None and cells.names[column].lower() in OF_TIMES
    numbers = [as_number(cell, cells.decimal) for cell in known] if kinds == {NUMBER} else []
    return "what looks like times" if named or are_times(np.array(numbers)) else None


def are_times(values: NDArray[Any]) -> bool:
    """Return whether numbers look like seconds, or parts of them, since 1970."""
    return len(values) > 0 and bool(values.min() > OLDEST_TIME and values.max() < LATEST_TIME)


def _read(cells: Cells, user: int, item: int, value: int | None, at: int | None, hint: str) -> Events:
    held: dict[str, str] = {}  # each id once
    users: list[str] = []
    items: list[str] = []
    numbers: list[float] = []
    times: list[float] = []
    lines: list[int] = []
    as_time: Callable[[str], float] | None = None
    for number, row in cells:
        column = user
        try:
            users.append(_as_id(row[user], held))
            column = item
            items.append(_as_id(row[item], held))
            if value is not None:
                column = value
                numbers.append(_as_value(row[value], cells.decimal, hint))
            if at is not None:
                column, text = at, row[at].strip()
                as_time = as_time or (_as_date if _is_date(text) else as_number)
                times.append(as_time(text))
        except ValueError as error:
            raise cells.error(number, f"{cells.called(column)}: {error}") from None
        lines.append(number)
    if odd := sorted(name for name in held if name.lower() in MISSING):
        known = [ids.index(odd[0]) if odd[0] in ids else len(ids) for ids in (users, items)]
        first = cells.error(lines[min(known)], f"the id {odd[0]!r} is read as one like any other")
        warnings.warn(str(first), UserWarning, stacklevel=3)
    return Events(
        users,
        items,
        None if value is None else np.array(numbers),
        None if at is None else np.array(times),
        np.array(lines),
        cells.width,
    )


def _as_id(text: str, held: dict[str, str]) -> str:
    name = text.strip()
    if not name:
        raise ValueError("an id must not be empty")
    return held.setdefault(name, name)


def read_ids(path: str | PathLike[str]) -> dict[str, int]:
    """Return the ids in the first column of a file, each with the line that it first stands in; there is no header."""
    path, lines = Path(path), dict[str, int]()
    with InputFile(path, sys.stdin.buffer if str(path) == "-" else None).held() as file:
        for number, fields in text_cells(file, Dialect(header=False)):
            if not (name := fields[0].strip()):
                raise SourceError(f"{path}, line {number}: column 1 is empty")
            lines.setdefault(name, number)
    if not lines:
        raise SourceError(f"{path} holds no lines")
    return lines


def _as_value(text: str, decimal: str, hint: str) -> float:
    try:
        return as_number(text, decimal)
    except ValueError as error:
        raise ValueError(f"{error} ({hint})") from None


def _is_date(text: str) -> bool:
    try:
        datetime.datetime.fromisoformat(text)
    except ValueError:
        return False
    return not text.isdecimal()  # 20240131 may be anything


def _as_date(text: str) -> float:
    """Return seconds since 1970, in UTC where nothing else is said."""
    try:
        when = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text[:40]!r} is no date like 2024-01-31 or 2024-01-31T12:00:00") from None
    return (when if when.tzinfo else when.replace(tzinfo=datetime.UTC)).timestamp()
