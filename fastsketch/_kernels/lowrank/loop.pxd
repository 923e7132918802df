# A loop over the observed entries, divided into parts that depend on the entries only (linalg/parts.pxd).

from libc.math cimport fabs
from libc.stdint cimport uint32_t

from fastsketch._kernels.linalg.blas cimport real
from fastsketch._kernels.linalg.parts cimport first_row, parts_of
from fastsketch._kernels.losses cimport ABSOLUTE, HINGE, HUBER, QUANTILE
from fastsketch._kernels.pool cimport FS_PARTS, fs_pool_from

cdef enum:
    SUMS = 6


cdef struct Loop:
    # arguments of a loop; pointers to void are arrays of `real`
    int loss
    bint weighted
    double p, eta, mu, rho, smooth
    Py_ssize_t m, n, count, parts, t
    const uint32_t* indptr
    const uint32_t* indices
    const void* z
    const void* o
    const void* c
    const void* d
    const void* left
    const void* right
    const void* u
    const void* v
    const void* rb
    const void* cb
    void* out
    void* function               # the compiled loop of multiply_parts
    double* gr
    double* hr
    double* gc
    double* hc
    double sums[FS_PARTS][SUMS]


cdef inline const void* at(const real[::1] values) noexcept nogil:
    return &values[0] if values.shape[0] else NULL


cdef inline void entry_by_entry(Loop* loop, int loss, double p, const real[::1] z, const real[::1] o,
                                const real[::1] c) noexcept nogil:
    loop.loss, loop.p, loop.weighted = loss, p, c.shape[0] > 0
    loop.z, loop.o, loop.c, loop.count = at(z), at(o), at(c), z.shape[0]
    loop.parts = parts_of(loop.count)


cdef inline void row_by_row(Loop* loop, const uint32_t[::1] indptr, const uint32_t[::1] indices,
                            double work) noexcept nogil:
    # work: nanoseconds an entry
    loop.m, loop.indptr, loop.indices = indptr.shape[0] - 1, &indptr[0], &indices[0] if indices.shape[0] else NULL
    loop.parts = parts_of(work * indices.shape[0])


cdef inline Py_ssize_t part_entry(const Loop* loop, Py_ssize_t part) noexcept nogil:
    return fs_pool_from(loop.count, loop.parts, part, 16)


cdef inline Py_ssize_t part_row(const Loop* loop, Py_ssize_t part) noexcept nogil:
    return first_row(loop.indptr, loop.m, loop.parts, part)


cdef inline double sum_of(const Loop* loop, int which) noexcept nogil:
    cdef double total = 0
    cdef Py_ssize_t k
    for k in range(loop.parts):
        total += loop.sums[k][which]
    return total


cdef inline double bound_of_curve(int loss, double p, double z, double y, double smooth) noexcept nogil:
    # curvature of a parabola that touches a loss with kinks from above: 1 / distance to the kink, at most 1 / smooth
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


cdef inline void add_curvature(int loss, double p, double z, double y, double width, double smooth, double* slope,
                               double* curve) noexcept nogil:
    # corrects the slope and the curvature of loss_terms. Where there is no curvature it is that of a parabola that touches
    # the loss, whose half-width is at least `width`. At a kink, up to rounding relative to `smooth`, the slope is 0.
    if loss >= ABSOLUTE or (loss == HUBER and curve[0] == 0):
        curve[0] = bound_of_curve(loss, p, z, y, width)
        if (loss == ABSOLUTE or loss == QUANTILE) and fabs(z - y) <= 1e-9 * smooth:
            slope[0] = 0
