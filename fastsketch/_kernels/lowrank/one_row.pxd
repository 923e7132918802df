# A row fitted to given factors: what its fit knows, its scores, the sums of its normal equations.

from fastsketch._kernels.linalg.blas cimport real
from fastsketch._kernels.sketching.sparse_rows cimport z_rank_one

cdef extern from *:
    """
    #define FS_ROW_TINY 1e-300
    """
    const double TINY "FS_ROW_TINY"


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


cdef inline double score_of(Py_ssize_t t, const double* a, real own, real other, const real* factors) noexcept nogil:
    # own + other + factors' a; four sums, or each product would wait for the one before it
    cdef double s0 = own + other, s1 = 0, s2 = 0, s3 = 0
    cdef Py_ssize_t q = 0
    while q + 4 <= t:
        s0 += factors[q] * a[q]
        s1 += factors[q + 1] * a[q + 1]
        s2 += factors[q + 2] * a[q + 2]
        s3 += factors[q + 3] * a[q + 3]
        q += 4
    while q < t:
        s0 += factors[q] * a[q]
        q += 1
    return (s0 + s1) + (s2 + s3)


cdef inline void add_square(const Fit* f, double weight) noexcept nogil:
    # h += weight x x': all of it, not its triangle, so that the inner loop has one length
    cdef Py_ssize_t q
    for q in range(f.t):
        f.minus[q] = -(weight * f.x[q])
    z_rank_one(f.t, f.t, f.t, f.minus, f.x, f.h)


cdef inline void lift(const Fit* f) noexcept nogil:
    # a little more on the diagonal of h: a row may have fewer entries than coefficients. Each in its own units, those
    # of factors and those of biases: one share of the largest would make fits depend on the scale of X
    cdef Py_ssize_t q
    cdef double top = 0, own
    for q in range(f.t):
        top = max(top, f.h[q * f.t + q])
    for q in range(f.t):
        own = f.h[q * f.t + q]
        f.h[q * f.t + q] += 1e-12 * (own if own > 0 else top) + TINY
