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
from fastsketch.data.names._id_map import IdMap, as_id_map, ids_at
from fastsketch.data.names._triples import Triples, as_triples, describe_pair, to_csr_matrix
from fastsketch.recommending.ranking._splits import row_indices
from fastsketch.ridge._held_out import rows_per_decay_block

# Positive entries are between 1 / MOST and MOST by the size of the dtype, so that their products do not overflow.
LARGEST_ENTRY = {4: 1e30, 8: 1e140}


def as_events(rows: Rows, n_items: int | None, dtype: np.dtype[Any], name: str = "rows") -> Any:
    """Return a matrix of users' events as CSR (users, items) with positive entries only, after checking it.

    Zeros are dropped. Negative, infinite or out-of-range entries raise ValueError, which names the row and column.
    """
    from scipy.sparse import csr_array

    container: Any = rows
    csr: Any
    if is_sparse(container):
        # a sparse vector, such as X[0] of a sparse array, is one row
        csr = as_rows(container.reshape((1, -1)) if container.ndim == 1 else container, n_items, name)
        if type(csr) is not csr_array or csr.indices.dtype != np.int32:  # a sparse matrix, or indices of another type
            csr = csr_array((csr.data, csr.indices, csr.indptr), shape=csr.shape)
    else:
        require_array_like(rows, name)
        if (container if hasattr(container, "ndim") else as_array(container, name)).ndim == 0:
            raise ValueError(f"{name} must hold what users have had, a row a user: they have no ids here, got {rows!r}")
        csr = dense_as_csr(as_rows(rows, n_items, name))
    data = csr.data
    if data.dtype != dtype:
        with np.errstate(over="ignore"):
            data = data.astype(dtype)
    largest_allowed = LARGEST_ENTRY[dtype.itemsize]
    smallest, largest = (data.min(), data.max()) if data.size else (1.0, 1.0)
    if not 1 / largest_allowed <= smallest <= largest <= largest_allowed and not (
        smallest >= 0 and largest <= largest_allowed and (csr.data[data < 1 / largest_allowed] == 0).all()
    ):
        _raise_entry_error(csr, data, name, largest_allowed)
    out: Any = copy(csr)  # shares the arrays; the constructor would take ten times as long
    out.data = data
    if smallest == 0:
        out = out.copy()
        out.eliminate_zeros()
    return out


def _raise_entry_error(csr: Any, data: NDArray[Any], name: str, largest_allowed: float) -> None:
    """Raise ValueError for the first invalid entry of a matrix of events. The message contains its row, column and
    value.
    """
    position = int(np.argmin((csr.data == 0) | ((data >= 1 / largest_allowed) & (data <= largest_allowed))))
    row, column, value = (
        int(np.searchsorted(csr.indptr, position, side="right")) - 1,
        csr.indices[position],
        csr.data[position],
    )
    within = f"lie between {1 / largest_allowed:g} and {largest_allowed:g} as {data.dtype}"
    rule = "be finite" if not np.isfinite(value) else "not be negative" if value < 0 else within
    raise ValueError(f"{name} must {rule}: row {row} holds {value} in column {column}")


def as_items(values: ArrayLike, n_items: int, name: str) -> NDArray[np.int64]:
    """Return column indices of items as int64; IndexError if one is outside [0, n_items)."""
    out: NDArray[Any] = np.atleast_1d(as_array(values, name))
    as_subset(out, n_items, name)
    return out.astype(np.int64)


def csr_structure(matrix: Any, row_of_query: NDArray[np.int64] | None = None) -> tuple[Any, ...]:
    """Return (row pointers, column indices, `row_of_query`) of a CSR matrix, by which kernels exclude items.

    Row pointers are int64 and column indices int32, contiguous. A kernel excludes the items of row row_of_query[i] from
    the results of query i, or those of row i if `row_of_query` is None. It is returned unchanged.
    """
    return in_place(matrix.indptr, np.int64), in_place(matrix.indices, np.int32), row_of_query


class Squares(NamedTuple):
    """Row index, column index and squared value of every stored entry of a CSR matrix."""

    row: NDArray[np.intp]  # (nnz,)
    column: NDArray[np.int32]  # (nnz,)
    square: NDArray[np.float64]  # (nnz,)


def entry_squares(events: Any) -> Squares:
    """Return the square of every stored entry of a CSR matrix, with its row and column index, as Squares."""
    return Squares(row_indices(events), events.indices, np.square(events.data, dtype=np.float64))


def row_square_sums(events: Any, squares: Squares | None = None) -> NDArray[np.float64]:
    """Return the sum of squares of every row of a CSR matrix, float64 (k,).

    `squares` is the result of ``entry_squares``, if the caller has it already.
    """
    row, _, square = entry_squares(events) if squares is None else squares
    sums = np.bincount(row, square, minlength=events.shape[0])
    return sums.astype(np.float64, copy=False)  # NumPy returns integers for no entries


def column_square_sums(
    events: Any,
    weights: NDArray[np.float64],
    decay: float = 1.0,
    *,
    first_row: int = 0,
    previous_sums: NDArray[np.float64] | None = None,
    squares: Squares | None = None,
) -> NDArray[np.float64]:
    """Return the sums of squares of columns (items,) after the weighted squares of new CSR rows are added.
    The old sums do not change.

    The result (items,) must be multiplied by ``column_decay_factor`` to get decayed sums. Instead of decaying all
    earlier rows, every row is weighted by an inverse power of the decay. Whenever the row number is a multiple of
    ``rows_per_decay_block(decay)``, the sums are rescaled and the power is 0 again. Results therefore do not depend on
    the batches.

    Parameters
    ----------
    events : CSR (k, items)
    weights : ndarray (k,)
    decay : float
    first_row : int
        Number of the first of these rows in the stream.
    previous_sums : ndarray (items,), optional
        Sums over the earlier rows, 0 by default; not modified.
    squares : Squares, optional
        Result of ``entry_squares(events)``, if the caller has it already.
    """
    k, n_items = events.shape
    out = np.zeros(n_items) if previous_sums is None else previous_sums.copy()
    rescaled_rows: list[int] = []
    if decay < 1.0:
        power: NDArray[np.int64] = np.arange(first_row, first_row + int(k)) % rows_per_decay_block(decay)
        weights, rescaled_rows = weights * decay ** -power.astype(np.float64), np.flatnonzero(power == 0).tolist()
    row, column, square = entry_squares(events) if squares is None else squares
    weighted_squares = weights[row] * square
    for number, (start, stop) in enumerate(zip([0, *rescaled_rows], [*rescaled_rows, k], strict=True)):
        if number:
            out *= decay ** rows_per_decay_block(decay)
        row_entries = slice(events.indptr[start], events.indptr[stop])
        np.add.at(out, column[row_entries], weighted_squares[row_entries])
    return out


def column_decay_factor(decay: float, n_rows: int) -> float:
    """Return the factor that makes a result of ``column_square_sums`` the decayed sums of squares after n_rows rows."""
    return decay ** ((n_rows - 1) % rows_per_decay_block(decay))


# -- tables by ids -----------------------------------------------------------------------------------------------------
# Name of the ids of items in messages and files.
ITEM_IDS = "item_ids"


def check_item_ids(rows: Any, item_ids: Any, model_ids: IdMap | None, n_items: int | None) -> IdMap:
    """Return the ids that the user gives for the columns of a matrix, as an IdMap, after checking them.

    ValueError if they differ from `model_ids`, those of earlier rows, or if earlier rows had no ids. `n_items` is the
    number of items of the model, None before the first rows.
    """
    if hasattr(rows, "n_features"):
        width = rows.n_features
    else:
        width = ((rows if hasattr(rows, "shape") else as_array(rows, "rows")).shape or (0,))[-1]
    out = as_id_map(item_ids, int(width), ITEM_IDS)
    if n_items is not None and out != model_ids:
        raise ValueError(
            "item_ids come too late: rows had none before" if model_ids is None else "item_ids must be those before"
        )
    return out


def convert_events(
    rows: Any,
    model_ids: IdMap | None,
    n_items: int,
    dtype: DTypeLike,
    match_columns: Callable[[Any, str], list[int] | None],
    name: str = "rows",
) -> tuple[Any, IdMap | None]:
    """Return (events, user_ids): users' rows, from a matrix or a table with ids, as CSR over the model's items.

    events have shape (k, n_items). `user_ids` is None if the rows are a matrix. Unknown items of a table are ignored.
    `match_columns(rows, name)` matches the named columns of a matrix with the items, as ``column_order`` does.
    """
    if _are_strings(rows) or (isinstance(rows, str) and rows != "-" and not Path(rows).exists()):
        found = repr(rows)[:60] if isinstance(rows, str) else "strings"
        raise TypeError(
            f"{name} must be events, got {found}: the model keeps items and no users; give those of each user as {{user"
            ": [items]}, or a table (fastsketch.data.Triples, or a file that is there)"
        )
    table = as_triples(rows, None, name)
    if table is None:
        return as_events(with_columns(rows, match_columns(rows, name), name), n_items, np.dtype(dtype), name), None
    if model_ids is None:
        raise ValueError(f"{name} are a table, and the model was given no ids of items")
    return table_to_csr(table, model_ids.places(table.item_ids, "items"), n_items, dtype), table.user_ids


def _are_strings(rows: Any) -> bool:
    """Return True if rows are a list, tuple or array whose first item is a string."""
    if not isinstance(rows, list | tuple | np.ndarray):
        return False
    values = cast("Sequence[Any]", rows)
    return len(values) > 0 and isinstance(values[0], str)


def table_to_csr(table: Triples, item_columns: NDArray[np.int64], n_items: int, dtype: DTypeLike) -> Any:
    """Convert a table of (user, item, value) lines to a CSR matrix (users, n_items) that has one row for each user.

    Item i of the table is in column item_columns[i]. Error messages name the ids of the user and the item. Without
    values a pair counts 1, however often it occurs: repetitions of a few pairs would dominate all others.
    """
    values = table.values
    if values is not None and len(values) and values.min() < 0:
        line = int(np.argmax(values < 0))
        raise ValueError(f"values must not be negative: entry {line}, {describe_pair(table, line)}, has {values[line]}")
    shape = len(table.user_ids), n_items
    entries = to_csr_matrix(table, np.arange(shape[0]), item_columns, shape)
    if values is None:
        entries.data[:] = 1.0
    try:
        return as_events(entries, n_items, np.dtype(dtype), "values")
    except ValueError as error:
        entry = re.search(r"row (\d+) holds (\S+) in column (\d+)", str(error))
        if entry is None:
            raise
        item = table.item_ids[int(np.flatnonzero(item_columns == int(entry[3]))[0])]
        pair = f"the pair ({table.user_ids[int(entry[1])]}, {item}) has {entry[2]}"
        raise ValueError(str(error).replace(entry[0], pair)) from None


def convert_exclusions(exclude: Any, user_ids: IdMap | None, model_ids: IdMap | None, shape: tuple[int, int]) -> Any:
    """Return the items to exclude for each user, given as a matrix or a table, as CSR of the given shape.
    Return None for None.

    Users of a table are looked up in `user_ids`, its items in `model_ids`.
    """
    if exclude is None:
        return None
    table = as_triples(exclude, None, "exclude")
    if table is not None:
        if user_ids is None or model_ids is None:
            raise ValueError("exclude is a table: rows must be one too, whose users it names")
        return to_csr_matrix(
            table, user_ids.places(table.user_ids, "users"), model_ids.places(table.item_ids, "items"), shape
        )
    if not is_sparse(exclude):
        raise TypeError(f"exclude must be a scipy.sparse matrix, got {type(exclude).__name__}")
    out = as_csr(exclude, "exclude")
    if out.shape != shape:
        raise ValueError(f"exclude must have the shape of rows, {shape}, got {out.shape}")
    return out


def ids_to_columns(values: Any, model_ids: IdMap | None, n_items: int, name: str) -> NDArray[np.int64]:
    """Return the column indices (k,) of items that the user gives as ids or as column indices.

    Raise IndexError, or KeyError for ids, if an item is unknown.
    """
    return as_items(values, n_items, name) if model_ids is None else model_ids.known(values, name)


def columns_to_ids(items: NDArray[np.int64], model_ids: IdMap | None) -> NDArray[Any]:
    """Convert column indices of items to ids. Return them unchanged if the model has no ids.

    Index -1 becomes None, or stays -1 if the ids are integers.
    """
    return items if model_ids is None else ids_at(model_ids, items)
