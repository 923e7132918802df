"""Read tables of events from csv files: users, items and, if there is such a column, values."""

from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.warning import warn_caller
from fastsketch.data.files._input import SourceError
from fastsketch.data.files._table import DATE, LOGGER, MISSING, NUMBER, WORD, Dialect, kind_of
from fastsketch.data.names._event_columns import OF_TIMES, event_columns, in_words
from fastsketch.data.names._tables import Numbers, Table, open_table
from fastsketch.data.sources._column_names import positions_of

# Values that all lie between these are taken for Unix times, in seconds (1973 and later) up to nanoseconds.
OLDEST_TIME, LATEST_TIME = 1e8, 1e19
# Unix times of 1995 to 2049. Only these are taken for times in the first two columns, which may hold integer ids.
TIME_SECONDS = 8e8, 2.5e9
# Ends of messages: how to read a column of times as values, and how to choose other columns.
NAMED = "--columns of three, columns=, takes it as it is"
NAME_OTHERS = "--columns A,B[,C], columns=, names others"

# Names or positions of columns.
ColumnNames = Sequence[str | int]


class Three(NamedTuple):
    """The users, items and values of a table of events, one entry for each line."""

    users: Any  # ids; strings have no surrounding blanks
    items: Any
    values: Any = None
    lines: NDArray[np.int64] | None = None  # the line of each entry in a text file
    all_users: list[Any] | None = None  # all users in order, including those without events


def read_events(
    table: Any,
    dialect: Dialect,
    *,
    columns: ColumnNames | None = None,
) -> Three:
    """Read users, items and values from a csv file of events; ids become strings.

    Parameters
    ----------
    table : str, path or data frame
        See open_table.
    dialect : Dialect
        A column that is given by name implies a header.
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
    with open_table(table, dialect, wanted=wanted, held=True) as opened:
        return events_of(opened, columns)


def events_of(table: Table, columns: ColumnNames | None = None) -> Three:
    """Read users, items and values from an open csv table, in the given columns or those that ``event_columns``
    chooses.
    """
    if not table.first:
        raise SourceError(f"{table.name} holds no {table.unit}s")
    names: Sequence[Any] = range(table.width) if table.names is None else table.names
    try:
        places = _chosen(table) if columns is None else positions_of(columns, names, table.width, "the table")
    except ValueError as error:
        raise table.error(table.begins, error) from None
    return _read(table, places[0], places[1], places[2] if len(places) > 2 else None)


def _chosen(table: Table) -> list[int]:
    """Choose the columns of users, items and values by their names and cells, and log the choice."""
    width = table.width
    times = [_times_in(table, column) if width > 2 else None for column in range(width)]
    kinds = [[kind_of(row[column], table.dialect) for _, row in table.first] for column in range(width)]
    words = [2 * held.count(WORD) > sum(kind is not None for kind in held) for held in kinds]
    places = event_columns(table.names, times, words)
    if places != list(range(width)):
        LOGGER.info("%s: %s (%s)", table.name, in_words(places, table.names), NAME_OTHERS)
    for column, held in enumerate(times if width == 3 else ()):
        if held:
            said = f"{table.name}: {table.called(column)} holds {held}, and no values ({NAMED})"
            warn_caller(said)
    return places


def _times_in(table: Table, column: int) -> str | None:
    """Describe what kind of times a column holds, for a message, or return None if it does not hold times.

    A column holds times if its name is one of OF_TIMES, or if its first cells are dates or numbers that look like time
    stamps: seconds since 1970, or milliseconds, microseconds or nanoseconds. Numbers in the first two columns may be
    ids, so there only time stamps between 1995 and 2049 count (TIME_SECONDS).
    """
    known = [row[column] for _, row in table.first if kind_of(row[column], table.dialect) is not None]
    kinds = {kind_of(cell, table.dialect) for cell in known}
    if kinds == {DATE}:
        return DATE
    named = table.names is not None and table.names[column].lower() in OF_TIMES
    numbers = np.array([float(table.dialect.plain(cell)) for cell in known] if kinds == {NUMBER} else [])
    like_times = are_times(numbers) if column > 1 else any(_within(numbers, unit) for unit in (1, 1e3, 1e6, 1e9))
    return "what looks like times" if named or like_times else None


def _within(numbers: NDArray[Any], unit: float) -> bool:
    return len(numbers) > 0 and bool(numbers.min() > TIME_SECONDS[0] * unit and numbers.max() < TIME_SECONDS[1] * unit)


def are_times(values: NDArray[Any]) -> bool:
    """Return True if all values are in the range of Unix time stamps, in any unit from seconds to nanoseconds."""
    return len(values) > 0 and bool(values.min() > OLDEST_TIME and values.max() < LATEST_TIME)


def _read(table: Table, user: int, item: int, value: int | None) -> Three:
    held: dict[str, str] = {}  # one string object for each id
    ids: dict[int, list[str]] = {user: [], item: []}
    numbers: list[NDArray[np.float64]] = [np.empty(0)]
    lines: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
    table.hint = _hint
    for frame, numbered in table.frames([] if value is None else [value], list(ids)):
        for column in ids:
            cells = frame[str(column)]
            if cells.null_count():
                _refuse(table, numbered, cells, column, "an id must not be empty")
            ids[column] += [held.setdefault(cell, cell) for cell in cells.to_list()]
        if value is not None:
            if frame[str(value)].null_count():
                _refuse(table, numbered, frame[str(value)], value, f"the value is missing{_hint(value)}")
            numbers.append(frame[str(value)].to_numpy())
        lines.append(numbered())
    users, items, where = ids[user], ids[item], np.concatenate(lines)
    if odd := sorted(name for name in held if name.lower() in MISSING):
        known = [column.index(odd[0]) if odd[0] in column else len(column) for column in (users, items)]
        first = table.error(int(where[min(known)]), f"the id {odd[0]!r} is read as one like any other")
        warn_caller(str(first))
    return Three(users, items, None if value is None else np.concatenate(numbers), where)


def _hint(column: int) -> str:
    """Return the end of an error message about a cell that is not a valid value."""
    return " (--columns of two (columns=) leaves the column out)"


def _refuse(table: Table, numbered: Numbers, cells: Any, column: int, why: str) -> NoReturn:
    row = int(cells.is_null().arg_max())
    raise table.error(int(numbered()[row]), f"{table.called(column)}: {why}")
