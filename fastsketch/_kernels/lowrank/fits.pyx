"""Fits of rows to fixed factors of the columns, and sums for fits of biases; arrays are named as in entries.pyx."""

from libc.math cimport fabs
from libc.stdint cimport uint32_t
from libc.string cimport memset

from fastsketch._kernels.level cimport follow
from fastsketch._kernels.linalg.blas cimport real
from fastsketch._kernels.linalg.parts cimport parts_of, parts_of_sums
from fastsketch._kernels.losses cimport ABSOLUTE, SQUARE, loss_terms
from fastsketch._kernels.lowrank.definite cimport solve_definite
from fastsketch._kernels.lowrank.loop cimport Loop, add_curvature, at, entry_by_entry, part_row, row_by_row, sum_of
from fastsketch._kernels.pool cimport fs_part, fs_pool_run, join
from fastsketch._kernels.sketching.sparse_rows cimport z_rank_one

import numpy as np

follow()
join()

cdef double TINY = 1e-300


cdef struct Fit:
    # the fit of one row
    int loss
    double p, smooth, tol
    Py_ssize_t t, turns, first, count
    double* ridge                # (t,)
    double* a                    # (t,) coefficients: initial values, then the result
    double* h                    # (t, t) Hessian
    double* g                    # (t,) negative gradient; x, minus and move are (t,) scratch
    double* x
    double* minus
    double* move
    double* z                    # (count,) scores


cdef inline double score_of(Py_ssize_t t, const double* a, real own, real other, const real* factors) noexcept nogil:
    # own + other + factors' a; four separate sums, so that the additions do not wait for each other
    cdef double s0 = own + other, s1 = 0, s2 = 0, s3 = 0
    cdef Py_ssize_t q = 0
    while q + 4 <= t:
        s0 += factors[q] * a[q]
        s1 += factors[q + 1] * a[q + 1]
        s2 += factors[q + 2] * a[q + 2]
        s3 += factors[q + 3] * a[q + 3]
        q += 4
    while q < t:
        s0 += factors[q] * a[q]
        q += 1
    return (s0 + s1) + (s2 + s3)


cdef inline void add_square(const Fit* f, double weight) noexcept nogil:
    # h += weight x x'; the full matrix, since an inner loop of constant length is faster than a triangle
    cdef Py_ssize_t q
    for q in range(f.t):
        f.minus[q] = -(weight * f.x[q])
    z_rank_one(f.t, f.t, f.t, f.minus, f.x, f.h)


cdef void lift(const Fit* f) noexcept nogil:
    # adds a small share to each diagonal entry of h, since a row may have fewer entries than coefficients: a share of
    # the entry itself, because factors and bias have different units, and the fit must not depend on the scale of X
    cdef Py_ssize_t q
    cdef double top = 0, own
    for q in range(f.t):
        top = max(top, f.h[q * f.t + q])
    for q in range(f.t):
        own = f.h[q * f.t + q]
        f.h[q * f.t + q] += 1e-12 * (own if own > 0 else top) + TINY


cdef void square_row(const Fit* f, const uint32_t* indices, const real* o, const real* c, real own, const real* cb,
                     const real* factors) noexcept nogil:
    """fit_one for the square loss: solve the normal equations."""
    cdef Py_ssize_t t = f.t, k, q
    cdef double weight, r
    cdef const real* row
    memset(f.g, 0, t * sizeof(double))
    memset(f.h, 0, t * t * sizeof(double))
    for k in range(f.first, f.first + f.count):
        row = factors + <Py_ssize_t> indices[k] * t
        weight = c[k] if c else 1.0
        r = weight * (o[k] - own - cb[indices[k]])
        for q in range(t):
            f.x[q] = row[q]
            f.g[q] += r * f.x[q]
        add_square(f, weight)
    for q in range(t):
        f.h[q * t + q] += f.ridge[q]
    lift(f)
    if solve_definite(t, f.h, f.g):
        for q in range(t):
            f.a[q] = f.g[q]


cdef double penalised(const Fit* f, const uint32_t* indices, const real* o, const real* c, real own, const real* cb,
                      const real* factors, double step) noexcept nogil:
    """Return the objective of the row at a + step * move, and write its scores to z."""
    cdef double value = 0, loss, slope, curve
    cdef Py_ssize_t q, e, k
    for q in range(f.t):
        f.x[q] = f.a[q] + step * f.move[q] if step != 0 else f.a[q]
        value += 0.5 * f.ridge[q] * f.x[q] * f.x[q]
    for e in range(f.count):
        k = f.first + e
        f.z[e] = score_of(f.t, f.x, own, cb[indices[k]], factors + <Py_ssize_t> indices[k] * f.t)
        loss = loss_terms(f.loss, f.p, f.z[e], o[k], &slope, &curve)
        value += loss * c[k] if c else loss
    return value


cdef void fit_one(const Fit* f, const uint32_t* indices, const real* o, const real* c, real own, const real* cb,
                  const real* factors) noexcept nogil:
    """Minimise the losses at own + cb_j + factors_j a plus sum_q ridge_q a_q^2 / 2 over a (t,), from the given a.

    Newton steps are halved until the objective falls. Losses with kinks have the curvature of a parabola that touches
    them from above. Its half-width is at least `width`, which decreases to `smooth` as steps gain less.
    """
    cdef Py_ssize_t t = f.t, q, e, k, _turn, _half
    cdef double width = 64.0 * f.smooth, value, slope, curve, slope0, step, better = 0, gain
    cdef const real* row
    value = penalised(f, indices, o, c, own, cb, factors, 0)
    for _turn in range(f.turns):
        memset(f.h, 0, t * t * sizeof(double))
        for q in range(t):
            f.g[q] = -f.ridge[q] * f.a[q]
            f.h[q * t + q] = f.ridge[q]
        for e in range(f.count):
            k = f.first + e
            row = factors + <Py_ssize_t> indices[k] * t
            loss_terms(f.loss, f.p, f.z[e], o[k], &slope, &curve)
            add_curvature(f.loss, f.p, f.z[e], o[k], width, f.smooth, &slope, &curve)
            if c:
                slope *= c[k]
                curve *= c[k]
            for q in range(t):
                f.x[q] = row[q]
                f.g[q] -= slope * f.x[q]
            add_square(f, curve)
        lift(f)
        for q in range(t):
            f.move[q] = f.g[q]
        if not solve_definite(t, f.h, f.move):
            return
        slope0 = 0
        for q in range(t):
            slope0 -= f.g[q] * f.move[q]
        step = 1
        for _half in range(30):
            better = penalised(f, indices, o, c, own, cb, factors, step)
            if better <= value + 1e-4 * step * slope0:
                break
            step *= 0.5
        gain = value - better
        if gain > 0:
            for q in range(t):
                f.a[q] += step * f.move[q]
            value = better
        else:
            penalised(f, indices, o, c, own, cb, factors, 0)  # the scores of a
        if not gain > f.tol * max(fabs(value), TINY):
            if width <= f.smooth or f.loss < ABSOLUTE:
                return
            width = max(0.25 * width, f.smooth)
        elif gain <= 1e-3 * fabs(value):
            width = max(0.5 * width, f.smooth)


cdef struct Rows:
    # fits of many rows; the factors of the columns are loop.right
    Loop loop
    Fit setting
    const double* ridge


cdef void fit_rows_part(void* context, ptrdiff_t part, real* scratch) noexcept nogil:
    cdef const Rows* rows = <const Rows*> context
    cdef const Loop* loop = &rows.loop
    cdef Fit f = rows.setting
    cdef Py_ssize_t t = f.t, i, q, k
    cdef double seen
    cdef real* out = <real*> loop.out
    cdef const real* rb = <const real*> loop.rb
    cdef const real* o = <const real*> loop.o
    cdef const real* c = <const real*> loop.c
    cdef const real* cb = <const real*> loop.cb
    cdef const real* factors = <const real*> loop.right
    f.h = <double*> scratch
    f.g = f.h + t * t
    f.a, f.x, f.minus, f.move, f.ridge, f.z = f.g + t, f.g + 2 * t, f.g + 3 * t, f.g + 4 * t, f.g + 5 * t, f.g + 6 * t
    for i in range(part_row(loop, part), part_row(loop, part + 1)):
        f.first, f.count = loop.indptr[i], <Py_ssize_t> loop.indptr[i + 1] - <Py_ssize_t> loop.indptr[i]
        seen = <double> f.count
        if c:
            seen = 0
            for k in range(f.first, f.first + f.count):
                seen += c[k]
        for q in range(t):
            f.a[q] = out[i * t + q]
            f.ridge[q] = rows.ridge[q] + seen * rows.ridge[t + q]
        if f.loss == SQUARE:
            square_row(&f, loop.indices, o, c, rb[i], cb, factors)
        else:
            fit_one(&f, loop.indices, o, c, rb[i], cb, factors)
        for q in range(t):
            out[i * t + q] = <real> f.a[q]


def fit_rows(int loss, double p, double smooth, const double[:, ::1] ridge, const uint32_t[::1] indptr,
             const uint32_t[::1] indices, const real[::1] o, const real[::1] c, const real[::1] rb,
             const real[::1] cb, const real[:, ::1] factors, real[:, ::1] out, Py_ssize_t turns, double tol):
    """Call fit_one for each row; out (m, t) has the initial coefficients and is overwritten with the result.

    The ridge of a row is ridge[0] plus its total weight times ridge[1], (t,) each.
    """
    cdef Py_ssize_t t = factors.shape[1], m = indptr.shape[0] - 1, i, longest = 0
    cdef Rows rows
    if t == 0 or m == 0:
        return
    entry_by_entry(&rows.loop, loss, p, o, o, c)
    row_by_row(&rows.loop, indptr, indices, 1)
    rows.loop.rb, rows.loop.cb, rows.loop.right, rows.loop.out = at(rb), at(cb), &factors[0, 0], &out[0, 0]
    rows.ridge = &ridge[0, 0]
    rows.setting.loss, rows.setting.p, rows.setting.smooth, rows.setting.t = loss, p, smooth, t
    rows.setting.turns, rows.setting.tol = turns, tol
    for i in range(m):
        longest = max(longest, <Py_ssize_t> indptr[i + 1] - <Py_ssize_t> indptr[i])
    # a Newton step is of about t^2 / 4 nanoseconds an entry, and t^3 a row
    rows.loop.parts = parts_of(0.25 * t * t * (<double> indices.shape[0] + <double> m * t))
    cdef double[::1] space = np.empty(t * t + 6 * t + longest)
    with nogil:
        fs_pool_run(rows.loop.parts, <fs_part> fit_rows_part[real], &rows, &space[0], space.shape[0] * sizeof(double))


cdef void bias_sums_part(void* context, ptrdiff_t part, real* scratch) noexcept nogil:
    cdef Loop* loop = <Loop*> context
    cdef const real* o = <const real*> loop.o
    cdef const real* c = <const real*> loop.c
    cdef const real* rb = <const real*> loop.rb
    cdef const real* cb = <const real*> loop.cb
    cdef double* gc = loop.gc if part == 0 else <double*> loop.out + 2 * (part - 1) * loop.n
    cdef double* hc = loop.hc if part == 0 else gc + loop.n
    cdef Py_ssize_t i, j, k
    cdef real z
    cdef double total = 0, g, h, f, slope, curve
    memset(gc, 0, loop.n * sizeof(double))
    memset(hc, 0, loop.n * sizeof(double))
    for i in range(part_row(loop, part), part_row(loop, part + 1)):
        g, h = 0, 0
        for k in range(loop.indptr[i], loop.indptr[i + 1]):
            j = loop.indices[k]
            z = rb[i] + cb[j]
            f = loss_terms(loop.loss, loop.p, z, o[k], &slope, &curve)
            add_curvature(loop.loss, loop.p, z, o[k], loop.smooth, loop.smooth, &slope, &curve)
            if loop.weighted:
                f *= c[k]
                slope *= c[k]
                curve *= c[k]
            total += f
            g += slope
            h += curve
            gc[j] += slope
            hc[j] += curve
        loop.gr[i], loop.hr[i] = g, h
    loop.sums[part][0] = total


def bias_sums(int loss, double p, double smooth, const uint32_t[::1] indptr, const uint32_t[::1] indices,
              const real[::1] o, const real[::1] c, const real[::1] rb, const real[::1] cb):
    """Return the objective at rb_i + cb_j, and sums of slopes and curvatures over rows (m,) and over columns (n,)."""
    cdef Loop loop
    cdef Py_ssize_t j, k
    by_row, by_column = np.empty((2, rb.shape[0])), np.empty((2, cb.shape[0]))
    cdef double[:, ::1] row = by_row, column = by_column
    loop.n, loop.smooth, loop.rb, loop.cb = cb.shape[0], smooth, at(rb), at(cb)
    loop.gr, loop.hr, loop.gc, loop.hc = &row[0, 0], &row[1, 0], &column[0, 0], &column[1, 0]
    entry_by_entry(&loop, loss, p, o, o, c)
    row_by_row(&loop, indptr, indices, 1)
    loop.parts = parts_of_sums(indices.shape[0], 2 * loop.n)
    cdef double[::1] space = np.empty(2 * loop.n * (loop.parts - 1) + 1)
    loop.out = &space[0]
    with nogil:
        fs_pool_run(loop.parts, <fs_part> bias_sums_part[real], &loop, NULL, 0)
        for k in range(loop.parts - 1):
            for j in range(loop.n):
                column[0, j] += space[2 * k * loop.n + j]
                column[1, j] += space[(2 * k + 1) * loop.n + j]
    return sum_of(&loop, 0), *by_row, *by_column
