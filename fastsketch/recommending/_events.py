"""Rows of users at the public door: CSR of finite numbers that are not negative, without explicit zeros."""

from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._validation import Rows, as_rows, is_sparse, no_mask

# Powers of a decay are undone up to this factor.
MOST_UNDONE = 1e12
# Positive entries of each dtype lie between 1 / these and these: their products must not leave its range.
MOST = {4: 1e30, 8: 1e140}


def as_events(rows: Rows, n_items: int | None, dtype: np.dtype[Any], name: str = "rows") -> Any:
    """CSR (k, items) in this dtype, canonical, its stored entries positive; or an error that names row and column."""
    if not is_sparse(rows) and np.ndim(cast(ArrayLike, rows)) == 0:
        raise ValueError(f"{name} must hold what users have had, a row a user: they have no ids here, got {rows!r}")
    found = as_rows(_upright(rows), n_items, name)
    from scipy.sparse import csr_array

    csr = found if is_sparse(found) else csr_array(found)
    with np.errstate(over="ignore"):
        data = csr.data.astype(dtype, copy=False)
    most = MOST[dtype.itemsize]
    if data.size and not (data.min() >= 0 and data.max() <= most and (csr.data[data < 1 / most] == 0).all()):
        _refuse(csr, data, name, most)
    out = csr_array((data, csr.indices, csr.indptr), shape=csr.shape)
    if data.size and data.min() == 0:
        out = out.copy()
        out.eliminate_zeros()
    return out


def _upright(rows: Any) -> Any:
    """A sparse vector, as X[0] of a sparse array is one, as a matrix of one row."""
    return rows.reshape((1, -1)) if is_sparse(rows) and rows.ndim == 1 else rows


def _refuse(csr: Any, data: NDArray[Any], name: str, most: float) -> None:
    place = int(np.argmin((csr.data == 0) | ((data >= 1 / most) & (data <= most))))
    row, column, value = int(np.searchsorted(csr.indptr, place, side="right")) - 1, csr.indices[place], csr.data[place]
    within = f"lie between {1 / most:g} and {most:g} as {data.dtype}"
    rule = "be finite" if not np.isfinite(value) else "not be negative" if value < 0 else within
    raise ValueError(f"{name} must {rule}: row {row} holds {value} in column {column}")


def as_items(values: ArrayLike, n_items: int, name: str) -> NDArray[np.int64]:
    """A vector of items in [0, n_items), or TypeError / ValueError / an IndexError that names those unknown."""
    out: NDArray[Any] = np.atleast_1d(np.asarray(values))
    if out.size == 0:
        return np.zeros(0, np.int64)
    if out.dtype.kind not in "iu":
        raise TypeError(f"{name} must be integers, got dtype {out.dtype}{no_mask(out)}")
    if out.ndim != 1:
        raise ValueError(f"{name} must be a vector, got shape {out.shape}")
    unknown = np.unique(out[(out < 0) | (out >= n_items)])
    if unknown.size:
        listed = ", ".join(map(str, unknown[:5])) + (", ..." if unknown.size > 5 else "")
        raise IndexError(f"{name} must lie in [0, {n_items}), got the unknown {listed}")
    return out.astype(np.int64)


def owners(csr: Any) -> NDArray[np.int64]:
    """The row of every stored entry of a CSR matrix, (nnz,)."""
    return np.repeat(np.arange(int(csr.shape[0])), np.diff(csr.indptr))


def row_squares(events: Any) -> NDArray[np.float64]:
    """Sum of squares of every row of CSR, (k,) in double: of a row by itself, whatever stands before it."""
    sums = np.bincount(owners(events), events.data.astype(np.float64) ** 2, minlength=events.shape[0])
    return sums.astype(np.float64, copy=False)  # of nothing at all NumPy counts in integers


def column_squares(
    events: Any,
    weights: NDArray[np.float64],
    decay: float = 1.0,
    *,
    first: int = 0,
    before: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """Weighted sum of squares of every column of CSR rows, (items,), to be multiplied by ``decayed``.

    They are added one by one to `before`, what the rows before number `first` have, and each row takes a factor off all
    before it: it counts by the inverse power, from one row to the next whose number is a multiple of ``undone``. So
    the bits do not depend on batches.
    """
    k, n_items = events.shape
    out = np.zeros(n_items) if before is None else before.copy()
    turns: list[int] = []
    if decay < 1.0:
        power: NDArray[np.int64] = np.arange(first, first + int(k)) % undone(decay)
        weights, turns = weights * decay ** -power.astype(np.float64), np.flatnonzero(power == 0).tolist()
    of_entries = weights[owners(events)] * events.data.astype(np.float64) ** 2
    for number, (start, stop) in enumerate(zip([0, *turns], [*turns, k], strict=True)):
        if number:
            out *= decay ** undone(decay)
        entries = slice(events.indptr[start], events.indptr[stop])
        np.add.at(out, events.indices[entries], of_entries[entries])
    return out


def undone(decay: float) -> int:
    """Rows over which powers of a decay are undone."""
    return max(1, int(np.log(MOST_UNDONE) / -np.log(decay))) if decay < 1.0 else 2**62


def decayed(decay: float, n_rows: int) -> float:
    """What the sums of ``column_squares`` are to be multiplied by, once they have so many rows."""
    return decay ** ((n_rows - 1) % undone(decay))
