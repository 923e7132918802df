"""Columns of users, items and values out of what holds them: data frames, files, tuples, dicts."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch._validation import is_sparse
from fastsketch.io._input import InputFile, SourceError
from fastsketch.io._table import as_number, at_line, is_name, names_ids, pair, records

# Names, or numbers from 0.
ColumnNames = Sequence[str | int]

# Files that pyarrow reads.
_PARQUET, _ARROW = (".parquet", ".pq"), (".arrow", ".feather", ".ipc")


class Three(NamedTuple):
    """Columns of a table, of one length."""

    users: Any
    items: Any
    values: Any  # None: there are none
    lines: NDArray[np.int64] | None = None  # where each entry stands in a file of text
    all_users: list[Any] | None = None  # those without a line too, in order


# -- data frames -------------------------------------------------------------------------------------------------------
def is_frame(table: Any) -> bool:
    """Whether it is a table with columns of several types: of pandas, polars, pyarrow and what is like them."""
    if isinstance(table, np.ndarray | Mapping) or is_sparse(table) or getattr(table, "ndim", 2) != 2:
        return False
    named = hasattr(table, "columns") or hasattr(table, "column_names")
    return (named and hasattr(table, "__getitem__")) or (hasattr(table, "__arrow_c_stream__") and not _is_column(table))


def _is_column(table: Any) -> bool:
    """Of polars and pyarrow, which have no ndim of their own."""
    return hasattr(table, "to_numpy") and not hasattr(table, "columns")


def _names(frame: Any) -> list[Any]:
    found = getattr(frame, "column_names", None)
    return list(frame.columns if found is None else found)


def looks_like_triples(frame: Any) -> bool:
    """Whether nobody could mean a matrix without saying so: three columns at most, or names of ids in front."""
    return _only_arrow(frame) or len(_names(frame)) <= 3 or has_names_of_ids(frame)


def has_names_of_ids(frame: Any) -> bool:
    """Whether it is a data frame whose first two columns have such names."""
    names = _names(frame) if is_frame(frame) and not _only_arrow(frame) else []
    return len(names) > 1 and names_ids(str(names[0]), str(names[1]))


def _only_arrow(frame: Any) -> bool:
    return not (hasattr(frame, "columns") or hasattr(frame, "column_names"))


def of_frame(frame: Any, columns: ColumnNames | None) -> Three:
    """The columns of a data frame: those that are named, or all, which are two or three then."""
    if _only_arrow(frame):
        frame = _pyarrow("a table with __arrow_c_stream__ alone").table(frame)
    names = _names(frame)
    if columns is None:
        if len(names) not in (2, 3):
            raise ValueError(f"columns must say which are users, items and values: there are {len(names)}")
        places = list(range(len(names)))
    else:
        places = _places(columns, names)
    return Three(*_filled([_column(frame, place) for place in places]))


def _column(frame: Any, place: int) -> Any:
    if hasattr(frame, "iloc"):  # pandas, whose names may be anything
        return frame.iloc[:, place]
    if hasattr(frame, "column"):  # pyarrow, which follows offsets and codes without a look at them
        frame.column(place).validate(full=True)
        return frame.column(place)
    return frame[_names(frame)[place]]


def _places(columns: ColumnNames, names: Sequence[Any]) -> list[int]:
    """The numbers of the columns that are asked for."""
    if isinstance(columns, str) or not isinstance(columns, Sequence) or len(columns) not in (2, 3):
        raise ValueError(f"columns must name those of users, items and, if there are any, values, got {columns!r}")
    places: list[int] = []
    for column in columns:
        if isinstance(column, bool) or not isinstance(column, str | int):
            raise TypeError(f"columns must hold names or numbers of columns, got {column!r}")
        if isinstance(column, int) and column not in names:
            if not 0 <= column < len(names):
                raise ValueError(f"columns: there is no column {column}, they are numbered from 0 to {len(names) - 1}")
            places.append(column)
        elif names.count(column) != 1:
            many = "no column is" if column not in names else "several columns are"
            listed = ", ".join(map(repr, names[:20])) + (", ..." if len(names) > 20 else "")
            raise ValueError(f"columns: {many} named {column!r}; there are {listed}")
        else:
            places.append(names.index(column))
    if len(set(places)) < len(places):
        raise ValueError(f"columns must be different ones, got {columns!r}")
    return places


def _filled(found: list[Any]) -> list[Any]:
    return found if len(found) == 3 else [*found, None]


# -- files -------------------------------------------------------------------------------------------------------------
def of_file(path: str | PathLike[str], columns: ColumnNames | None, *, header: bool | None) -> Three:
    """The columns of a file, by its suffix; SourceError for what cannot be read."""
    path = Path(path)
    if path.suffix in (*_PARQUET, *_ARROW):
        return _of_arrow_file(path, columns)
    return _of_text(path, columns, header=header)


def _pyarrow(what: str) -> Any:
    try:
        return import_module("pyarrow")
    except ImportError:
        raise ImportError(f"{what} is read by pyarrow: pip install 'fastsketch[arrow]'") from None


def _of_arrow_file(path: Path, columns: ColumnNames | None) -> Three:
    arrow = _pyarrow(str(path))
    try:
        if path.suffix in _PARQUET:
            parquet = import_module("pyarrow.parquet")
            names = parquet.read_schema(path).names
            chosen = names if columns is None else [names[place] for place in _places(columns, names)]
            if len(chosen) > 3:
                raise ValueError(f"{path}: columns must say which are users, items and values: there are {len(names)}")
            return of_frame(parquet.read_table(path, columns=chosen).select(chosen), None)
        return of_frame(import_module("pyarrow.feather").read_table(path), columns)
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror or error}") from error
    except (arrow.lib.ArrowException, UnicodeDecodeError) as error:  # the latter for names of columns
        raise SourceError(f"{path} cannot be read: {error}") from error


def _of_text(path: Path, columns: ColumnNames | None, *, header: bool | None) -> Three:
    """Text by the rules of ``fastsketch.io``; ids are strings, without the blanks around them."""
    by_name = columns is not None and any(isinstance(column, str) for column in columns)
    if by_name and header is False:
        raise ValueError("columns has names, and with header=False there are none: give numbers from 0")
    places = [0, 1, 2] if columns is None else _places(columns, range(1 << 20)) if not by_name else []
    users: list[str] = []
    items: list[str] = []
    numbers: list[float] = []
    lines: list[int] = []
    with InputFile(path, sys.stdin.buffer if str(path) == "-" else None).held() as file:

        def is_header(first: list[str]) -> bool:
            nonlocal places
            if by_name:
                places = _places(cast("ColumnNames", columns), [field.strip() for field in first])
                return True
            if columns is None:
                places = places[: min(3, len(first))]
            if header is not None:
                return header
            if len(places) == 3 and is_name(first[places[2]]):
                return True
            return names_ids(first[places[0]], first[places[1]])

        wanted = 2 if columns is None or by_name else max(places) + 1
        for number, fields in records(file, wanted, is_header):
            try:
                user, item = pair([fields[places[0]], fields[places[1]]])
                if len(places) == 3:
                    numbers.append(_as_value(fields[places[2]], chosen=columns is not None))
            except ValueError as error:
                raise at_line(file, number, error) from None
            users.append(user)
            items.append(item)
            lines.append(number)
    if not users:
        raise SourceError(f"{path} holds no lines")
    return Three(users, items, numbers if len(places) == 3 else None, np.array(lines))


def _as_value(text: str, *, chosen: bool) -> float:
    try:
        return as_number(text)
    except ValueError as error:
        hint = "" if chosen else ": the third column is taken for values, unless columns= names two"
        raise ValueError(f"{error}{hint}") from None


def is_mapping(table: Any) -> TypeGuard[Mapping[Any, Any]]:
    """Whether it is a dict; scipy's matrices of keys are some."""
    return isinstance(table, Mapping) and not is_sparse(table)


# -- Python's own ------------------------------------------------------------------------------------------------------
def of_mapping(table: Mapping[Any, Any]) -> Three:
    """{user: [items]} or {user: {item: value}}; users without items have no line, and are users."""
    users: list[Any] = []
    items: list[Any] = []
    values: list[Any] = []
    valued = False
    for user, held in table.items():
        if isinstance(held, str | bytes) or not isinstance(held, Iterable):
            raise TypeError(f"a table as a dict is {{user: [items]}} or {{user: {{item: value}}}}, got {held!r:.60}")
        found = list(cast("Iterable[Any]", held))
        users += [user] * len(found)
        items += found
        if isinstance(held, Mapping):
            valued = True
            values += cast("Mapping[Any, Any]", held).values()
        else:
            values += [1.0] * len(found)
    return Three(users, items, values if valued else None, all_users=list(table))


def of_tuples(table: Sequence[Any]) -> Three:
    """[(user, item)] or [(user, item, value)]."""
    widths = {len(cast("Sequence[Any]", line)) if isinstance(line, tuple | list) else 0 for line in table}
    if len(widths) > 1 or not widths <= {2, 3}:
        raise ValueError("a table as a list must hold tuples (user, item), or (user, item, value), all of one length")
    columns = [list(column) for column in zip(*table, strict=True)] or [[], []]
    return Three(*_filled(columns))
