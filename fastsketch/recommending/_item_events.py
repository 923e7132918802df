"""Validation of users' events, given as matrices or tables with ids, and conversion to CSR matrices."""

# pyright: reportPrivateUsage=false

import re
from collections.abc import Callable, Sequence
from copy import copy
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from fastsketch._core.sparse import as_csr, dense_as_csr
from fastsketch._core.validation import Rows, as_array, as_rows, as_subset, in_place, is_sparse, require_array_like
from fastsketch._frame.batches import with_columns
from fastsketch.data.names._id_map import IdMap, as_id_map, taken
from fastsketch.data.names._triples import Triples, as_triples, pair_of, placed
from fastsketch.recommending.ranking._splits import owners
from fastsketch.ridge._held_out import undone

# Positive entries are between 1 / MOST and MOST by the size of the dtype, so that their products do not overflow.
MOST = {4: 1e30, 8: 1e140}


def as_events(rows: Rows, n_items: int | None, dtype: np.dtype[Any], name: str = "rows") -> Any:
    """Validate a matrix of users' events and convert it to CSR with positive entries only.

    Zeros are dropped. Other entries out of range raise ValueError, which names the row and column.
    """
    from scipy.sparse import csr_array

    given: Any = rows
    csr: Any
    if is_sparse(given):
        # a sparse vector, such as X[0] of a sparse array, is one row
        csr = as_rows(given.reshape((1, -1)) if given.ndim == 1 else given, n_items, name)
        if type(csr) is not csr_array or csr.indices.dtype != np.int32:  # a sparse matrix, or indices of another type
            csr = csr_array((csr.data, csr.indices, csr.indptr), shape=csr.shape)
    else:
        require_array_like(rows, name)
        if (given if hasattr(given, "ndim") else as_array(given, name)).ndim == 0:
            raise ValueError(f"{name} must hold what users have had, a row a user: they have no ids here, got {rows!r}")
        csr = dense_as_csr(as_rows(rows, n_items, name))
    data = csr.data
    if data.dtype != dtype:
        with np.errstate(over="ignore"):
            data = data.astype(dtype)
    most = MOST[dtype.itemsize]
    least, largest = (data.min(), data.max()) if data.size else (1.0, 1.0)
    if not 1 / most <= least <= largest <= most and not (
        least >= 0 and largest <= most and (csr.data[data < 1 / most] == 0).all()
    ):
        _refuse(csr, data, name, most)
    out: Any = copy(csr)  # shares the arrays; the constructor would take ten times as long
    out.data = data
    if least == 0:
        out = out.copy()
        out.eliminate_zeros()
    return out


def _refuse(csr: Any, data: NDArray[Any], name: str, most: float) -> None:
    place = int(np.argmin((csr.data == 0) | ((data >= 1 / most) & (data <= most))))
    row, column, value = int(np.searchsorted(csr.indptr, place, side="right")) - 1, csr.indices[place], csr.data[place]
    within = f"lie between {1 / most:g} and {most:g} as {data.dtype}"
    rule = "be finite" if not np.isfinite(value) else "not be negative" if value < 0 else within
    raise ValueError(f"{name} must {rule}: row {row} holds {value} in column {column}")


def as_items(values: ArrayLike, n_items: int, name: str) -> NDArray[np.int64]:
    """Convert column indices of items to int64. Raise IndexError if one is outside [0, n_items)."""
    out: NDArray[Any] = np.atleast_1d(as_array(values, name))
    as_subset(out, n_items, name)
    return out.astype(np.int64)


def entries(matrix: Any, line: NDArray[np.int64] | None = None) -> tuple[Any, ...]:
    """Return the row pointers and column indices of a CSR matrix for the kernels, and `line` unchanged.

    Kernels that exclude items use row line[i] of the matrix for query i, or row i if `line` is None.
    """
    return in_place(matrix.indptr, np.int64), in_place(matrix.indices, np.int32), line


class Squares(NamedTuple):
    """Row index, column index and squared value of every stored entry of a CSR matrix."""

    row: NDArray[np.intp]  # (nnz,)
    column: NDArray[np.int32]  # (nnz,)
    square: NDArray[np.float64]  # (nnz,)


def entry_squares(events: Any) -> Squares:
    """Compute the square of every stored entry of a CSR matrix. Return it with the row and column indices."""
    return Squares(owners(events), events.indices, np.square(events.data, dtype=np.float64))


def row_squares(events: Any, of: Squares | None = None) -> NDArray[np.float64]:
    """Compute the sum of squares of every row of a CSR matrix, (k,) float64.

    The sum of a row does not depend on the other rows. `of` are the squares if they are known already.
    """
    row, _, square = entry_squares(events) if of is None else of
    sums = np.bincount(row, square, minlength=events.shape[0])
    return sums.astype(np.float64, copy=False)  # NumPy returns integers for no entries


def column_squares(
    events: Any,
    weights: NDArray[np.float64],
    decay: float = 1.0,
    *,
    first: int = 0,
    before: NDArray[np.float64] | None = None,
    of: Squares | None = None,
) -> NDArray[np.float64]:
    """Add the weighted squares of CSR rows to the sums of squares of the columns. Return the new sums.

    `before` are the sums over rows before number `first`, which are not modified. The result (items,) must be
    multiplied by ``decayed``. With decay, every row is weighted by an inverse power of the
    decay instead of decaying all earlier rows. Whenever the row number is a multiple of ``undone(decay)``, the sums
    are rescaled and the power is 0 again. Results therefore do not depend on the batches.
    """
    k, n_items = events.shape
    out = np.zeros(n_items) if before is None else before.copy()
    turns: list[int] = []
    if decay < 1.0:
        power: NDArray[np.int64] = np.arange(first, first + int(k)) % undone(decay)
        weights, turns = weights * decay ** -power.astype(np.float64), np.flatnonzero(power == 0).tolist()
    row, column, square = entry_squares(events) if of is None else of
    of_entries = weights[row] * square
    for number, (start, stop) in enumerate(zip([0, *turns], [*turns, k], strict=True)):
        if number:
            out *= decay ** undone(decay)
        entries = slice(events.indptr[start], events.indptr[stop])
        np.add.at(out, column[entries], of_entries[entries])
    return out


def decayed(decay: float, n_rows: int) -> float:
    """Return the factor that turns the result of ``column_squares`` into decayed sums after n_rows rows."""
    return decay ** ((n_rows - 1) % undone(decay))


# -- tables by ids -----------------------------------------------------------------------------------------------------
# Name of the ids of items in messages and files.
ITEM_IDS = "item_ids"


def ids_of_matrix(rows: Any, item_ids: Any, known: IdMap | None, n_items: int | None) -> IdMap:
    """Validate the ids of the columns of a matrix and return them. Raise ValueError if they differ from earlier ids.

    Ids are also refused if earlier rows had none.
    """
    if hasattr(rows, "n_features"):
        width = rows.n_features
    else:
        width = ((rows if hasattr(rows, "shape") else as_array(rows, "rows")).shape or (0,))[-1]
    out = as_id_map(item_ids, int(width), ITEM_IDS)
    if n_items is not None and out != known:
        raise ValueError(
            "item_ids come too late: rows had none before" if known is None else "item_ids must be those before"
        )
    return out


def events_of(
    rows: Any,
    known: IdMap | None,
    n_items: int,
    dtype: DTypeLike,
    order_of: Callable[[Any, str], list[int] | None],
    name: str = "rows",
) -> tuple[Any, IdMap | None]:
    """Validate the rows of users and convert them to CSR. Return (events, user_ids).

    `user_ids` is None if the rows are not a table.
    Unknown items of a table are ignored. `order_of(rows, name)` matches the named columns of a matrix with the items,
    as ``column_order`` does.
    """
    if _are_names(rows) or (isinstance(rows, str) and rows != "-" and not Path(rows).exists()):
        got = repr(rows)[:60] if isinstance(rows, str) else "strings"
        raise TypeError(
            f"{name} must be events, got {got}: the model keeps items and no users; give those of each user as {{user: "
            "[items]}, or a table (fastsketch.data.Triples, or a file that is there)"
        )
    table = as_triples(rows, None, name)
    if table is None:
        return as_events(with_columns(rows, order_of(rows, name), name), n_items, np.dtype(dtype), name), None
    if known is None:
        raise ValueError(f"{name} are a table, and the model was given no ids of items")
    return rows_of_table(table, known.places(table.item_ids, "items"), n_items, dtype), table.user_ids


def _are_names(rows: Any) -> bool:
    if not isinstance(rows, list | tuple | np.ndarray):
        return False
    given = cast("Sequence[Any]", rows)
    return len(given) > 0 and isinstance(given[0], str)


def rows_of_table(table: Triples, places: NDArray[np.int64], n_items: int, dtype: DTypeLike) -> Any:
    """Convert a table of users, items and values to a CSR matrix with one row per user.

    Item i of the table is in column places[i]. Error messages name the ids of the user and the item. Without values a
    pair counts 1, however often it occurs: repetitions of a few pairs would dominate all others.
    """
    values = table.values
    if values is not None and len(values) and values.min() < 0:
        line = int(np.argmax(values < 0))
        raise ValueError(f"values must not be negative: entry {line}, {pair_of(table, line)}, has {values[line]}")
    shape = len(table.user_ids), n_items
    entries = placed(table, np.arange(shape[0]), places, shape)
    if values is None:
        entries.data[:] = 1.0
    try:
        return as_events(entries, n_items, np.dtype(dtype), "values")
    except ValueError as error:
        entry = re.search(r"row (\d+) holds (\S+) in column (\d+)", str(error))
        if entry is None:
            raise
        item = table.item_ids[int(np.flatnonzero(places == int(entry[3]))[0])]
        pair = f"the pair ({table.user_ids[int(entry[1])]}, {item}) has {entry[2]}"
        raise ValueError(str(error).replace(entry[0], pair)) from None


def left_out(exclude: Any, users: IdMap | None, known: IdMap | None, shape: tuple[int, int]) -> Any:
    """Convert the items to exclude for each user, a matrix or a table, to a CSR matrix. Return None for None."""
    if exclude is None:
        return None
    table = as_triples(exclude, None, "exclude")
    if table is not None:
        if users is None or known is None:
            raise ValueError("exclude is a table: rows must be one too, whose users it names")
        return placed(table, users.places(table.user_ids, "users"), known.places(table.item_ids, "items"), shape)
    if not is_sparse(exclude):
        raise TypeError(f"exclude must be a scipy.sparse matrix, got {type(exclude).__name__}")
    out = as_csr(exclude, "exclude")
    if out.shape != shape:
        raise ValueError(f"exclude must have the shape of rows, {shape}, got {out.shape}")
    return out


def items_of(values: Any, known: IdMap | None, n_items: int, name: str) -> NDArray[np.int64]:
    """Return the column index of each item. Raise IndexError, or KeyError for ids, if an item is unknown."""
    return as_items(values, n_items, name) if known is None else known.known(values, name)


def named(items: NDArray[np.int64], known: IdMap | None) -> NDArray[Any]:
    """Convert column indices of items to ids. Return them unchanged if the model has no ids."""
    return items if known is None else taken(known, items)
