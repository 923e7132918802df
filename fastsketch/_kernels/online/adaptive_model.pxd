# A model of adaptive subgradients in the small space of its sketch (turning.pxd): what a round does to it. The model is
# w = scale (base + Z b) + C'steps. Mirror descent moves base and steps; dual averaging keeps the sum of gradients in base,
# scale = -eta / delta.

from libc.math cimport sqrt
from libc.stdint cimport int64_t
from libc.string cimport memcpy, memset

from fastsketch._kernels.losses cimport (ABSOLUTE, L2_PENALTY, NO_PENALTY, dot, finite, flat, in_units, loss_and_slope,
                                         squares_with)
from fastsketch._kernels.online.basis cimport Basis, add
from fastsketch._kernels.online.numbers cimport (DELTA, LOSS, MISTAKES, RANK, RESIDUALS, ROUND, ROWS, SCALE,
                                                 WEIGHTS)
from fastsketch._kernels.online.turning cimport (Turning, add_turned, border, full, new_direction, project, share,
                                                 take_gradient)


cdef struct Model:
    Turning t
    Py_ssize_t d, width      # d: of base, slots of sparse rows
    int loss, phi
    bint dual, fade
    bint in_units            # slopes and steps in units of residuals
    double decay, eta
    double strength          # lambda of phi
    double* base
    double* scalar           # entries of numbers.pxd
    double* steps
    double* inner
    # rows of C
    double* rows             # dense: (cap, d)
    Basis c                  # sparse
    double* b                # (width,)
    double* total            # phi = L1_PENALTY, dual: (d,), the sum of gradients, base being w
    # of the round: filled before it, or scratch; lay_out gives each its size and place
    double* p                # C x
    double* f
    double* extra            # of dense rows: a row, or the workspace of step_l1
    double slope, score, base_x, x_square
    double unit              # of the slopes


cdef inline void turn_inner(Model* s) noexcept nogil:
    """Compute inner of the new C from that of the old one, where steps has gone into base."""
    cdef Py_ssize_t i
    for i in range(s.t.count[RANK]):
        s.f[i] = dot(s.t.count[ROWS], s.t.turn + i * s.t.cap, s.inner)
    memcpy(s.inner, s.f, s.t.count[RANK] * sizeof(double))
    memset(s.steps, 0, s.t.cap * sizeof(double))


cdef inline void give_up_steps(Model* s) noexcept nogil:
    """Add C C'steps / scale to inner: its value once steps are added to base (mirror descent)."""
    cdef Py_ssize_t i
    for i in range(s.t.count[ROWS]):
        s.inner[i] += dot(s.t.count[ROWS], s.t.gram + i * s.t.cap, s.steps) / s.scalar[SCALE]


# -- one round -----------------------------------------------------------------------------------------------------------
cdef inline bint predict(Model* s, double y, double weight) noexcept nogil:
    """Compute score and slope of a row; return False if one is not finite."""
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
    """Count a row that is learned from: its loss, and less weight for earlier rows."""
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
            # nothing is left of what would be slow to multiply
            s.t.lam[k] = s.decay * s.t.lam[k] if s.t.lam[k] > 1e-280 else 0


cdef inline double sketch_slope(Model* s, double weight) noexcept nogil:
    """Return the slope that the sketch takes: of the absolute loss it does not depend on w, not even at a tie."""
    return weight if s.loss == ABSOLUTE else s.slope / s.unit


cdef inline void take_row(Model* s, const double* products, double corner, double rest, bint unit) noexcept nogil:
    """Append a row to C by its products with the others and itself, base_x that with base; the rest as of
    new_direction."""
    cdef Py_ssize_t rows = s.t.count[ROWS]
    border(&s.t, products, corner)
    s.steps[rows], s.inner[rows] = 0, s.base_x
    new_direction(&s.t, rest, unit)


cdef inline void take_x(Model* s, double rest) noexcept nogil:
    """Append x itself as a row of C, `rest` of its square being new."""
    s.p[s.t.count[ROWS]] = s.x_square
    take_row(s, s.p, s.x_square, sqrt(rest), False)


cdef inline void sketch(Model* s, double a) noexcept nogil:
    """Add the gradient a x to S'S, whose y = V'x is complete; y is then that of the new V."""
    take_gradient(&s.t, a * a / sqrt(<double> s.t.count[ROUND]) if s.fade else a * a)
    project(&s.t, s.p)


cdef inline void share_inner(Model* s, const double* v, double delta) noexcept nogil:
    # f = diag(share) T'v
    cdef Py_ssize_t i
    for i in range(s.t.count[RANK]):
        s.f[i] = share(&s.t, s.t.lam[i], delta) * dot(s.t.count[ROWS], s.t.turn + i * s.t.cap, v)


cdef inline void step(Model* s) noexcept nogil:
    """Move w; the caller adds x itself to base, times slope."""
    cdef Py_ssize_t i, rows = s.t.count[ROWS]
    cdef double a = s.slope, eta = s.eta, delta = s.scalar[DELTA], ratio
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
    """Return whether a round changes nothing: no gradient, no regulariser that pulls, no shrink that w is to follow."""
    return s.phi == NO_PENALTY and (flat(sketch_slope(s, weight)) or s.x_square == 0) and not (s.dual and full(&s.t))


cdef inline void keep_scale(Model* s) noexcept nogil:
    """Multiply what the scale stands before by it, where it goes to zero."""
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
