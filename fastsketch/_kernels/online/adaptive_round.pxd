# A round of adaptive subgradients in the small space of its sketch (turning.pxd). The model is w = scale (base + Z b) +
# C'steps. Mirror descent moves base and steps; dual averaging keeps the sum of gradients in base, scale = -eta / delta.

from libc.math cimport fabs, sqrt
from libc.stdint cimport int64_t
from libc.string cimport memcpy, memset

from fastsketch._kernels.linalg.blas cimport gemm, gemv
from fastsketch._kernels.losses cimport (ABSOLUTE, L2_PENALTY, NO_PENALTY, dot, finite, flat, in_units, loss_and_slope,
                                         squares_with)
from fastsketch._kernels.online.basis cimport Basis, add, solve_small
from fastsketch._kernels.online.numbers cimport (DELTA, LOSS, MISTAKES, RANK, RESIDUALS, ROUND, ROWS, SCALE,
                                                 WEIGHTS)
from fastsketch._kernels.online.turning cimport (Turning, add_turned, border, carried_root, full, new_direction, project,
                                                 root_of, share, take_gradient)

cdef struct Model:
    Turning t
    Py_ssize_t d, width      # columns (dense rows) or slots; columns of Z
    int loss, phi
    bint dual, fade
    bint in_units            # the sketch takes slopes in units of the root mean square residual
    double decay, eta
    double strength          # penalty_strength, the factor of phi
    double* base
    double* scalar           # entries of numbers.pxd
    double* steps
    double* inner
    # rows of C
    double* rows             # dense: (cap, d)
    Basis c                  # sparse
    double* b                # (width,)
    double* total            # phi = L1_PENALTY, dual: (d,), the sum of gradients, base being w
    # products of the current row, and scratch (lay_out)
    double* p                # C x
    double* f
    double* extra            # scratch of d, or the workspace of step_l1
    double slope, score, base_x, x_square
    double unit              # root mean square residual, which the sketch's slopes are divided by (in_units); else 1


cdef inline void turn_inner(Model* s) noexcept nogil:
    """Rebase `inner` (inner <- T'inner) and clear steps, which have been added to base."""
    cdef Py_ssize_t i
    for i in range(s.t.count[RANK]):
        s.f[i] = dot(s.t.count[ROWS], s.t.turn + i * s.t.cap, s.inner)
    memcpy(s.inner, s.f, s.t.count[RANK] * sizeof(double))
    memset(s.steps, 0, s.t.cap * sizeof(double))


cdef inline void give_up_steps(Model* s) noexcept nogil:
    """Add C C'steps / scale to inner, for mirror descent, where C'steps / scale is added to base."""
    cdef Py_ssize_t i
    for i in range(s.t.count[ROWS]):
        s.inner[i] += dot(s.t.count[ROWS], s.t.gram + i * s.t.cap, s.steps) / s.scalar[SCALE]


# -- one round -----------------------------------------------------------------------------------------------------------
cdef inline bint predict(Model* s, double y, double weight) noexcept nogil:
    """Set score, slope and unit for a row with target y; return False if score or squared gradient is not finite."""
    cdef double z = s.scalar[SCALE] * s.base_x + dot(s.t.count[ROWS], s.steps, s.p)
    s.score, s.unit = z, 1
    loss_and_slope(s.loss, z, y, &s.slope)
    s.slope *= weight
    if not (finite(z) and finite(s.slope * s.slope * s.x_square)):
        return False
    if s.in_units and weight > 0:
        z = squares_with(s.loss, s.scalar[RESIDUALS], s.scalar[WEIGHTS], y, s.score - y, weight)
        if not finite(z):
            return False
        s.unit = in_units(s.loss, s.score - y, weight, sqrt(z / (s.scalar[WEIGHTS] + weight)), &s.slope)
    return True


cdef inline void count_losses(Model* s, double y, double weight) noexcept nogil:
    """Count the loss of a row that is learned, and apply decay to the eigenvalues of earlier rows."""
    cdef Py_ssize_t k
    cdef double slope
    s.t.count[ROUND] += 1
    if s.in_units:
        s.scalar[RESIDUALS] = squares_with(s.loss, s.scalar[RESIDUALS], s.scalar[WEIGHTS], y, s.score - y, weight)
        s.scalar[WEIGHTS] += weight
    s.scalar[LOSS] += weight * loss_and_slope(s.loss, s.score, y, &slope)
    s.t.count[MISTAKES] += s.score * y <= 0
    if s.decay != 1:
        for k in range(s.t.count[RANK]):
            # cleared before it becomes subnormal, which would be slow
            s.t.lam[k] = s.decay * s.t.lam[k] if s.t.lam[k] > 1e-280 else 0


cdef inline double sketch_slope(Model* s, double weight) noexcept nogil:
    """Return the slope for the sketch. For the absolute loss it is the weight, also at a tie, so that H is independent of w."""
    return weight if s.loss == ABSOLUTE else s.slope / s.unit


cdef inline void take_row(Model* s, const double* products, double corner, double rest, bint unit) noexcept nogil:
    """Append a row to C, given its products with the rows of C, with itself (corner) and with base (s.base_x).

    rest, unit: as `new_direction` takes them.
    """
    cdef Py_ssize_t rows = s.t.count[ROWS]
    border(&s.t, products, corner)
    s.steps[rows], s.inner[rows] = 0, s.base_x
    new_direction(&s.t, rest, unit)


cdef inline void take_x(Model* s, double rest) noexcept nogil:
    """Append x itself as a row of C; `rest` is the squared length of its component orthogonal to C."""
    s.p[s.t.count[ROWS]] = s.x_square
    take_row(s, s.p, s.x_square, sqrt(rest), False)


cdef inline void sketch(Model* s, double a) noexcept nogil:
    """Add the gradient a x to S'S, given y = V'x, and compute y for the new V."""
    take_gradient(&s.t, a * a / sqrt(<double> s.t.count[ROUND]) if s.fade else a * a)
    project(&s.t, s.p)


cdef inline void share_inner(Model* s, const double* v, double delta) noexcept nogil:
    # f = diag(share) T'v
    cdef Py_ssize_t i
    for i in range(s.t.count[RANK]):
        s.f[i] = share(&s.t, s.t.lam[i], delta) * dot(s.t.count[ROWS], s.t.turn + i * s.t.cap, v)


cdef inline void step(Model* s) noexcept nogil:
    """Make the step in steps, inner and scale; the caller adds s.slope * x to base."""
    cdef Py_ssize_t i, rows = s.t.count[ROWS]
    cdef double a = s.slope, eta = s.eta, delta = s.scalar[DELTA] + carried_root(&s.t), ratio
    cdef double* v = s.f + s.t.most
    if s.dual:
        # inner = C sum of gradients; steps = (eta / delta_t) T diag(share) T'inner
        add(rows, a, s.p, s.inner)
        delta += eta * s.strength * s.t.count[ROUND] if s.phi == L2_PENALTY else 0
        s.scalar[SCALE] = -eta / delta
        memset(s.steps, 0, s.t.cap * sizeof(double))
        share_inner(s, s.inner, delta)
        add_turned(&s.t, eta / delta, s.f, s.steps)
        return
    if s.phi == L2_PENALTY:
        # w -= (I - V share V')(eta g + ratio delta w) / delta, delta + eta lambda in H
        delta += eta * s.strength
        ratio = eta * s.strength / delta
        # C w = scale inner + gram steps
        for i in range(rows):
            v[i] = (ratio * (s.scalar[SCALE] * s.inner[i] + dot(rows, s.t.gram + i * s.t.cap, s.steps))
                    + eta / delta * a * s.p[i])
        share_inner(s, v, delta)
        for i in range(rows):
            s.steps[i] *= 1 - ratio
        add_turned(&s.t, 1.0, s.f, s.steps)
        s.scalar[SCALE] *= 1 - ratio
        s.slope = -eta / delta * a / s.scalar[SCALE]
    else:
        for i in range(s.t.count[RANK]):
            s.f[i] = share(&s.t, s.t.lam[i], delta) * s.t.y[i]
        add_turned(&s.t, eta / delta * a, s.f, s.steps)
        s.slope = -eta / delta * a
    add(rows, s.slope, s.p, s.inner)


cdef inline bint idle(Model* s, double weight) noexcept nogil:
    """Return whether a round changes nothing: no gradient, no regulariser, and no shrink that changes w."""
    return s.phi == NO_PENALTY and (flat(sketch_slope(s, weight)) or s.x_square == 0) and not (s.dual and full(&s.t))


cdef inline void keep_scale(Model* s) noexcept nogil:
    """Multiply base, b and inner by scale and reset it to 1 if it is about to underflow."""
    cdef Py_ssize_t i
    if s.dual or not s.scalar[SCALE] < 1e-100:
        return
    for i in range(s.c.seen):
        s.base[i] *= s.scalar[SCALE]
    for i in range(s.width):
        s.b[i] *= s.scalar[SCALE]
    for i in range(s.t.count[ROWS]):
        s.inner[i] *= s.scalar[SCALE]
    s.scalar[SCALE] = 1


# -- the step with phi = strength |w|_1, for dense rows: w is base itself ------------------------------------------------
cdef enum:
    PACKED = 256                 # columns of C gathered for one product


cdef inline void turned_down(Model* s, const double* v, const double* root, double* out) noexcept nogil:
    # out = A v for A = diag(root) V' (rank, d); the second half of f is scratch
    cdef double* p = s.f + s.t.most
    cdef Py_ssize_t i
    gemv(c'T', s.d, s.t.count[ROWS], 1.0, s.rows, s.d, v, 0.0, p)
    for i in range(s.t.count[RANK]):
        out[i] = root[i] * dot(s.t.count[ROWS], s.t.turn + i * s.t.cap, p)


cdef inline double l1_dual(Model* s, const double* alpha, const double* root, const double* start,
                           const double* aw, double delta, double bound, double* u, double* w,
                           double* gap) noexcept nogil:
    """Return the dual objective at alpha, and compute its gradient gap = alpha + aw - A w.

    u = start - A'alpha / delta and w = soft(u, bound), the soft threshold, are written too.
    """
    cdef Py_ssize_t i, rank = s.t.count[RANK], rows = s.t.count[ROWS]
    cdef double* p = s.f + s.t.most
    cdef double value = 0, total = 0
    memset(p, 0, rows * sizeof(double))
    for i in range(rank):
        add(rows, -root[i] * alpha[i] / delta, s.t.turn + i * s.t.cap, p)
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


cdef inline void step_l1(Model* s, const double* x) noexcept nogil:
    """Set w <- argmin <g, w> + bound delta |w|_1 + |w - w0|_H^2 / 2 by Newton steps on its dual of RANK variables.

    With H = delta I + A'A the dual is smooth, convex and piecewise quadratic (Becker and Fadili 2012). The iteration stops
    when its gradient is below 1e-12 of its terms. s.extra has 3 d + 6 most + PACKED cap doubles.
    """
    cdef Py_ssize_t i, j, c, rank = s.t.count[RANK], rows = s.t.count[ROWS], _turn, _tries, filled
    cdef double eta = s.eta, delta = s.scalar[DELTA] + carried_root(&s.t), bound = eta * s.strength / delta
    cdef double most, value, trial, slope, t
    cdef double* w0 = s.base
    cdef double* start = s.extra
    cdef double* u = start + s.d
    cdef double* w = u + s.d
    cdef double* root = w + s.d
    cdef double* alpha = root + s.t.most
    cdef double* aw = alpha + s.t.most
    cdef double* gap = aw + s.t.most
    cdef double* move = gap + s.t.most
    cdef double* other = move + s.t.most
    cdef double* pack = other + s.t.most
    cdef double* active = s.t.small                       # rows x rows
    cdef double* half = active + s.t.cap * s.t.cap          # rank x rows
    cdef double* jacobian = half + s.t.most * s.t.cap       # rank x rank
    for i in range(rank):
        root[i] = sqrt(root_of(&s.t, s.t.lam[i]))
    if s.dual:
        # w0 = 0 with the sum of gradients; the iteration starts from the last w
        add(s.d, s.slope, x, s.total)
        for i in range(s.d):
            start[i] = -eta / delta * s.total[i]
        bound *= s.t.count[ROUND]
        turned_down(s, w0, root, alpha)
        memset(aw, 0, rank * sizeof(double))
    else:
        memcpy(start, w0, s.d * sizeof(double))
        add(s.d, -eta / delta * s.slope, x, start)
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
        memset(active, 0, rows * s.t.cap * sizeof(double))
        c = 0
        while c < s.d:
            filled = 0
            while c < s.d and filled < PACKED:
                if w[c] != 0:
                    for i in range(rows):
                        pack[filled * s.t.cap + i] = s.rows[i * s.d + c]
                    filled += 1
                c += 1
            gemm(c'N', c'T', rows, rows, filled, 1.0, pack, s.t.cap, pack, s.t.cap, 1.0, active, s.t.cap)
        gemm(c'N', c'N', rows, rank, rows, 1.0, active, s.t.cap, s.t.turn, s.t.cap, 0.0, half, s.t.cap)
        gemm(c'T', c'N', rank, rank, rows, 1.0 / delta, s.t.turn, s.t.cap, half, s.t.cap, 0.0, jacobian, rank)
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
            # sufficient decrease (Nocedal and Wright 2006, page 33)
            if trial <= value + 1e-4 * t * slope or fabs(t * slope) <= 1e-15 * fabs(value):
                break
            t *= 0.5
        memcpy(alpha, other, rank * sizeof(double))
        value = trial
    memcpy(w0, w, s.d * sizeof(double))
