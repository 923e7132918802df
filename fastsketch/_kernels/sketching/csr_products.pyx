"""Products of CSR rows with dense matrices, on the threads of the pool; bits do not depend on their number."""

from libc.stdint cimport int32_t, int64_t, uintptr_t
from libc.string cimport memset

from fastsketch._kernels.level cimport follow
from fastsketch._kernels.pool cimport fs_pool_from, fs_pool_parts, fs_pool_run, join
from fastsketch._kernels.linalg.blas cimport real
from fastsketch._kernels.sketching.sparse_rows cimport FS_PANEL_COLUMNS, csr_gram_panel, csr_times_z, transpose_csr

import numpy as np


follow()
join()


cdef enum:
    LEAST = 1 << 18  # smallest number of multiply-adds of a part: 50 to 100 us


cdef struct Work:
    Py_ssize_t n_parts, n, d, r
    # N by rows, and by features: see transpose_csr
    const int64_t* indptr
    const int32_t* indices
    const double* data
    int32_t* stop
    int32_t* row
    double* value
    const double* a
    double* out


cdef void times_part(void* context, ptrdiff_t part, void* scratch) noexcept nogil:
    cdef Work* w = <Work*> context
    cdef Py_ssize_t start = fs_pool_from(w.n, w.n_parts, part, 1), stop = fs_pool_from(w.n, w.n_parts, part + 1, 1)
    csr_times_z(stop - start, w.r, w.r, w.indptr + start, w.indices, w.data, w.a, w.out + start * w.r)


cdef void turned_part(void* context, ptrdiff_t part, void* scratch) noexcept nogil:
    cdef Work* w = <Work*> context
    cdef Py_ssize_t start = fs_pool_from(w.d, w.n_parts, part, 8), stop = fs_pool_from(w.d, w.n_parts, part + 1, 8)
    cdef Py_ssize_t t = w.stop[start - 1] if start else 0, j, c
    cdef double* to
    cdef const double* a
    for j in range(start, stop):
        to = w.out + j * w.r
        memset(to, 0, w.r * sizeof(double))
        while t < w.stop[j]:
            a = w.a + w.row[t] * w.r
            for c in range(w.r):
                to[c] += w.value[t] * a[c]
            t += 1


def rows_times(const int64_t[::1] indptr, const int32_t[::1] indices, const double[::1] data, const double[:, ::1] q):
    """Return N q for checked CSR rows N (n, d) and q (d, r)."""
    cdef Work w
    w.n, w.r = indptr.shape[0] - 1, q.shape[1]
    out = np.zeros((w.n, w.r))
    cdef double[:, ::1] to = out
    if w.n == 0 or w.r == 0 or indptr[w.n] == 0:
        return out
    w.indptr, w.indices, w.data, w.a, w.out = &indptr[0], &indices[0], &data[0], &q[0, 0], &to[0, 0]
    w.n_parts = min(w.n, fs_pool_parts(<double> indptr[w.n] * w.r, LEAST))
    with nogil:
        fs_pool_run(w.n_parts, times_part, &w, NULL, 0)
    return out


def turned_rows_times(const int64_t[::1] indptr, const int32_t[::1] indices, const double[::1] data,
                      const double[:, ::1] a, Py_ssize_t n_features):
    """Return N'a for checked CSR rows N (n, n_features) with fewer than 2**31 entries, and a (n, r)."""
    cdef Work w
    w.n, w.r, w.d = indptr.shape[0] - 1, a.shape[1], n_features
    cdef Py_ssize_t nnz = indptr[w.n]
    if w.r == 0 or nnz == 0:
        return np.zeros((w.d, w.r))
    if nnz > 2**31 - 1:
        raise ValueError(f"one block of {w.n} sparse rows has {nnz} nonzeros, 2**31 or more: read smaller chunks")
    out = np.empty((w.d, w.r))
    cdef double[:, ::1] to = out
    cdef int32_t[::1] stop = np.empty(w.d, np.int32), row = np.empty(nnz, np.int32), place = np.empty(nnz, np.int32)
    cdef double[::1] value = np.empty(nnz)
    w.stop, w.row, w.value, w.a, w.out = &stop[0], &row[0], &value[0], &a[0, 0], &to[0, 0]
    w.n_parts = fs_pool_parts((<double> nnz + w.d) * w.r, LEAST)
    with nogil:
        transpose_csr(w.n, w.d, &indptr[0], &indices[0], &data[0], w.stop, w.row, w.value, &place[0])
        fs_pool_run(w.n_parts, turned_part, &w, NULL, 0)
    return out


# -- X'X q -----------------------------------------------------------------------------------------------------------
cdef enum:
    # Of q and of the product PANEL_FEATURES rows are used at a time, 256 KB, and PANEL_ROWS rows of X q, 128 KB: they
    # stay in the second cache.
    PANEL_FEATURES = 2048
    PANEL_ROWS = 1024


cdef struct Panels:
    Py_ssize_t n, d, r, width, is_double
    const int64_t* indptr
    const int32_t* indices
    const void* data
    const double* weight
    const double* mean
    const double* q
    double* out
    double scale


cdef inline Py_ssize_t panel_bytes(Py_ssize_t d) noexcept nogil:
    """Return the bytes of scratch memory of a part: q and its product, X q, shift, sum, positions; and 64 to align."""
    return (2 * d + PANEL_ROWS + 2) * FS_PANEL_COLUMNS * sizeof(double) + PANEL_ROWS * sizeof(int64_t) + 64


cdef void panel_part(void* context, ptrdiff_t part, void* scratch) noexcept nogil:
    cdef Panels* w = <Panels*> context
    cdef Py_ssize_t first = part * FS_PANEL_COLUMNS, count = min(FS_PANEL_COLUMNS, w.r - first)
    cdef Py_ssize_t j, c, i, n, t
    cdef double* q = <double*> ((<uintptr_t> scratch + 63) & ~<uintptr_t> 63)
    cdef double* out = q + w.d * FS_PANEL_COLUMNS
    cdef double* shift = out + w.d * FS_PANEL_COLUMNS
    cdef double* sums = shift + FS_PANEL_COLUMNS
    cdef double* z = sums + FS_PANEL_COLUMNS
    cdef int64_t* at = <int64_t*> (z + PANEL_ROWS * FS_PANEL_COLUMNS)
    cdef const double* weight
    memset(q, 0, (2 * w.d + 2) * FS_PANEL_COLUMNS * sizeof(double))
    for j in range(w.d):
        for c in range(count):
            q[j * FS_PANEL_COLUMNS + c] = w.scale * w.q[j * w.r + first + c]
            shift[c] += w.mean[j] * w.q[j * w.r + first + c]
    for t in range((w.n + PANEL_ROWS - 1) // PANEL_ROWS):
        i = t * PANEL_ROWS
        n = min(PANEL_ROWS, w.n - i)
        weight = w.weight + i if w.weight != NULL else NULL
        if w.is_double:
            csr_gram_panel(n, w.d, w.width, w.indptr + i, w.indices, <const double*> w.data, weight, shift, q, at, z,
                           sums, out)
        else:
            csr_gram_panel(n, w.d, w.width, w.indptr + i, w.indices, <const float*> w.data, weight, shift, q, at, z,
                           sums, out)
    for j in range(w.d):
        for c in range(count):
            w.out[j * w.r + first + c] = w.scale * out[j * FS_PANEL_COLUMNS + c] - w.mean[j] * sums[c]


def csr_gram_times(const int64_t[::1] indptr, const int32_t[::1] indices, const real[::1] data, weights,
                   const double[::1] mean, double scale, const double[:, ::1] q, *, bint ascending):
    """Return A'A q, (d, r), for the rows A = diag(sqrt(weights)) (scale X - 1 mean') of checked CSR rows X (n, d).

    `weights` is None for ones. `ascending`: whether the indices of each row ascend, which is faster. The entries of X
    are read twice for every FS_PANEL_COLUMNS columns of q, and not copied.
    """
    cdef Panels w
    cdef const double[::1] weight
    w.n, w.d, w.r, w.is_double = indptr.shape[0] - 1, q.shape[0], q.shape[1], real is double
    out = np.zeros((w.d, w.r))
    cdef double[:, ::1] to = out
    if w.d == 0 or w.r == 0 or indptr[w.n] == 0:
        return out
    w.weight = NULL
    if weights is not None:
        weight = weights
        w.weight = &weight[0]
    w.indptr, w.indices, w.data, w.mean, w.scale = &indptr[0], &indices[0], &data[0], &mean[0], scale
    w.q, w.out, w.width = &q[0, 0], &to[0, 0], PANEL_FEATURES if ascending else w.d
    cdef Py_ssize_t n_parts = (w.r + FS_PANEL_COLUMNS - 1) // FS_PANEL_COLUMNS, size = panel_bytes(w.d)
    cdef char[::1] scratch = np.empty(size, np.int8)
    with nogil:
        fs_pool_run(n_parts, panel_part, &w, &scratch[0], size)
    return out


# -- X'X -------------------------------------------------------------------------------------------------------------
cdef struct Gram:
    Py_ssize_t n_parts, d, n_dense
    # the sorted rows, and the entries of each column: their rows, and their positions in the sorted rows
    const int64_t* indptr
    const int64_t* first_sparse
    const int32_t* column
    const double* value
    const int64_t* start
    const int32_t* row
    const int64_t* position
    double* out


cdef void gram_part(void* context, ptrdiff_t part, void* scratch) noexcept nogil:
    # out[i, j] += sum_r X[r, i] X[r, j] for j >= i, unless both are dense columns
    cdef Gram* w = <Gram*> context
    cdef Py_ssize_t i, start = fs_pool_from(w.d, w.n_parts, part, 8), stop = fs_pool_from(w.d, w.n_parts, part + 1, 8)
    cdef int64_t t, p, end
    cdef double x
    cdef double* to
    for i in range(start, stop):
        to = w.out + i * w.d
        for t in range(w.start[i], w.start[i + 1]):
            x, end = w.value[w.position[t]], w.indptr[w.row[t] + 1]
            p = w.first_sparse[w.row[t]] if i < w.n_dense else w.position[t]
            while p + 4 <= end:
                to[w.column[p]] += x * w.value[p]
                to[w.column[p + 1]] += x * w.value[p + 1]
                to[w.column[p + 2]] += x * w.value[p + 2]
                to[w.column[p + 3]] += x * w.value[p + 3]
                p += 4
            while p < end:
                to[w.column[p]] += x * w.value[p]
                p += 1


def add_csr_gram(indptr_in, indices_in, const double[::1] data, const int32_t[::1] rank, double[:, ::1] dense,
                 double[:, ::1] out):
    """Add X'X to `out` for a block of CSR rows X without duplicates, in the order of columns `rank`.

    Column j of X is column rank[j] of `out`, whose upper triangle alone is changed. Products of two of the first m
    columns are not added: these columns are written to `dense` (n, m), which must be zero before.
    """
    cdef int64_t[::1] indptr = np.ascontiguousarray(indptr_in, np.int64)
    cdef int32_t[::1] indices = np.ascontiguousarray(indices_in, np.int32)
    cdef Py_ssize_t n = indptr.shape[0] - 1, d = out.shape[0], m = dense.shape[1], r, c
    cdef int64_t nnz = indptr[n], t, p
    if nnz == 0:
        return
    cdef int64_t[::1] start = np.zeros(d + 1, np.int64), place = np.empty(d, np.int64), position = np.empty(nnz, np.int64)
    cdef int64_t[::1] filled = np.array(indptr[:n]), first = np.empty(n, np.int64)
    cdef int32_t[::1] row = np.empty(nnz, np.int32), column = np.empty(nnz, np.int32)
    cdef double[::1] by_column = np.empty(nnz), value = np.empty(nnz)
    cdef Gram w
    w.d, w.n_dense, w.indptr, w.first_sparse, w.column = d, m, &indptr[0], &first[0], &column[0]
    w.value, w.start, w.row, w.position, w.out = &value[0], &start[0], &row[0], &position[0], &out[0, 0]
    with nogil:
        for p in range(nnz):
            start[rank[indices[p]] + 1] += 1
        for c in range(d):
            start[c + 1] += start[c]
            place[c] = start[c]
        for r in range(n):
            for p in range(indptr[r], indptr[r + 1]):
                c = rank[indices[p]]
                t = place[c]
                row[t], by_column[t] = <int32_t> r, data[p]
                place[c] = t + 1
        for c in range(d + 1):
            if c == m:
                first[:] = filled
            if c == d:
                break
            for t in range(start[c], start[c + 1]):
                r = row[t]
                p = filled[r]
                column[p], value[p], position[t] = <int32_t> c, by_column[t], p
                filled[r] = p + 1
                if c < m:
                    dense[r, c] = by_column[t]
        w.n_parts = min(d, fs_pool_parts(<double> nnz * (nnz / n), LEAST))
        fs_pool_run(w.n_parts, gram_part, &w, NULL, 0)
