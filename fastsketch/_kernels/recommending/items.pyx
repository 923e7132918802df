"""Kernels of item models: projections of users' rows on an item matrix, scores of items, and random walks.

The split into tasks depends on sizes only. The best items are found by `_kernels/linalg/best.pyx`.
"""

from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

from fastsketch._kernels.level cimport follow
from fastsketch._kernels.linalg.blas cimport gemm, gemv, real
from fastsketch._kernels.pool cimport fs_blas_alone, fs_part, fs_pool_from, fs_pool_parts, fs_pool_run, join
from fastsketch._kernels.sketching.sparse_rows cimport csr_times_z

import numpy as np


follow()
join()

cdef enum:
    LEAST_SPARSE = 1 << 18   # multiply-adds of a task with random access to memory, at least: 50 to 100 us
    LEAST_DENSE = 1 << 20    # multiply-adds of a task of dense products, at least
    AT_ONCE = 64             # rows that are multiplied by `turn` at a time
    TILE = 1 << 16           # scores that are computed before they are scaled: they stay in the L2 cache


cdef struct Work:
    # void: arrays of `real`
    Py_ssize_t n_parts, k, n, t
    const int64_t* indptr
    const int32_t* indices
    const void* data
    const void* own
    const void* known
    const void* turn
    const void* scale
    void* out


cdef struct Walks:
    # CSR rows X (k, n), T (n, m) and F (m, n); data are arrays of `real`
    Py_ssize_t n_parts, k, n, m
    const int64_t* indptr
    const int32_t* indices
    const void* data
    const int64_t* to_ptr
    const int32_t* to_users
    const void* to_data
    const int64_t* from_ptr
    const int32_t* from_items
    const void* from_data
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
    """Return the projections X known turn (k, t) of CSR rows X (k, n) of events, for known (n, t) and turn (t, t). The
    CSR arrays must have been validated.
    """
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
    """Return scores (k, n): the inner product of row i of own (k, t) and row j of known (n, t), times scale[j]."""
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


cdef void walks_part(Walks* w, Py_ssize_t part, real* scratch) noexcept nogil:
    cdef Py_ssize_t start = fs_pool_from(w.k, w.n_parts, part, 1), stop = fs_pool_from(w.k, w.n_parts, part + 1, 1)
    cdef Py_ssize_t i, e, p, met
    cdef int32_t* users = <int32_t*> (scratch + w.m)
    cdef const real* to_data = <const real*> w.to_data
    cdef const real* from_data = <const real*> w.from_data
    cdef real x, step
    cdef real* out
    memset(scratch, 0, w.m * sizeof(real))
    for i in range(start, stop):
        # t = x T; its nonzero entries are listed in `users`
        met = 0
        for e in range(w.indptr[i], w.indptr[i + 1]):
            x = (<const real*> w.data)[e]
            for p in range(w.to_ptr[w.indices[e]], w.to_ptr[w.indices[e] + 1]):
                step = x * to_data[p]
                if step > 0:
                    if scratch[w.to_users[p]] == 0:
                        users[met] = w.to_users[p]
                        met += 1
                    scratch[w.to_users[p]] += step
        # out += t F
        out = <real*> w.out + i * w.n
        for e in range(met):
            x = scratch[users[e]]
            scratch[users[e]] = 0
            for p in range(w.from_ptr[users[e]], w.from_ptr[users[e] + 1]):
                out[w.from_items[p]] += x * from_data[p]


def add_walks(const int64_t[::1] indptr, const int32_t[::1] indices, const real[::1] data, const int64_t[::1] to_ptr,
              const int32_t[::1] to_users, const real[::1] to_data, const int64_t[::1] from_ptr,
              const int32_t[::1] from_items, const real[::1] from_data, real[:, ::1] out):
    """Add the random-walk scores X T F to out (k, n), in place, for CSR matrices X (k, n), T (n, m) and F (m, n)
    without negative entries. Their arrays must have been validated.
    """
    cdef Walks w
    w.k, w.n, w.m = out.shape[0], out.shape[1], from_ptr.shape[0] - 1
    if indptr.shape[0] != w.k + 1 or to_ptr.shape[0] != w.n + 1:
        raise ValueError("rows, walks and out do not belong together")
    if w.k == 0 or data.shape[0] == 0 or to_data.shape[0] == 0:
        return
    w.indptr, w.indices, w.data, w.out = &indptr[0], &indices[0], &data[0], &out[0, 0]
    w.to_ptr, w.to_users, w.to_data = &to_ptr[0], &to_users[0], &to_data[0]
    w.from_ptr, w.from_items, w.from_data = &from_ptr[0], &from_items[0], &from_data[0]
    # estimated work: the users of the items of a row, times the items of a user, on average
    w.n_parts = min(w.k, fs_pool_parts(<double> data.shape[0] * to_data.shape[0] / w.n * from_data.shape[0] / w.m,
                                       LEAST_SPARSE))
    cdef size_t size = w.m * (sizeof(real) + sizeof(int32_t))
    cdef real[::1] scratch = np.empty(size // sizeof(real) + 1, np.asarray(out).dtype)
    with nogil:
        fs_pool_run(w.n_parts, <fs_part> walks_part[real], &w, &scratch[0], size)
