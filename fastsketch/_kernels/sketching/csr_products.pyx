"""Products of CSR rows with dense matrices, on the threads of the pool; bits do not depend on their number."""

from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

from fastsketch._kernels.level cimport follow
from fastsketch._kernels.pool cimport fs_pool_from, fs_pool_parts, fs_pool_run, join
from fastsketch._kernels.sketching.sparse_rows cimport csr_times_z, transpose_csr

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
