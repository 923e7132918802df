"""Gradient and Hessian of the loss by all coefficients of a low-rank model, in one pass over the observed entries.

The score of entry (i, j) is rb_i + cb_j + sum_q theta_q p_q with p_q = left_iq right_jq. These products are computed
for a block of entries at a time, and multiplied by BLAS. The sums of parts of the rows are added in a fixed order.
Arrays are named as in entries.pyx.
"""

from libc.math cimport fabs, sqrt
from libc.stdint cimport uint32_t
from libc.string cimport memcpy, memset

from fastsketch._kernels.linalg.blas cimport gemv, real, syrk
from fastsketch._kernels.losses cimport HUBER, loss_terms
from fastsketch._kernels.lowrank.definite cimport solve_definite
from fastsketch._kernels.lowrank.loop cimport Loop, at, bound_of_curve, entry_by_entry, part_row, row_by_row, sum_of
from fastsketch._kernels.pool cimport fs_blas_alone, fs_part, fs_pool_run, join

import numpy as np

join()

cdef enum:
    # entries of a block, few enough for their products to stay in the cache
    BLOCK = 256


cdef struct Newton:
    Loop loop
    double lipschitz
    bint curved                  # whether the Hessian is requested
    const double* theta          # (t,)
    double* sums                 # of each part: gradient (t,), bounds (t,), curvatures (t, t)


cdef inline Py_ssize_t sums_of(Py_ssize_t t) noexcept nogil:
    return 2 * t + t * t


cdef void add_block(const Newton* job, Py_ssize_t count, const uint32_t* entries, const double* base, double* products,
                    double* sums, double* total, real* like) noexcept nogil:
    # adds the sums of a block; products (count, t) are overwritten
    cdef const Loop* loop = &job.loop
    cdef const real* o = <const real*> loop.o
    cdef const real* c = <const real*> loop.c
    cdef Py_ssize_t t = loop.t, e, q, kept = 0
    cdef double z[BLOCK]
    cdef double slopes[BLOCK]
    cdef double root[BLOCK]
    cdef double weight, curve, bound
    cdef double* row
    cdef double* to
    memcpy(z, base, count * sizeof(double))
    # z = base + P theta
    gemv(c'T', t, count, 1.0, products, t, job.theta, 1.0, z)
    for e in range(count):
        weight = c[entries[e]] if loop.weighted else 1.0
        total[0] += weight * loss_terms(loop.loss, loop.p, z[e], o[entries[e]], &slopes[e], &curve)
        if loop.loss == HUBER and curve == 0:
            curve = bound_of_curve(loop.loss, loop.p, z[e], o[entries[e]], 0)
        slopes[e] *= weight
        root[e] = weight * curve
        z[e] = weight * job.lipschitz if job.lipschitz > 0 else root[e] + fabs(slopes[e])  # a bound
    # gradient += P' slopes
    gemv(c'N', t, count, 1.0, products, t, slopes, 1.0, sums)
    if not job.curved:
        return
    for e in range(count):
        row, bound = products + e * t, z[e]
        for q in range(t):
            sums[t + q] += bound * row[q] * row[q]
        if root[e] > 0:
            to, weight = products + kept * t, sqrt(root[e])
            for q in range(t):
                to[q] = weight * row[q]
            kept += 1
    # H += P' diag(curvatures) P
    syrk(c'U', c'N', t, kept, 1.0, products, t, 1.0, sums + 2 * t, t)


cdef void newton_part(void* context, ptrdiff_t part, real* scratch) noexcept nogil:
    cdef const Newton* job = <const Newton*> context
    cdef const Loop* loop = &job.loop
    cdef const real* left = <const real*> loop.left
    cdef const real* right = <const real*> loop.right
    cdef const real* rb = <const real*> loop.rb
    cdef const real* cb = <const real*> loop.cb
    cdef Py_ssize_t t = loop.t, i, k, q, count = 0
    cdef double* sums = job.sums + part * sums_of(t)
    cdef double* products = <double*> scratch
    cdef double* product
    cdef const real* own
    cdef const real* other
    cdef double base[BLOCK]
    cdef uint32_t entries[BLOCK]
    cdef double total = 0
    memset(sums, 0, sums_of(t) * sizeof(double))
    for i in range(part_row(loop, part), part_row(loop, part + 1)):
        own = left + i * t
        for k in range(loop.indptr[i], loop.indptr[i + 1]):
            other, product = right + loop.indices[k] * t, products + count * t
            for q in range(t):
                product[q] = <double> own[q] * other[q]
            base[count], entries[count] = <double> rb[i] + cb[loop.indices[k]], <uint32_t> k
            count += 1
            if count == BLOCK:
                add_block(job, count, entries, base, products, sums, &total, scratch)
                count = 0
    add_block(job, count, entries, base, products, sums, &total, scratch)
    (<Loop*> loop).sums[part][0] = total


def newton_terms(int loss, double p, double lipschitz, const uint32_t[::1] indptr, const uint32_t[::1] indices,
                 const real[::1] o, const real[::1] c, const real[::1] rb, const real[::1] cb,
                 const real[:, ::1] left, const real[:, ::1] right, const double[::1] theta, double[::1] gradient,
                 double[::1] bound, double[:, ::1] curvature):
    """Return the objective at theta (t,), and write its gradient (t,), and bound and Hessian if curvature is not empty.

    left is (m, t), right (n, t), curvature (t, t) or (0, 0). bound (t,) is an upper bound on the diagonal of the
    Hessian at any theta, by the Lipschitz constant of the slope of the loss. If `lipschitz` is 0 because there is none,
    the bound is estimated from curvatures and slopes at theta.
    """
    cdef Newton job
    cdef Py_ssize_t t = theta.shape[0], k, q, r
    cdef double* sums
    job.loop.t, job.loop.left, job.loop.right = t, &left[0, 0], &right[0, 0]
    job.loop.rb, job.loop.cb = at(rb), at(cb)
    job.lipschitz, job.curved, job.theta = lipschitz, curvature.shape[0] > 0, &theta[0]
    entry_by_entry(&job.loop, loss, p, o, o, c)
    row_by_row(&job.loop, indptr, indices, 1 + 0.5 * t)
    cdef double[:, ::1] all_sums = np.empty((job.loop.parts, sums_of(t)))
    cdef double[::1] space = np.empty(BLOCK * t)
    job.sums = &all_sums[0, 0]
    with nogil:
        fs_blas_alone(1)
        fs_pool_run(job.loop.parts, <fs_part> newton_part[real], &job, &space[0], space.shape[0] * sizeof(double))
        fs_blas_alone(0)
        for k in range(1, job.loop.parts):
            for q in range(sums_of(t)):
                job.sums[q] += all_sums[k, q]
        sums = job.sums
        for q in range(t):
            gradient[q] = sums[q]
        if job.curved:
            for q in range(t):
                bound[q] = sums[t + q]
                # of column-major sums the upper triangle is this lower one
                for r in range(q + 1):
                    curvature[q, r] = curvature[r, q] = sums[2 * t + q * t + r]
    return sum_of(&job.loop, 0)


def solve(double[:, ::1] h, double[::1] g):
    """Overwrite g with h^-1 g. h is overwritten too. Return False if h is not positive definite."""
    cdef bint found
    with nogil:
        found = solve_definite(g.shape[0], &h[0, 0], &g[0])
    return found
