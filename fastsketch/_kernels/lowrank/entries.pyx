"""Loops over the observed entries of a matrix, in CSR with unsigned 32-bit indices: scores, line searches, row fits.

The residual products and the gradients are in _kernels/lowrank/products (Numba). Values of rows, of columns and of entries are
all float32 or all float64; sums over entries are float64.

    indptr (m + 1,) uint32, indices (nnz,) uint32   the observed entries, row by row
    z (nnz,)    scores at them;  o (nnz,) what was observed;  c (nnz,) weights, or empty: all 1
    rb (m,), cb (n,)  row and column biases, the global one in rb: rb[i] + cb[j] is the score without any rank
"""

from libc.math cimport NAN, fabs, sqrt
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memset

from fastsketch._kernels.linalg.blas cimport real
from fastsketch._kernels.level cimport follow
from fastsketch._kernels.losses cimport ABSOLUTE, HINGE, HUBER, QUANTILE, SQUARE, loss_terms
from fastsketch._kernels.sketching.sparse_rows cimport fs_z_rank_one_d

import numpy as np

follow()

cdef double TINY = 1e-300


def objective(int loss, double p, const real[::1] z, const real[::1] o, const real[::1] c):
    """Sum of weighted losses."""
    cdef Py_ssize_t k
    cdef bint weighted = c.shape[0] > 0
    cdef double total = 0, f, slope, curve
    with nogil:
        for k in range(z.shape[0]):
            f = loss_terms(loss, p, z[k], o[k], &slope, &curve)
            total += f * c[k] if weighted else f
    return total


def scores(const uint32_t[::1] indptr, const uint32_t[::1] indices, const real[:, ::1] left, const real[:, ::1] right,
           const real[::1] rb, const real[::1] cb, real[::1] out):
    """out = rb_i + cb_j + left_i . right_j at the observed entries; left (m, t), right (n, t)."""
    cdef Py_ssize_t t = left.shape[1], i, k, j, q
    cdef double total
    with nogil:
        for i in range(indptr.shape[0] - 1):
            for k in range(indptr[i], indptr[i + 1]):
                j = indices[k]
                total = 0
                for q in range(t):
                    total += left[i, q] * right[j, q]
                out[k] = <real> (total + rb[i] + cb[j])


def five_dots(int loss, double p, const uint32_t[::1] indptr, const uint32_t[::1] indices, const real[::1] z,
              const real[::1] o, const real[::1] c, const real[::1] rb, const real[::1] cb, double mu, double rho,
              const real[::1] u, const real[::1] v, double[::1] out):
    """Sums for a Newton step in (mu, rho) of f(b + mu (z - b) + rho u_i v_j), b = rb_i + cb_j.

    out: objective; slope . x, slope . q; curve . x^2, curve . x q, curve . q^2 with x = z - b, q = u_i v_j.
    """
    cdef Py_ssize_t i, k, j
    cdef bint weighted = c.shape[0] > 0
    cdef real b, x, q, mu_ = <real> mu, rho_ = <real> rho
    cdef double f, slope, curve, f0 = 0, f1 = 0, f2 = 0, f3 = 0, f4 = 0, f5 = 0
    with nogil:
        for i in range(indptr.shape[0] - 1):
            for k in range(indptr[i], indptr[i + 1]):
                j = indices[k]
                b = rb[i] + cb[j]
                x = z[k] - b
                q = u[i] * v[j]
                f = loss_terms(loss, p, b + mu_ * x + rho_ * q, o[k], &slope, &curve)
                if weighted:
                    f *= c[k]
                    slope *= c[k]
                    curve *= c[k]
                f0 += f
                f1 += slope * x
                f2 += slope * q
                f3 += curve * x * x
                f4 += curve * x * q
                f5 += curve * q * q
    out[0], out[1], out[2], out[3], out[4], out[5] = f0, f1, f2, f3, f4, f5


def slope_along(int loss, double p, const real[::1] z, const real[::1] o, const real[::1] c, const real[::1] d,
                double eta):
    """(f, df / deta) at z + eta d."""
    cdef Py_ssize_t k
    cdef bint weighted = c.shape[0] > 0
    cdef double total = 0, slope_total = 0, f, slope, curve
    with nogil:
        for k in range(z.shape[0]):
            f = loss_terms(loss, p, z[k] + eta * d[k], o[k], &slope, &curve)
            if weighted:
                f *= c[k]
                slope *= c[k]
            total += f
            slope_total += slope * d[k]
    return total, slope_total


def kinks(const real[::1] z, const real[::1] o, const real[::1] c, const real[::1] d, double[::1] places,
          double[::1] weights):
    """Where z + eta d meets o, and how much |d| weighs: the absolute loss is sum_k weights_k |places_k - eta|."""
    cdef Py_ssize_t k, count = 0
    cdef bint weighted = c.shape[0] > 0
    with nogil:
        for k in range(z.shape[0]):
            if d[k] != 0:
                places[count] = (o[k] - z[k]) / d[k]
                weights[count] = fabs(d[k]) * (c[k] if weighted else 1.0)
                count += 1
    return count


cdef double median(double[::1] values, double[::1] weights) noexcept nogil:
    cdef Py_ssize_t low = 0, high = values.shape[0], k, less_end, i, more_begin
    cdef double total = 0, below = 0, half, less, same, pivot
    cdef uint64_t state = 88172645463325252
    for k in range(high):
        total += weights[k]
    if not total > 0:
        return NAN
    half = 0.5 * total
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
        if below + less >= half:
            high = less_end
        elif below + less + same >= half:
            return pivot
        else:
            below += less + same
            low = more_begin
    return values[low]


def weighted_median(double[::1] values, double[::1] weights):
    """A minimiser of sum_k weights_k |values_k - x| by quickselect; both arrays are reordered. NaN if empty."""
    cdef double found
    with nogil:
        found = median(values, weights)
    return found


# -- rows fitted to given factors --------------------------------------------------------------------------------------
cdef inline double bound_of_curve(int loss, double p, double z, double y, double smooth) noexcept nogil:
    """Curvature of a parabola that touches a loss without curvature from above: 1 / distance to its kink, bounded."""
    if loss == ABSOLUTE:
        return 1.0 / max(fabs(z - y), smooth)
    if loss == HUBER:
        return p / max(fabs(z - y), smooth)
    if loss == HINGE:
        # |1 - m| / 2 + (1 - m) / 2
        return 0.5 / max(fabs(1.0 - y * z), smooth)
    if loss == QUANTILE:
        return 0.5 / max(fabs(z - y), smooth)
    return 0.5 / max(fabs(fabs(z - y) - p), smooth)


cdef bint solve_definite(Py_ssize_t t, double* h, double* g) noexcept nogil:
    """g <- h^-1 g for the lower triangle of a positive definite h (t, t), destroyed; False if it is not."""
    cdef Py_ssize_t i, j, k
    cdef double d, s
    for j in range(t):
        d = h[j * t + j]
        for k in range(j):
            d -= h[j * t + k] * h[j * t + k]
        if not d > TINY:
            return False
        d = sqrt(d)
        h[j * t + j] = d
        for i in range(j + 1, t):
            s = h[i * t + j]
            for k in range(j):
                s -= h[i * t + k] * h[j * t + k]
            h[i * t + j] = s / d
        s = g[j]
        for k in range(j):
            s -= h[j * t + k] * g[k]
        g[j] = s / d
    for j in range(t - 1, -1, -1):
        s = g[j]
        for k in range(j + 1, t):
            s -= h[k * t + j] * g[k]
        g[j] = s / h[j * t + j]
    return True


cdef struct Fit:
    # of one row: what is fitted to what
    int loss
    double p, smooth, tol
    Py_ssize_t t, turns, first, count
    double* ridge                # (t,)
    double* a                    # (t,) what is fitted, and where it begins
    double* h                    # (t, t) scratch
    double* g                    # (t,) scratch, as are x, minus and move
    double* x
    double* minus
    double* move
    double* z                    # (count,) scratch


cdef inline double score_of(const Fit* f, real own, real other, const real* factors, double step) noexcept nogil:
    # own + other + factors' (a + step * move)
    cdef double s = own + other
    cdef Py_ssize_t q
    if step == 0:
        for q in range(f.t):
            s += factors[q] * f.a[q]
    else:
        for q in range(f.t):
            s += factors[q] * (f.a[q] + step * f.move[q])
    return s


cdef inline void add_square(const Fit* f, double weight) noexcept nogil:
    # h += weight x x': all of it, not its triangle, so that the inner loop has one length
    cdef Py_ssize_t q
    for q in range(f.t):
        f.minus[q] = -(weight * f.x[q])
    fs_z_rank_one_d(f.t, f.t, f.t, f.minus, f.x, f.h)


cdef inline void lift(const Fit* f) noexcept nogil:
    # a little more on the diagonal of h: a row may have fewer entries than coefficients
    cdef Py_ssize_t q
    cdef double top = 0
    for q in range(f.t):
        top = max(top, f.h[q * f.t + q])
    for q in range(f.t):
        f.h[q * f.t + q] += 1e-12 * top + TINY


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
    cdef double value = 0, x, loss, slope, curve
    cdef Py_ssize_t q, e, k
    for q in range(f.t):
        x = f.a[q] + step * f.move[q] if step != 0 else f.a[q]
        value += 0.5 * f.ridge[q] * x * x
    for e in range(f.count):
        k = f.first + e
        f.z[e] = score_of(f, own, cb[indices[k]], factors + <Py_ssize_t> indices[k] * f.t, step)
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
            if f.loss >= ABSOLUTE or (f.loss == HUBER and curve == 0):
                curve = bound_of_curve(f.loss, f.p, f.z[e], o[k], width)
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


def fit_rows(int loss, double p, double smooth, const double[::1] ridge, const uint32_t[::1] indptr,
             const uint32_t[::1] indices, const real[::1] o, const real[::1] c, const real[::1] rb,
             const real[::1] cb, const real[:, ::1] factors, real[:, ::1] out, Py_ssize_t turns, double tol):
    """fit_one for every row: out (m, t) holds where each begins, and where it ends."""
    cdef Py_ssize_t t = factors.shape[1], i, q, longest = 0
    cdef Fit f
    cdef const real* weights = &c[0] if c.shape[0] else NULL
    cdef const real* values = &o[0] if o.shape[0] else NULL
    cdef const uint32_t* places = &indices[0] if indices.shape[0] else NULL
    cdef double[::1] space
    if t == 0:
        return
    for i in range(indptr.shape[0] - 1):
        longest = max(longest, <Py_ssize_t> indptr[i + 1] - <Py_ssize_t> indptr[i])
    space = np.zeros(t * t + 6 * t + longest)
    f.loss, f.p, f.smooth, f.t, f.turns, f.tol = loss, p, smooth, t, turns, tol
    f.h = &space[0]
    f.g = f.h + t * t
    f.a, f.x, f.minus, f.move, f.ridge, f.z = f.g + t, f.g + 2 * t, f.g + 3 * t, f.g + 4 * t, f.g + 5 * t, f.g + 6 * t
    with nogil:
        for q in range(t):
            f.ridge[q] = ridge[q]
        for i in range(indptr.shape[0] - 1):
            f.first, f.count = indptr[i], <Py_ssize_t> indptr[i + 1] - <Py_ssize_t> indptr[i]
            for q in range(t):
                f.a[q] = out[i, q]
            if loss == SQUARE:
                square_row(&f, places, values, weights, rb[i], &cb[0], &factors[0, 0])
            else:
                fit_one(&f, places, values, weights, rb[i], &cb[0], &factors[0, 0])
            for q in range(t):
                out[i, q] = <real> f.a[q]


def bias_sums(int loss, double p, double smooth, const uint32_t[::1] indptr, const uint32_t[::1] indices,
              const real[::1] o, const real[::1] c, const real[::1] rb, const real[::1] cb, double[::1] gr,
              double[::1] hr, double[::1] gc, double[::1] hc):
    """Slopes and curvatures at rb_i + cb_j summed by row (gr, hr) and by column (gc, hc); returns the objective."""
    cdef Py_ssize_t i, j, k
    cdef bint weighted = c.shape[0] > 0
    cdef real z
    cdef double total = 0, g, h, f, slope, curve
    gc[:] = 0
    hc[:] = 0
    with nogil:
        for i in range(indptr.shape[0] - 1):
            g, h = 0, 0
            for k in range(indptr[i], indptr[i + 1]):
                j = indices[k]
                z = rb[i] + cb[j]
                f = loss_terms(loss, p, z, o[k], &slope, &curve)
                if loss >= ABSOLUTE or (loss == HUBER and curve == 0):
                    curve = bound_of_curve(loss, p, z, o[k], smooth)
                if weighted:
                    f *= c[k]
                    slope *= c[k]
                    curve *= c[k]
                total += f
                g += slope
                h += curve
                gc[j] += slope
                hc[j] += curve
            gr[i], hr[i] = g, h
    return total


def transpose(const uint32_t[::1] indptr, const uint32_t[::1] indices, const real[::1] o, const real[::1] c,
              uint32_t[::1] place, uint32_t[::1] rows, real[::1] values, real[::1] weights):
    """The same entries column by column, rows ascending; place (n,): where each column begins, afterwards where it ends."""
    cdef Py_ssize_t i, k, at
    cdef bint weighted = c.shape[0] > 0
    with nogil:
        for i in range(indptr.shape[0] - 1):
            for k in range(indptr[i], indptr[i + 1]):
                at = place[indices[k]]
                place[indices[k]] += 1
                rows[at] = <uint32_t> i
                values[at] = o[k]
                if weighted:
                    weights[at] = c[k]
