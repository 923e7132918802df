"""The observed entries of a matrix: what is stored in a sparse one, zeros too; what is not NaN in a dense one."""

import numpy as np

from fastsketch._validation import is_sparse


class Observed:
    """CSR with unsigned indices: m, n, indptr, indices, o (values), c (weights, empty if all are 1)."""

    def __init__(self, m, n, indptr, indices, o, c):
        self.m, self.n, self.indptr, self.indices, self.o, self.c = m, n, indptr, indices, o, c

    @property
    def where(self):
        return self.indptr, self.indices

    def transposed(self):
        """The same entries column by column."""
        from fastsketch._kernels import lowrank as kernel

        indptr = np.zeros(self.n + 1, np.uint32)
        indptr[1:] = np.cumsum(np.bincount(self.indices, minlength=self.n))
        rows, values, weights = np.empty_like(self.indices), np.empty_like(self.o), np.empty_like(self.c)
        kernel.transpose(*self.where, self.o, self.c, indptr, rows, values, weights)
        return Observed(self.n, self.m, indptr, rows, values, weights)

    def counts(self):
        """Observations of every row and of every column."""
        return np.diff(self.indptr.astype(np.int64)), np.bincount(self.indices, minlength=self.n)

    def part(self, mask):
        """The entries where mask (nnz,) is true."""
        kept = np.concatenate([[0], np.cumsum(mask)])
        return Observed(
            self.m,
            self.n,
            kept[self.indptr.astype(np.int64)].astype(np.uint32),
            self.indices[mask],
            self.o[mask],
            self.c[mask] if len(self.c) else self.c,
        )


def observed(X, weights=None, dtype=None, n_columns=None, name="X"):
    """Observed entries of a sparse matrix, or of a dense one with NaN for what is missing.

    weights: of the same shape (sparse ones of the same structure), nonnegative.
    """
    if is_sparse(X):
        if X.ndim != 2:
            raise ValueError(f"{name} must have two dimensions, got shape {X.shape}")
        if X.dtype.kind not in "fiub":
            raise TypeError(f"{name} must hold real numbers, got dtype {X.dtype}")
        if X.format == "coo":
            _no_duplicates(
                X.row if hasattr(X, "row") else X.coords[0], X.col if hasattr(X, "col") else X.coords[1], X.shape, name
            )
        rows = X.tocsr()
        if not rows.has_sorted_indices:
            rows = rows.sorted_indices()
        if rows.nnz and not rows.has_canonical_format:
            _no_duplicates(np.repeat(np.arange(X.shape[0]), np.diff(rows.indptr)), rows.indices, X.shape, name)
        indptr, indices, values = rows.indptr, rows.indices, rows.data
    else:
        if isinstance(X, np.ma.MaskedArray):
            raise TypeError(f"{name} must not be a masked array: fill what is missing with NaN")
        dense = np.asarray(X)
        if dense.dtype.kind not in "fiub":
            raise TypeError(f"{name} must hold real numbers, got dtype {dense.dtype}")
        if dense.ndim != 2:
            raise ValueError(f"{name} must have two dimensions, got shape {dense.shape}")
        there = ~np.isnan(dense) if dense.dtype.kind == "f" else np.ones(dense.shape, bool)
        indptr = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
        indices, values = np.nonzero(there)[1], dense[there]
    m, n = X.shape if is_sparse(X) else dense.shape
    if n_columns is not None and n != n_columns:
        raise ValueError(f"{name} must have {n_columns} columns, got {n}")
    if len(values) >= 2**32:
        raise ValueError(f"{name} must have fewer than 2**32 observed entries, got {len(values):,}")
    if dtype is None:
        dtype = values.dtype if values.dtype in (np.float32, np.float64) else np.float64
    good = np.isfinite(values)
    if not good.all():
        first = int(np.argmin(good))
        row = int(np.searchsorted(indptr, first, side="right")) - 1
        raise ValueError(
            f"{name} must be finite where it is observed: entry ({row}, {int(indices[first])}) is {values[first]}"
        )
    c = np.empty(0, dtype)
    if weights is not None:
        c = _weights(weights, indptr, indices, (m, n), dtype)
    indices = np.ascontiguousarray(indices)
    # the same bytes where they can be had: nothing here is ever written to
    indices = indices.view(np.uint32) if indices.dtype == np.int32 else indices.astype(np.uint32)
    return Observed(m, n, np.ascontiguousarray(indptr, np.uint32), indices, np.ascontiguousarray(values, dtype), c)


def _no_duplicates(rows, columns, shape, name):
    keys = np.asarray(rows, np.int64) * shape[1] + columns
    order = np.sort(keys)
    twice = order[1:][order[1:] == order[:-1]]
    if twice.size:
        i, j = divmod(int(twice[0]), shape[1])
        raise ValueError(f"{name} holds entry ({i}, {j}) more than once")


def _weights(weights, indptr, indices, shape, dtype):
    if weights.shape != shape:
        raise ValueError(f"weights must have the shape of X, {shape}, got {weights.shape}")
    if is_sparse(weights):
        rows = weights.tocsr()
        if not rows.has_sorted_indices:
            rows = rows.sorted_indices()
        if not (np.array_equal(rows.indptr, indptr) and np.array_equal(rows.indices, indices)):
            raise ValueError("weights must be stored where X is")
        values = rows.data
    else:
        values = np.asarray(weights)[np.repeat(np.arange(shape[0]), np.diff(indptr)), indices]
    if values.dtype.kind not in "fiub":
        raise TypeError(f"weights must hold real numbers, got dtype {values.dtype}")
    good = np.isfinite(values) & (values >= 0)
    if not good.all():
        raise ValueError(f"weights must be finite and not negative, got {values[int(np.argmin(good))]}")
    return np.ascontiguousarray(values, dtype)
