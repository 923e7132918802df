"""Read tables of events: users, items and, if there is such a column, values."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.warning import warn_caller
from fastsketch.data.files._input import SourceError
from fastsketch.data.files._table import DATE, LOGGER, MISSING, NUMBER, WORD, Dialect, kind_of
from fastsketch.data.names._event_columns import TIME_NAMES, choose_event_columns, describe_columns
from fastsketch.data.names._tables import CsvTable, Numbers, Table, TypedTable, open_table
from fastsketch.data.sources._column_names import positions_of
from fastsketch.data.sources._formats import is_typed_file

# Values that all lie between these are taken for Unix times, in seconds (1973 and later) up to nanoseconds.
OLDEST_TIME, LATEST_TIME = 1e8, 1e19
# Unix times of 1995 to 2049. Only these are taken for times in the first two columns, which may hold integer ids.
TIME_SECONDS = 8e8, 2.5e9
# Ends of messages: how to read a column of times as values, and how to choose other columns.
KEEP_TIMES_HINT = "--columns of three, columns=, takes it as it is"
OTHER_COLUMNS_HINT = "--columns A,B[,C], columns=, names others"

# Names or positions of columns.
ColumnNames = Sequence[str | int]


class EventColumns(NamedTuple):
    """The columns of users, items and values of a table of events, one entry for each line."""

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
) -> EventColumns:
    """Return the users, items and values of a file or data frame of events as EventColumns; ids in text are strings.

    Parameters
    ----------
    table : str, path or data frame
        See ``open_table``.
    dialect : Dialect
        A column that is given by name implies a header.
    columns : sequence of str or int, optional
        Names, or numbers from 0, of the columns of users, items and, if there are any, values: by default see
        ``choose_event_columns``.

    Raises
    ------
    SourceError
        If the file is missing, damaged or empty, or a line has no ids, or no number where one is to be; the message
        names line and column.
    ValueError
        If there is no such column.
    """
    min_columns = 2
    if not isinstance(table, str | PathLike) or is_typed_file(Path(cast("str", table))):
        min_columns = 0
    elif any(isinstance(column, str) for column in columns or ()):
        if dialect.header is False:
            raise ValueError("columns has names, and with header=False there are none: give numbers")
        dialect = dialect._replace(header=True)
    elif columns is not None:
        min_columns = max(min_columns, 1 + max(column for column in columns if isinstance(column, int)))
    with open_table(table, dialect, min_columns=min_columns, buffered=True) as opened:
        return extract_events(opened, columns)


def extract_events(table: Table, columns: ColumnNames | None = None) -> EventColumns:
    """Return the users, items and values of an open table as EventColumns.

    These are `columns`, or those that ``choose_event_columns`` chooses.
    """
    names: Sequence[Any] = range(table.width) if table.names is None else table.names
    if isinstance(table, TypedTable):
        names = names if columns is None else table.all_names  # the index of a pandas data frame may be named
    elif not table.first:
        raise SourceError(f"{table.name} holds no lines")
    try:
        columns_read = (
            _choose_columns(table) if columns is None else positions_of(columns, names, len(names), "the table")
        )
    except ValueError as error:
        raise table.error(table.begins, error) from None
    if isinstance(table, TypedTable):
        return EventColumns(*(table.column(str(names[k])) for k in columns_read))
    return _read_columns(table, columns_read[0], columns_read[1], columns_read[2] if len(columns_read) > 2 else None)


def _choose_columns(table: Table) -> list[int]:
    """Return the positions of users, items and values, chosen by column names and cells; the choice is logged."""
    width = table.width
    times = [_describe_times(table, column) if width > 2 else None for column in range(width)]
    kinds = [[kind_of(row[column], table.dialect) for _, row in table.first] for column in range(width)]
    words = [2 * column_kinds.count(WORD) > sum(kind is not None for kind in column_kinds) for column_kinds in kinds]
    chosen = choose_event_columns(table.names, times, words)
    if chosen != list(range(width)):
        LOGGER.info("%s: %s (%s)", table.name, describe_columns(chosen, table.names), OTHER_COLUMNS_HINT)
    for column, column_kinds in enumerate(times if width == 3 else ()):
        if column_kinds:
            message = f"{table.name}: {table.called(column)} holds {column_kinds}, and no values ({KEEP_TIMES_HINT})"
            warn_caller(message)
    return chosen


def _describe_times(table: Table, column: int) -> str | None:
    """Describe what kind of times a column holds, for a message. Return None if it does not hold times.

    A column holds times if its name is one of TIME_NAMES, or if its first cells are dates or numbers that look like
    time stamps: seconds since 1970, or milliseconds, microseconds or nanoseconds. Numbers in the first two columns may
    be ids, so there only time stamps between 1995 and 2049 count (TIME_SECONDS).
    """
    cells = [row[column] for _, row in table.first if kind_of(row[column], table.dialect) is not None]
    kinds = {kind_of(cell, table.dialect) for cell in cells}
    if kinds == {DATE}:
        return DATE
    has_time_name = table.names is not None and table.names[column].lower() in TIME_NAMES
    numbers = np.array([float(table.dialect.plain(cell)) for cell in cells] if kinds == {NUMBER} else [])
    look_like_times = (
        are_times(numbers) if column > 1 else any(_lie_in_time_range(numbers, unit) for unit in (1, 1e3, 1e6, 1e9))
    )
    return "what looks like times" if has_time_name or look_like_times else None


def _lie_in_time_range(numbers: NDArray[Any], unit: float) -> bool:
    """Return True if all numbers lie in the range TIME_SECONDS times `unit`. False without numbers."""
    return len(numbers) > 0 and bool(numbers.min() > TIME_SECONDS[0] * unit and numbers.max() < TIME_SECONDS[1] * unit)


def are_times(values: NDArray[Any]) -> bool:
    """Return True if all values are in the range of Unix time stamps, in any unit from seconds to nanoseconds."""
    return len(values) > 0 and bool(values.min() > OLDEST_TIME and values.max() < LATEST_TIME)


def _read_columns(table: CsvTable, user: int, item: int, value: int | None) -> EventColumns:
    """Read a csv table to its end, and return its users, items and, unless `value` is None, values as EventColumns.

    Raise SourceError at a missing id or value. Ids such as "NA", which may stand for missing ones, cause a warning.
    """
    interned: dict[str, str] = {}  # one string object for each id
    ids: dict[int, list[str]] = {user: [], item: []}
    numbers: list[NDArray[np.float64]] = [np.empty(0)]
    lines: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
    table.hint = _value_hint
    for frame, numbered in table.frames([] if value is None else [value], list(ids)):
        for column in ids:
            cells = frame[str(column)]
            if cells.null_count():
                _raise_cell_error(table, numbered, cells, column, "an id must not be empty")
            ids[column] += [interned.setdefault(cell, cell) for cell in cells.to_list()]
        if value is not None:
            if frame[str(value)].null_count():
                _raise_cell_error(
                    table, numbered, frame[str(value)], value, f"the value is missing{_value_hint(value)}"
                )
            numbers.append(frame[str(value)].to_numpy())
        lines.append(numbered())
    users, items, line_numbers = ids[user], ids[item], np.concatenate(lines)
    if missing_words := sorted(name for name in interned if name.lower() in MISSING):
        positions = [
            column.index(missing_words[0]) if missing_words[0] in column else len(column) for column in (users, items)
        ]
        error = table.error(
            int(line_numbers[min(positions)]), f"the id {missing_words[0]!r} is read as one like any other"
        )
        warn_caller(str(error))
    return EventColumns(users, items, None if value is None else np.concatenate(numbers), line_numbers)


def _value_hint(column: int) -> str:
    """Return the end of an error message about a cell that is not a valid value."""
    return " (--columns of two (columns=) leaves the column out)"


def _raise_cell_error(table: CsvTable, numbered: Numbers, cells: Any, column: int, why: str) -> NoReturn:
    """Raise SourceError that names the line and column of the first null cell, and the reason."""
    row = int(cells.is_null().arg_max())
    raise table.error(int(numbered()[row]), f"{table.called(column)}: {why}")
