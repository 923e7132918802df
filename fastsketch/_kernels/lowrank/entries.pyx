"""Scores, sums of losses and line searches over the observed entries of a matrix in CSR.

Other loops over entries are in gradients.pyx (gradients, products), fits.pyx (fits of rows, biases) and
coefficients.pyx (Newton's method for all coefficients). All arrays are float32, or all are float64; sums over entries
are float64. Loops are divided into parts that depend on the entries only, and the sums of parts are added in a fixed
order, so that results do not depend on the number of threads.

    indptr (m + 1,) uint32, indices (nnz,) uint32   positions of the observed entries, row by row
    z (nnz,)   their scores;   o (nnz,)   their values;   c (nnz,)   their weights, empty if all are 1
    rb (m,), cb (n,)   biases of rows, with the level added, and of columns: rb[i] + cb[j] is the score without ranks
"""

from libc.stdint cimport uint32_t

from fastsketch._kernels.linalg.blas cimport real
from fastsketch._kernels.losses cimport HUBER, loss_terms
from fastsketch._kernels.lowrank.loop cimport (
    SUMS, Loop, at, bound_of_curve, entry_by_entry, part_entry, part_row, row_by_row, sum_of,
)
from fastsketch._kernels.pool cimport fs_part, fs_pool_run, join

join()


# -- sums and scores ---------------------------------------------------------------------------------------------------
cdef void objective_part(void* context, ptrdiff_t part, real* scratch) noexcept nogil:
    cdef Loop* loop = <Loop*> context
    cdef const real* z = <const real*> loop.z
    cdef const real* o = <const real*> loop.o
    cdef const real* c = <const real*> loop.c
    cdef double f, slope, curve, total = 0, squares = 0, curves = 0, weight
    cdef Py_ssize_t k
    for k in range(part_entry(loop, part), part_entry(loop, part + 1)):
        f = loss_terms(loop.loss, loop.p, z[k], o[k], &slope, &curve)
        weight = c[k] if loop.weighted else 1.0
        total += weight * f
        slope *= weight
        squares += slope * slope
        curves += weight * curve
    loop.sums[part][0], loop.sums[part][1], loop.sums[part][2] = total, squares, curves


def objective(int loss, double p, const real[::1] z, const real[::1] o, const real[::1] c):
    """Return sums of weighted losses, of squares of their slopes, and of their curvatures."""
    cdef Loop loop
    with nogil:
        entry_by_entry(&loop, loss, p, z, o, c)
        fs_pool_run(loop.parts, <fs_part> objective_part[real], &loop, NULL, 0)
    return sum_of(&loop, 0), sum_of(&loop, 1), sum_of(&loop, 2)


cdef void scores_part(void* context, ptrdiff_t part, real* scratch) noexcept nogil:
    cdef Loop* loop = <Loop*> context
    cdef const real* left = <const real*> loop.left
    cdef const real* right = <const real*> loop.right
    cdef const real* rb = <const real*> loop.rb
    cdef const real* cb = <const real*> loop.cb
    cdef Py_ssize_t i, k, q, t = loop.t
    cdef const real* own
    cdef const real* other
    cdef double total
    for i in range(part_row(loop, part), part_row(loop, part + 1)):
        own = left + i * t
        for k in range(loop.indptr[i], loop.indptr[i + 1]):
            other = right + loop.indices[k] * t
            total = 0
            for q in range(t):
                total += own[q] * other[q]
            (<real*> loop.out)[k] = <real> (total + rb[i] + cb[loop.indices[k]])


def scores(const uint32_t[::1] indptr, const uint32_t[::1] indices, const real[:, ::1] left, const real[:, ::1] right,
           const real[::1] rb, const real[::1] cb, real[::1] out):
    """Write the scores rb_i + cb_j + left_i . right_j to out (nnz,); left is (m, t), right (n, t)."""
    cdef Loop loop
    if indices.shape[0] == 0:
        return
    loop.t = left.shape[1]
    loop.left, loop.right = &left[0, 0] if loop.t else NULL, &right[0, 0] if loop.t else NULL
    loop.rb, loop.cb, loop.out = at(rb), at(cb), &out[0]
    with nogil:
        row_by_row(&loop, indptr, indices, 1 + 0.25 * loop.t)
        fs_pool_run(loop.parts, <fs_part> scores_part[real], &loop, NULL, 0)


cdef void five_dots_part(void* context, ptrdiff_t part, real* scratch) noexcept nogil:
    cdef Loop* loop = <Loop*> context
    cdef const real* z = <const real*> loop.z
    cdef const real* o = <const real*> loop.o
    cdef const real* c = <const real*> loop.c
    cdef const real* rb = <const real*> loop.rb
    cdef const real* cb = <const real*> loop.cb
    cdef const real* u = <const real*> loop.left
    cdef const real* v = <const real*> loop.right
    cdef real b, x, q, mu = <real> loop.mu, rho = <real> loop.rho
    cdef double f, slope, curve, f0 = 0, f1 = 0, f2 = 0, f3 = 0, f4 = 0, f5 = 0
    cdef Py_ssize_t i, k, j
    for i in range(part_row(loop, part), part_row(loop, part + 1)):
        for k in range(loop.indptr[i], loop.indptr[i + 1]):
            j = loop.indices[k]
            b = rb[i] + cb[j]
            x = z[k] - b
            q = u[i] * v[j]
            f = loss_terms(loop.loss, loop.p, b + mu * x + rho * q, o[k], &slope, &curve)
            if loop.loss == HUBER and curve == 0:
                curve = bound_of_curve(loop.loss, loop.p, b + mu * x + rho * q, o[k], 0)
            if loop.weighted:
                f *= c[k]
                slope *= c[k]
                curve *= c[k]
            f0 += f
            f1 += slope * x
            f2 += slope * q
            f3 += curve * x * x
            f4 += curve * x * q
            f5 += curve * q * q
    loop.sums[part][0], loop.sums[part][1], loop.sums[part][2] = f0, f1, f2
    loop.sums[part][3], loop.sums[part][4], loop.sums[part][5] = f3, f4, f5


def five_dots(int loss, double p, const uint32_t[::1] indptr, const uint32_t[::1] indices, const real[::1] z,
              const real[::1] o, const real[::1] c, const real[::1] rb, const real[::1] cb, double mu, double rho,
              const real[::1] u, const real[::1] v, double[::1] out):
    """Write the objective and its derivatives by mu and rho at scores b + mu (z - b) + rho u_i v_j to out (6,).

    Here b = rb_i + cb_j. With x = z - b and q = u_i v_j, out has: objective; sums of slope x, slope q; sums of
    curvature x^2, curvature x q, curvature q^2. Beyond delta, the curvature of the Huber loss is that of a parabola
    that touches it from above.
    """
    cdef Loop loop
    cdef int k
    loop.mu, loop.rho = mu, rho
    loop.rb, loop.cb, loop.left, loop.right = at(rb), at(cb), at(u), at(v)
    with nogil:
        entry_by_entry(&loop, loss, p, z, o, c)
        row_by_row(&loop, indptr, indices, 2)
        fs_pool_run(loop.parts, <fs_part> five_dots_part[real], &loop, NULL, 0)
        for k in range(SUMS):
            out[k] = sum_of(&loop, k)


cdef void slope_along_part(void* context, ptrdiff_t part, real* scratch) noexcept nogil:
    cdef Loop* loop = <Loop*> context
    cdef const real* z = <const real*> loop.z
    cdef const real* o = <const real*> loop.o
    cdef const real* c = <const real*> loop.c
    cdef const real* d = <const real*> loop.d
    cdef double total = 0, slope, curve
    cdef Py_ssize_t k
    for k in range(part_entry(loop, part), part_entry(loop, part + 1)):
        loss_terms(loop.loss, loop.p, z[k] + loop.eta * d[k], o[k], &slope, &curve)
        if loop.weighted:
            slope *= c[k]
        total += slope * d[k]
    loop.sums[part][0] = total


def slope_along(int loss, double p, const real[::1] z, const real[::1] o, const real[::1] c, const real[::1] d,
                double eta):
    """Return the derivative by eta of the objective at the scores z + eta d."""
    cdef Loop loop
    loop.d, loop.eta = at(d), eta
    with nogil:
        entry_by_entry(&loop, loss, p, z, o, c)
        fs_pool_run(loop.parts, <fs_part> slope_along_part[real], &loop, NULL, 0)
    return sum_of(&loop, 0)
