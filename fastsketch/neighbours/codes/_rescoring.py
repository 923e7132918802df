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


def create_rows_reader(
    source: Source, n_features: int, name: str, n: int | None = None, *, feature_names: FeatureNames | None = None
) -> Reader:
    """Validate a source of original rows, an array or a callable, and return a function that reads them.

    The function is read(positions, ids) and returns rows (b, n_features). Positions must ascend. An array is indexed by
    position. A callable is called with the ids, and the rows that it returns are validated then.

    Parameters
    ----------
    source : array_like, scipy.sparse, or callable(ids) -> rows
    n_features : int
    name : str
        Name of the source in messages.
    n : int, optional
        Number of rows that an array must have.
    feature_names : tuple of str, optional
        Column names that rows must have, in this order, if they have any.
    """
    rows: Any = source
    if not callable(source):
        refuse_names(source, name)
        require_columns(source, feature_names, name)
        is_matrix = isinstance(source, np.ndarray) and source.ndim == 2
        # entries of an array are not read here: it may be a memory map
        checked = as_rows(rows[:0] if is_matrix else rows, name=name)
        rows = rows if is_matrix else checked
        expected = rows.shape[0] if n is None else n, n_features
        if rows.shape != expected:
            raise ValueError(f"{name} must have shape {expected} as the rows that were encoded, got {rows.shape}")

    def read(positions: Places, ids: Places) -> Any:
        if callable(rows):
            returned = rows(ids.copy())
            require_columns(returned, feature_names, f"the rows that {name} returned")
            returned_rows = as_rows(returned, name=f"the rows that {name} returned")
            if returned_rows.shape != (len(ids), n_features):
                raise ValueError(
                    f"{name} must return rows of shape {(len(ids), n_features)} for {len(ids)} ids, got "
                    f"{returned_rows.shape}"
                )
            try:
                check_finite(returned_rows, f"the rows that {name} returned")
            except ValueError as error:
                raise ValueError(f"{error}, of the ids from {ids[0]} to {ids[-1]}") from None
            return returned_rows
        if len(positions) and positions[-1] >= rows.shape[0]:
            raise ValueError(
                f"{name} must have a row for every id: row {positions[-1]} is wanted, got {rows.shape[0]} rows "
                "(a function of ids can stand in its place)"
            )
        selected: Any = rows[positions]
        values: NDArray[Any] = selected.data if is_sparse(selected) else selected
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            for position in positions:
                check_finite(rows[position : position + 1], name, offset=int(position))
        return selected

    return read


def refuse_names(source: Any, name: str) -> None:
    """Raise TypeError if `source` is the name of a file or a boolean instead of rows."""
    if isinstance(source, str | bytes | bool | np.bool_ | PathLike):
        raise TypeError(
            f"{name} must be the rows (an array, np.load(..., mmap_mode='r'), CSR) or a function of ids that returns "
            f"them, got {source!r}"
        )


def rescore_candidates(
    queries: Any, positions: Places, rows_at: Callable[[Places], Any], *, metric: str, k: int, ids: Places | None = None
) -> tuple[NDArray[np.float64], Places]:
    """Rank the candidates of a search again, by exact distances to the original rows. Return the keys of the k best for
    each query, and their positions.

    Candidates are positions (m, c). Keys (m, k) ascend; smaller ones are nearer, and equal ones are ordered by id.
    `rows_at` returns the rows at ascending positions; each row is read once for all queries, a batch at a time.
    """
    keys = _exact_keys(queries, positions, rows_at, metric=metric)
    names = positions if ids is None else ids[positions]
    order = np.lexsort((names, keys), axis=1)[:, :k]
    return np.take_along_axis(keys, order, axis=1), np.take_along_axis(positions, order, axis=1)


def _exact_keys(
    queries: Any, positions: Places, rows_at: Callable[[Places], Any], *, metric: str
) -> NDArray[np.float64]:
    """Return exact ranking keys for all candidates of every query; smaller keys are nearer.

    Candidates and keys are (m, c).
    """
    m, c = positions.shape
    keys = np.empty(m * c)
    order = np.argsort(positions, axis=None, kind="stable")  # pairs of a query and a candidate, row by row
    query_of_pair = order // max(c, 1)
    distinct_positions, first_pairs = np.unique(positions.reshape(-1)[order], return_index=True)
    ends = np.append(first_pairs[1:], m * c)
    step = max(1, PIECE_BYTES // (8 * queries.shape[1]))
    for start in range(0, len(distinct_positions), step):
        block_positions = distinct_positions[start : start + step]
        block_rows = rows_at(block_positions)
        block_rows = block_rows if is_sparse(block_rows) else np.asarray(block_rows, np.float64)
        pairs = slice(int(first_pairs[start]), int(ends[min(start + step, len(distinct_positions)) - 1]))
        row_of_pair = np.repeat(np.arange(len(block_positions)), (ends - first_pairs)[start : start + step])
        keys[order[pairs]] = _pair_keys(queries, query_of_pair[pairs], block_rows, row_of_pair, metric=metric)
    if np.isnan(keys).any():
        raise ValueError("the inner products of queries and rows leave the range of numbers: divide both by a number")
    return keys.reshape(m, c)


def _pair_keys(
    queries: Any, query_of_pair: Places, rows: Any, row_of_pair: Places, *, metric: str
) -> NDArray[np.float64]:
    """Return exact ranking keys for pairs of a query and a row. Pairs are given as two arrays of indices.

    Indices and keys are (p,).
    """
    out = np.empty(len(query_of_pair))
    step = max(1, PIECE_BYTES // (8 * rows.shape[1]))
    for start in range(0, len(out), step):
        block = slice(start, start + step)
        x, q = rows[row_of_pair[block]], queries[query_of_pair[block]]
        if is_sparse(x) != is_sparse(q):
            x, q = (y.toarray() if is_sparse(y) else y for y in (x, q))
        if is_sparse(x):
            x, q = x.astype(np.float64), q.astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            out[block] = _keys_of_rows(x, q, metric)
    return out


def _keys_of_rows(x: Any, q: Any, metric: str) -> NDArray[np.float64]:
    """Return the exact ranking key between row i of `x` and row i of `q`, for every i.

    Both are (p, d), dense or CSR; keys are (p,).
    """
    if metric == "euclidean":
        return _dots(x - q, x - q)
    if metric == "inner_product":
        return 0.0 - _dots(x, q)
    x, q = _divide_by_largest(x), _divide_by_largest(q)
    lengths = np.sqrt(_dots(x, x)) * np.sqrt(_dots(q, q))
    return 0.0 - _dots(x, q) / np.where(lengths > 0, lengths, 1.0)


def _dots(x: Any, y: Any) -> NDArray[np.float64]:
    """Return the inner product of row i of `x` and row i of `y`, for every i."""
    if is_sparse(x):
        return np.asarray(x.multiply(y).sum(axis=1), np.float64).reshape(-1)
    return np.einsum("ij,ij->i", x, y, dtype=np.float64)


def _divide_by_largest(x: Any) -> Any:
    """Divide each row by its largest magnitude, so that sums of squares do not overflow. Return the new rows."""
    if is_sparse(x):
        from scipy import sparse

        top = np.asarray(abs(x).max(axis=1).toarray(), np.float64).reshape(-1)
        return sparse.diags_array(1.0 / np.where(top > 0, top, 1.0)).tocsr() @ x
    top = np.abs(x).max(axis=1, keepdims=True)
    return x / np.where(top > 0, top, 1.0)
