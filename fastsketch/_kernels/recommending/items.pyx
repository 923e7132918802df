"""An item matrix, one row for each item: users' rows projected on it, and scores of all items.

In parts of users or of items, cut by sizes alone; the best items are found by `_kernels/linalg/best.pyx`.
"""

from libc.stdint cimport int32_t, int64_t

from fastsketch._kernels.level cimport follow
from fastsketch._kernels.linalg.blas cimport gemm, gemv, real
from fastsketch._kernels.pool cimport fs_blas_alone, fs_part, fs_pool_from, fs_pool_parts, fs_pool_run, join
from fastsketch._kernels.sketching.sparse_rows cimport csr_times_z

import numpy as np


follow()
join()

cdef enum:
    LEAST_SPARSE = 1 << 18   # multiply-adds of a part at least, with rows anywhere in memory: 50 to 100 us
    LEAST_DENSE = 1 << 20    # the same of dense products
    AT_ONCE = 64             # rows that are turned at a time
    TILE = 1 << 16           # scores between the product and their scale: they stay in the second cache


cdef struct Work:
    # arrays of `real` are void here
    Py_ssize_t n_parts, k, n, t
    const int64_t* indptr
    const int32_t* indices
    const void* data
    const void* own
    const void* known
    const void* turn
    const void* scale
    void* out


cdef void project_part(Work* w, Py_ssize_t part, real* scratch) noexcept nogil:
    cdef Py_ssize_t start = fs_pool_from(w.k, w.n_parts, part, 1), stop = fs_pool_from(w.k, w.n_parts, part + 1, 1)
    cdef Py_ssize_t n
    while start < stop:
        n = min(stop - start, AT_ONCE)
        csr_times_z(n, w.t, w.t, w.indptr + start, w.indices, <const real*> w.data, <const real*> w.known, scratch)
        gemm[real](c'N', c'N', w.t, n, w.t, 1, <const real*> w.turn, w.t, scratch, w.t, 0,
                   <real*> w.out + start * w.t, w.t)
        start += n


def project(const int64_t[::1] indptr, const int32_t[::1] indices, const real[::1] data, const real[:, ::1] known,
            const real[:, ::1] turn):
    """Compute X known turn (k, t) for checked CSR rows X (k, n), known (n, t) and turn (t, t)."""
    cdef Work w
    w.k, w.t = indptr.shape[0] - 1, known.shape[1]
    if turn.shape[0] != w.t or turn.shape[1] != w.t:
        raise ValueError("known and turn do not belong together")
    out = np.zeros((w.k, w.t), np.asarray(known).dtype)
    cdef real[:, ::1] to = out
    if w.k == 0 or w.t == 0 or data.shape[0] == 0:
        return out
    w.indptr, w.indices, w.data, w.known, w.turn = &indptr[0], &indices[0], &data[0], &known[0, 0], &turn[0, 0]
    w.out = &to[0, 0]
    w.n_parts = min(w.k, fs_pool_parts(<double> indptr[w.k] * w.t + <double> w.k * w.t * w.t / 8, LEAST_SPARSE))
    cdef real[::1] scratch = np.empty(AT_ONCE * w.t, out.dtype)
    with nogil:
        fs_blas_alone(1)
        fs_pool_run(w.n_parts, <fs_part> project_part[real], &w, &scratch[0], AT_ONCE * w.t * sizeof(real))
        fs_blas_alone(0)
    return out


cdef void scores_part(Work* w, Py_ssize_t part, real* scratch) noexcept nogil:
    cdef Py_ssize_t start = fs_pool_from(w.n, w.n_parts, part, 16), stop = fs_pool_from(w.n, w.n_parts, part + 1, 16)
    cdef Py_ssize_t width, i, j, step = max(TILE // w.k, 64)
    cdef const real* known
    cdef const real* scale
    cdef real* out
    while start < stop:
        width = min(step, stop - start)
        known, out = <const real*> w.known + start * w.t, <real*> w.out + start
        if w.k == 1:
            gemv[real](c'T', w.t, width, 1, known, w.t, <const real*> w.own, 0, out)
        else:
            gemm[real](c'T', c'N', width, w.k, w.t, 1, known, w.t, <const real*> w.own, w.t, 0, out, w.n)
        scale = <const real*> w.scale + start
        for i in range(w.k):
            for j in range(width):
                out[i * w.n + j] *= scale[j]
        start += width


def scores(const real[:, ::1] own, const real[:, ::1] known, const real[::1] scale):
    """Compute (k, n) products own_i . known_j, times scale_j, for own (k, t) and known (n, t)."""
    cdef Work w
    w.k, w.t, w.n = own.shape[0], own.shape[1], known.shape[0]
    if known.shape[1] != w.t or scale.shape[0] != w.n:
        raise ValueError("own, known and scale do not belong together")
    out = np.zeros((w.k, w.n), np.asarray(known).dtype)
    cdef real[:, ::1] to = out
    if w.k == 0 or w.n == 0 or w.t == 0:
        return out
    w.own, w.known, w.scale, w.out = &own[0, 0], &known[0, 0], &scale[0], &to[0, 0]
    w.n_parts = fs_pool_parts(<double> w.k * w.n * w.t, LEAST_DENSE)
    with nogil:
        fs_blas_alone(1)
        fs_pool_run(w.n_parts, <fs_part> scores_part[real], &w, NULL, 0)
        fs_blas_alone(0)
    return out
