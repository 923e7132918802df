# A model of adaptive subgradients in the small space of its sketch (turning.pxd): what a round does to the points of the
# grid of (learning rate eta, delta). At point k the model is w = scale (base + Z b) + C'steps. Mirror descent moves base
# and steps; dual averaging keeps the sum of gradients in base, scale = -eta / delta.

from libc.math cimport sqrt
from libc.stdint cimport int64_t
from libc.string cimport memcpy, memset

from fastsketch._kernels.losses cimport ABSOLUTE, L2_PENALTY, NO_PENALTY, dot, finite, flat, in_units, loss_and_slope
from fastsketch._kernels.online.basis cimport Basis, add
from fastsketch._kernels.online.numbers cimport RANK, ROUND, ROWS
from fastsketch._kernels.online.turning cimport (Turning, add_turned, border, full, new_direction, project, share,
                                                 take_gradient)


cdef struct Model:
    Turning t
    Py_ssize_t d, points, width  # d: of base, slots of sparse rows
    int loss, phi
    bint dual, fade
    double decay
    double strength          # lambda of phi
    const double* eta
    const double* delta
    double* base
    double* scale
    double* steps
    double* inner
    double* losses
    int64_t* mistakes
    double* residuals        # for steps in units of residuals: the sums of weighted squares, and of weights; or NULL
    # rows of C
    double* rows             # dense: (cap, d)
    Basis c                  # sparse
    double* b                # (points, width)
    double* total            # phi = L1_PENALTY, dual: (points, d), the sum of gradients, base being w
    # of the round: filled before it, or scratch; lay_out gives each its size and place
    double* p                # C x
    double* f
    double* slopes
    double* scores
    double* base_x
    double x_square
    double unit              # of the slopes


cdef inline void turn_inner(Model* s) noexcept nogil:
    """Compute inner of the new C from that of the old one, where steps has gone into base."""
    cdef Py_ssize_t k, i
    for k in range(s.points):
        for i in range(s.t.count[RANK]):
            s.f[i] = dot(s.t.count[ROWS], s.t.turn + i * s.t.cap, s.inner + k * s.t.cap)
        memcpy(s.inner + k * s.t.cap, s.f, s.t.count[RANK] * sizeof(double))


cdef inline void give_up_steps(Model* s) noexcept nogil:
    """Add C C'steps / scale to inner: its value once steps are added to base (mirror descent)."""
    cdef Py_ssize_t k, i
    for k in range(s.points):
        for i in range(s.t.count[ROWS]):
            s.inner[k * s.t.cap + i] += dot(s.t.count[ROWS], s.t.gram + i * s.t.cap, s.steps + k * s.t.cap) / s.scale[k]


# -- one round -----------------------------------------------------------------------------------------------------------
cdef inline bint predict(Model* s, double y, double weight) noexcept nogil:
    """Compute predictions and slopes of all points; return False if one is not finite."""
    cdef Py_ssize_t k
    cdef double z
    for k in range(s.points):
        z = s.scale[k] * s.base_x[k] + dot(s.t.count[ROWS], s.steps + k * s.t.cap, s.p)
        s.scores[k] = z
        loss_and_slope(s.loss, z, y, s.slopes + k)
        s.slopes[k] *= weight
        if not (finite(z) and finite(s.slopes[k] * s.slopes[k] * s.x_square)):
            return False
    s.unit = 1
    if s.residuals != NULL and weight > 0:  # of one point
        z = s.residuals[0] + weight * (s.scores[0] - y) * (s.scores[0] - y)
        if not finite(z):
            return False
        s.unit = in_units(s.loss, sqrt(z / (s.residuals[1] + weight)), s.slopes)
    return True


cdef inline void count_losses(Model* s, double y, double weight) noexcept nogil:
    """Count a row that is learned from: its losses, and less weight for earlier rows."""
    cdef Py_ssize_t k
    cdef double slope
    s.t.count[ROUND] += 1
    if s.residuals != NULL:
        s.residuals[0] += weight * (s.scores[0] - y) * (s.scores[0] - y)
        s.residuals[1] += weight
    for k in range(s.points):
        s.losses[k] += weight * loss_and_slope(s.loss, s.scores[k], y, &slope)
        s.mistakes[k] += s.scores[k] * y <= 0
    if s.decay != 1:
        for k in range(s.t.count[RANK]):
            # nothing is left of what would be slow to multiply
            s.t.lam[k] = s.decay * s.t.lam[k] if s.t.lam[k] > 1e-280 else 0


cdef inline double sketch_slope(Model* s, double weight) noexcept nogil:
    """Return the slope that the sketch takes: of the absolute loss it does not depend on w, not even at a tie."""
    return weight if s.loss == ABSOLUTE else s.slopes[0] / s.unit


cdef inline void take_row(Model* s, const double* products, double corner, double rest, bint unit) noexcept nogil:
    """Append a row to C by its products with the others and itself, base_x that with base; the rest as of
    new_direction."""
    cdef Py_ssize_t rows = s.t.count[ROWS], k
    border(&s.t, products, corner)
    for k in range(s.points):
        s.steps[k * s.t.cap + rows] = 0
        s.inner[k * s.t.cap + rows] = s.base_x[k]
    new_direction(&s.t, rest, unit)


cdef inline void take_x(Model* s, double rest) noexcept nogil:
    """Append x itself as a row of C, `rest` of its square being new."""
    s.p[s.t.count[ROWS]] = s.x_square
    take_row(s, s.p, s.x_square, sqrt(rest), False)


cdef inline void sketch(Model* s, double a) noexcept nogil:
    """Add the gradient a x to S'S, whose y = V'x is complete; y is then that of the new V."""
    take_gradient(&s.t, a * a / sqrt(<double> s.t.count[ROUND]) if s.fade else a * a)
    project(&s.t, s.p)


cdef inline void step(Model* s) noexcept nogil:
    """Move w; the caller adds x itself to base, times slopes[k]."""
    cdef Py_ssize_t k, i, rows = s.t.count[ROWS], rank = s.t.count[RANK]
    cdef double a, eta, delta, ratio
    for k in range(s.points):
        eta, a = s.eta[k], s.slopes[k]
        if s.dual:
            # inner = C sum of gradients; steps = (eta / delta_t) T diag(share) T'inner
            add(rows, a, s.p, s.inner + k * s.t.cap)
            delta = s.delta[k] + (eta * s.strength * s.t.count[ROUND] if s.phi == L2_PENALTY else 0)
            s.scale[k] = -eta / delta
            memset(s.steps + k * s.t.cap, 0, s.t.cap * sizeof(double))
            for i in range(rank):
                s.f[i] = share(&s.t, s.t.lam[i], delta) * dot(rows, s.t.turn + i * s.t.cap, s.inner + k * s.t.cap)
            add_turned(&s.t, eta / delta, s.f, s.steps + k * s.t.cap)
            continue
        if s.phi == L2_PENALTY:
            # w -= (I - V share V')(eta g + ratio delta w) / delta, delta + eta lambda in H
            delta = s.delta[k] + eta * s.strength
            ratio = eta * s.strength / delta
            # C w = scale inner + gram steps, into f after the first `most`
            for i in range(rows):
                s.f[s.t.most + i] = (ratio * (s.scale[k] * s.inner[k * s.t.cap + i]
                                              + dot(rows, s.t.gram + i * s.t.cap, s.steps + k * s.t.cap))
                                     + eta / delta * a * s.p[i])
            for i in range(rank):
                s.f[i] = share(&s.t, s.t.lam[i], delta) * dot(rows, s.t.turn + i * s.t.cap, s.f + s.t.most)
            for i in range(rows):
                s.steps[k * s.t.cap + i] *= 1 - ratio
            add_turned(&s.t, 1.0, s.f, s.steps + k * s.t.cap)
            s.scale[k] *= 1 - ratio
            s.slopes[k] = -eta / delta * a / s.scale[k]
            add(rows, s.slopes[k], s.p, s.inner + k * s.t.cap)
            continue
        delta = s.delta[k]
        for i in range(rank):
            s.f[i] = share(&s.t, s.t.lam[i], delta) * s.t.y[i]
        add_turned(&s.t, eta / delta * a, s.f, s.steps + k * s.t.cap)
        s.slopes[k] = -eta / delta * a
        add(rows, s.slopes[k], s.p, s.inner + k * s.t.cap)


cdef inline bint idle(Model* s, double weight) noexcept nogil:
    """Return whether a round changes nothing: no gradient, no regulariser that pulls, no shrink that w is to follow."""
    return s.phi == NO_PENALTY and (flat(sketch_slope(s, weight)) or s.x_square == 0) and not (s.dual and full(&s.t))


cdef inline void keep_scale(Model* s, Py_ssize_t k) noexcept nogil:
    """Multiply what a scale stands before by it, where the scale of a point goes to zero."""
    cdef Py_ssize_t i
    if s.dual or not s.scale[k] < 1e-100:
        return
    for i in range(s.c.seen):
        s.base[k * s.d + i] *= s.scale[k]
    for i in range(s.width):
        s.b[k * s.width + i] *= s.scale[k]
    for i in range(s.t.count[ROWS]):
        s.inner[k * s.t.cap + i] *= s.scale[k]
    s.scale[k] = 1
