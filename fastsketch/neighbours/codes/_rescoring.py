"""Reranking of candidates by exact distances to the original rows."""

from collections.abc import Callable
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.validation import Rows, as_rows, check_finite, is_sparse
from fastsketch._frame.batches import FeatureNames, require_columns

Places = NDArray[np.int64]
Source = Rows | Callable[[Places], Rows]
Reader = Callable[[Places, Places], Any]

# Bytes of rows that are read at a time, and of the differences of queries and rows that are held at a time.
PIECE_BYTES = 16 << 20


def rows_reader(
    source: Source, n_features: int, name: str, n: int | None = None, *, feature_names: FeatureNames | None = None
) -> Reader:
    """Return a function that reads original rows from an array or from a callable.

    The function is read(positions, ids) and returns rows (b, n_features).

    Positions must ascend. An array is indexed by position; a callable is called with the ids, and the rows it returns
    are validated then. An array must have n rows if n is given. Rows with column names must have `feature_names`, in
    this order. TypeError or ValueError calls the source by `name`.
    """
    rows: Any = source
    if not callable(source):
        refuse_names(source, name)
        require_columns(source, feature_names, name)
        held = isinstance(source, np.ndarray) and source.ndim == 2
        # entries of an array are not read here: it may be a memory map
        checked = as_rows(rows[:0] if held else rows, name=name)
        rows = rows if held else checked
        expected = rows.shape[0] if n is None else n, n_features
        if rows.shape != expected:
            raise ValueError(f"{name} must have shape {expected} as the rows that were encoded, got {rows.shape}")

    def read(places: Places, ids: Places) -> Any:
        if callable(rows):
            returned = rows(ids.copy())
            require_columns(returned, feature_names, f"the rows that {name} returned")
            came = as_rows(returned, name=f"the rows that {name} returned")
            if came.shape != (len(ids), n_features):
                raise ValueError(
                    f"{name} must return rows of shape {(len(ids), n_features)} for {len(ids)} ids, got {came.shape}"
                )
            try:
                check_finite(came, f"the rows that {name} returned")
            except ValueError as error:
                raise ValueError(f"{error}, of the ids from {ids[0]} to {ids[-1]}") from None
            return came
        if len(places) and places[-1] >= rows.shape[0]:
            raise ValueError(
                f"{name} must have a row for every id: row {places[-1]} is wanted, got {rows.shape[0]} rows "
                "(a function of ids can stand in its place)"
            )
        some: Any = rows[places]
        values: NDArray[Any] = some.data if is_sparse(some) else some
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            for place in places:
                check_finite(rows[place : place + 1], name, offset=int(place))
        return some

    return read


def refuse_names(source: Any, name: str) -> None:
    """Raise TypeError if `source` is the name of a file or a boolean instead of rows."""
    if isinstance(source, str | bytes | bool | np.bool_ | PathLike):
        raise TypeError(
            f"{name} must be the rows (an array, np.load(..., mmap_mode='r'), CSR) or a function of ids that returns "
            f"them, got {source!r}"
        )


def rescored(
    queries: Any, places: Places, rows_at: Callable[[Places], Any], *, metric: str, k: int, ids: Places | None = None
) -> tuple[NDArray[np.float64], Places]:
    """Rank candidates by exact distances or similarities. Return the k best ranking keys and their positions.

    Candidates are positions (m, c). Keys (m, k) ascend; smaller ones are nearer.

    Equal keys are ordered by id. `rows_at` returns the rows at ascending positions; each row is read once for all
    queries, a batch at a time.
    """
    keys = _exact_keys(queries, places, rows_at, metric=metric)
    names = places if ids is None else ids[places]
    order = np.lexsort((names, keys), axis=1)[:, :k]
    return np.take_along_axis(keys, order, axis=1), np.take_along_axis(places, order, axis=1)


def _exact_keys(queries: Any, places: Places, rows_at: Callable[[Places], Any], *, metric: str) -> NDArray[np.float64]:
    """Compute exact ranking keys of all candidates of every query; smaller keys are nearer.

    Candidates and keys are (m, c).
    """
    m, c = places.shape
    keys = np.empty(m * c)
    order = np.argsort(places, axis=None, kind="stable")  # pairs of a query and a candidate, row by row
    of_query = order // max(c, 1)
    wanted, first = np.unique(places.reshape(-1)[order], return_index=True)
    ends = np.append(first[1:], m * c)
    step = max(1, PIECE_BYTES // (8 * queries.shape[1]))
    for start in range(0, len(wanted), step):
        some = wanted[start : start + step]
        piece = rows_at(some)
        piece = piece if is_sparse(piece) else np.asarray(piece, np.float64)
        pairs = slice(int(first[start]), int(ends[min(start + step, len(wanted)) - 1]))
        row_of_pair = np.repeat(np.arange(len(some)), (ends - first)[start : start + step])
        keys[order[pairs]] = _keys(queries, of_query[pairs], piece, row_of_pair, metric=metric)
    if np.isnan(keys).any():
        raise ValueError("the inner products of queries and rows leave the range of numbers: divide both by a number")
    return keys.reshape(m, c)


def _keys(queries: Any, of_query: Places, rows: Any, of_row: Places, *, metric: str) -> NDArray[np.float64]:
    """Compute exact ranking keys of pairs of a query and a row, which are given by their indices.

    Indices and keys are (p,).
    """
    out = np.empty(len(of_query))
    step = max(1, PIECE_BYTES // (8 * rows.shape[1]))
    for start in range(0, len(out), step):
        part = slice(start, start + step)
        x, q = rows[of_row[part]], queries[of_query[part]]
        if is_sparse(x) != is_sparse(q):
            x, q = (y.toarray() if is_sparse(y) else y for y in (x, q))
        if is_sparse(x):
            x, q = x.astype(np.float64), q.astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            out[part] = _of_pairs(x, q, metric)
    return out


def _of_pairs(x: Any, q: Any, metric: str) -> NDArray[np.float64]:
    """Compute the exact ranking key of each row of `x` and the query in the same row of `q`.

    Both are (p, d), dense or CSR; keys are (p,).
    """
    if metric == "euclidean":
        return _dots(x - q, x - q)
    if metric == "inner_product":
        return 0.0 - _dots(x, q)
    x, q = _scaled(x), _scaled(q)
    lengths = np.sqrt(_dots(x, x)) * np.sqrt(_dots(q, q))
    return 0.0 - _dots(x, q) / np.where(lengths > 0, lengths, 1.0)


def _dots(x: Any, y: Any) -> NDArray[np.float64]:
    """Compute the inner product of each row of one matrix with the same row of the other."""
    if is_sparse(x):
        return np.asarray(x.multiply(y).sum(axis=1), np.float64).reshape(-1)
    return np.einsum("ij,ij->i", x, y, dtype=np.float64)


def _scaled(x: Any) -> Any:
    """Divide each row by its largest magnitude, so that sums of squares do not overflow."""
    if is_sparse(x):
        from scipy import sparse

        top = np.asarray(abs(x).max(axis=1).toarray(), np.float64).reshape(-1)
        return sparse.diags_array(1.0 / np.where(top > 0, top, 1.0)).tocsr() @ x
    top = np.abs(x).max(axis=1, keepdims=True)
    return x / np.where(top > 0, top, 1.0)
