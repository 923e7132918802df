"""Events by ids: tables of user and item as rows in a model's items, which may grow; answers as ids."""

# pyright: reportPrivateUsage=false

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fastsketch.features._id_map import IdMap, array_names, as_id_map, no_ids, read_ids, taken
from fastsketch.features._triples import Triples, as_triples, pair_of, placed
from fastsketch.io import _checks as checks
from fastsketch.recommending._events import as_events, as_items
from fastsketch.recommending._held_out import HeldOut

# Of the ids of items, in files.
ITEM_IDS = "item_ids"


class Batch(NamedTuple):
    """Events of some users."""

    events: Any  # CSR (k, items)
    ids: IdMap  # of the items, new ones at the end


def batch_of(
    table: Triples, known: IdMap | None, n_items: int | None, dtype: DTypeLike, *, item_ids: Any
) -> Batch | None:
    """What a model learns from that has n_items items (None: it has seen no rows); None of a table without lines."""
    if item_ids is not None:
        raise ValueError("item_ids is for matrices: rows are a table, which has ids")
    if n_items is not None and known is None:
        raise ValueError(
            "rows are a table, and the model has seen a matrix without ids: begin with item_ids, or with a table"
        )
    if len(table) == 0:
        return None
    ids, places = (no_ids() if known is None else known).extended(table.item_ids, "items")
    return Batch(_rows_of(table, places, len(ids), dtype), ids)


def ids_of_matrix(rows: Any, item_ids: Any, known: IdMap | None, n_items: int | None) -> IdMap:
    """What the columns of a matrix are called, as those of the rows before are."""
    width = rows.n_features if hasattr(rows, "n_features") else (np.shape(rows) or (0,))[-1]
    out = as_id_map(item_ids, int(width), ITEM_IDS)
    if n_items is not None and out != known:
        raise ValueError(
            "item_ids come too late: rows had none before" if known is None else "item_ids must be those before"
        )
    return out


def events_of(
    rows: Any, known: IdMap | None, n_items: int, dtype: DTypeLike, name: str = "rows"
) -> tuple[Any, IdMap | None]:
    """(CSR (k, items) of users to be answered, what these are called if they come in a table).

    Items that the model does not know are left out.
    """
    if _are_names(rows) or (isinstance(rows, str) and rows != "-" and not Path(rows).exists()):
        got = repr(rows)[:60] if isinstance(rows, str) else "strings"
        raise TypeError(
            f"{name} must be events, got {got}: the model keeps items and no users; give those of each user as {{user: "
            "[items]}, or a table (fastsketch.features.Triples, or a file that is there)"
        )
    table = as_triples(rows, None, name)
    if table is None:
        return as_events(rows, n_items, np.dtype(dtype), name), None
    if known is None:
        raise ValueError(f"{name} are a table, and the model was given no ids of items")
    return _rows_of(table, known.places(table.item_ids, "items"), n_items, dtype), table.user_ids


def _are_names(rows: Any) -> bool:
    if not isinstance(rows, list | tuple | np.ndarray):
        return False
    given = cast("Sequence[Any]", rows)
    return len(given) > 0 and isinstance(given[0], str)


def _rows_of(table: Triples, places: NDArray[np.int64], n_items: int, dtype: DTypeLike) -> Any:
    values = table.values
    if values is not None and len(values) and values.min() < 0:
        line = int(np.argmax(values < 0))
        raise ValueError(f"values must not be negative: entry {line}, {pair_of(table, line)}, has {values[line]}")
    shape = len(table.user_ids), n_items
    try:
        return as_events(placed(table, np.arange(shape[0]), places, shape), n_items, np.dtype(dtype), "values")
    except ValueError as error:
        found = re.search(r"row (\d+) holds (\S+) in column (\d+)", str(error))
        if found is None:
            raise
        item = table.item_ids[int(np.flatnonzero(places == int(found[3]))[0])]
        pair = f"the pair ({table.user_ids[int(found[1])]}, {item}) has {found[2]}"
        raise ValueError(str(error).replace(found[0], pair)) from None


def left_out(exclude: Any, users: IdMap | None, known: IdMap | None) -> Any:
    """CSR (users, items) of a table of what must not be recommended; `exclude` itself if it is a matrix."""
    table = None if exclude is None else as_triples(exclude, None, "exclude")
    if table is None:
        return exclude
    if users is None or known is None:
        raise ValueError("exclude is a table: rows must be one too, whose users it names")
    shape = len(users), len(known)
    return placed(table, users.places(table.user_ids, "users"), known.places(table.item_ids, "items"), shape)


def items_of(values: Any, known: IdMap | None, n_items: int, name: str) -> NDArray[np.int64]:
    """Places of items that the model knows: IndexError, or KeyError of ids, for others."""
    return as_items(values, n_items, name) if known is None else known.known(values, name)


def named(items: NDArray[np.int64], known: IdMap | None) -> NDArray[Any]:
    """What these are called: themselves if they have no ids."""
    return items if known is None else taken(known, items)


# -- more items --------------------------------------------------------------------------------------------------------
def widened(squares: NDArray[np.float64], places: NDArray[np.int64], width: int) -> NDArray[np.float64]:
    """Figures of items at other places, 0 for those between."""
    out = np.zeros(width)
    out[places] = squares
    return out


def held_with_items(held: HeldOut, places: NDArray[np.int64], width: int) -> HeldOut:
    """Users of a reservoir with their items at other places."""
    from scipy.sparse import csr_array

    rows = held.rows
    indices = places[rows.indices].astype(np.int32)
    moved: Any = csr_array((rows.data.copy(), indices, rows.indptr.copy()), shape=(len(held), width))
    moved.sort_indices()
    return replace(held, rows=moved)


# -- files -------------------------------------------------------------------------------------------------------------
def ids_of_file(arrays: checks.Arrays, kind: Any, n_items: int) -> IdMap:
    """The ids of n_items items out of a stranger's file; ValueError for what is none."""
    ids = read_ids(arrays, ITEM_IDS, kind)
    if len(ids) != n_items:
        raise ValueError(f"there are {len(ids)} ids of {n_items} items")
    return ids


def without_ids(arrays: checks.Arrays, state: Any) -> dict[str, NDArray[Any]]:
    """The other arrays of a file."""
    own = array_names(ITEM_IDS) if "ids" in state else ()
    return {name: array for name, array in arrays.items() if name not in own}


def put_item_ids(model: Any, ids: Any) -> None:
    """Call the items of a SketchedEASE, which has seen matrices without ids, by these."""
    model._ids = as_id_map(ids, model.n_features, ITEM_IDS)
