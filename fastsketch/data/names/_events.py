"""Tables of user, item and, if there is such a column, a value, as text has them."""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch.data.files._input import SourceError
from fastsketch.data.files._table import DATE, LOGGER, MISSING, NUMBER, WORD, Cells, Dialect, as_number, kind_of
from fastsketch.data.names._cells import open_cells
from fastsketch.data.names._event_columns import OF_TIMES, event_columns, in_words
from fastsketch.data.sources._column_names import positions_of

# Numbers that all lie between are seconds since some day in 1973, or nanoseconds: nobody rates like this.
OLDEST_TIME, LATEST_TIME = 1e8, 1e19
# Seconds of the years 1995 to 2049: of a column without a name that could hold ids, numbers within are taken for times.
TIME_SECONDS = 8e8, 2.5e9
# How those are taken as values that are left out by default.
NAMED = "--columns of three, columns=, takes it as it is"
NAME_OTHERS = "--columns A,B[,C], columns=, names others"

# Names, or numbers from 0.
ColumnNames = Sequence[str | int]


class Events(NamedTuple):
    """Events in the order of their lines; ids without the blanks around them."""

    users: list[str]
    items: list[str]
    values: NDArray[np.float64] | None  # (n,), None if there is no column of values
    lines: NDArray[np.int64]  # (n,) where each of them stands
    width: int  # columns of the table


def read_events(
    table: Any,
    dialect: Dialect,
    *,
    columns: ColumnNames | None = None,
) -> Events:
    """Read the rows of a table as events.

    Parameters
    ----------
    table : str, path or data frame
        See open_cells.
    dialect : Dialect
        There is a header where a column is given by its name.
    columns : sequence of str or int, optional
        Names, or numbers from 0, of the columns of users, items and, if there are any, values: by default see
        ``event_columns``.

    Raises
    ------
    SourceError
        If the file is missing, damaged or empty, or a line has no ids, or no number where one is to be; the message
        names line and column.
    ValueError
        If there is no such column.
    """
    wanted = 2
    if any(isinstance(column, str) for column in columns or ()):
        if dialect.header is False:
            raise ValueError("columns has names, and with header=False there are none: give numbers")
        dialect = dialect._replace(header=True)
    elif columns is not None:
        wanted = max(wanted, 1 + max(column for column in columns if isinstance(column, int)))
    with open_cells(table, dialect, wanted=wanted, held=True) as cells:
        return events_of(cells, columns)


def events_of(cells: Cells, columns: ColumnNames | None = None) -> Events:
    """Read the rows of an open table as events: see read_events."""
    if not cells.first:
        raise SourceError(f"{cells.name} holds no {cells.unit}s")
    names: Sequence[Any] = range(cells.width) if cells.names is None else cells.names
    try:
        places = _chosen(cells) if columns is None else positions_of(columns, names, cells.width, "the table")
    except ValueError as error:
        raise cells.error(cells.begins, error) from None
    return _read(cells, places[0], places[1], places[2] if len(places) > 2 else None)


def _chosen(cells: Cells) -> list[int]:
    """Return the columns of users, items and values where nobody has named them, and say which they are."""
    width = cells.width
    times = [_times_in(cells, column) if width > 2 else None for column in range(width)]
    kinds = [[kind_of(row[column], cells.decimal) for _, row in cells.first] for column in range(width)]
    words = [2 * held.count(WORD) > sum(kind is not None for kind in held) for held in kinds]
    places = event_columns(cells.names, times, words)
    if places != list(range(width)):
        LOGGER.info("%s: %s (%s)", cells.name, in_words(places, cells.names), NAME_OTHERS)
    for column, held in enumerate(times if width == 3 else ()):
        if held:
            said = f"{cells.name}: {cells.called(column)} holds {held}, and no values ({NAMED})"
            warnings.warn(said, UserWarning, stacklevel=4)
    return places


def _times_in(cells: Cells, column: int) -> str | None:
    """Return how a message calls the times in a column, by its name or its first cells; None if it holds others.

    Numbers in the first two columns, which may be ids, are times only if they look like seconds of our years, or like
    thousandths, millionths or billionths of them.
    """
    known = [row[column] for _, row in cells.first if kind_of(row[column], cells.decimal) is not None]
    kinds = {kind_of(cell, cells.decimal) for cell in known}
    if kinds == {DATE}:
        return DATE
    named = cells.names is not None and cells.names[column].lower() in OF_TIMES
    numbers = np.array([as_number(cell, cells.decimal) for cell in known] if kinds == {NUMBER} else [])
    like_times = are_times(numbers) if column > 1 else any(_within(numbers, unit) for unit in (1, 1e3, 1e6, 1e9))
    return "what looks like times" if named or like_times else None


def _within(numbers: NDArray[Any], unit: float) -> bool:
    return len(numbers) > 0 and bool(numbers.min() > TIME_SECONDS[0] * unit and numbers.max() < TIME_SECONDS[1] * unit)


def are_times(values: NDArray[Any]) -> bool:
    """Return whether numbers look like seconds, or parts of them, since 1970."""
    return len(values) > 0 and bool(values.min() > OLDEST_TIME and values.max() < LATEST_TIME)


def _read(cells: Cells, user: int, item: int, value: int | None) -> Events:
    held: dict[str, str] = {}  # each id once
    users: list[str] = []
    items: list[str] = []
    numbers: list[float] = []
    lines: list[int] = []
    for number, row in cells:
        column = user
        try:
            users.append(_as_id(row[user], held))
            column = item
            items.append(_as_id(row[item], held))
            if value is not None:
                column = value
                numbers.append(_as_value(row[value], cells.decimal))
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
        np.array(lines),
        cells.width,
    )


def _as_id(text: str, held: dict[str, str]) -> str:
    name = text.strip()
    if not name:
        raise ValueError("an id must not be empty")
    return held.setdefault(name, name)


def _as_value(text: str, decimal: str) -> float:
    try:
        return as_number(text, decimal)
    except ValueError as error:
        raise ValueError(f"{error} (--columns of two (columns=) leaves the column out)") from None
