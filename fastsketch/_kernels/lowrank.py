# pyright: basic
# numba is not typed; the signatures are in lowrank.pyi
"""Loops over the observed entries of a matrix, in CSR with unsigned 32-bit indices (Numba).

Unsigned, because signed indices cost a test for a negative one in every access, twice the time. Values of rows, of
columns and of entries may be float32 or float64; sums over entries are float64.

    indptr (m + 1,) uint32, indices (nnz,) uint32   the observed entries, row by row
    z (nnz,)    scores at them;  o (nnz,) what was observed;  c (nnz,) weights, or empty: all 1
    rb (m,), cb (n,)  row and column biases, the global one in rb: rb[i] + cb[j] is the score without any rank
    a (nnz,)    the scaled gradient: weight * dloss/dz * left[i] * right[j]
"""

import numpy as np
from numba import njit

from fastsketch._kernels.losses import ABSOLUTE, HINGE, HUBER, QUANTILE, SQUARE
from fastsketch._kernels.losses_jit import value_slope_curvature

TINY = 1e-300


@njit(cache=True, nogil=True)
def objective(loss, p, z, o, c):
    """Sum of weighted losses."""
    total = 0.0
    for k in range(len(z)):
        f = value_slope_curvature(loss, p, z[k], o[k])[0]
        total += f * c[k] if len(c) else f
    return total


@njit(cache=True, nogil=True)
def gradient(loss, p, indptr, indices, z, o, c, left, right, a):
    """a = weight * slope * left[i] * right[j]; returns the objective."""
    total = 0.0
    for i in range(len(indptr) - 1):
        scale = left[i]
        for k in range(indptr[i], indptr[i + 1]):
            f, slope, _ = value_slope_curvature(loss, p, z[k], o[k])
            if len(c):
                f *= c[k]
                slope *= c[k]
            total += f
            a[k] = slope * scale * right[indices[k]]
    return total


@njit(cache=True, nogil=True)
def step_gradient(loss, p, indptr, indices, z, o, c, left, right, keep, theta, u, v, rb, cb, a):
    """z = b + keep (z - b) + theta u_i v_j with b = rb_i + cb_j, then as gradient."""
    total = 0.0
    for i in range(len(indptr) - 1):
        scale, ui, bi = left[i], theta * u[i], rb[i]
        for k in range(indptr[i], indptr[i + 1]):
            j = indices[k]
            if keep == 1.0:
                z[k] += ui * v[j]
            else:
                b = bi + cb[j]
                z[k] = b + keep * (z[k] - b) + ui * v[j]
            f, slope, _ = value_slope_curvature(loss, p, z[k], o[k])
            if len(c):
                f *= c[k]
                slope *= c[k]
            total += f
            a[k] = slope * scale * right[j]
    return total


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def gram_product(indptr, indices, a, v, u, w):
    """u = A v, w = A'u in one pass over the entries."""
    w[:] = 0.0
    for i in range(len(indptr) - 1):
        first, last = indptr[i], indptr[i + 1]
        total = a.dtype.type(0.0)
        for k in range(first, last):
            total += a[k] * v[indices[k]]
        u[i] = total
        for k in range(first, last):
            w[indices[k]] += a[k] * total


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def times(indptr, indices, a, v, u):
    """u = A v."""
    for i in range(len(indptr) - 1):
        total = a.dtype.type(0.0)
        for k in range(indptr[i], indptr[i + 1]):
            total += a[k] * v[indices[k]]
        u[i] = total


@njit(cache=True, nogil=True)
def transposed_times(indptr, indices, a, u, w):
    """w = A'u."""
    w[:] = 0.0
    for i in range(len(indptr) - 1):
        s = u[i]
        for k in range(indptr[i], indptr[i + 1]):
            w[indices[k]] += a[k] * s


@njit(cache=True, nogil=True)
def five_dots(loss, p, indptr, indices, z, o, c, rb, cb, mu, rho, u, v, out):
    """Sums for a Newton step in (mu, rho) of f(b + mu (z - b) + rho u_i v_j), b = rb_i + cb_j.

    out: objective; slope . x, slope . q; curve . x^2, curve . x q, curve . q^2 with x = z - b, q = u_i v_j.
    """
    out[:] = 0.0
    f0, f1, f2, f3, f4, f5 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(len(indptr) - 1):
        ui, bi = u[i], rb[i]
        for k in range(indptr[i], indptr[i + 1]):
            j = indices[k]
            b = bi + cb[j]
            x, q = z[k] - b, ui * v[j]
            f, slope, curve = value_slope_curvature(loss, p, b + mu * x + rho * q, o[k])
            if len(c):
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


@njit(cache=True, nogil=True)
def scores(indptr, indices, left, right, rb, cb, out):
    """out = rb_i + cb_j + left_i . right_j at the observed entries; left (m, t), right (n, t)."""
    t = left.shape[1]
    for i in range(len(indptr) - 1):
        for k in range(indptr[i], indptr[i + 1]):
            j = indices[k]
            total = 0.0
            for q in range(t):
                total += left[i, q] * right[j, q]
            out[k] = total + rb[i] + cb[j]


@njit(cache=True, nogil=True)
def coefficient_gradient(loss, p, indptr, indices, o, c, rb, cb, left, right, theta, out):
    """Objective of f(rb_i + cb_j + sum_q theta_q u_iq v_jq) and its gradient (t,) in theta."""
    t = len(theta)
    out[:] = 0.0
    product, mine = np.empty(t), np.empty(t)
    total = 0.0
    for i in range(len(indptr) - 1):
        for q in range(t):
            mine[q] = left[i, q]
        for k in range(indptr[i], indptr[i + 1]):
            j = indices[k]
            z = rb[i] + cb[j]
            for q in range(t):
                product[q] = mine[q] * right[j, q]
                z += theta[q] * product[q]
            f, slope, _ = value_slope_curvature(loss, p, z, o[k])
            if len(c):
                f *= c[k]
                slope *= c[k]
            total += f
            for q in range(t):
                out[q] += slope * product[q]
    return total


@njit(cache=True, nogil=True)
def weighted_median(values, weights):
    """A minimiser of sum_k weights_k |values_k - x| by quickselect; both arrays are reordered. NaN if empty."""
    low, high = 0, len(values)
    total = 0.0
    for k in range(high):
        total += weights[k]
    if not total > 0.0:
        return np.nan
    below = 0.0
    half = 0.5 * total
    state = np.uint64(88172645463325252)
    while high - low > 1:
        state ^= state << np.uint64(13)
        state ^= state >> np.uint64(7)
        state ^= state << np.uint64(17)
        pivot = values[low + int(state % np.uint64(high - low))]
        # [low, lt) < pivot, [lt, i) == pivot, (gt, high) > pivot
        lt, i, gt = low, low, high
        less, same = 0.0, 0.0
        while i < gt:
            if values[i] < pivot:
                less += weights[i]
                values[i], values[lt] = values[lt], values[i]
                weights[i], weights[lt] = weights[lt], weights[i]
                lt += 1
                i += 1
            elif values[i] > pivot:
                gt -= 1
                values[i], values[gt] = values[gt], values[i]
                weights[i], weights[gt] = weights[gt], weights[i]
            else:
                same += weights[i]
                i += 1
        if below + less >= half:
            high = lt
        elif below + less + same >= half:
            return pivot
        else:
            below += less + same
            low = gt
    return values[low]


@njit(cache=True, nogil=True)
def solve_definite(h, g, t):
    """g <- h^-1 g for the lower triangle of a positive definite h (t, t), destroyed; False if it is not."""
    for j in range(t):
        d = h[j, j]
        for k in range(j):
            d -= h[j, k] * h[j, k]
        if not d > TINY:
            return False
        d = np.sqrt(d)
        h[j, j] = d
        for i in range(j + 1, t):
            s = h[i, j]
            for k in range(j):
                s -= h[i, k] * h[j, k]
            h[i, j] = s / d
        s = g[j]
        for k in range(j):
            s -= h[j, k] * g[k]
        g[j] = s / d
    for j in range(t - 1, -1, -1):
        s = g[j]
        for k in range(j + 1, t):
            s -= h[k, j] * g[k]
        g[j] = s / h[j, j]
    return True


@njit(cache=True, nogil=True)
def fit_one(loss, p, smooth, ridge, first, last, indices, o, c, own, cb, factors, a, h, g, z, turns, tol):
    """Minimise sum of losses at own + cb_j + factors_j a plus sum_q ridge_q a_q^2 / 2 over a (t,), from the a given.

    Newton steps with halving; losses without curvature get that of a touching parabola, no narrower than a width that
    falls to `smooth` as steps gain less. Returns the steps taken. h (t, t), g (t,), z (entries of the row) are scratch.
    """
    t = len(a)
    count = last - first
    width = 64.0 * smooth
    value = 0.0
    for q in range(t):
        value += 0.5 * ridge[q] * a[q] * a[q]
    for e in range(count):
        k = first + e
        j = indices[k]
        s = own + cb[j]
        for q in range(t):
            s += factors[j, q] * a[q]
        z[e] = s
        f = value_slope_curvature(loss, p, s, o[k])[0]
        value += f * c[k] if len(c) else f
    move = np.empty(t)
    for turn in range(turns):
        for q in range(t):
            g[q] = -ridge[q] * a[q]
            for r in range(q + 1):
                h[q, r] = 0.0
            h[q, q] = ridge[q]
        for e in range(count):
            k = first + e
            j = indices[k]
            _, slope, curve = value_slope_curvature(loss, p, z[e], o[k])
            if loss >= ABSOLUTE or (loss == HUBER and curve == 0.0):
                curve = bound_of_curve(loss, p, z[e], o[k], width)
            if len(c):
                slope *= c[k]
                curve *= c[k]
            for q in range(t):
                x = factors[j, q]
                g[q] -= slope * x
                x *= curve
                for r in range(q + 1):
                    h[q, r] += x * factors[j, r]
        top = 0.0
        for q in range(t):
            top = max(top, h[q, q])
        for q in range(t):
            h[q, q] += 1e-12 * top + TINY
            move[q] = g[q]
        slope0 = 0.0
        if not solve_definite(h, move, t):
            return turn
        for q in range(t):
            slope0 -= g[q] * move[q]
        step = 1.0
        better = value
        for _ in range(30):
            better = 0.0
            for q in range(t):
                x = a[q] + step * move[q]
                better += 0.5 * ridge[q] * x * x
            for e in range(count):
                k = first + e
                j = indices[k]
                s = own + cb[j]
                for q in range(t):
                    s += factors[j, q] * (a[q] + step * move[q])
                f = value_slope_curvature(loss, p, s, o[k])[0]
                better += f * c[k] if len(c) else f
            if better <= value + 1e-4 * step * slope0:
                break
            step *= 0.5
        gain = value - better
        if gain > 0.0:
            for q in range(t):
                a[q] += step * move[q]
            value = better
        if not gain > tol * max(abs(value), TINY):
            if width <= smooth or loss < ABSOLUTE:
                return turn + 1
            width = max(0.25 * width, smooth)
        elif gain <= 1e-3 * abs(value):
            width = max(0.5 * width, smooth)
        for e in range(count):
            k = first + e
            j = indices[k]
            s = own + cb[j]
            for q in range(t):
                s += factors[j, q] * a[q]
            z[e] = s
    return turns


@njit(cache=True, nogil=True)
def bound_of_curve(loss, p, z, y, smooth):
    """Curvature of a parabola that touches a loss without curvature from above: 1 / distance to its kink, bounded."""
    if loss == ABSOLUTE:
        return 1.0 / max(abs(z - y), smooth)
    if loss == HUBER:
        return p / max(abs(z - y), smooth)
    if loss == HINGE:
        # |1 - m| / 2 + (1 - m) / 2
        return 0.5 / max(abs(1.0 - y * z), smooth)
    if loss == QUANTILE:
        return 0.5 / max(abs(z - y), smooth)
    return 0.5 / max(abs(abs(z - y) - p), smooth)


@njit(cache=True, nogil=True)
def square_row(ridge, first, last, indices, o, c, own, cb, factors, a, h, g, x):
    """fit_one for the square loss: the normal equations; where a begins does not matter."""
    t = len(a)
    for q in range(t):
        g[q] = 0.0
        for r in range(t):
            h[q, r] = 0.0
    for k in range(first, last):
        j = indices[k]
        for q in range(t):
            x[q] = factors[j, q]
        weight = c[k] if len(c) else 1.0
        r = weight * (o[k] - own - cb[j])
        for q in range(t):
            g[q] += r * x[q]
        # all of h, not its triangle: so the inner loop has one length
        for q in range(t):
            y = weight * x[q]
            for s in range(t):
                h[q, s] += y * x[s]
    top = 0.0
    for q in range(t):
        h[q, q] += ridge[q]
        top = max(top, h[q, q])
    for q in range(t):
        h[q, q] += 1e-12 * top + TINY
    if solve_definite(h, g, t):
        for q in range(t):
            a[q] = g[q]


@njit(cache=True, nogil=True)
def fit_rows(loss, p, smooth, ridge, indptr, indices, o, c, rb, cb, factors, out, turns, tol):
    """fit_one for every row: out (m, t) holds where each begins, and where it ends."""
    t = factors.shape[1]
    longest = 0
    for i in range(len(indptr) - 1):
        longest = max(longest, np.int64(indptr[i + 1]) - np.int64(indptr[i]))
    h, g, z, a, x = np.empty((t, t)), np.empty(t), np.empty(longest), np.empty(t), np.empty(t)
    for i in range(len(indptr) - 1):
        for q in range(t):
            a[q] = out[i, q]
        if loss == SQUARE:
            square_row(
                ridge, np.int64(indptr[i]), np.int64(indptr[i + 1]), indices, o, c, rb[i], cb, factors, a, h, g, x
            )
            for q in range(t):
                out[i, q] = a[q]
            continue
        fit_one(
            loss,
            p,
            smooth,
            ridge,
            np.int64(indptr[i]),
            np.int64(indptr[i + 1]),
            indices,
            o,
            c,
            rb[i],
            cb,
            factors,
            a,
            h,
            g,
            z,
            turns,
            tol,
        )
        for q in range(t):
            out[i, q] = a[q]


@njit(cache=True, nogil=True)
def bias_sums(loss, p, smooth, indptr, indices, o, c, rb, cb, gr, hr, gc, hc):
    """Slopes and curvatures at rb_i + cb_j summed by row (gr, hr) and by column (gc, hc); returns the objective."""
    gc[:], hc[:] = 0.0, 0.0
    total = 0.0
    for i in range(len(indptr) - 1):
        g, h = 0.0, 0.0
        for k in range(indptr[i], indptr[i + 1]):
            j = indices[k]
            z = rb[i] + cb[j]
            f, slope, curve = value_slope_curvature(loss, p, z, o[k])
            if loss >= ABSOLUTE or (loss == HUBER and curve == 0.0):
                curve = bound_of_curve(loss, p, z, o[k], smooth)
            if len(c):
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


@njit(cache=True, nogil=True)
def slope_along(loss, p, z, o, c, d, eta):
    """(f, df / deta) at z + eta d."""
    total, slope_total = 0.0, 0.0
    for k in range(len(z)):
        f, slope, _ = value_slope_curvature(loss, p, z[k] + eta * d[k], o[k])
        if len(c):
            f *= c[k]
            slope *= c[k]
        total += f
        slope_total += slope * d[k]
    return total, slope_total


@njit(cache=True, nogil=True)
def kinks(z, o, c, d, places, weights):
    """Where z + eta d meets o, and how much |d| weighs: the absolute loss is sum_k weights_k |places_k - eta|."""
    count = 0
    for k in range(len(z)):
        if d[k] != 0.0:
            places[count] = (o[k] - z[k]) / d[k]
            weights[count] = abs(d[k]) * (c[k] if len(c) else 1.0)
            count += 1
    return count


@njit(cache=True, nogil=True)
def transpose(indptr, indices, o, c, column_indptr, rows, values, weights):
    """The same entries column by column, rows ascending; column_indptr (n + 1,) comes with its counts summed up."""
    place = column_indptr[:-1].copy()
    for i in range(len(indptr) - 1):
        for k in range(indptr[i], indptr[i + 1]):
            j = indices[k]
            at = place[j]
            place[j] = at + np.uint32(1)
            rows[at] = i
            values[at] = o[k]
            if len(c):
                weights[at] = c[k]
