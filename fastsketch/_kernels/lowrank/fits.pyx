"""Rows fitted to given factors of the columns, and biases: over the observed entries, as in lowrank/entries."""

from libc.math cimport fabs
from libc.stdint cimport uint32_t
from libc.string cimport memset

from fastsketch._kernels.level cimport follow
from fastsketch._kernels.linalg.blas cimport real
from fastsketch._kernels.linalg.parts cimport first_row, parts_of, parts_of_sums
from fastsketch._kernels.losses cimport ABSOLUTE, SQUARE, loss_terms
from fastsketch._kernels.lowrank.definite cimport solve_definite
from fastsketch._kernels.lowrank.loop cimport Loop, add_curvature, at, entry_by_entry, part_row, row_by_row, sum_of
from fastsketch._kernels.lowrank.one_row cimport TINY, Fit, add_square, lift, score_of
from fastsketch._kernels.pool cimport FS_PARTS, fs_part, fs_pool_run, join

import numpy as np

follow()
join()

cdef enum:
    # rows are fitted by themselves: as many parts as find a core, for no sum depends on them
    ROW_PARTS = 64


cdef void square_row(const Fit* f, const uint32_t* indices, const real* o, const real* c, real own, const real* cb,
                     const real* factors) noexcept nogil:
    """fit_one for the square loss: the normal equations; where a begins does not matter."""
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
    """Objective of the row at a + step * move, whose scores go to z."""
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
    """Minimise sum of losses at own + cb_j + factors_j a plus sum_q ridge_q a_q^2 / 2 over a (t,), from the a given.

    Newton steps with halving; losses without curvature get that of a touching parabola, no narrower than a width that
    falls to `smooth` as steps gain less.
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
    # fits of many rows; arrays of `real`
    Fit setting
    Py_ssize_t m, parts, longest
    const uint32_t* indptr
    const uint32_t* indices
    const void* o
    const void* c
    const void* rb
    const void* cb
    const void* factors
    const double* ridge
    void* out


cdef void fit_rows_part(void* context, ptrdiff_t part, real* scratch) noexcept nogil:
    cdef const Rows* rows = <const Rows*> context
    cdef Fit f = rows.setting
    cdef Py_ssize_t t = f.t, i, q, k
    cdef double seen
    cdef real* out = <real*> rows.out
    cdef const real* rb = <const real*> rows.rb
    cdef const real* o = <const real*> rows.o
    cdef const real* c = <const real*> rows.c
    cdef const real* cb = <const real*> rows.cb
    cdef const real* factors = <const real*> rows.factors
    f.h = <double*> scratch
    f.g = f.h + t * t
    f.a, f.x, f.minus, f.move, f.ridge, f.z = f.g + t, f.g + 2 * t, f.g + 3 * t, f.g + 4 * t, f.g + 5 * t, f.g + 6 * t
    for i in range(first_row(rows.indptr, rows.m, rows.parts, part),
                   first_row(rows.indptr, rows.m, rows.parts, part + 1)):
        f.first, f.count = rows.indptr[i], <Py_ssize_t> rows.indptr[i + 1] - <Py_ssize_t> rows.indptr[i]
        seen = <double> f.count
        if c:
            seen = 0
            for k in range(f.first, f.first + f.count):
                seen += c[k]
        for q in range(t):
            f.a[q] = out[i * t + q]
            f.ridge[q] = rows.ridge[q] + seen * rows.ridge[t + q]
        if f.loss == SQUARE:
            square_row(&f, rows.indices, o, c, rb[i], cb, factors)
        else:
            fit_one(&f, rows.indices, o, c, rb[i], cb, factors)
        for q in range(t):
            out[i * t + q] = <real> f.a[q]


def fit_rows(int loss, double p, double smooth, const double[:, ::1] ridge, const uint32_t[::1] indptr,
             const uint32_t[::1] indices, const real[::1] o, const real[::1] c, const real[::1] rb,
             const real[::1] cb, const real[:, ::1] factors, real[:, ::1] out, Py_ssize_t turns, double tol):
    """fit_one for every row: out (m, t) holds where each begins, and where it ends.

    ridge (2, t): of a row, and what each unit of weight of its entries adds to it.
    """
    cdef Py_ssize_t t = factors.shape[1], m = indptr.shape[0] - 1, i
    cdef Rows rows
    cdef double work
    if t == 0 or m == 0:
        return
    rows.m, rows.longest, rows.indptr = m, 0, &indptr[0]
    rows.indices, rows.o, rows.c = &indices[0] if indices.shape[0] else NULL, at(o), at(c)
    rows.rb, rows.cb, rows.factors, rows.ridge, rows.out = at(rb), at(cb), &factors[0, 0], &ridge[0, 0], &out[0, 0]
    rows.setting.loss, rows.setting.p, rows.setting.smooth, rows.setting.t = loss, p, smooth, t
    rows.setting.turns, rows.setting.tol = turns, tol
    for i in range(m):
        rows.longest = max(rows.longest, <Py_ssize_t> indptr[i + 1] - <Py_ssize_t> indptr[i])
    # a Newton step is of about t^2 / 4 nanoseconds an entry, and t^3 a row
    work = 0.25 * t * t * (<double> indices.shape[0] + <double> m * t)
    rows.parts = parts_of(work)
    if rows.parts == FS_PARTS:
        while rows.parts < ROW_PARTS and work > 2.0 * rows.parts * (1 << 17):
            rows.parts *= 2
    cdef double[::1] space = np.empty(t * t + 6 * t + rows.longest)
    with nogil:
        fs_pool_run(rows.parts, <fs_part> fit_rows_part[real], &rows, &space[0], space.shape[0] * sizeof(double))


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
            add_curvature(loop.loss, loop.p, z, o[k], loop.smooth, -1, &slope, &curve)
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
    """The objective at rb_i + cb_j; slopes and curvatures, float64, summed by row (m,) (m,) and by column (n,) (n,)."""
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
