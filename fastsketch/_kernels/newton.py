"""Rounds of the sketched online Newton step between two shrinks, in the small space (Numba).

Between shrinks H = B'B + alpha I with B = [F Z'; C X], where Z (d x r) holds what earlier shrinks kept, X the rows
appended since, unscaled, and C = diag(factors) their sqrt(mu + eta) * slope. The model is w = base + Z b + X'e. A round
changes b and e alone: with the inner products Z'x, X x, x'x, base'x of the new row everything else is of size at most
2 m. Only a shrink touches Z and base.

    frame (k, k)  F in its upper left r x r; unused rows and columns zero
    small (k, k)  K = B B';   inverse (k, k)  M = (K + alpha I)^-1 while alpha > 0
    scalar, count: the entries of a Newton model in online.pxd, r = RANK, t = ROUND
"""

# pyright: basic
# Numba has no types; the functions that Python calls are typed in newton.pyi.

import numpy as np
from numba import njit

from fastsketch._kernels.losses_jit import value_slope_curvature
from fastsketch._kernels.online import (
    ALPHA,
    APPENDED,
    BOTH,
    CURRENT,
    FULL,
    LOSS,
    MISTAKES,
    NEXT,
    RANK,
    ROUND,
    ROWS,
    SHRINKAGE,
)

MU = 0.125  # C = 1: the curvature constant of the losses, RFD paper, section 6.2
RANK_SHARE = 1e-10  # eigenvalues of K below this share of the largest are zero
FLAT = 1e-12  # a slope below this is zero: a constraint at the target leaves rounding
MOST_CONDITION = 1e6  # of F, beyond which Z is recomputed: every factor of ten costs a digit of w
NULL_SHARE = 1e-9  # x has a part in the null space of H if its square exceeds this share of that of x


@njit(cache=True, nogil=True)
def excess(z):
    """tau(z) = sgn(z) max(|z| - 1, 0)."""
    if z > 1.0:
        return z - 1.0
    if z < -1.0:
        return z + 1.0
    return 0.0


@njit(cache=True, nogil=True)
def times_basis(frame, factors, r, n, zx, gx, out):
    """out = B x from zx = Z'x and gx = X x."""
    for i in range(r):
        total = 0.0
        for j in range(r):
            total += frame[i, j] * zx[j]
        out[i] = total
    for j in range(n):
        out[r + j] = factors[j] * gx[j]


@njit(cache=True, nogil=True)
def add_basis(scale, v, frame, factors, r, n, b, e):
    """w += scale * B'v."""
    for j in range(r):
        total = 0.0
        for i in range(r):
            total += frame[i, j] * v[i]
        b[j] += scale * total
    for j in range(n):
        e[j] += scale * factors[j] * v[r + j]


@njit(cache=True, nogil=True)
def square_times(a, v, k):
    """a[:k, :k] @ v[:k]: for so few rows a loop is as fast as BLAS, and needs no copy."""
    out = np.zeros(k)
    for i in range(k):
        for j in range(k):
            out[i] += a[i, j] * v[j]
    return out


@njit(cache=True, nogil=True)
def back(turn, v, rank, k):
    """turn[:rank, :k].T @ v[:rank]"""
    out = np.zeros(k)
    for i in range(rank):
        for j in range(k):
            out[j] += turn[i, j] * v[i]
    return out


@njit(cache=True, nogil=True)
def project(x_square, bx, z, alpha, small, inverse, frame, factors, r, n, b, e):
    """Move w into |w'x| <= 1 by the shortest way in the norm of H; returns the multiple of x that w still needs."""
    over = excess(z)
    if over == 0.0:
        return 0.0
    k = r + n
    if alpha > 0:
        y = square_times(inverse, bx, k)
        h = (x_square - bx[:k] @ y) / alpha
        if h <= 0:
            return 0.0
        add_basis(over / (h * alpha), y, frame, factors, r, n, b, e)
        return -over / (h * alpha)
    values, vectors = np.linalg.eigh(small[:k, :k])
    p = vectors.T @ bx[:k]
    h, inside = 0.0, 0.0
    first, second = np.zeros(k), np.zeros(k)
    for i in range(k):
        if values[i] > RANK_SHARE * values[k - 1]:
            h += (p[i] / values[i]) ** 2
            inside += p[i] * p[i] / values[i]
            first[i], second[i] = p[i] / values[i], p[i] / (values[i] * values[i])
    null = x_square - inside
    if null > NULL_SHARE * x_square:
        # w -= over / null (x - B'K^+ B x)
        add_basis(over / null, vectors @ first, frame, factors, r, n, b, e)
        return -over / null
    if h > 0:
        add_basis(-over / h, vectors @ second, frame, factors, r, n, b, e)
    return 0.0


@njit(cache=True, nogil=True)
def shrink_small(small, k, m, spared, frame_out):
    """Eigenvectors of K with the squared lengths that a shrink leaves: returns (rank, delta).

    Rows of frame_out[:rank, :k] combine the rows of B into the new ones; small[:rank, :rank] becomes their Gram matrix.
    """
    values, vectors = np.linalg.eigh(small[:k, :k])
    top = values[k - 1]
    delta = values[k - m] if k >= m and values[k - m] > RANK_SHARE * top else 0.0
    small[:, :] = 0.0
    rank = 0
    for i in range(min(m - 1, k)):
        value = values[k - 1 - i]
        if value <= RANK_SHARE * top:
            break
        left = value if i < spared else value - delta
        if left <= 0.0:
            continue
        for j in range(k):
            frame_out[rank, j] = np.sqrt(left / value) * vectors[j, k - 1 - i]
        small[rank, rank] = left
        rank += 1
    return rank, delta


@njit(cache=True, nogil=True)
def one_round(
    x_square,
    base_x,
    zx,
    gx,
    y,
    weight,
    loss,
    constraint,
    m,
    spared,
    alpha_grows,
    frame,
    factors,
    small,
    inverse,
    b,
    e,
    turn,
    scalar,
    count,
):
    """One example from its inner products.

    Returns (score, multiple of x that base is to get); FULL is -1 and nothing has changed if numbers would leave
    their range. If a row is appended, ROWS has grown: gx must have room for it. If B is then full, FULL becomes the new
    rank + 1, `turn` combines the old rows of B into the new ones, and the step is made with the H of the shrunk sketch.
    """
    r, n = count[RANK], count[ROWS]
    z = base_x
    for j in range(r):
        z += zx[j] * b[j]
    for j in range(n):
        z += gx[j] * e[j]
    if not np.isfinite(z):
        count[FULL] = -1
        return z, 0.0
    extra = 0.0
    if constraint in (NEXT, BOTH) and excess(z) != 0.0 and (r + n > 0 or scalar[ALPHA] > 0):
        ahead = np.empty(r + n)
        times_basis(frame, factors, r, n, zx, gx, ahead)
        extra = project(x_square, ahead, z, scalar[ALPHA], small, inverse, frame, factors, r, n, b, e)
        z = np.sign(z)  # exactly: where that is the target nothing is to be learned
    value, slope, _ = value_slope_curvature(loss, 1.0, z, y)
    value, slope = weight * value, weight * slope
    if not (np.isfinite(slope) and np.isfinite(slope * slope * x_square)):
        count[FULL] = -1
        return z, extra
    scalar[LOSS] += value
    count[ROUND] += 1
    if z * y <= 0:
        count[MISTAKES] += 1
    if abs(slope) <= FLAT or x_square == 0.0:
        return z, extra
    a = np.sqrt(MU + 1.0 / count[ROUND])
    same = constraint in (CURRENT, BOTH)
    alpha = scalar[ALPHA]
    k = r + n
    bx = np.empty(k + 1)
    times_basis(frame, factors, r, n, zx, gx, bx)
    # the new row a g = c x: K gets a border
    c = a * slope
    factors[n], gx[n], e[n] = c, x_square, 0.0
    for i in range(k):
        small[i, k] = small[k, i] = c * bx[i]
    small[k, k] = c * c * x_square
    bx[k] = c * x_square
    count[ROWS] = n + 1
    if k + 1 < 2 * m:
        if alpha > 0:
            q = square_times(inverse, bx, k)
            h = (x_square - bx[:k] @ q) / alpha
            if h <= 0.0:
                h = 0.0  # x lies in the span of far longer rows: rounding exceeds the rest
            f = 1.0 / (1.0 + c * c * h)
            over = excess(z - slope * f * h) if same else 0.0
            step = -slope * f - (over / h if over != 0.0 and h > 0.0 else 0.0)
            add_basis(-step / alpha, q, frame, factors, r, n, b, e)
            e[n] += step / alpha
            # M of the bordered K: the new diagonal is alpha (1 + c^2 h)
            corner = f / alpha
            for i in range(k):
                for j in range(k):
                    inverse[i, j] += c * c * corner * q[i] * q[j]
                inverse[i, k] = inverse[k, i] = -c * corner * q[i]
            inverse[k, k] = corner
        else:
            values, vectors = np.linalg.eigh(small[: k + 1, : k + 1])
            p = vectors.T @ bx
            h = 0.0
            for i in range(k + 1):
                if values[i] > RANK_SHARE * values[k]:
                    h += (p[i] / values[i]) ** 2
                    p[i] /= values[i] * values[i]
                else:
                    p[i] = 0.0
            # H^+ x = B'U L^-2 U'B x
            add_basis(-slope, vectors @ p, frame, factors, r, n + 1, b, e)
            if same:
                # project changes e[n] too: not within one augmented assignment
                more = project(x_square, bx, z - slope * h, 0.0, small, inverse, frame, factors, r, n + 1, b, e)
                e[n] += more
        return z, extra
    rank, delta = shrink_small(small, k + 1, m, spared, turn)
    scalar[SHRINKAGE] += delta
    if alpha_grows:
        scalar[ALPHA] += delta / 2
    alpha = scalar[ALPHA]
    count[FULL] = rank + 1
    inverse[:, :] = 0.0
    bx_new = np.zeros(rank)
    for i in range(rank):
        for j in range(k + 1):
            bx_new[i] += turn[i, j] * bx[j]
    v = np.zeros(rank)
    h = 0.0
    if alpha > 0:
        h = x_square
        for i in range(rank):
            inverse[i, i] = 1.0 / (small[i, i] + alpha)
            v[i] = bx_new[i] * inverse[i, i]
            h -= bx_new[i] * v[i]
        h = max(h / alpha, 0.0)
        over = excess(z - slope * h) if same else 0.0
        step = -slope - (over / h if over != 0.0 and h > 0.0 else 0.0)
        add_basis(-step / alpha, back(turn, v, rank, k + 1), frame, factors, r, n + 1, b, e)
        e[n] += step / alpha
        return z, extra
    inside = 0.0
    for i in range(rank):
        v[i] = bx_new[i] / (small[i, i] * small[i, i])
        h += bx_new[i] * v[i]
        inside += bx_new[i] * bx_new[i] / small[i, i]
    add_basis(-slope, back(turn, v, rank, k + 1), frame, factors, r, n + 1, b, e)
    if same:
        over = excess(z - slope * h)
        null = x_square - inside
        if over != 0.0 and null > NULL_SHARE * x_square:
            for i in range(rank):
                v[i] = bx_new[i] / small[i, i]
            add_basis(over / null, back(turn, v, rank, k + 1), frame, factors, r, n + 1, b, e)
            e[n] -= over / null
        elif over != 0.0 and h > 0.0:
            add_basis(-over / h, back(turn, v, rank, k + 1), frame, factors, r, n + 1, b, e)
    return z, extra


@njit(cache=True, nogil=True)
def mixed_times(frame, m, n, zx, gx, out):
    """out = L [Z'; X] x for a dense L (m, at least m + n)."""
    for i in range(m):
        total = 0.0
        for j in range(m):
            total += frame[i, j] * zx[j]
        for j in range(n):
            total += frame[i, m + j] * gx[j]
        out[i] = total


@njit(cache=True, nogil=True)
def add_mixed(scale, v, frame, m, n, b, e):
    """w += scale * (L [Z'; X])'v."""
    for i in range(m):
        f = scale * v[i]
        for j in range(m):
            b[j] += f * frame[i, j]
        for j in range(n):
            e[j] += f * frame[i, m + j]


@njit(cache=True, nogil=True)
def mixed_solve(bx, x_square, alpha, oja, small, lam, steps):
    """(M B x, x'H^-1 x) for B with K = small (random projection), or B = (steps lam)^(1/2) V, bx = V x (Oja)."""
    m = len(lam)
    h = x_square
    if oja:
        y = np.empty(m)
        for i in range(m):
            square = steps * lam[i]
            y[i] = square * bx[i] / (square + alpha)  # as a combination of rows of V
            h -= bx[i] * y[i]
        return y, max(h / alpha, 0.0)
    k = small.copy()
    for i in range(m):
        k[i, i] += alpha
    y = np.linalg.solve(k, bx)
    for i in range(m):
        h -= bx[i] * y[i]
    return y, max(h / alpha, 0.0)


@njit(cache=True, nogil=True)
def mixed_round(
    x_square, base_x, zx, gx, y, weight, loss, constraint, oja, rho, frame, small, lam, b, e, scalar, count
):
    """One example for sketches whose rows all change every round: B = L [Z'; X], L = frame dense.

    Random projection: B += rho (a g)'. Oja, s-th gradient: lam = (1 - 1/s) lam + (V a g)^2 / s, V += (V a g)(a g)' / s,
    made orthonormal; B = (s lam)^(1/2) V. Returns as one_round; FULL becomes 1 when X is full.
    """
    m, n = len(lam), count[ROWS]
    z = base_x
    for j in range(m):
        z += zx[j] * b[j]
    for j in range(n):
        z += gx[j] * e[j]
    if not np.isfinite(z):
        count[FULL] = -1
        return z, 0.0
    alpha, extra = scalar[ALPHA], 0.0
    bx = np.empty(m)
    mixed_times(frame, m, n, zx, gx, bx)
    over = excess(z)
    if constraint in (NEXT, BOTH) and over != 0.0:
        v, h = mixed_solve(bx, x_square, alpha, oja, small, lam, count[APPENDED])
        if h > 0.0:
            add_mixed(over / (h * alpha), v, frame, m, n, b, e)
            extra = -over / (h * alpha)
            z = np.sign(z)
    value, slope, _ = value_slope_curvature(loss, 1.0, z, y)
    value, slope = weight * value, weight * slope
    if not (np.isfinite(slope) and np.isfinite(slope * slope * x_square)):
        count[FULL] = -1
        return z, extra
    scalar[LOSS] += value
    count[ROUND] += 1
    if z * y <= 0:
        count[MISTAKES] += 1
    if abs(slope) <= FLAT or x_square == 0.0:
        return z, extra
    c = np.sqrt(MU + 1.0 / count[ROUND]) * slope
    count[APPENDED] += 1
    count[ROWS] = n + 1
    gx[n], e[n] = x_square, 0.0
    if oja:
        s = count[APPENDED]
        kappa = 2.0 / s + c * c * x_square / (s * s)
        gram = np.eye(m)
        for i in range(m):
            inner = c * bx[i]
            lam[i] = (1.0 - 1.0 / s) * lam[i] + inner * inner / s
            frame[i, m + n] = c * inner / s
            for j in range(m):
                gram[i, j] += kappa * inner * c * bx[j]
        lower = np.linalg.cholesky(gram)
        for i in range(m):
            for j in range(i):
                for k in range(m + n + 1):
                    frame[i, k] -= lower[i, j] * frame[j, k]
            for k in range(m + n + 1):
                frame[i, k] /= lower[i, i]
        mixed_times(frame, m, n + 1, zx, gx, bx)
    else:
        for i in range(m):
            for j in range(m):
                small[i, j] += c * (rho[i] * bx[j] + bx[i] * rho[j]) + c * c * x_square * rho[i] * rho[j]
        for i in range(m):
            frame[i, m + n] = c * rho[i]
            bx[i] += c * x_square * rho[i]
    v, h = mixed_solve(bx, x_square, alpha, oja, small, lam, count[APPENDED])
    step = -slope
    if constraint in (CURRENT, BOTH):
        over = excess(z - slope * h)
        if over != 0.0 and h > 0.0:
            step -= over / h
    add_mixed(-step / alpha, v, frame, m, n + 1, b, e)
    e[n] += step / alpha
    if n + 1 == len(e):
        count[FULL] = 1
    return z, extra


@njit(cache=True, nogil=True)
def mixed_settle(oja, gram, frame, small, b, e, count):
    """After Z has become L [Z'; X]: its Gram matrix is K; Oja's is the identity, whose rounding `frame` takes away."""
    m = len(gram)
    frame[:, :], b[:], e[:] = 0.0, 0.0, 0.0
    if oja:
        frame[:, :m] = np.linalg.inv(np.linalg.cholesky(gram))
    else:
        small[:, :] = gram
        for i in range(m):
            frame[i, i] = 1.0
    count[ROWS], count[FULL] = 0, 0


@njit(cache=True, nogil=True)
def add_rows(data, indices, indptr, n, factors, out):
    """out += X' factors: n rows of CSR, factors (n,) into out (d,)."""
    for i in range(n):
        w = factors[i]
        for p in range(indptr[i], indptr[i + 1]):
            out[indices[p]] += w * data[p]


@njit(cache=True, nogil=True)
def add_rows_block(data, indices, indptr, n, factors, r, out):
    """out[:, :r] += X' factors' with factors (at least r, at least n)."""
    row = np.empty(r)
    for i in range(n):
        for j in range(r):
            row[j] = factors[j, i]
        for p in range(indptr[i], indptr[i + 1]):
            value, place = data[p], indices[p]
            for j in range(r):
                out[place, j] += value * row[j]


@njit(cache=True, nogil=True)
def new_frame(turn, frame, factors, r, n, rank):
    """N1 F and N2 C: B after a shrink is (N1 F) Z' + (N2 C) X."""
    moved, mix = np.zeros((rank, r)), np.empty((rank, n))
    for i in range(rank):
        for j in range(r):
            for k in range(r):
                moved[i, k] += turn[i, j] * frame[j, k]
        for j in range(n):
            mix[i, j] = turn[i, r + j] * factors[j]
    return moved, mix


@njit(cache=True, nogil=True)
def settle(rank, factors, e, count):
    """No rows since the last shrink."""
    factors[:], e[:] = 0.0, 0.0
    count[RANK], count[ROWS], count[FULL] = rank, 0, 0


@njit(cache=True, nogil=True)
def inverted(a):
    """(whether a is regular, its inverse), by Gauss and Jordan with row pivots; a singular matrix raises nothing."""
    n = len(a)
    left, right = a.copy(), np.eye(n)
    least = np.abs(a).max() * 1e-14
    for i in range(n):
        pivot = i
        for j in range(i + 1, n):
            if abs(left[j, i]) > abs(left[pivot, i]):
                pivot = j
        if not abs(left[pivot, i]) > least:
            return False, right
        for k in range(n):
            left[i, k], left[pivot, k] = left[pivot, k], left[i, k]
            right[i, k], right[pivot, k] = right[pivot, k], right[i, k]
        f = 1.0 / left[i, i]
        for k in range(n):
            left[i, k] *= f
            right[i, k] *= f
        for j in range(n):
            if j != i and left[j, i] != 0.0:
                f = left[j, i]
                for k in range(n):
                    left[j, k] -= f * left[i, k]
                    right[j, k] -= f * right[i, k]
    return True, right


@njit(cache=True, nogil=True)
def shrink_sparse(base, z, kept_data, kept_indices, kept_indptr, frame, factors, b, e, turn, count):
    """Z takes the new rows in, touching nonzeros only, where F stays well-conditioned; else it is recomputed."""
    r, n, rank = count[RANK], count[ROWS], count[FULL] - 1
    moved, mix = new_frame(turn, frame, factors, r, n, rank)
    frame[:, :] = 0.0
    if rank == r and rank > 0:
        regular, back_again = inverted(moved)
        if regular and np.sqrt((moved * moved).sum() * (back_again * back_again).sum()) < MOST_CONDITION:
            # (N1 F) Z' + (N2 C) X = F_new (Z' + S X)
            s = back_again @ mix
            add_rows_block(kept_data, kept_indices, kept_indptr, n, s, r, z)
            for j in range(n):
                for i in range(r):
                    e[j] -= s[i, j] * b[i]
            add_rows(kept_data, kept_indices, kept_indptr, n, e, base)
            frame[:rank, :rank] = moved
            settle(rank, factors, e, count)
            return
    m = z.shape[1]
    if r > 0:
        base += np.dot(z, b[:m])
        turned = np.zeros((m, m))
        turned[:r, :rank] = moved.T
        z[:, :] = np.dot(z, turned)
    add_rows(kept_data, kept_indices, kept_indptr, n, e, base)
    add_rows_block(kept_data, kept_indices, kept_indptr, n, mix, rank, z)
    b[:] = 0.0
    for i in range(rank):
        frame[i, i] = 1.0
    settle(rank, factors, e, count)


@njit(cache=True, nogil=True)
def products(data, indices, start, stop, base, z, r, kept_data, kept_indices, kept_indptr, n, work, zx, gx):
    """(x'x, base'x), zx = Z'x and gx = X x for one sparse row x; work: d zeros, left as they were."""
    x_square, base_x = 0.0, 0.0
    zx[:r] = 0.0
    for p in range(start, stop):
        value, place = data[p], indices[p]
        x_square += value * value
        base_x += value * base[place]
        work[place] = value
        for j in range(r):
            zx[j] += value * z[place, j]
    for row in range(n):
        total = 0.0
        for p in range(kept_indptr[row], kept_indptr[row + 1]):
            total += kept_data[p] * work[kept_indices[p]]
        gx[row] = total
    for p in range(start, stop):
        work[indices[p]] = 0.0
    return x_square, base_x


@njit(cache=True, nogil=True)
def keep_row(data, indices, start, stop, kept_data, kept_indices, kept_indptr, n):
    """Row n of X = one sparse row."""
    at = kept_indptr[n]
    for p in range(start, stop):
        kept_data[at], kept_indices[at] = data[p], indices[p]
        at += 1
    kept_indptr[n + 1] = at


@njit(cache=True, nogil=True)
def sparse_rounds(
    data,
    indices,
    indptr,
    targets,
    sample_weight,
    loss,
    constraint,
    m,
    spared,
    alpha_grows,
    base,
    z,
    kept_data,
    kept_indices,
    kept_indptr,
    work,
    frame,
    factors,
    small,
    inverse,
    b,
    e,
    turn,
    zx,
    gx,
    scalar,
    count,
    scores,
):
    """All CSR rows. z (d, m) holds Z; kept_*: the rows X, with room for 2 m of the longest; work: d zeros."""
    for i in range(len(indptr) - 1):
        start, stop = indptr[i], indptr[i + 1]
        r, n = count[RANK], count[ROWS]
        x_square, base_x = products(
            data, indices, start, stop, base, z, r, kept_data, kept_indices, kept_indptr, n, work, zx, gx
        )
        score, extra = one_round(
            x_square,
            base_x,
            zx,
            gx,
            targets[i],
            sample_weight[i],
            loss,
            constraint,
            m,
            spared,
            alpha_grows,
            frame,
            factors,
            small,
            inverse,
            b,
            e,
            turn,
            scalar,
            count,
        )
        scores[i] = score
        if count[FULL] < 0:
            return
        if extra != 0.0:
            for p in range(start, stop):
                base[indices[p]] += extra * data[p]
        if count[ROWS] > n:
            keep_row(data, indices, start, stop, kept_data, kept_indices, kept_indptr, n)
        if count[FULL]:
            shrink_sparse(base, z, kept_data, kept_indices, kept_indptr, frame, factors, b, e, turn, count)


@njit(cache=True, nogil=True)
def mixed_sparse_rounds(
    data,
    indices,
    indptr,
    targets,
    sample_weight,
    loss,
    constraint,
    oja,
    rho,
    base,
    z,
    kept_data,
    kept_indices,
    kept_indptr,
    work,
    frame,
    small,
    lam,
    b,
    e,
    zx,
    gx,
    scalar,
    count,
    scores,
):
    """All CSR rows by mixed_round; z (d, m) holds Z, rho (rows, m) the random numbers of a projection."""
    m = len(lam)
    for i in range(len(indptr) - 1):
        start, stop, n = indptr[i], indptr[i + 1], count[ROWS]
        x_square, base_x = products(
            data, indices, start, stop, base, z, m, kept_data, kept_indices, kept_indptr, n, work, zx, gx
        )
        score, extra = mixed_round(
            x_square,
            base_x,
            zx,
            gx,
            targets[i],
            sample_weight[i],
            loss,
            constraint,
            oja,
            rho[i],
            frame,
            small,
            lam,
            b,
            e,
            scalar,
            count,
        )
        scores[i] = score
        if count[FULL] < 0:
            return
        if extra != 0.0:
            for p in range(start, stop):
                base[indices[p]] += extra * data[p]
        if count[ROWS] > n:
            keep_row(data, indices, start, stop, kept_data, kept_indices, kept_indptr, n)
        if count[FULL]:
            n = count[ROWS]
            base += np.dot(z, b)
            add_rows(kept_data, kept_indices, kept_indptr, n, e, base)
            z[:, :] = np.dot(z, np.ascontiguousarray(frame[:, :m].T))
            add_rows_block(kept_data, kept_indices, kept_indptr, n, frame[:, m:], m, z)
            mixed_settle(oja, np.dot(z.T, z), frame, small, b, e, count)


@njit(cache=True, nogil=True)
def block_products(products, j, r, m, held, places, n, zx, gx):
    """zx, gx of row j of a block from products = [base; Z; X held before; the block] x; returns (x'x, base'x).

    Z has room for m rows in products, X for those `held` when the block began; places: columns of the rows of X.
    """
    for i in range(r):
        zx[i] = products[j, 1 + i]
    for i in range(n):
        gx[i] = products[j, places[i]]
    return products[j, 1 + m + held + j], products[j, 0]


@njit(cache=True, nogil=True)
def mixed_dense_block(
    products,
    rows,
    targets,
    sample_weight,
    loss,
    constraint,
    oja,
    rho,
    base,
    z,
    kept,
    places,
    frame,
    small,
    lam,
    b,
    e,
    zx,
    gx,
    scalar,
    count,
    scores,
):
    """Rows of one block by mixed_round, up to the next rebase; returns how many. z (m, d) holds Z'."""
    m, held = len(lam), count[ROWS]
    for i in range(held):
        places[i] = 1 + m + i
    for i in range(len(rows)):
        n, x = count[ROWS], rows[i]
        x_square, base_x = block_products(products, i, m, m, held, places, n, zx, gx)
        score, extra = mixed_round(
            x_square,
            base_x,
            zx,
            gx,
            targets[i],
            sample_weight[i],
            loss,
            constraint,
            oja,
            rho[i],
            frame,
            small,
            lam,
            b,
            e,
            scalar,
            count,
        )
        scores[i] = score
        if count[FULL] < 0:
            return i
        if extra != 0.0:
            base += extra * x
        if count[ROWS] > n:
            kept[n] = x
            places[n] = 1 + m + held + i
        if count[FULL]:
            base += np.dot(b, z) + np.dot(e, kept)
            z[:, :] = np.dot(np.ascontiguousarray(frame[:, :m]), z) + np.dot(np.ascontiguousarray(frame[:, m:]), kept)
            mixed_settle(oja, np.dot(z, z.T), frame, small, b, e, count)
            return i + 1
    return len(rows)


@njit(cache=True, nogil=True)
def dense_block(
    products,
    rows,
    targets,
    sample_weight,
    loss,
    constraint,
    m,
    spared,
    alpha_grows,
    base,
    z,
    kept,
    places,
    frame,
    factors,
    small,
    inverse,
    b,
    e,
    turn,
    zx,
    gx,
    scalar,
    count,
    scores,
):
    """Rows of one block, up to the next shrink; returns how many. kept (2 m, d) holds X, z (m, d) holds Z'."""
    held = count[ROWS]
    for i in range(held):
        places[i] = 1 + m + i
    for i in range(len(rows)):
        r, n = count[RANK], count[ROWS]
        x = rows[i]
        x_square, base_x = block_products(products, i, r, m, held, places, n, zx, gx)
        score, extra = one_round(
            x_square,
            base_x,
            zx,
            gx,
            targets[i],
            sample_weight[i],
            loss,
            constraint,
            m,
            spared,
            alpha_grows,
            frame,
            factors,
            small,
            inverse,
            b,
            e,
            turn,
            scalar,
            count,
        )
        scores[i] = score
        if count[FULL] < 0:
            return i
        if extra != 0.0:
            base += extra * x
        if count[ROWS] > n:
            kept[n] = x
            places[n] = 1 + m + held + i
        if count[FULL]:
            r, n, rank = count[RANK], count[ROWS], count[FULL] - 1
            moved, mix = new_frame(turn, frame, factors, r, n, rank)
            made = np.dot(mix, kept[:n])
            base += np.dot(e[:n], kept[:n])
            if r:
                base += np.dot(b[:r], z[:r])
                made += np.dot(moved, z[:r])
            z[:rank] = made
            b[:] = 0.0
            frame[:, :] = 0.0
            for j in range(rank):
                frame[j, j] = 1.0
            settle(rank, factors, e, count)
            return i + 1
    return len(rows)


@njit(cache=True, nogil=True)
def full_rounds(rows, targets, sample_weight, loss, constraint, w, inverse, scalar, count, scores):
    """FULL-ON on C-ordered rows: inverse (d, d) is H^-1, changed by one term a round."""
    same = constraint in (CURRENT, BOTH)
    ahead = constraint in (NEXT, BOTH)
    for i in range(len(rows)):
        x = rows[i]
        z = np.dot(w, x)
        if ahead and excess(z) != 0.0:
            q = inverse @ x
            w -= excess(z) / (x @ q) * q
            z = np.sign(z)
        value, slope, _ = value_slope_curvature(loss, 1.0, z, targets[i])
        value, slope = sample_weight[i] * value, sample_weight[i] * slope
        scalar[LOSS] += value
        count[ROUND] += 1
        if z * targets[i] <= 0:
            count[MISTAKES] += 1
        scores[i] = z
        if abs(slope) <= FLAT:
            continue
        q = inverse @ x
        h = x @ q
        if h <= 0.0:
            continue
        c = (MU + 1.0 / count[ROUND]) * slope * slope
        f = 1.0 / (1.0 + c * h)
        for p in range(len(w)):
            for o in range(len(w)):
                inverse[p, o] -= c * f * q[p] * q[o]
        step = -slope * f
        if same:
            over = excess(z - slope * f * h)
            if over != 0.0:
                step -= over / h
        w += step * q
