"""Observed entries of a matrix in CSR format, with their weights, scores and losses.

The stored entries of a sparse matrix, zeros included, are observed, and the entries of a dense one that are not NaN.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fastsketch._core.losses import as_targets
from fastsketch._core.sparse import as_csr
from fastsketch._core.validation import as_array, is_sparse, refuse_iterator
from fastsketch._kernels.lowrank import entries
from fastsketch.lowrank._setting import LossSetting

Array = NDArray[Any]  # float32 or float64, the same one throughout a fit
Indices = NDArray[np.uint32]
# Largest weight, and the inverse of the smallest, by bytes of the dtype: squares of weighted slopes must not overflow.
MAX_WEIGHT = {4: 1e30, 8: 1e100}


@dataclass(frozen=True)
class Observed:
    """Observed entries of a matrix, with optional weights, in CSR format with unsigned 32-bit indices. Its arrays must
    not be modified.
    """

    m: int
    n: int
    indptr: Indices  # (m + 1,)
    indices: Indices  # (nnz,)
    o: Array  # (nnz,) values
    c: Array  # (nnz,) weights; empty if all are 1

    @cached_property
    def index_arrays(self) -> tuple[Indices, Indices]:
        """Return the CSR index arrays (indptr, indices), which compiled functions take as their arguments."""
        return self.indptr, self.indices

    def scores(
        self, left: Array, right: Array, row_biases: Array, column_biases: Array, out: Array | None = None
    ) -> Array:
        """Return the score (nnz,) of each observed entry: row bias plus column bias plus the inner product of factors.

        The score of entry (i, j) is row_biases_i + column_biases_j + left_i . right_j.

        left is (m, t) and right (n, t). The scores are written to `out` if it is given.
        """
        z, dtype = np.empty_like(self.o) if out is None else out, self.o.dtype
        a, b = np.ascontiguousarray(left, dtype), np.ascontiguousarray(right, dtype)
        rb, cb = np.ascontiguousarray(row_biases, dtype), np.ascontiguousarray(column_biases, dtype)
        entries.scores(*self.index_arrays, a, b, rb, cb, z)
        return z

    def loss(self, loss: LossSetting, z: Array) -> tuple[float, float, float]:
        """Return the weighted loss at the scores `z` (nnz,), summed over entries, and two sums of its derivatives.
        They are the sums of squared first derivatives and of second derivatives.
        """
        return entries.objective(loss.number, loss.parameter, z, self.o, self.c)

    def entry_losses(self, loss: LossSetting, z: Array) -> NDArray[np.float64]:
        """Return the weighted loss of each observed entry at the given scores, shape (nnz,)."""
        values = loss.definition.value(z.astype(np.float64), self.o.astype(np.float64), loss.parameter)
        return values * self.c if len(self.c) else values

    def transpose(self) -> "Observed":
        """Return the observed entries of the transposed matrix."""
        shape, order = (self.m, self.n), np.arange(len(self.o))
        transposed: Any = sparse.csr_array((order, self.indices, self.indptr), shape=shape).tocsc()
        c = self.c[transposed.data] if len(self.c) else self.c
        index_arrays = transposed.indptr.astype(np.uint32), transposed.indices.astype(np.uint32)
        return Observed(self.n, self.m, *index_arrays, self.o[transposed.data], c)

    @property
    def rows(self) -> NDArray[np.int64]:
        """Return the row index of each observed entry, shape (nnz,)."""
        return np.repeat(np.arange(self.m), self.counts[0])

    @cached_property
    def standard_deviation(self) -> float:
        """Return the standard deviation of the observed values, or 0 if there are none."""
        with np.errstate(over="ignore", invalid="ignore"):
            return float(np.std(self.o, dtype=np.float64)) if len(self.o) else 0.0

    @cached_property
    def max_abs_value(self) -> float:
        """Return the largest absolute observed value, or 0 if there are none."""
        return float(np.abs(self.o).max(initial=0.0))

    @cached_property
    def counts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the number of observed entries of each row (m,) and of each column (n,)."""
        ends = self.indptr.astype(np.int64)
        return ends[1:] - ends[:-1], np.bincount(self.indices, minlength=self.n)

    @cached_property
    def row_weights(self) -> NDArray[np.float64]:
        """Return the total weight of the observed entries of each row, shape (m,)."""
        counts: NDArray[Any] = np.bincount(self.rows, self.c, self.m) if len(self.c) else self.counts[0]
        return counts.astype(np.float64, copy=False)

    def subtract_offsets(self, rows: NDArray[np.float64], columns: NDArray[np.float64]) -> "Observed":
        """Return a copy of the entries, with an offset of their row (m,) and one of their column (n,) subtracted."""
        offsets = np.repeat(rows, self.counts[0]) + columns[self.indices]
        return replace(self, o=(self.o - offsets).astype(self.o.dtype))

    def write_to(self, out: Array) -> None:
        """Write the observed values to their positions in the dense matrix `out`, in place."""
        out[self.rows, self.indices] = self.o

    def every_nth_row(self, stride: int) -> tuple["Observed", NDArray[np.int64]]:
        """Return (entries of every stride-th row, their indices among all entries); all other rows are empty."""
        lengths, ends = np.zeros(self.m, np.int64), self.indptr.astype(np.int64)
        lengths[::stride] = self.counts[0][::stride]
        new_indptr: NDArray[np.int64] = np.concatenate([[0], np.cumsum(lengths)])
        offsets: NDArray[np.int64] = ends[:-1] - new_indptr[:-1]
        entry_positions = np.arange(int(new_indptr[-1]), dtype=np.int64) + np.repeat(offsets, lengths)
        c = self.c[entry_positions] if len(self.c) else self.c
        return Observed(
            self.m, self.n, new_indptr.astype(np.uint32), self.indices[entry_positions], self.o[entry_positions], c
        ), entry_positions

    def drop_zero_weights(self) -> "Observed":
        """Return the entries whose weight is positive. If the remaining weights are all 1, the result has no
        weights.
        """
        weighted = self if self.c.all() else self.select(self.c > 0)
        return replace(weighted, c=weighted.c[:0]) if (weighted.c == 1).all() else weighted

    def select(self, mask: NDArray[np.bool_]) -> "Observed":
        """Return the observed entries that a boolean mask (nnz,) selects."""
        cumulative = np.concatenate([[0], np.cumsum(mask)])
        return Observed(
            self.m,
            self.n,
            cumulative[self.indptr.astype(np.int64)].astype(np.uint32),
            self.indices[mask],
            self.o[mask],
            self.c[mask] if len(self.c) else self.c,
        )


def observed_entries(
    X: Any,
    *,
    loss: str,
    sample_weight: Any = None,
    dtype: Any = None,
    n_columns: int | None = None,
    name: str = "X",
) -> Observed:
    """Validate a matrix and return its observed entries, with values that the loss accepts.

    Parameters
    ----------
    X : scipy.sparse (m, n), or array (m, n) with NaN for missing entries
    loss : str
    sample_weight : as X, optional
        Not negative. A sparse one must have the sparsity structure of X.
    dtype : dtype, optional
        Of the result; by default float32 and float64 stay, and other dtypes become float64.
    n_columns : int, optional
        Required number of columns.
    name : str
        Of X in error messages.

    Raises
    ------
    TypeError, ValueError
        For entries that are not finite numbers or not targets of the loss, and for wrong shapes and weights.
    """
    if is_sparse(X):
        rows = as_csr(X, name, sum_duplicates=False)
        m, n = X.shape
        indptr, indices, values = rows.indptr, rows.indices, rows.data
    else:
        indptr, indices, values = _dense_entries(X, name)
        m, n = np.shape(X)
    if n_columns is not None and n != n_columns:
        raise ValueError(f"{name} must have {n_columns} columns, got {n}")
    if len(values) >= 2**32:
        raise ValueError(f"{name} must have fewer than 2**32 observed entries, got {len(values):,}")
    if dtype is None:
        dtype = np.dtype(np.float32 if values.dtype.name == "float32" else np.float64)
    with np.errstate(over="ignore"):
        o = np.ascontiguousarray(values, dtype)
    valid = np.isfinite(o)
    if not valid.all():
        first = int(np.argmin(valid))
        entry, note = entry_position(first, indptr, indices), " (as float32)" if np.isfinite(values[first]) else ""
        raise ValueError(f"{name} must be finite where it is observed: entry {entry} is {values[first]}{note}")
    c = np.empty(0, dtype)
    if sample_weight is not None:
        c = validate_weights(sample_weight, indptr, indices, (m, n), dtype)
    indices = np.ascontiguousarray(indices)
    # a view without a copy if possible, since nothing is written to
    indices = indices.view(np.uint32) if indices.dtype == np.int32 else indices.astype(np.uint32)
    return Observed(m, n, np.ascontiguousarray(indptr, np.uint32), indices, as_targets(o, loss, name), c)


def _dense_entries(X: Any, name: str) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return the entries of an array that are not NaN in CSR format: (indptr, indices, values)."""
    refuse_iterator(X, name)
    dense = as_array(X, name)
    if dense.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold real numbers, got dtype {dense.dtype}")
    if dense.ndim != 2:
        raise ValueError(f"{name} must have two dimensions, got shape {dense.shape}")
    present = ~np.isnan(dense) if dense.dtype.kind == "f" else np.ones(dense.shape, bool)
    return np.concatenate([[0], np.cumsum(present.sum(axis=1))]), np.nonzero(present)[1], dense[present]


def entry_position(k: int, indptr: NDArray[Any], indices: NDArray[Any]) -> tuple[int, int]:
    """Return the row and the column of the k-th stored entry of a CSR matrix."""
    return int(np.searchsorted(indptr, k, side="right")) - 1, int(indices[k])


def validate_weights(
    weights: Any, indptr: NDArray[Any], indices: NDArray[Any], shape: tuple[int, int], dtype: np.dtype[Any]
) -> Array:
    """Check sample weights, and return the weight of each observed entry as an array (nnz,)."""
    sparse = is_sparse(weights)
    if not sparse:
        weights = as_array(weights, "sample_weight")
    if weights.shape != shape:
        raise ValueError(f"sample_weight must have the shape of X, {shape}, got {weights.shape}")
    if sparse:
        rows = as_csr(weights, "sample_weight", sum_duplicates=False)
        if not (np.array_equal(rows.indptr, indptr) and np.array_equal(rows.indices, indices)):
            raise ValueError("sample_weight must be stored where X is")
        values = rows.data
    else:
        values = weights[np.repeat(np.arange(shape[0]), np.diff(indptr)), indices]
    if values.dtype.kind not in "fiub":
        raise TypeError(f"sample_weight must hold real numbers, got dtype {values.dtype}")
    with np.errstate(over="ignore"):
        c = np.ascontiguousarray(values, dtype)
    max_weight = MAX_WEIGHT[dtype.itemsize]
    for valid, rule in (
        (np.isfinite(values) & (values >= 0), "finite and not negative"),
        (
            (values == 0) | ((c >= 1 / max_weight) & (c <= max_weight)),
            f"0 or from {1 / max_weight:g} to {max_weight:g}: scale all weights",
        ),
    ):
        if not valid.all():
            first = int(np.argmin(valid))
            entry = entry_position(first, indptr, indices)
            raise ValueError(f"sample_weight must be {rule}: entry {entry} is {values[first]}")
    return c
