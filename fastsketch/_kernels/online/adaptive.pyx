"""Rounds of adaptive subgradients whose H = delta I + (S'S)^(1/2) has low rank (ADA-FD, ADA-FFD, ADA-FULL, FD-SON).

S'S = V diag(lam) V' with orthonormal V = C'T. The rows C (at most `cap`) are those that the last rebase left and the
rows of the gradients since; T turns with every gradient, C does not. So a round costs one pass over C, for p = C x, and
work in the small space: y = V'x = T'p, a rank-one change of the eigenvalues (csrc/fs_secular), T <- T W. Only a rebase,
C <- T'C, costs as much as an SVD.

At point k of the grid of (learning rate eta, delta) the model is w = scale (base + Z b) + C'steps. Mirror descent moves
base and steps; dual averaging keeps the sum of gradients in base, scale = -eta / delta.

Rows of C are dense; or C = [F Z'; X] with Z (d x r) feature-major and X sparse, as in _kernels/online/newton, and a round
costs the nonzeros of x. The arrays are those of fastsketch.online._sketched.SketchedState:

    turn (most, cap)    T'                      lam (most,)         descending
    gram (cap, cap)     C C', from the products of the rounds
    base (points, d)    scale (points,)         steps (points, cap)
    inner (points, cap) C v for the v that base stands for: w / scale, or the sum of gradients
    losses (points,)    mistakes (points,)      count: the entries of an adaptive model in online.pxd
"""

cimport cython
from libc.math cimport fabs, sqrt
from libc.stddef cimport ptrdiff_t
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy, memset

from fastsketch._kernels.online.basis cimport (SOME, Basis, add, add_kept_row, add_row, keep_row, recompute, row_dot,
                                        row_products, solve_small, take_in)
from fastsketch._kernels.linalg.blas cimport gemm, gemv
from fastsketch._kernels.level cimport follow
from fastsketch._kernels.losses cimport ABSOLUTE, L1_PENALTY, L2_PENALTY, NO_PENALTY, dot, finite, flat, loss_and_slope
from fastsketch._kernels.online.numbers cimport COUNTS, EVERY_ROUND, OLD, RANK, ROUND, ROWS, TURNS, WHEN_FULL
from fastsketch._kernels.linalg.secular cimport (FS_ROOTS, fs_secular_deflate, fs_secular_roots, fs_secular_vectors_d,
                                          fs_secular_weights)


follow()


cdef enum:
    # why a call returned before its last row
    BAD = -1
    ROOM = -2

cdef double CLEAR = 1e-4         # a row of which a larger share (squared) is new becomes a row of C as it is
cdef double NOISE = 1e-13        # sparse rows: below this share nothing is new, it may be the rounding of y'y
cdef double NEW = 1e-10          # of a residual formed explicitly: the papers' test g' != g, with a guard
cdef Py_ssize_t POLISH = 256     # turns between two corrections of T: each adds a rounding to V'V - I
cdef double SMALLEST_SCALE = 1e-100
cdef double DEFLATE = 1e-40
cdef double LEAST_UPDATE = 1e-280  # of the largest eigenvalue; below it the sums of the equation leave the range
cdef Py_ssize_t PACKED = 256     # columns of C gathered for one product in step_l1


cdef struct Model:
    Py_ssize_t d, tau, most, cap, points, width
    int loss, rule, phi
    bint dual, root, fade
    double strength          # lambda of phi
    const double* eta
    const double* delta
    double* turn
    double* lam
    double* gram
    double* base
    double* scale
    double* steps
    double* inner
    double* losses
    int64_t* mistakes
    int64_t* count
    # rows of C
    double* rows             # dense: (cap, d)
    Basis c                  # sparse
    double* b                # (points, width)
    double* total            # phi = L1_PENALTY, dual: (points, d), the sum of gradients, base being w
    # of the round: filled before it, or scratch; lay_out gives each its size and place
    double* p                # C x
    double* y                # V'x
    double* f
    double* small
    double* secular
    double* slopes
    double* scores
    double* base_x
    int32_t* ints
    double x_square


# -- the small space ---------------------------------------------------------------------------------------------------
cdef void project(Model* s) noexcept nogil:
    # y = T'p
    cdef Py_ssize_t i
    for i in range(s.count[RANK]):
        s.y[i] = dot(s.count[ROWS], s.turn + i * s.cap, s.p)


cdef void add_turned(Model* s, double scale, const double* v, double* out) noexcept nogil:
    # out += scale T v
    cdef Py_ssize_t i
    for i in range(s.count[RANK]):
        add(s.count[ROWS], scale * v[i], s.turn + i * s.cap, out)


cdef void rank_one(Model* s, double weight) noexcept nogil:
    """V diag(lam) V' += weight (V y)(V y)': new lam and T, descending."""
    cdef Py_ssize_t n = s.count[RANK], rows = s.count[ROWS], i, j, k, c, gone, room = s.most + FS_ROOTS
    cdef ptrdiff_t n_turns
    cdef double* d = s.secular
    cdef double* z = d + room
    cdef double* poles = z + room
    cdef double* weights = poles + room
    cdef double* tau = weights + room
    cdef double* v = tau + room
    cdef int32_t* order = s.ints
    cdef int32_t* keep = order + s.most
    cdef int32_t* kind = keep + s.most
    cdef int32_t* pair = kind + s.most
    cdef int32_t* origin = pair + 2 * s.most
    cdef int32_t* place = origin + s.most + FS_ROOTS
    cdef double* vectors = s.small
    cdef double* gathered = vectors + s.most * s.most
    cdef double* made = gathered + s.most * s.cap
    cdef double* givens = made          # 2 n, used before made
    cdef double total = dot(n, s.y, s.y), largest, rho, cosine, sine, one, two, length = sqrt(total)
    if not (total > 0 and weight > 0 and finite(weight * total) and finite(s.lam[0])):
        return
    largest = max(s.lam[0], weight * total)
    rho = weight * total / largest
    if rho < LEAST_UPDATE:
        return
    for i in range(n):
        d[i] = s.lam[i] / largest
        z[i] = s.y[i] / length
        order[i] = <int32_t> (n - 1 - i)
    # next to nothing deflates: small eigenvalues keep their relative precision, which a normwise test would take
    k = fs_secular_deflate(n, n, rho, DEFLATE, d, z, order, keep, kind, pair, givens, &n_turns)
    for i in range(n_turns):
        cosine, sine = givens[2 * i], givens[2 * i + 1]
        for j in range(rows):
            one, two = s.turn[pair[2 * i] * s.cap + j], s.turn[pair[2 * i + 1] * s.cap + j]
            s.turn[pair[2 * i] * s.cap + j] = cosine * one + sine * two
            s.turn[pair[2 * i + 1] * s.cap + j] = cosine * two - sine * one
    for i in range(n):
        kind[i] = 1
    for i in range(k):
        poles[i], weights[i] = d[keep[i]], z[keep[i]]
        place[i] = <int32_t> i
        kind[keep[i]] = 0
        memcpy(gathered + i * s.cap, s.turn + keep[i] * s.cap, rows * sizeof(double))
    for i in range(k, k + FS_ROOTS):
        poles[i], weights[i] = 0, 0
    fs_secular_roots(k, poles, weights, rho, origin, tau)
    fs_secular_weights(k, poles, origin, tau, weights)
    fs_secular_vectors_d(k, 0, k, poles, origin, tau, weights, place, v, vectors)
    # rows of the new T': vectors' @ gathered
    gemm(c'N', c'N', rows, k, k, 1.0, gathered, s.cap, vectors, k, 0.0, made, s.cap)
    # the deflated ones by descending value; then both lists into one
    gone = 0
    for i in range(n):
        if kind[i]:
            j = gone
            while j > 0 and d[order[j - 1]] < d[i]:
                order[j] = order[j - 1]
                j -= 1
            order[j] = <int32_t> i
            gone += 1
    for i in range(gone):
        memcpy(gathered + i * s.cap, s.turn + order[i] * s.cap, rows * sizeof(double))
    i, c = 0, k - 1
    for j in range(n):
        if c >= 0 and (i == gone or poles[origin[c]] + tau[c] >= d[order[i]]):
            s.lam[j] = largest * max(0.0, poles[origin[c]] + tau[c])
            memcpy(s.turn + j * s.cap, made + c * s.cap, rows * sizeof(double))
            c -= 1
        else:
            s.lam[j] = largest * d[order[i]]
            memcpy(s.turn + j * s.cap, gathered + i * s.cap, rows * sizeof(double))
            i += 1
    s.count[TURNS] += 1


cdef void polish(Model* s) noexcept nogil:
    """T' <- (3/2 I - 1/2 E) T' with E = T'(C C')T = V'V: one Newton step for orthonormality, which squares the error."""
    cdef Py_ssize_t n = s.count[RANK], rows = s.count[ROWS], i
    cdef double* e = s.small
    cdef double* half = e + s.most * s.most
    # half = gram T; e = T'half   (row-major T' is column-major T)
    gemm(c'N', c'N', rows, n, rows, 1.0, s.gram, s.cap, s.turn, s.cap, 0.0, half, s.cap)
    gemm(c'T', c'N', n, n, rows, -0.5, s.turn, s.cap, half, s.cap, 0.0, e, s.most)
    for i in range(n):
        e[i * s.most + i] += 1.5
    gemm(c'N', c'N', rows, n, n, 1.0, s.turn, s.cap, e, s.most, 0.0, half, s.cap)
    for i in range(n):
        memcpy(s.turn + i * s.cap, half + i * s.cap, rows * sizeof(double))
    s.count[TURNS] = 0


cdef void fresh_basis(Model* s) noexcept nogil:
    # C is V': T = I, C C' = I
    cdef Py_ssize_t n = s.count[RANK], i
    memset(s.turn, 0, s.most * s.cap * sizeof(double))
    memset(s.gram, 0, s.cap * s.cap * sizeof(double))
    for i in range(n):
        s.turn[i * s.cap + i] = 1
        s.gram[i * s.cap + i] = 1
    s.count[ROWS] = n


cdef void turn_inner(Model* s) noexcept nogil:
    """inner of the new C from that of the old one, where steps has gone into base."""
    cdef Py_ssize_t k, i
    for k in range(s.points):
        for i in range(s.count[RANK]):
            s.f[i] = dot(s.count[ROWS], s.turn + i * s.cap, s.inner + k * s.cap)
        memcpy(s.inner + k * s.cap, s.f, s.count[RANK] * sizeof(double))


cdef void give_up_steps(Model* s) noexcept nogil:
    """inner += C C'steps / scale: its value once base has taken steps in (mirror descent)."""
    cdef Py_ssize_t k, i
    for k in range(s.points):
        for i in range(s.count[ROWS]):
            s.inner[k * s.cap + i] += dot(s.count[ROWS], s.gram + i * s.cap, s.steps + k * s.cap) / s.scale[k]


# -- C, dense ----------------------------------------------------------------------------------------------------------
cdef void rebase_dense(Model* s) noexcept nogil:
    """C <- T'C, its first RANK rows; base takes steps in."""
    cdef Py_ssize_t n = s.count[RANK], rows = s.count[ROWS], k, i, j, width
    cdef double* made = s.small + s.most * s.most
    # the true C C', without the rounding of the rounds
    gemm(c'T', c'N', rows, rows, s.d, 1.0, s.rows, s.d, s.rows, s.d, 0.0, s.gram, s.cap)
    polish(s)
    if not s.dual:
        give_up_steps(s)
        for k in range(s.points):
            for i in range(rows):
                add(s.d, s.steps[k * s.cap + i] / s.scale[k], s.rows + i * s.d, s.base + k * s.d)
    turn_inner(s)
    memset(s.steps, 0, s.points * s.cap * sizeof(double))
    j = 0
    while j < s.d:
        width = min(s.cap, s.d - j)
        gemm(c'N', c'N', width, n, rows, 1.0, s.rows + j, s.d, s.turn, s.cap, 0.0, made, width)
        for i in range(n):
            memcpy(s.rows + i * s.d + j, made + i * width, width * sizeof(double))
        j += width
    for i in range(n, rows):
        memset(s.rows + i * s.d, 0, s.d * sizeof(double))
    fresh_basis(s)


# -- C = [F Z'; X], sparse ---------------------------------------------------------------------------------------------
cdef void rebase_sparse(Model* s) noexcept nogil:
    """C <- T'C as [F Z'] with new F, touching nonzeros of X only where F stays well-conditioned; else F = I."""
    cdef Py_ssize_t n = s.count[RANK], old = s.count[OLD], fresh = s.count[ROWS] - old, width = s.width, i, j, k
    cdef double* moved = s.small + s.most * s.most       # n x old
    cdef double* mix = moved + s.most * width            # n x (n + fresh)
    cdef double* copy = mix + s.most * (width + s.cap)
    cdef double g
    polish(s)
    if not s.dual:
        give_up_steps(s)
        for k in range(s.points):
            # b += F'steps / scale
            for i in range(old):
                add(old, s.steps[k * s.cap + i] / s.scale[k], s.c.frame + i * width, s.b + k * width)
            for i in range(fresh):
                add_kept_row(&s.c, i, s.steps[k * s.cap + old + i] / s.scale[k], s.base + k * s.d)
    turn_inner(s)
    memset(s.steps, 0, s.points * s.cap * sizeof(double))
    # V' = moved Z' + mix X
    memset(moved, 0, n * old * sizeof(double))
    for i in range(n):
        for j in range(old):
            add(old, s.turn[i * s.cap + j], s.c.frame + j * width, moved + i * old)
    if n == old and n > 0:
        for i in range(n):
            memcpy(mix + i * (n + fresh) + n, s.turn + i * s.cap + old, fresh * sizeof(double))
        if take_in(&s.c, n, fresh, moved, mix, copy):
            # base loses the growth of Z b
            for j in range(fresh):
                for k in range(s.points):
                    g = 0
                    for i in range(n):
                        g += mix[i * (n + fresh) + n + j] * s.b[k * width + i]
                    add_kept_row(&s.c, j, -g, s.base + k * s.d)
            s.c.indptr[0] = 0
            fresh_basis(s)
            return
    recompute(&s.c, n, old, fresh, moved, s.turn + old, s.cap, copy, s.points, s.b, s.base)
    memset(s.b, 0, s.points * width * sizeof(double))
    # F = 3/2 I - 1/2 Z'Z: the computed Z is not exactly orthonormal
    memset(s.c.frame, 0, width * width * sizeof(double))
    gemm(c'N', c'T', n, n, s.d, -0.5, s.c.z, width, s.c.z, width, 0.0, s.c.frame, width)
    for i in range(n):
        s.c.frame[i * width + i] += 1.5
    s.count[OLD] = n
    fresh_basis(s)


# -- one round -----------------------------------------------------------------------------------------------------------
cdef bint predict(Model* s, double y, double weight) noexcept nogil:
    """Predictions and slopes of all points, nothing else changed; False if one is not finite."""
    cdef Py_ssize_t k
    cdef double z
    for k in range(s.points):
        z = s.scale[k] * s.base_x[k] + dot(s.count[ROWS], s.steps + k * s.cap, s.p)
        s.scores[k] = z
        loss_and_slope(s.loss, z, y, s.slopes + k)
        s.slopes[k] *= weight
        if not (finite(z) and finite(s.slopes[k] * s.slopes[k] * s.x_square)):
            return False
    return True


cdef void count_losses(Model* s, double y, double weight) noexcept nogil:
    cdef Py_ssize_t k
    cdef double slope
    s.count[ROUND] += 1
    for k in range(s.points):
        s.losses[k] += weight * loss_and_slope(s.loss, s.scores[k], y, &slope)
        s.mistakes[k] += s.scores[k] * y <= 0


cdef inline double sketch_slope(Model* s, double weight) noexcept nogil:
    """The slope that the sketch takes: of the absolute loss it does not depend on w, not even at a tie."""
    return weight if s.loss == ABSOLUTE else s.slopes[0]


cdef inline bint full(Model* s) noexcept nogil:
    return s.rule == WHEN_FULL and s.count[RANK] == 2 * s.tau


cdef bint must_rebase(Model* s) noexcept nogil:
    """Whether C must be rebased before a gradient is added; lam and the rank are then those of the shrunk sketch."""
    cdef Py_ssize_t i, rank = s.count[RANK]
    cdef double least
    if full(s):
        least = s.lam[s.tau - 1]
        for i in range(s.tau - 1):
            s.lam[i] -= least
        memset(s.lam + s.tau - 1, 0, (s.most - s.tau + 1) * sizeof(double))
        s.count[RANK] = s.tau - 1
        return True
    return s.count[ROWS] == s.cap and rank < s.cap


cdef void new_direction(Model* s, double rest, bint unit) noexcept nogil:
    """C has a new row: x itself, of which sqrt(rest) is new (unit: the new direction itself); p has its product."""
    cdef Py_ssize_t rank = s.count[RANK], rows = s.count[ROWS], i
    cdef double* t = s.turn + rank * s.cap
    memset(t, 0, s.cap * sizeof(double))
    if unit:
        t[rows] = 1
    else:
        # T gets the column [-T y; 1] / sqrt(rest)
        for i in range(rank):
            add(rows, -s.y[i] / rest, s.turn + i * s.cap, t)
        t[rows] = 1 / rest
    for i in range(rank):
        s.turn[i * s.cap + rows] = 0
    s.y[rank] = rest
    s.lam[rank] = 0
    s.count[RANK] = rank + 1
    s.count[ROWS] = rows + 1


cdef void border(Model* s, const double* products, double corner) noexcept nogil:
    """gram for a row of C that is to come, with inner and steps."""
    cdef Py_ssize_t rows = s.count[ROWS], i, k
    for i in range(rows):
        s.gram[rows * s.cap + i] = s.gram[i * s.cap + rows] = products[i]
    s.gram[rows * s.cap + rows] = corner
    for k in range(s.points):
        s.steps[k * s.cap + rows] = 0


cdef inline double share(Model* s, double lam, double delta) noexcept nogil:
    # of H^-1 = (I - V diag(share) V') / delta
    cdef double root = sqrt(lam) if s.root else lam
    return root / (delta + root)


cdef void sketch(Model* s, double a) noexcept nogil:
    """S'S gets the gradient a x, whose y = V'x is complete; y is then that of the new V."""
    cdef Py_ssize_t rank = s.count[RANK], i
    cdef double least
    rank_one(s, a * a / sqrt(<double> s.count[ROUND]) if s.fade else a * a)
    if s.rule == EVERY_ROUND and rank == s.tau:
        least = s.lam[rank - 1]
        for i in range(rank):
            s.lam[i] -= least
        s.count[RANK] = rank - 1
    if s.count[TURNS] >= POLISH:
        polish(s)
    project(s)


cdef void step(Model* s) noexcept nogil:
    """w moves; x itself goes to base by the caller, times slopes[k]."""
    cdef Py_ssize_t k, i, rows = s.count[ROWS], rank = s.count[RANK]
    cdef double a, eta, delta, ratio
    for k in range(s.points):
        eta, a = s.eta[k], s.slopes[k]
        if s.dual:
            # inner = C sum of gradients; steps = (eta / delta_t) T diag(share) T'inner
            add(rows, a, s.p, s.inner + k * s.cap)
            delta = s.delta[k] + (eta * s.strength * s.count[ROUND] if s.phi == L2_PENALTY else 0)
            s.scale[k] = -eta / delta
            memset(s.steps + k * s.cap, 0, s.cap * sizeof(double))
            for i in range(rank):
                s.f[i] = share(s, s.lam[i], delta) * dot(rows, s.turn + i * s.cap, s.inner + k * s.cap)
            add_turned(s, eta / delta, s.f, s.steps + k * s.cap)
            continue
        if s.phi == L2_PENALTY:
            # w -= (I - V share V')(eta g + ratio delta w) / delta, delta + eta lambda in H
            delta = s.delta[k] + eta * s.strength
            ratio = eta * s.strength / delta
            # C w = scale inner + gram steps, into f after the first `most`
            for i in range(rows):
                s.f[s.most + i] = (ratio * (s.scale[k] * s.inner[k * s.cap + i]
                                            + dot(rows, s.gram + i * s.cap, s.steps + k * s.cap))
                                   + eta / delta * a * s.p[i])
            for i in range(rank):
                s.f[i] = share(s, s.lam[i], delta) * dot(rows, s.turn + i * s.cap, s.f + s.most)
            for i in range(rows):
                s.steps[k * s.cap + i] *= 1 - ratio
            add_turned(s, 1.0, s.f, s.steps + k * s.cap)
            s.scale[k] *= 1 - ratio
            s.slopes[k] = -eta / delta * a / s.scale[k]
            add(rows, s.slopes[k], s.p, s.inner + k * s.cap)
            continue
        delta = s.delta[k]
        for i in range(rank):
            s.f[i] = share(s, s.lam[i], delta) * s.y[i]
        add_turned(s, eta / delta * a, s.f, s.steps + k * s.cap)
        s.slopes[k] = -eta / delta * a
        add(rows, s.slopes[k], s.p, s.inner + k * s.cap)


cdef bint idle(Model* s, double weight) noexcept nogil:
    """Whether a round changes nothing: no gradient, no regulariser that pulls, no shrink that w is to follow."""
    return s.phi == NO_PENALTY and (flat(sketch_slope(s, weight)) or s.x_square == 0) and not (s.dual and full(s))


# -- phi = strength |w|_1: w is base itself ------------------------------------------------------------------------------
cdef void turned_down(Model* s, const double* v, const double* root, double* out) noexcept nogil:
    # out = A v for A = diag(root) V' (rank, d); the second half of f is scratch
    cdef double* p = s.f + s.most
    cdef Py_ssize_t i
    gemv(c'T', s.d, s.count[ROWS], 1.0, s.rows, s.d, v, 0.0, p)
    for i in range(s.count[RANK]):
        out[i] = root[i] * dot(s.count[ROWS], s.turn + i * s.cap, p)


cdef double l1_dual(Model* s, const double* alpha, const double* root, const double* start,
                    const double* aw, double delta, double bound, double* u, double* w, double* gap) noexcept nogil:
    """u = start - A'alpha / delta, w = soft(u, bound), gap = alpha + aw - A w, the gradient of the value returned."""
    cdef Py_ssize_t i, rank = s.count[RANK], rows = s.count[ROWS]
    cdef double* p = s.f + s.most
    cdef double value = 0, total = 0
    memset(p, 0, rows * sizeof(double))
    for i in range(rank):
        add(rows, -root[i] * alpha[i] / delta, s.turn + i * s.cap, p)
    memcpy(u, start, s.d * sizeof(double))
    if rows:
        gemv(c'N', s.d, rows, 1.0, s.rows, s.d, p, 1.0, u)
    for i in range(s.d):
        w[i] = u[i] - bound if u[i] > bound else u[i] + bound if u[i] < -bound else 0.0
        total += w[i] * w[i]
    turned_down(s, w, root, gap)
    for i in range(rank):
        gap[i] = alpha[i] + aw[i] - gap[i]
        value += alpha[i] * (0.5 * alpha[i] + aw[i])
    return value + 0.5 * delta * total


cdef void step_l1(Model* s, Py_ssize_t k, const double* x, double* space) noexcept nogil:
    """w <- argmin <g, w> + bound delta |w|_1 + |w - w0|_H^2 / 2 by Newton steps on its dual of RANK variables.

    With H = delta I + A'A the dual is smooth, convex and piecewise quadratic (Becker and Fadili 2012); its gradient is
    brought below 1e-12 of its terms. space: 3 d + 6 most + PACKED cap.
    """
    cdef Py_ssize_t i, j, c, rank = s.count[RANK], rows = s.count[ROWS], _turn, _tries, filled
    cdef double eta = s.eta[k], delta = s.delta[k], bound = eta * s.strength / delta, most, value, trial, slope, t
    cdef double* w0 = s.base + k * s.d
    cdef double* start = space
    cdef double* u = start + s.d
    cdef double* w = u + s.d
    cdef double* root = w + s.d
    cdef double* alpha = root + s.most
    cdef double* aw = alpha + s.most
    cdef double* gap = aw + s.most
    cdef double* move = gap + s.most
    cdef double* other = move + s.most
    cdef double* pack = other + s.most
    cdef double* active = s.small                       # rows x rows
    cdef double* half = active + s.cap * s.cap          # rank x rows
    cdef double* jacobian = half + s.most * s.cap       # rank x rank
    for i in range(rank):
        root[i] = sqrt(sqrt(s.lam[i]) if s.root else s.lam[i])
    if s.dual:
        # from zero with the sum of gradients; the last w is where to begin
        add(s.d, s.slopes[k], x, s.total + k * s.d)
        for i in range(s.d):
            start[i] = -eta / delta * s.total[k * s.d + i]
        bound *= s.count[ROUND]
        turned_down(s, w0, root, alpha)
        memset(aw, 0, rank * sizeof(double))
    else:
        memcpy(start, w0, s.d * sizeof(double))
        add(s.d, -eta / delta * s.slopes[k], x, start)
        turned_down(s, w0, root, aw)
        memset(alpha, 0, rank * sizeof(double))
    value = l1_dual(s, alpha, root, start, aw, delta, bound, u, w, gap)
    for _turn in range(60):
        most, trial = 1.0, 0.0
        for i in range(rank):
            most = max(most, max(fabs(alpha[i]), fabs(aw[i])))
            trial = max(trial, fabs(gap[i]))
        if trial <= 1e-12 * most:
            break
        # J = I + diag(root) T' (C_D C_D') T diag(root) / delta, D: the nonzeros of w
        memset(active, 0, rows * s.cap * sizeof(double))
        c = 0
        while c < s.d:
            filled = 0
            while c < s.d and filled < PACKED:
                if w[c] != 0:
                    for i in range(rows):
                        pack[filled * s.cap + i] = s.rows[i * s.d + c]
                    filled += 1
                c += 1
            gemm(c'N', c'T', rows, rows, filled, 1.0, pack, s.cap, pack, s.cap, 1.0, active, s.cap)
        gemm(c'N', c'N', rows, rank, rows, 1.0, active, s.cap, s.turn, s.cap, 0.0, half, s.cap)
        gemm(c'T', c'N', rank, rank, rows, 1.0 / delta, s.turn, s.cap, half, s.cap, 0.0, jacobian, rank)
        slope = 0
        for i in range(rank):
            for j in range(rank):
                jacobian[i * rank + j] *= root[i] * root[j]
            jacobian[i * rank + i] += 1
            move[i] = -gap[i]
        if not solve_small(rank, jacobian, move, 1):
            break
        for i in range(rank):
            slope += gap[i] * move[i]
        t = 1
        for _tries in range(40):
            for i in range(rank):
                other[i] = alpha[i] + t * move[i]
            trial = l1_dual(s, other, root, start, aw, delta, bound, u, w, gap)
            if trial <= value + 1e-4 * t * slope or fabs(t * slope) <= 1e-15 * fabs(value):
                break
            t *= 0.5
        memcpy(alpha, other, rank * sizeof(double))
        value = trial
    memcpy(w0, w, s.d * sizeof(double))


# -- the loops -----------------------------------------------------------------------------------------------------------
cdef void explicit_dense(Model* s, const double* x, double* v) noexcept nogil:
    """The new part of x, orthonormalised twice, becomes a row of C if it is more than rounding."""
    cdef Py_ssize_t rows = s.count[ROWS], rank = s.count[RANK], i, k, _again
    cdef double* p = s.f + s.most
    cdef double size
    memcpy(v, x, s.d * sizeof(double))
    for _again in range(2):
        for i in range(rows):
            p[i] = dot(s.d, s.rows + i * s.d, v)
        memset(s.small, 0, rows * sizeof(double))
        for i in range(rank):
            add(rows, dot(rows, s.turn + i * s.cap, p), s.turn + i * s.cap, s.small)
        for i in range(rows):
            add(s.d, -s.small[i], s.rows + i * s.d, v)
    size = sqrt(dot(s.d, v, v))
    if not size > NEW * sqrt(s.x_square):
        return
    for i in range(s.d):
        v[i] /= size
    for i in range(rows):
        p[i] = dot(s.d, s.rows + i * s.d, v)
    border(s, p, dot(s.d, v, v))
    for k in range(s.points):
        s.inner[k * s.cap + rows] = dot(s.d, s.base + k * s.d, v)
    s.p[rows] = dot(s.d, v, x)
    memcpy(s.rows + rows * s.d, v, s.d * sizeof(double))
    new_direction(s, s.p[rows], True)


cdef Py_ssize_t dense_loop(Model* s, Py_ssize_t n, const double* x, const double* targets, const double* sample_weight,
                           double* v, double* scores) noexcept nogil:
    cdef Py_ssize_t i, k, j, rows
    cdef double rest
    cdef bint moving
    for i in range(n):
        rows = s.count[ROWS]
        s.x_square = dot(s.d, x, x)
        if rows:
            gemv(c'T', s.d, rows, 1.0, s.rows, s.d, x, 0.0, s.p)
        for k in range(s.points):
            s.base_x[k] = dot(s.d, s.base + k * s.d, x)
        if not predict(s, targets[i], sample_weight[i]):
            return i
        scores[i] = s.scores[0]
        count_losses(s, targets[i], sample_weight[i])
        moving = not flat(sketch_slope(s, sample_weight[i])) and s.x_square > 0
        if not idle(s, sample_weight[i]):
            if (moving or full(s)) and must_rebase(s):
                rebase_dense(s)
                gemv(c'T', s.d, s.count[ROWS], 1.0, s.rows, s.d, x, 0.0, s.p)
                for k in range(s.points):
                    s.base_x[k] = dot(s.d, s.base + k * s.d, x)
            if moving:
                project(s)
                rows = s.count[ROWS]
                if s.count[RANK] < s.most:
                    rest = s.x_square - dot(s.count[RANK], s.y, s.y)
                    if rest > CLEAR * s.x_square:
                        border(s, s.p, s.x_square)
                        for k in range(s.points):
                            s.inner[k * s.cap + rows] = s.base_x[k]
                        s.p[rows] = s.x_square
                        memcpy(s.rows + rows * s.d, x, s.d * sizeof(double))
                        new_direction(s, sqrt(rest), False)
                    else:
                        explicit_dense(s, x, v)
                sketch(s, sketch_slope(s, sample_weight[i]))
            if s.phi == L1_PENALTY:
                for k in range(s.points):
                    step_l1(s, k, x, v)
                x += s.d
                continue
            step(s)
            for k in range(s.points):
                if s.slopes[k] != 0:
                    add(s.d, s.slopes[k], x, s.base + k * s.d)
                if not s.dual and s.scale[k] < SMALLEST_SCALE:
                    for j in range(s.d):
                        s.base[k * s.d + j] *= s.scale[k]
                    for j in range(s.count[ROWS]):
                        s.inner[k * s.cap + j] *= s.scale[k]
                    s.scale[k] = 1
        x += s.d
    return n


cdef bint explicit_sparse(Model* s, const double* values, const int32_t* places, Py_ssize_t nonzeros) noexcept nogil:
    """As explicit_dense; False, with nothing changed, where X has no room for it."""
    cdef Py_ssize_t rows = s.count[ROWS], old = s.count[OLD], rank = s.count[RANK], i, j, c, k, again
    cdef int64_t used = s.c.indptr[rows - old], q
    cdef double* v = s.c.work
    cdef double* p = s.f + s.most
    cdef double* g = s.small
    cdef double size, total
    if used + s.d > s.c.room:
        return False
    for i in range(nonzeros):
        v[places[i]] = values[i]
    for again in range(3):
        # p = C v: twice for the residual, once for the gram matrix
        memset(g, 0, old * sizeof(double))
        for c in range(s.d):
            if v[c] != 0:
                add(old, v[c], s.c.z + c * s.width, g)
        for i in range(old):
            p[i] = dot(old, s.c.frame + i * s.width, g)
        for j in range(rows - old):
            total = 0
            for q in range(s.c.indptr[j], s.c.indptr[j + 1]):
                total += s.c.data[q] * v[s.c.indices[q]]
            p[old + j] = total
        if again == 2:
            break
        # v -= C'T T'p
        memset(g, 0, rows * sizeof(double))
        for i in range(rank):
            add(rows, dot(rows, s.turn + i * s.cap, p), s.turn + i * s.cap, g)
        memset(g + rows, 0, old * sizeof(double))
        for i in range(old):
            add(old, g[i], s.c.frame + i * s.width, g + rows)
        if old:
            for c in range(s.d):
                v[c] -= dot(old, s.c.z + c * s.width, g + rows)
        for j in range(rows - old):
            add_kept_row(&s.c, j, -g[old + j], v)
    size = sqrt(dot(s.d, v, v))
    if size > NEW * sqrt(s.x_square):
        for i in range(rows):
            p[i] /= size
        border(s, p, 1.0)
        for c in range(s.d):
            if v[c] != 0:
                s.c.data[used], s.c.indices[used] = v[c] / size, <int32_t> c
                used += 1
        s.c.indptr[rows - old + 1] = used
        total = 0
        for i in range(nonzeros):
            total += values[i] * v[places[i]]
        s.p[rows] = total / size
        for k in range(s.points):
            total = 0
            for c in range(s.d):
                total += v[c] * (s.base[k * s.d + c] + dot(old, s.c.z + c * s.width, s.b + k * s.width))
            s.inner[k * s.cap + rows] = total / size
        new_direction(s, s.p[rows], True)
    memset(v, 0, s.d * sizeof(double))
    return True


cdef void sparse_products(Model* s, const double* values, const int32_t* places, Py_ssize_t nonzeros) noexcept nogil:
    """p = C x, x_square and base_x of a sparse row."""
    cdef Py_ssize_t old = s.count[OLD], i, k
    cdef double* g = s.small
    s.x_square = row_products(&s.c, old, s.count[ROWS] - old, values, places, nonzeros, g, s.p + old)
    for i in range(old):
        s.p[i] = dot(old, s.c.frame + i * s.width, g)
    for k in range(s.points):
        s.base_x[k] = row_dot(dot(old, s.b + k * s.width, g), values, places, nonzeros, s.base + k * s.d)


cdef Py_ssize_t sparse_loop(Model* s, Py_ssize_t first, Py_ssize_t n, const double* data, const int32_t* indices,
                            const int64_t* indptr, const double* targets, const double* sample_weight,
                            double* scores, int* why) noexcept nogil:
    cdef Py_ssize_t i, k, j, rows, nonzeros
    cdef int64_t used
    cdef double rest
    cdef bint moving, quiet
    cdef const double* values
    cdef const int32_t* places
    for i in range(first, n):
        values, places, nonzeros = data + indptr[i], indices + indptr[i], indptr[i + 1] - indptr[i]
        sparse_products(s, values, places, nonzeros)
        if not predict(s, targets[i], sample_weight[i]):
            why[0] = BAD
            return i
        moving = not flat(sketch_slope(s, sample_weight[i])) and s.x_square > 0
        quiet = idle(s, sample_weight[i])
        if not quiet and (moving or full(s)) and must_rebase(s):
            rebase_sparse(s)
            sparse_products(s, values, places, nonzeros)
        if moving:
            project(s)
            rows = s.count[ROWS]
            used = s.c.indptr[rows - s.count[OLD]]
            if s.count[RANK] < s.most:
                rest = s.x_square - dot(s.count[RANK], s.y, s.y)
                if rest > CLEAR * s.x_square:
                    if used + nonzeros > s.c.room:
                        why[0] = ROOM
                        return i
                    border(s, s.p, s.x_square)
                    for k in range(s.points):
                        s.inner[k * s.cap + rows] = s.base_x[k]
                    s.p[rows] = s.x_square
                    keep_row(&s.c, rows - s.count[OLD], values, places, nonzeros)
                    new_direction(s, sqrt(rest), False)
                elif rest > NOISE * s.x_square:
                    if not explicit_sparse(s, values, places, nonzeros):
                        why[0] = ROOM
                        return i
        scores[i] = s.scores[0]
        count_losses(s, targets[i], sample_weight[i])
        if quiet:
            continue
        if moving:
            sketch(s, sketch_slope(s, sample_weight[i]))
        step(s)
        for k in range(s.points):
            if s.slopes[k] != 0:
                add_row(s.slopes[k], values, places, nonzeros, s.base + k * s.d)
            if not s.dual and s.scale[k] < SMALLEST_SCALE:
                for j in range(s.d):
                    s.base[k * s.d + j] *= s.scale[k]
                for j in range(s.width):
                    s.b[k * s.width + j] *= s.scale[k]
                for j in range(s.count[ROWS]):
                    s.inner[k * s.cap + j] *= s.scale[k]
                s.scale[k] = 1
    return n


# -- the door ------------------------------------------------------------------------------------------------------------
cdef struct Sizes:
    Py_ssize_t doubles, integers


cdef Sizes lay_out(Model* s, double* doubles, int32_t* integers, Py_ssize_t points) noexcept nogil:
    """Give every workspace its place in two arrays; returns their sizes."""
    cdef Sizes used
    cdef Py_ssize_t at = 0
    s.p = doubles + at
    at += s.cap + 1
    s.y = doubles + at
    at += s.most + 1
    # for the directions, then for the rows of C
    s.f = doubles + at
    at += s.most + s.cap + 1
    # rank_one: d, z, poles, weights, tau, v
    s.secular = doubles + at
    at += 6 * (s.most + FS_ROOTS)
    s.slopes = doubles + at
    at += points
    s.scores = doubles + at
    at += points
    s.base_x = doubles + at
    at += points
    s.small = doubles + at
    # the largest of rank_one: vectors, gathered, made (polish and the rebases need less); step_l1: active, half,
    # jacobian; rebase_sparse: one square, moved, mix, copy
    at += 64 + max(s.most * (s.most + 2 * s.cap), s.cap * s.cap + s.most * (s.most + s.cap),
                   s.most * (s.most + 2 * s.width + s.cap + max(s.most, SOME)))
    used.doubles = at
    # rank_one: order, keep, kind, pair (twice as long), origin, place
    s.ints = integers
    used.integers = 7 * s.most + 2 * FS_ROOTS
    return used


def space_sizes(most, cap, width, points):
    """Elements of the arrays space (float64) and ints (int32) of a model."""
    cdef Model s
    s.most, s.cap, s.width = most, cap, width
    cdef Sizes sizes = lay_out(&s, NULL, NULL, points)
    return sizes.doubles, sizes.integers


def extra_size(d, most, cap, phi):
    """Elements of the array extra of a model with dense rows: one row, or the workspace of step_l1."""
    return 3 * d + 6 * most + PACKED * cap if phi == L1_PENALTY else d


@cython.auto_pickle(False)
cdef class Rounds:
    """The arrays of a SketchedState as its rounds take them, good until one of them is replaced.

    state: of fastsketch.online._sketched, whose fields are read here by name; setting: a SketchedSetting. A state with
    dense rows needs `total` for phi = L1_PENALTY in the dual form.
    """

    cdef Model s
    cdef double* extra
    cdef list arrays             # whose memory the pointers point to

    def __init__(self, state, setting):
        cdef Model* s = &self.s
        cdef double[:, ::1] turn = state.turn, gram = state.gram, base = state.base, steps = state.steps
        cdef double[:, ::1] inner = state.inner
        cdef double[::1] lam = state.lam, scale = state.scale, losses = state.losses, space = state.space
        cdef const double[::1] eta = state.learning_rate, delta = state.delta
        cdef int64_t[::1] count = state.count, mistakes = state.mistakes
        cdef int32_t[::1] ints = state.ints
        cdef Sizes sizes
        self.arrays = [state.turn, state.gram, state.base, state.steps, state.inner, state.lam, state.scale,
                       state.losses, state.space, state.learning_rate, state.delta, state.count, state.mistakes,
                       state.ints]
        s.loss, s.rule, s.phi, s.dual = setting.loss, setting.rule, setting.phi, setting.dual
        s.root, s.fade, s.tau, s.strength = setting.root, setting.fade, setting.sketch_size, setting.strength
        s.points, s.d = base.shape[0], base.shape[1]
        s.most, s.cap = turn.shape[0], turn.shape[1]
        if eta.shape[0] != s.points or delta.shape[0] != s.points:
            raise ValueError("learning_rate and delta must have one entry for each point")
        if state.sparse:
            self.take_sparse(state.held)
        else:
            self.take_dense(state.held)
        sizes = lay_out(s, &space[0], &ints[0], s.points)
        if space.shape[0] < sizes.doubles or ints.shape[0] < sizes.integers:
            raise ValueError("space or ints is too small")
        s.eta, s.delta = &eta[0], &delta[0]
        s.turn, s.gram, s.base, s.steps, s.inner = &turn[0, 0], &gram[0, 0], &base[0, 0], &steps[0, 0], &inner[0, 0]
        s.lam, s.scale, s.losses, s.count, s.mistakes = &lam[0], &scale[0], &losses[0], &count[0], &mistakes[0]

    cdef int take_dense(self, held) except -1:
        cdef double[:, ::1] rows = held.rows, total
        cdef double[::1] extra = held.extra
        self.arrays += [held.rows, held.total, held.extra]
        self.s.rows, self.extra = &rows[0, 0], &extra[0]
        if held.total is not None:
            total = held.total
            self.s.total = &total[0, 0]
        if extra.shape[0] < extra_size(self.s.d, self.s.most, self.s.cap, self.s.phi):
            raise ValueError("extra is too small")
        return 0

    cdef int take_sparse(self, held) except -1:
        cdef Basis* c = &self.s.c
        cdef double[:, ::1] z = held.z, b = held.b, frame = held.frame
        cdef double[::1] kept_data = held.kept_data, work = held.work
        cdef int32_t[::1] kept_indices = held.kept_indices
        cdef int64_t[::1] kept_indptr = held.kept_indptr
        self.arrays += [held.z, held.b, held.frame, held.kept_data, held.work, held.kept_indices, held.kept_indptr]
        self.s.width = c.width = c.ld_frame = z.shape[1]
        c.d, c.z, c.frame, c.work, c.room = self.s.d, &z[0, 0], &frame[0, 0], &work[0], kept_data.shape[0]
        c.data = &kept_data[0] if c.room else NULL
        c.indices = &kept_indices[0] if c.room else NULL
        c.indptr = &kept_indptr[0]
        self.s.b = &b[0, 0]
        return 0

    def dense(self, const double[:, ::1] rows, const double[::1] targets, const double[::1] sample_weight,
              double[::1] scores):
        """Learn from rows (n, d); returns how many were learned from: fewer than n if the next has no finite score."""
        cdef Py_ssize_t done
        if rows.shape[0] == 0:
            return 0
        with nogil:
            done = dense_loop(&self.s, rows.shape[0], &rows[0, 0], &targets[0], &sample_weight[0], self.extra,
                              &scores[0])
        return done

    def sparse(self, const double[::1] data, const int32_t[::1] indices, const int64_t[::1] indptr, Py_ssize_t first,
               const double[::1] targets, const double[::1] sample_weight, double[::1] scores):
        """Learn from the CSR rows from `first` on: (rows done in all, whether it stopped for lack of room in what is kept)."""
        cdef Py_ssize_t n = indptr.shape[0] - 1, done
        cdef int why = 0
        if n == 0:
            return 0, False
        with nogil:
            done = sparse_loop(&self.s, first, n, &data[0] if data.shape[0] else NULL,
                               &indices[0] if data.shape[0] else NULL, &indptr[0], &targets[0], &sample_weight[0],
                               &scores[0], &why)
        return done, why == ROOM


def rank_one_update(double[:, ::1] turn, double[::1] lam, Py_ssize_t rank, Py_ssize_t rows, double[::1] y,
                    double weight):
    """V diag(lam) V' += weight (V y)(V y)' in place, V = C'T with T' = turn[:rank, :rows]; lam descending.

    turn (most, cap), lam and y (most,).
    """
    import numpy as np

    cdef Model s
    cdef int64_t count[COUNTS]
    memset(&s, 0, sizeof(Model))
    memset(count, 0, sizeof(count))
    s.most, s.cap = turn.shape[0], turn.shape[1]
    if not (0 < rank <= s.most and 0 < rows <= s.cap and lam.shape[0] == s.most and y.shape[0] >= rank):
        raise ValueError("turn, lam and y do not belong together")
    cdef Sizes sizes = lay_out(&s, NULL, NULL, 1)
    cdef double[::1] space = np.empty(sizes.doubles)
    cdef int32_t[::1] ints = np.empty(sizes.integers, np.int32)
    lay_out(&s, &space[0], &ints[0], 1)
    s.turn, s.lam, s.y, s.count = &turn[0, 0], &lam[0], &y[0], count
    count[RANK], count[ROWS] = rank, rows
    with nogil:
        rank_one(&s, weight)
