# Losses as the compiled loops compute them: the numbers of all losses (fastsketch/_core/losses.py is the table),
# regularisers, and what the loops share.
#
# A new loss: a number here, its three lines below, an entry in the table.

from libc.float cimport DBL_MAX
from libc.math cimport exp, fabs, log1p, tanh

cpdef enum:
    SQUARE = 0
    LOGISTIC = 1
    SQUARED_HINGE = 2
    HUBER = 3
    POISSON = 4
    # from here on losses have kinks: no curvature anywhere
    ABSOLUTE = 5
    HINGE = 6
    QUANTILE = 7
    EPSILON_INSENSITIVE = 8

cpdef enum:
    # regulariser phi
    NO_PENALTY = 0
    L1_PENALTY = 1
    L2_PENALTY = 2


cdef inline double dot(Py_ssize_t n, const double* a, const double* b) noexcept nogil:
    cdef double s0 = 0, s1 = 0, s2 = 0, s3 = 0
    cdef Py_ssize_t i = 0
    while i + 4 <= n:
        s0 += a[i] * b[i]
        s1 += a[i + 1] * b[i + 1]
        s2 += a[i + 2] * b[i + 2]
        s3 += a[i + 3] * b[i + 3]
        i += 4
    while i < n:
        s0 += a[i] * b[i]
        i += 1
    return (s0 + s1) + (s2 + s3)


cdef inline bint flat(double slope) noexcept nogil:
    # a slope below this is zero: where the target is met, what is left is rounding
    return fabs(slope) <= 1e-12


cdef inline bint finite(double x) noexcept nogil:
    return fabs(x) <= DBL_MAX


cdef inline double loss_terms(int loss, double p, double z, double y, double* slope, double* curve) noexcept nogil:
    """Loss at prediction z of y, its derivative and its second derivative (0 where it has none); p its parameter."""
    cdef double r, e, s
    curve[0] = 0
    if loss == SQUARE:
        r = z - y
        slope[0], curve[0] = r, 1
        return 0.5 * r * r
    if loss == LOGISTIC:
        # log(1 + exp(-y z)); e and s without overflow on either side
        r = y * z
        e = exp(-fabs(r))
        s = e / (1 + e) if r > 0 else 1 / (1 + e)
        slope[0], curve[0] = -y * s, s * (1 - s)
        return log1p(e) if r > 0 else log1p(e) - r
    if loss == SQUARED_HINGE:
        r = 1 - y * z
        if r <= 0:
            slope[0] = 0
            return 0
        slope[0], curve[0] = -2 * y * r, 2
        return r * r
    if loss == POISSON:
        # rate exp(z), without the constant log y!; z is kept below what would overflow
        e = exp(min(z, 700.0))
        slope[0], curve[0] = e - y, e
        return e - y * z
    if loss == HINGE:
        r = 1 - y * z
        slope[0] = -y if y * z < 1 else 0.0
        return r if y * z < 1 else 0.0
    if loss == QUANTILE:
        r = y - z
        slope[0] = -p if r > 0 else 1 - p if r < 0 else 0.0
        return -slope[0] * r
    r = z - y
    if loss == EPSILON_INSENSITIVE:
        slope[0] = 1.0 if r > p else -1.0 if r < -p else 0.0
        return fabs(r) - p if fabs(r) > p else 0.0
    if loss == HUBER and fabs(r) <= p:
        slope[0], curve[0] = r, 1
        return 0.5 * r * r
    s = (r > 0) - (r < 0)
    if loss == HUBER:
        slope[0] = p * s
        return p * (fabs(r) - 0.5 * p)
    slope[0] = s
    return fabs(r)


cdef inline double loss_and_slope(int loss, double z, double y, double* slope) noexcept nogil:
    # for the online learners, whose losses have the default of the table as their parameter, where they have one
    cdef double curve
    return loss_terms(loss, 1, z, y, slope, &curve)


# -- scales of residuals -----------------------------------------------------------------------------------------------
cdef inline double kink() noexcept nogil:
    # threshold of the huber loss in scales of residuals: 95% as efficient as least squares if these are normal (Huber 1981)
    return 1.345


cdef inline double winsorized() noexcept nogil:
    # mean of min(z^2, kink^2) of a normal z of variance 1
    return 0.7101645


cdef inline double squares_with(int loss, double squares, double weights, double y, double r, double weight) noexcept nogil:
    """Compute the weighted sum of squared residuals with a residual r of y; squares / weights is the squared scale.

    Of the huber loss that scale is robust: the root of mean min(r^2, kink^2 scale^2) / winsorized (Proposal 2 of Huber
    1964), found by implicit stochastic approximation (Toulis and Airoldi 2017), the scale on the right being the new one,
    with polynomial-decay averaging (Shamir and Zhang 2013), by which the first residuals, of a model that knows nothing
    yet, count less and less. Implicit steps of the first four rows have no limit, so that a small first residual does not
    keep the scale small. Residuals that are rounding of y are zero.
    """
    cdef double scale, square = r * r, total = weights + weight, gain, left
    if loss != HUBER:
        return squares + weight * r * r
    scale = squares / weights if weights > 0 else 0.0
    if fabs(r) <= 1e-15 * fabs(y):
        square = 0
    gain = 2 * weight / (total + weight)
    left = 1 - gain * kink() * kink() / winsorized()
    square = (1 - gain) * scale + gain * square / winsorized()
    if left > 0 and scale > 0:
        square = min(square, (1 - gain) * scale / left)
    return total * square


cdef inline double clipped(double r, double scale, double* curve) noexcept nogil:
    """Slope of the huber loss at residual r, its threshold being kink() * scale, and the curvature of the parabola that
    touches it there and lies above it. Without a scale it is the square loss."""
    cdef double most = kink() * scale
    curve[0] = 1
    if not most > 0 or fabs(r) <= most:
        return r
    curve[0] = most / fabs(r)
    return most if r > 0 else -most


cdef inline double in_units(int loss, double r, double weight, double scale, double* slope) noexcept nogil:
    """The unit of slopes where residuals are of the size `scale`: slope / unit has no unit, and is about 1.

    The slope, `weight` times that of the loss at residual r, becomes one that steps of that size go along: of the square
    loss it is, of the absolute loss it becomes that of scale |z - y|, of the huber loss that of a threshold in scales.
    """
    cdef double curve
    if not scale > 0:
        return 1
    if loss == ABSOLUTE:
        slope[0] *= scale
    elif loss == HUBER:
        slope[0] = weight * clipped(r, scale, &curve)
    return scale


cdef inline double bowl(int loss, double z, double y, double scale, double* slope) noexcept nogil:
    """Curvature of the parabola that touches the loss at z and lies above it: a step to its bottom passes no target.

    The absolute loss has a kink: its slope becomes that of scale |z - y|, its curvature is that of residuals of at least
    `scale`, a usual one; the threshold of the huber loss is kink() * scale. With y -> c y, scale -> c scale curvatures
    stay what they are, as that of the square loss.
    """
    cdef double r, curve
    if loss == SQUARE:
        return 1
    if loss == SQUARED_HINGE:
        return 2
    if loss == LOGISTIC:
        # tanh(r / 2) / (2 r)
        r = fabs(y * z)
        return tanh(0.5 * r) / (2 * r) if r > 1e-4 else 0.25
    r = fabs(z - y)
    if loss == ABSOLUTE:
        slope[0] *= scale
        return scale / max(r, scale) if scale > 0 else 1.0
    slope[0] = clipped(z - y, scale, &curve)
    return curve
