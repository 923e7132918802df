# Losses of a linear model as the Cython learners compute them: the numbers of all losses (fastsketch/_losses.py is the
# table; _kernels/losses_jit.py the same formulas for Numba), regularisers, and what the loops share.
#
# A new loss: a number here, its value and slope below, three lines in losses_jit.py, an entry in the table.

from libc.float cimport DBL_MAX
from libc.math cimport exp, fabs, log1p

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


cdef inline double loss_and_slope(int loss, double z, double y, double* slope) noexcept nogil:
    # the losses of the online learners; their parameter, where they have one, is the default of the table
    cdef double r, e
    if loss == SQUARE:
        # (z - y)^2 / 2
        r = z - y
        slope[0] = r
        return 0.5 * r * r
    if loss == LOGISTIC:
        # log(1 + exp(-y z))
        r = y * z
        e = exp(-fabs(r))
        slope[0] = -y * e / (1 + e) if r > 0 else -y / (1 + e)
        return log1p(e) if r > 0 else log1p(e) - r
    if loss == SQUARED_HINGE:
        # max(0, 1 - y z)^2
        r = 1 - y * z
        if r <= 0:
            slope[0] = 0
            return 0
        slope[0] = -2 * y * r
        return r * r
    r = z - y
    if loss == HUBER and fabs(r) <= 1:
        slope[0] = r
        return 0.5 * r * r
    slope[0] = (r > 0) - (r < 0)
    return fabs(r) - 0.5 if loss == HUBER else fabs(r)
