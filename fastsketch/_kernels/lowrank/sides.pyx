"""Newton's equations of rows whose entries lie in several places: what one place has of their sums, and their solution.

As lowrank/fits fits a row to given factors, with the sums of all places added between the two functions. In a sweep over
partitions of rows such a row is a column of the matrix. Arrays are as in lowrank/entries.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memset

from fastsketch._kernels.level cimport follow
from fastsketch._kernels.linalg.blas cimport real
from fastsketch._kernels.linalg.parts cimport parts_of
from fastsketch._kernels.losses cimport loss_terms
from fastsketch._kernels.lowrank.definite cimport solve_definite
from fastsketch._kernels.lowrank.loop cimport add_curvature, at
from fastsketch._kernels.lowrank.one_row cimport Fit, add_square, lift, score_of
from fastsketch._kernels.pool cimport fs_part, fs_pool_from, fs_pool_run, join

import numpy as np

follow()
join()


cdef struct Rows:
    # some rows, of which each has sums of its own; arrays of `real`
    Fit setting
    Py_ssize_t k, parts, triangle
    bint curved
    const int64_t* which
    const uint32_t* indptr
    const uint32_t* indices
    const void* o
    const void* c
    const void* own
    const void* other
    const void* factors
    const double* a
    const double* widths
    const double* ridge
    double* values
    double* gradients
    double* curvatures
    uint8_t* solved


cdef void terms_part(void* context, ptrdiff_t part, real* scratch) noexcept nogil:
    cdef const Rows* rows = <const Rows*> context
    cdef Fit f = rows.setting
    cdef Py_ssize_t t = f.t, e, i, k, q, r
    cdef const real* o = <const real*> rows.o
    cdef const real* c = <const real*> rows.c
    cdef const real* own = <const real*> rows.own
    cdef const real* other = <const real*> rows.other
    cdef const real* row
    cdef double value, z, loss, slope, curve
    cdef double* g
    cdef double* triangle
    f.h = <double*> scratch
    f.x, f.minus = f.h + t * t, f.h + t * t + t
    for e in range(fs_pool_from(rows.k, rows.parts, part, 1), fs_pool_from(rows.k, rows.parts, part + 1, 1)):
        i, value, f.a = rows.which[e], 0, <double*> rows.a + e * t
        g = rows.gradients + e * t
        if rows.curved:
            memset(f.h, 0, t * t * sizeof(double))
            memset(g, 0, t * sizeof(double))
        for k in range(rows.indptr[i], rows.indptr[i + 1]):
            row = <const real*> rows.factors + <Py_ssize_t> rows.indices[k] * t
            z = score_of(t, f.a, own[i], other[rows.indices[k]], row)
            loss = loss_terms(f.loss, f.p, z, o[k], &slope, &curve)
            value += loss * c[k] if c else loss
            if not rows.curved:
                continue
            add_curvature(f.loss, f.p, z, o[k], rows.widths[e], f.smooth, &slope, &curve)
            if c:
                slope *= c[k]
                curve *= c[k]
            for q in range(t):
                f.x[q] = row[q]
                g[q] += slope * f.x[q]
            add_square(&f, curve)
        rows.values[e] = value
        if rows.curved:
            triangle = rows.curvatures + e * rows.triangle
            for q in range(t):
                for r in range(q + 1):
                    triangle[0] = f.h[q * t + r]
                    triangle += 1


def side_terms(int loss, double p, double smooth, const uint32_t[::1] indptr, const uint32_t[::1] indices,
               const real[::1] o, const real[::1] c, const real[::1] own, const real[::1] other,
               const real[:, ::1] factors, const int64_t[::1] which, const double[:, ::1] a,
               const double[::1] widths, double[::1] values, double[:, ::1] gradients, double[:, ::1] curvatures):
    """Of the rows `which` (k,) with coefficients a (k, t) at scores own_i + other_j + factors_j a: their sums of losses,
    slopes (k, t) and curvatures (k, t (t + 1) / 2), the lower triangle row by row. No curvatures: no slopes either.

    widths (k,): within which a loss without curvature is taken for a parabola; smooth: the least of them.
    """
    cdef Py_ssize_t t = factors.shape[1], k = which.shape[0]
    cdef Rows rows
    cdef double each
    if k == 0:
        return
    rows.k, rows.triangle, rows.curved = k, t * (t + 1) // 2, curvatures.shape[0] > 0
    rows.which, rows.indptr, rows.indices = &which[0], &indptr[0], &indices[0] if indices.shape[0] else NULL
    rows.o, rows.c, rows.own, rows.other = at(o), at(c), at(own), at(other)
    rows.factors = &factors[0, 0] if factors.shape[0] else NULL
    rows.a, rows.widths, rows.values = &a[0, 0], &widths[0], &values[0]
    rows.gradients = &gradients[0, 0] if rows.curved else NULL
    rows.curvatures = &curvatures[0, 0] if rows.curved else NULL
    rows.setting.loss, rows.setting.p, rows.setting.smooth, rows.setting.t = loss, p, smooth, t
    each = <double> indices.shape[0] * k / max(indptr.shape[0] - 1, 1)
    rows.parts = parts_of(each * (0.25 * t * t if rows.curved else 0.5 * t))
    cdef double[::1] space = np.empty(t * t + 2 * t)
    with nogil:
        fs_pool_run(rows.parts, <fs_part> terms_part[real], &rows, &space[0], space.shape[0] * sizeof(double))


cdef void solve_part(void* context, ptrdiff_t part, void* scratch) noexcept nogil:
    cdef const Rows* rows = <const Rows*> context
    cdef Fit f = rows.setting
    cdef Py_ssize_t t = f.t, e, q, r
    cdef const double* triangle
    f.h = <double*> scratch
    for e in range(fs_pool_from(rows.k, rows.parts, part, 1), fs_pool_from(rows.k, rows.parts, part + 1, 1)):
        triangle = rows.curvatures + e * rows.triangle
        for q in range(t):
            for r in range(q + 1):
                f.h[q * t + r] = triangle[0]
                triangle += 1
            f.h[q * t + q] += rows.ridge[q]
        lift(&f)
        rows.solved[e] = solve_definite(t, f.h, rows.gradients + e * t)


def side_solve(const double[:, ::1] curvatures, const double[::1] ridge, double[:, ::1] moves):
    """moves (k, t) <- (curvature + diag(ridge))^-1 moves of each row; returns which could be solved, (k,) uint8."""
    cdef Py_ssize_t k = moves.shape[0], t = moves.shape[1]
    cdef Rows rows
    cdef uint8_t[::1] solved = np.zeros(k, np.uint8)
    if k == 0 or t == 0:
        return np.asarray(solved)
    rows.k, rows.triangle, rows.setting.t = k, t * (t + 1) // 2, t
    rows.curvatures, rows.ridge, rows.gradients = <double*> &curvatures[0, 0], &ridge[0], &moves[0, 0]
    rows.solved = &solved[0]
    rows.parts = parts_of(0.25 * t * t * t * k)
    cdef double[::1] space = np.empty(t * t)
    with nogil:
        fs_pool_run(rows.parts, solve_part, &rows, &space[0], space.shape[0] * sizeof(double))
    return np.asarray(solved)
