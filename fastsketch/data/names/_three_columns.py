"""Extract the users, items and values of events from data frames, files, lists of tuples, and dicts."""

import re
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, TypeGuard, cast

import numpy as np

from fastsketch._core.validation import is_sparse
from fastsketch.data.files._table import LOGGER, Dialect
from fastsketch.data.names._event_columns import ITEMS, OF_TIMES, USERS, event_columns, in_words
from fastsketch.data.names._events import NAME_OTHERS, ColumnNames, Three, read_events
from fastsketch.data.sources._column_names import positions_of
from fastsketch.data.sources._foreign import damaged
from fastsketch.data.sources._formats import is_typed_file, refuse_lazy
from fastsketch.data.sources._frames import FileFrames, Frames, HeldFrames, names_of


# -- data frames -------------------------------------------------------------------------------------------------------
def is_frame(table: Any) -> bool:
    """Return True if an object is a data frame of pandas, polars, pyarrow or a similar library."""
    if isinstance(table, np.ndarray | Mapping) or is_sparse(table) or getattr(table, "ndim", 2) != 2:
        return False
    refuse_lazy(table)
    if hasattr(table, "collect_schema") or hasattr(table, "columns") or hasattr(table, "column_names"):
        return hasattr(table, "__getitem__") or hasattr(table, "__arrow_c_stream__")
    # a single column of polars or pyarrow has no ndim, and has __arrow_c_stream__ too
    return hasattr(table, "__arrow_c_stream__") and not hasattr(table, "to_numpy")


def looks_like_triples(frame: Any) -> bool:
    """Return True if a data frame seems to be a table of events, not a matrix, judged by its width or column names."""
    return _only_arrow(frame) or len(names_of(frame)) <= 3 or has_names_of_ids(frame)


def has_names_of_ids(frame: Any) -> bool:
    """Return True if an object is a data frame whose first two column names denote users and items."""
    names = [str(name).lower() for name in names_of(frame)] if is_frame(frame) and not _only_arrow(frame) else []
    named = len(names) > 1 and names[0].startswith(USERS) and names[1].startswith(ITEMS)
    return named and not re.search(r"\d", "".join(names[:2]))


def _only_arrow(frame: Any) -> bool:
    return not (hasattr(frame, "collect_schema") or hasattr(frame, "columns") or hasattr(frame, "column_names"))


def of_frame(frame: Any, columns: ColumnNames | None) -> Three:
    """Extract users, items and values from a data frame, in the given columns or those chosen by ``event_columns``."""
    held = HeldFrames(frame)
    return Three(*(held.column(place) for place in _places(columns, held)))


def _places(columns: ColumnNames | None, held: Frames) -> list[int]:
    """Return the positions of `columns`, or of the columns that ``event_columns`` chooses, ignoring a pandas index."""
    names = list(held.schema)
    if columns is not None:
        return positions_of(columns, names, len(names), "the table")
    places = [place for place, name in enumerate(names) if name not in held.index]
    others = [names[place] for place in places]
    times = [name if _is_time(name) and len(others) > 2 else None for name in others]
    words = [str(held.schema[name]) == "String" for name in others] if isinstance(held, FileFrames) else None
    chosen = event_columns(others, times, words)
    if chosen != list(range(len(others))):
        LOGGER.info("%s: %s (%s)", held.name, in_words(chosen, others), NAME_OTHERS)
    return [places[k] for k in chosen]


def _is_time(name: Any) -> bool:
    return str(name).strip().lower() in OF_TIMES


def check_columns(columns: Any) -> None:
    """Raise ValueError or TypeError unless `columns` is a sequence of two or three names or positions."""
    if isinstance(columns, str) or not isinstance(columns, Sequence) or len(cast("Any", columns)) not in (2, 3):
        raise ValueError(f"columns must name those of users, items and, if there are any, values, got {columns!r}")
    named = cast("Sequence[Any]", columns)
    if odd := [one for one in named if isinstance(one, bool) or not isinstance(one, str | int)]:
        raise TypeError(f"columns must hold names or numbers of columns, got {odd[0]!r}")


# -- files -------------------------------------------------------------------------------------------------------------
def of_file(path: str | PathLike[str], columns: ColumnNames | None, dialect: Dialect) -> Three:
    """Read users, items and values from a csv, Parquet or Arrow file; its first bytes decide the format."""
    path = Path(path)
    if is_typed_file(path):
        file = FileFrames(path, str(path))
        try:
            names = [list(file.schema)[place] for place in _places(columns, file)]
        except ValueError as error:
            raise type(error)(f"{path}: {error}") from None
        with damaged(path, "table"):
            rows = file.rows(0, file.n_rows, names)
        return Three(*(rows[name] for name in names))
    return read_events(path, dialect, columns=columns)


def is_mapping(table: Any) -> TypeGuard[Mapping[Any, Any]]:
    """Return True if an object is a mapping but not a sparse matrix (scipy.sparse.dok_array is a mapping too)."""
    return isinstance(table, Mapping) and not is_sparse(table)


# -- Python's own ------------------------------------------------------------------------------------------------------
def of_mapping(table: Mapping[Any, Any]) -> Three:
    """Extract users, items and values from a dict {user: [items]} or {user: {item: value}}.

    Users without items are kept.
    """
    users: list[Any] = []
    items: list[Any] = []
    values: list[Any] = []
    valued = False
    for user, held in table.items():
        if isinstance(held, str | bytes) or not isinstance(held, Iterable):
            raise TypeError(f"a table as a dict is {{user: [items]}} or {{user: {{item: value}}}}, got {held!r:.60}")
        own = list(cast("Iterable[Any]", held))
        users += [user] * len(own)
        items += own
        if isinstance(held, Mapping):
            valued = True
            values += cast("Mapping[Any, Any]", held).values()
        else:
            values += [1.0] * len(own)
    return Three(users, items, values if valued else None, all_users=list(table))


def of_tuples(table: Sequence[Any]) -> Three:
    """Extract users, items and values from a list of tuples (user, item) or (user, item, value)."""
    widths = {len(cast("Sequence[Any]", line)) if isinstance(line, tuple | list) else 0 for line in table}
    if len(widths) > 1 or not widths <= {2, 3}:
        raise ValueError("a table as a list must hold tuples (user, item), or (user, item, value), all of one length")
    columns: Any = map(list, zip(*table, strict=True))
    return Three(*columns) if table else Three([], [])
