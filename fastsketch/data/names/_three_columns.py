"""Recognise data frames of events, and extract users, items and values from lists of tuples and dicts."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeGuard, cast

import numpy as np

from fastsketch._core.validation import is_sparse
from fastsketch.data.names._event_columns import ITEMS, USERS
from fastsketch.data.names._events import EventColumns
from fastsketch.data.sources._formats import refuse_lazy
from fastsketch.data.sources._frames import names_of


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
    return _has_only_arrow_stream(frame) or len(names_of(frame)) <= 3 or has_names_of_ids(frame)


def has_names_of_ids(frame: Any) -> bool:
    """Return True if an object is a data frame whose first two column names denote users and items."""
    names = (
        [str(name).lower() for name in names_of(frame)] if is_frame(frame) and not _has_only_arrow_stream(frame) else []
    )
    are_id_names = len(names) > 1 and names[0].startswith(USERS) and names[1].startswith(ITEMS)
    return are_id_names and not re.search(r"\d", "".join(names[:2]))


def _has_only_arrow_stream(frame: Any) -> bool:
    """Return True if a table exports Arrow data, but has no attribute for its columns."""
    return not (hasattr(frame, "collect_schema") or hasattr(frame, "columns") or hasattr(frame, "column_names"))


def check_columns(columns: Any) -> None:
    """Raise ValueError or TypeError unless `columns` is a sequence of two or three names or positions."""
    if isinstance(columns, str) or not isinstance(columns, Sequence) or len(cast("Any", columns)) not in (2, 3):
        raise ValueError(f"columns must name those of users, items and, if there are any, values, got {columns!r}")
    column_list = cast("Sequence[Any]", columns)
    if invalid := [column for column in column_list if isinstance(column, bool) or not isinstance(column, str | int)]:
        raise TypeError(f"columns must hold names or numbers of columns, got {invalid[0]!r}")


def is_mapping(table: Any) -> TypeGuard[Mapping[Any, Any]]:
    """Return True if an object is a mapping but not a sparse matrix (scipy.sparse.dok_array is a mapping too)."""
    return isinstance(table, Mapping) and not is_sparse(table)


# -- Python's own ------------------------------------------------------------------------------------------------------
def events_of_mapping(table: Mapping[Any, Any]) -> EventColumns:
    """Return the users, items and values of a dict {user: [items]} or {user: {item: value}}, as EventColumns.

    Users without items are kept.
    """
    users: list[Any] = []
    items: list[Any] = []
    values: list[Any] = []
    has_values = False
    for user, user_items in table.items():
        if isinstance(user_items, str | bytes) or not isinstance(user_items, Iterable):
            raise TypeError(
                f"a table as a dict is {{user: [items]}} or {{user: {{item: value}}}}, got {user_items!r:.60}"
            )
        item_list = list(cast("Iterable[Any]", user_items))
        users += [user] * len(item_list)
        items += item_list
        if isinstance(user_items, Mapping):
            has_values = True
            values += cast("Mapping[Any, Any]", user_items).values()
        else:
            values += [1.0] * len(item_list)
    return EventColumns(users, items, values if has_values else None, all_users=list(table))


def events_of_tuples(table: Sequence[Any]) -> EventColumns:
    """Return the users, items and values of a list of tuples (user, item[, value]), as EventColumns."""
    widths = {len(cast("Sequence[Any]", line)) if isinstance(line, tuple | list) else 0 for line in table}
    if len(widths) > 1 or not widths <= {2, 3}:
        raise ValueError("a table as a list must hold tuples (user, item), or (user, item, value), all of one length")
    columns: Any = map(list, zip(*table, strict=True))
    return EventColumns(*columns) if table else EventColumns([], [])
