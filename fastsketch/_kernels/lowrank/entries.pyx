"""Loops over the observed entries of a matrix, in CSR with unsigned 32-bit indices: scores, line searches.

Gradients and products with vectors are in gradients beside it, fits of rows in fits. Values of rows, of columns and of
entries are all float32 or all float64; sums over entries are float64. Loops are cut into parts by the entries alone and
the sums of parts are added in one order: the bits do not depend on the number of threads.

    indptr (m + 1,) uint32, indices (nnz,) uint32   the observed entries, row by row
    z (nnz,)    scores at them;  o (nnz,) what was observed;  c (nnz,) weights, or empty: all 1
    rb (m,), cb (n,)  row and column biases, the global one in rb: rb[i] + cb[j] is the score without any rank
"""

from libc.math cimport NAN, fabs
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memmove, memset

from fastsketch._kernels.linalg.blas cimport real
from fastsketch._kernels.linalg.parts cimport first_row, parts_of_sums
from fastsketch._kernels.losses cimport HUBER, loss_terms
from fastsketch._kernels.lowrank.loop cimport SUMS, Loop, at, bound_of_curve, entry_by_entry, part_entry, part_row, row_by_row, sum_of
from fastsketch._kernels.pool cimport fs_part, fs_pool_run, join

import numpy as np

join()


# -- sums and scores ---------------------------------------------------------------------------------------------------
cdef void objective_part(void* context, ptrdiff_t part, real* scratch) noexcept nogil:
    cdef Loop* loop = <Loop*> context
    cdef const real* z = <const real*> loop.z
    cdef const real* o = <const real*> loop.o
    cdef const real* c = <const real*> loop.c
    cdef double f, slope, curve, total = 0, squares = 0, curves = 0, weight
    cdef Py_ssize_t k
    for k in range(part_entry(loop, part), part_entry(loop, part + 1)):
        f = loss_terms(loop.loss, loop.p, z[k], o[k], &slope, &curve)
        weight = c[k] if loop.weighted else 1.0
        total += weight * f
        slope *= weight
        squares += slope * slope
        curves += weight * curve
    loop.sums[part][0], loop.sums[part][1], loop.sums[part][2] = total, squares, curves


def objective(int loss, double p, const real[::1] z, const real[::1] o, const real[::1] c):
    """Sum of weighted losses, of squares of their slopes, and of their curvatures."""
    cdef Loop loop
    with nogil:
        entry_by_entry(&loop, loss, p, z, o, c)
        fs_pool_run(loop.parts, <fs_part> objective_part[real], &loop, NULL, 0)
    return sum_of(&loop, 0), sum_of(&loop, 1), sum_of(&loop, 2)


cdef void dot_part(void* context, ptrdiff_t part, real* scratch) noexcept nogil:
    cdef Loop* loop = <Loop*> context
    cdef const real* x = <const real*> loop.z
    cdef const real* y = <const real*> loop.o
    cdef Py_ssize_t k, first = part_entry(loop, part), stop = part_entry(loop, part + 1), q
    cdef double s[4]
    memset(s, 0, sizeof(s))
    k = first
    while k + 4 <= stop:
        for q in range(4):
            s[q] += <double> x[k + q] * y[k + q]
        k += 4
    while k < stop:
        s[0] += <double> x[k] * y[k]
        k += 1
    loop.sums[part][0] = (s[0] + s[1]) + (s[2] + s[3])


def dot(const real[::1] x, const real[::1] y):
    """x'y in float64."""
    cdef Loop loop
    with nogil:
        entry_by_entry(&loop, 0, 0, x, y, x[:0])
        fs_pool_run(loop.parts, <fs_part> dot_part[real], &loop, NULL, 0)
    return sum_of(&loop, 0)


cdef void scores_part(void* context, ptrdiff_t part, real* scratch) noexcept nogil:
    cdef Loop* loop = <Loop*> context
    cdef const real* left = <const real*> loop.left
    cdef const real* right = <const real*> loop.right
    cdef const real* rb = <const real*> loop.rb
    cdef const real* cb = <const real*> loop.cb
    cdef Py_ssize_t i, k, q, t = loop.t
    cdef const real* own
    cdef const real* other
    cdef double total
    for i in range(part_row(loop, part), part_row(loop, part + 1)):
        own = left + i * t
        for k in range(loop.indptr[i], loop.indptr[i + 1]):
            other = right + loop.indices[k] * t
            total = 0
            for q in range(t):
                total += own[q] * other[q]
            (<real*> loop.out)[k] = <real> (total + rb[i] + cb[loop.indices[k]])


def scores(const uint32_t[::1] indptr, const uint32_t[::1] indices, const real[:, ::1] left, const real[:, ::1] right,
           const real[::1] rb, const real[::1] cb, real[::1] out):
    """out = rb_i + cb_j + left_i . right_j at the observed entries; left (m, t), right (n, t)."""
    cdef Loop loop
    if indices.shape[0] == 0:
        return
    loop.t = left.shape[1]
    loop.left, loop.right = &left[0, 0] if loop.t else NULL, &right[0, 0] if loop.t else NULL
    loop.rb, loop.cb, loop.out = at(rb), at(cb), &out[0]
    with nogil:
        row_by_row(&loop, indptr, indices, 1 + 0.25 * loop.t)
        fs_pool_run(loop.parts, <fs_part> scores_part[real], &loop, NULL, 0)


cdef void five_dots_part(void* context, ptrdiff_t part, real* scratch) noexcept nogil:
    cdef Loop* loop = <Loop*> context
    cdef const real* z = <const real*> loop.z
    cdef const real* o = <const real*> loop.o
    cdef const real* c = <const real*> loop.c
    cdef const real* rb = <const real*> loop.rb
    cdef const real* cb = <const real*> loop.cb
    cdef const real* u = <const real*> loop.left
    cdef const real* v = <const real*> loop.right
    cdef real b, x, q, mu = <real> loop.mu, rho = <real> loop.rho
    cdef double f, slope, curve, f0 = 0, f1 = 0, f2 = 0, f3 = 0, f4 = 0, f5 = 0
    cdef Py_ssize_t i, k, j
    for i in range(part_row(loop, part), part_row(loop, part + 1)):
        for k in range(loop.indptr[i], loop.indptr[i + 1]):
            j = loop.indices[k]
            b = rb[i] + cb[j]
            x = z[k] - b
            q = u[i] * v[j]
            f = loss_terms(loop.loss, loop.p, b + mu * x + rho * q, o[k], &slope, &curve)
            if loop.loss == HUBER and curve == 0:
                curve = bound_of_curve(loop.loss, loop.p, b + mu * x + rho * q, o[k], 0)
            if loop.weighted:
                f *= c[k]
                slope *= c[k]
                curve *= c[k]
            f0 += f
            f1 += slope * x
            f2 += slope * q
            f3 += curve * x * x
            f4 += curve * x * q
            f5 += curve * q * q
    loop.sums[part][0], loop.sums[part][1], loop.sums[part][2] = f0, f1, f2
    loop.sums[part][3], loop.sums[part][4], loop.sums[part][5] = f3, f4, f5


def five_dots(int loss, double p, const uint32_t[::1] indptr, const uint32_t[::1] indices, const real[::1] z,
              const real[::1] o, const real[::1] c, const real[::1] rb, const real[::1] cb, double mu, double rho,
              const real[::1] u, const real[::1] v, double[::1] out):
    """Sums for a Newton step in (mu, rho) of f(b + mu (z - b) + rho u_i v_j), b = rb_i + cb_j.

    out: objective; slope . x, slope . q; curve . x^2, curve . x q, curve . q^2 with x = z - b, q = u_i v_j; the curve
    of the Huber loss beyond its delta is that of a parabola that touches it.
    """
    cdef Loop loop
    cdef int k
    loop.mu, loop.rho = mu, rho
    loop.rb, loop.cb, loop.left, loop.right = at(rb), at(cb), at(u), at(v)
    with nogil:
        entry_by_entry(&loop, loss, p, z, o, c)
        row_by_row(&loop, indptr, indices, 2)
        fs_pool_run(loop.parts, <fs_part> five_dots_part[real], &loop, NULL, 0)
        for k in range(SUMS):
            out[k] = sum_of(&loop, k)


cdef void slope_along_part(void* context, ptrdiff_t part, real* scratch) noexcept nogil:
    cdef Loop* loop = <Loop*> context
    cdef const real* z = <const real*> loop.z
    cdef const real* o = <const real*> loop.o
    cdef const real* c = <const real*> loop.c
    cdef const real* d = <const real*> loop.d
    cdef double total = 0, slope_total = 0, f, slope, curve
    cdef Py_ssize_t k
    for k in range(part_entry(loop, part), part_entry(loop, part + 1)):
        f = loss_terms(loop.loss, loop.p, z[k] + loop.eta * d[k], o[k], &slope, &curve)
        if loop.weighted:
            f *= c[k]
            slope *= c[k]
        total += f
        slope_total += slope * d[k]
    loop.sums[part][0], loop.sums[part][1] = total, slope_total


def slope_along(int loss, double p, const real[::1] z, const real[::1] o, const real[::1] c, const real[::1] d,
                double eta):
    """(f, df / deta) at z + eta d."""
    cdef Loop loop
    loop.d, loop.eta = at(d), eta
    with nogil:
        entry_by_entry(&loop, loss, p, z, o, c)
        fs_pool_run(loop.parts, <fs_part> slope_along_part[real], &loop, NULL, 0)
    return sum_of(&loop, 0), sum_of(&loop, 1)


cdef void kinks_part(void* context, ptrdiff_t part, real* scratch) noexcept nogil:
    # from the place of its first entry on
    cdef Loop* loop = <Loop*> context
    cdef const real* z = <const real*> loop.z
    cdef const real* o = <const real*> loop.o
    cdef const real* c = <const real*> loop.c
    cdef const real* d = <const real*> loop.d
    cdef Py_ssize_t k, to = part_entry(loop, part)
    for k in range(part_entry(loop, part), part_entry(loop, part + 1)):
        if d[k] != 0:
            loop.places[to] = (o[k] - z[k]) / d[k]
            loop.weights[to] = fabs(d[k]) * (c[k] if loop.weighted else 1.0)
            to += 1
    loop.found[part] = to - part_entry(loop, part)


def kinks(const real[::1] z, const real[::1] o, const real[::1] c, const real[::1] d, double[::1] places,
          double[::1] weights):
    """Where z + eta d meets o, and how much |d| weighs: the absolute loss is sum_k weights_k |places_k - eta|."""
    cdef Loop loop
    cdef Py_ssize_t k, count = 0
    if z.shape[0] == 0:
        return 0
    loop.d, loop.places, loop.weights = at(d), &places[0], &weights[0]
    with nogil:
        entry_by_entry(&loop, 0, 0, z, o, c)
        fs_pool_run(loop.parts, <fs_part> kinks_part[real], &loop, NULL, 0)
        for k in range(loop.parts):
            if count < part_entry(&loop, k):
                memmove(&places[count], &places[part_entry(&loop, k)], loop.found[k] * sizeof(double))
                memmove(&weights[count], &weights[part_entry(&loop, k)], loop.found[k] * sizeof(double))
            count += loop.found[k]
    return count


cdef double quantile(double[::1] values, double[::1] weights, double target) noexcept nogil:
    cdef Py_ssize_t low = 0, high = values.shape[0], k, less_end, i, more_begin
    cdef double total = 0, below = 0, less, same, pivot
    cdef uint64_t state = 88172645463325252
    for k in range(high):
        total += weights[k]
    if not total > 0:
        return NAN
    if target != target:
        target = 0.5 * total
    while high - low > 1:
        state ^= state << 13
        state ^= state >> 7
        state ^= state << 17
        pivot = values[low + <Py_ssize_t> (state % <uint64_t> (high - low))]
        # [low, less_end) < pivot, [less_end, i) == pivot, [more_begin, high) > pivot
        less_end, i, more_begin = low, low, high
        less, same = 0, 0
        while i < more_begin:
            if values[i] < pivot:
                less += weights[i]
                values[i], values[less_end] = values[less_end], values[i]
                weights[i], weights[less_end] = weights[less_end], weights[i]
                less_end += 1
                i += 1
            elif values[i] > pivot:
                more_begin -= 1
                values[i], values[more_begin] = values[more_begin], values[i]
                weights[i], weights[more_begin] = weights[more_begin], weights[i]
            else:
                same += weights[i]
                i += 1
        if below + less >= target:
            high = less_end
        elif below + less + same >= target:
            return pivot
        else:
            below += less + same
            low = more_begin
    # by rounding all may weigh less than the target
    return values[min(low, values.shape[0] - 1)]


def weighted_quantile(double[::1] values, double[::1] weights, double target):
    """The least value of which those up to it weigh `target`, by quickselect; both arrays are reordered. NaN if empty.

    For a target of NaN, half of all: a minimiser of sum_k weights_k |values_k - x|.
    """
    cdef double found
    with nogil:
        found = quantile(values, weights, target)
    return found


# -- the same entries by column ----------------------------------------------------------------------------------------
cdef struct Turn:
    Py_ssize_t m, n, parts
    bint weighted
    const uint32_t* indptr
    const uint32_t* indices
    const void* o
    const void* c
    uint32_t* place              # (parts, n): entries of a column in a part, then where the next of them goes
    uint32_t* rows
    void* values
    void* weights


cdef void count_part(void* context, ptrdiff_t part, void* scratch) noexcept nogil:
    cdef Turn* turn = <Turn*> context
    cdef uint32_t* place = turn.place + part * turn.n
    cdef Py_ssize_t k
    memset(place, 0, turn.n * sizeof(uint32_t))
    for k in range(turn.indptr[first_row(turn.indptr, turn.m, turn.parts, part)],
                   turn.indptr[first_row(turn.indptr, turn.m, turn.parts, part + 1)]):
        place[turn.indices[k]] += 1


cdef void turn_part(void* context, ptrdiff_t part, real* scratch) noexcept nogil:
    cdef Turn* turn = <Turn*> context
    cdef uint32_t* place = turn.place + part * turn.n
    cdef Py_ssize_t i, k, to
    for i in range(first_row(turn.indptr, turn.m, turn.parts, part),
                   first_row(turn.indptr, turn.m, turn.parts, part + 1)):
        for k in range(turn.indptr[i], turn.indptr[i + 1]):
            to = place[turn.indices[k]]
            place[turn.indices[k]] += 1
            turn.rows[to] = <uint32_t> i
            (<real*> turn.values)[to] = (<const real*> turn.o)[k]
            if turn.weighted:
                (<real*> turn.weights)[to] = (<const real*> turn.c)[k]


def transpose(const uint32_t[::1] indptr, const uint32_t[::1] indices, const real[::1] o, const real[::1] c,
              uint32_t[::1] columns, uint32_t[::1] rows, real[::1] values, real[::1] weights):
    """The same entries column by column, rows ascending; columns (n + 1,): where each column begins, as indptr."""
    cdef Turn turn
    cdef Py_ssize_t j, k
    cdef uint32_t next = 0, count
    turn.m, turn.n, turn.weighted = indptr.shape[0] - 1, columns.shape[0] - 1, c.shape[0] > 0
    turn.parts = parts_of_sums(indices.shape[0], turn.n)
    turn.indptr, turn.indices = &indptr[0], &indices[0] if indices.shape[0] else NULL
    turn.o, turn.c, turn.rows = at(o), at(c), &rows[0] if rows.shape[0] else NULL
    turn.values, turn.weights = <void*> at[real](values), <void*> at[real](weights)
    cdef uint32_t[:, ::1] place = np.empty((turn.parts, turn.n), np.uint32)
    turn.place = &place[0, 0] if turn.n else NULL
    with nogil:
        fs_pool_run(turn.parts, count_part, &turn, NULL, 0)
        for j in range(turn.n):
            columns[j] = next
            for k in range(turn.parts):
                count = place[k, j]
                place[k, j] = next
                next += count
        columns[turn.n] = next
        fs_pool_run(turn.parts, <fs_part> turn_part[real], &turn, NULL, 0)
