# A rebase of the sketched Newton learners: Z takes X in.

from libc.float cimport DBL_EPSILON
from libc.math cimport fabs
from libc.stddef cimport ptrdiff_t
from libc.stdint cimport int32_t
from libc.string cimport memcpy, memset

from fastsketch._kernels.linalg.blas cimport gemm, gemv
from fastsketch._kernels.losses cimport dot
from fastsketch._kernels.online.basis cimport (SOME, add, add_kept_row, add_row, largest_move, recompute,
                                               row_dot, row_products, take_in, tolerance)
from fastsketch._kernels.online.newton_model cimport Model, over, transposed_times
from fastsketch._kernels.online.numbers cimport ALPHA, RANK, ROWS
from fastsketch._kernels.pool cimport fs_blas_alone, fs_pool_from, fs_pool_parts, fs_pool_run

cdef enum:
    WIDE = 512                   # columns of Z' recomputed together
    LEAST = 3000000              # multiplications of a part: about 100 us


cdef inline double* mixture(Model* s, double* moved, Py_ssize_t gap, Py_ssize_t* ld) noexcept nogil:
    """Compute the parts of B after a shrink, moved Z' + mix X: moved = N1 F (rank, r), mix = N2 C (rank, n) behind
    `gap` free columns."""
    cdef Py_ssize_t r = s.count[RANK], n = s.count[ROWS], rank = s.rank, i, j
    cdef double* mix = moved + rank * r
    ld[0] = gap + n
    for i in range(rank):
        transposed_times(r, r, s.frame, s.k, s.turn + i * s.k, moved + i * r)
        for j in range(n):
            mix[i * ld[0] + gap + j] = s.turn[i * s.k + r + j] * s.factors[j]
    return mix + gap


cdef inline void settle(Model* s) noexcept nogil:
    """Forget the rows since the last shrink."""
    memset(s.factors, 0, s.k * sizeof(double))
    memset(s.e, 0, s.k * sizeof(double))
    s.count[RANK], s.count[ROWS] = s.rank, 0


cdef inline void identity_frame(Model* s) noexcept nogil:
    cdef Py_ssize_t i
    memset(s.frame, 0, s.k * s.k * sizeof(double))
    memset(s.b, 0, s.k * sizeof(double))
    for i in range(s.rank):
        s.frame[i * s.k + i] = 1


cdef inline void rebase_sparse(Model* s) noexcept nogil:
    """Add the new rows to Z, touching nonzeros only, where F stays well-conditioned; else it is recomputed."""
    cdef Py_ssize_t r = s.count[RANK], n = s.count[ROWS], rank = s.rank, i, j, ld
    cdef double* moved = s.copy + max(rank, <Py_ssize_t> SOME) * rank
    cdef double* mix
    cdef double least
    if rank == r and rank > 0:
        mix = mixture(s, moved, rank, &ld)
        for i in range(rank):
            s.values[i] = s.small[i * s.k + i]
        # of H = B'B + alpha I, or of B'B
        least = s.scalar[ALPHA] if s.scalar[ALPHA] > 0 else s.values[rank - 1]
        if take_in(&s.c, rank, n, moved, mix - rank, s.copy, s.values, least, s.b,
                   largest_move(&s.c, n, s.e), tolerance()):
            # base loses the growth of Z b
            for j in range(n):
                for i in range(r):
                    s.e[j] -= mix[i * ld + j] * s.b[i]
                add_kept_row(&s.c, j, s.e[j], s.base)
            settle(s)
            return
    mix = mixture(s, moved, 0, &ld)
    fs_blas_alone(1)
    # base += Z b + X'e
    recompute(&s.c, rank, r, n, moved, mix, ld, s.copy, s.b, s.base)
    for j in range(n):
        add_kept_row(&s.c, j, s.e[j], s.base)
    fs_blas_alone(0)
    identity_frame(s)
    settle(s)


cdef struct Columns:
    # of Z' <- moved Z' + mix X and base += Z b + X'e
    Model* s
    Py_ssize_t n_parts, ld
    double* moved
    double* mix


cdef inline void rebase_columns(void* context, ptrdiff_t part, void* scratch) noexcept nogil:
    cdef Columns* c = <Columns*> context
    cdef Model* s = c.s
    cdef Py_ssize_t r = s.count[RANK], n = s.count[ROWS], rank = s.rank, i, width
    cdef Py_ssize_t j = fs_pool_from(s.d, c.n_parts, part, WIDE), stop = fs_pool_from(s.d, c.n_parts, part + 1, WIDE)
    cdef double* copy = <double*> scratch
    while j < stop:
        width = min(<Py_ssize_t> WIDE, stop - j)
        # the sums first, so that none is rounded at the size of base
        gemv(c'N', width, n, 1.0, s.kept + j, s.d, s.e, 0.0, s.line + j)
        add(width, 1, s.line + j, s.base + j)
        # a row-major matrix is its transpose to gemm
        gemm(c'N', c'N', width, rank, n, 1.0, s.kept + j, s.d, c.mix, c.ld, 0.0, copy, width)
        if r:
            gemv(c'N', width, r, 1.0, s.z + j, s.d, s.b, 0.0, s.line + j)
            add(width, 1, s.line + j, s.base + j)
            gemm(c'N', c'N', width, rank, r, 1.0, s.z + j, s.d, c.moved, r, 1.0, copy, width)
        for i in range(rank):
            memcpy(s.z + i * s.d + j, copy + i * width, width * sizeof(double))
        j += width


cdef inline void rebase_dense(Model* s) noexcept nogil:
    """Set Z' <- moved Z' + mix X, some columns at a time; b and e are added to base."""
    cdef Py_ssize_t r = s.count[RANK], n = s.count[ROWS], rank = s.rank
    cdef Columns c
    c.s, c.moved = s, s.copy + rank * WIDE
    c.mix = mixture(s, c.moved, 0, &c.ld)
    c.n_parts = fs_pool_parts(<double> s.d * (rank + 1) * (r + n), LEAST)
    fs_blas_alone(1)
    fs_pool_run(c.n_parts, rebase_columns, &c, s.copy, rank * WIDE * sizeof(double))
    fs_blas_alone(0)
    identity_frame(s)
    settle(s)


# -- the constraint, where base + Z b + X'e has lost the digits for it ---------------------------------------------------
cdef inline void form_sparse(Model* s) noexcept nogil:
    """Form w in base."""
    cdef Py_ssize_t j
    for j in range(s.c.seen):
        s.base[j] += dot(s.count[RANK], s.c.z + j * s.c.width, s.b)
    for j in range(s.count[ROWS]):
        add_kept_row(&s.c, j, s.e[j], s.base)
    memset(s.b, 0, s.k * sizeof(double))
    memset(s.e, 0, s.k * sizeof(double))


cdef inline void hold_sparse(Model* s, bint accurate, const double* values, const int32_t* places,
                             Py_ssize_t nonzeros) noexcept nogil:
    """Keep |w'x| <= 1 of the example learned last, after a shrink or where w is not accurate: it is formed in base.

    base moves along x, twice: the first time |w'x| misses 1 by the rounding of the w before.
    """
    cdef Py_ssize_t r = s.count[RANK], j, _again
    cdef double size, z
    if accurate:
        row_products(&s.c, r, 0, values, places, nonzeros, s.zx, s.gx)
        size = 0
        for j in range(nonzeros):
            size += fabs(values[j] * s.base[places[j]])
        accurate = size * DBL_EPSILON <= tolerance()
    if not accurate:
        form_sparse(s)
        memset(s.zx, 0, r * sizeof(double))
    for _again in range(2):
        z = row_dot(dot(r, s.zx, s.b), values, places, nonzeros, s.base)
        if over(z) != z:
            add_row((over(z) - z) / s.x_square, values, places, nonzeros, s.base)


cdef inline void hold_dense(Model* s, bint accurate, const double* x) noexcept nogil:
    """Keep |w'x| <= 1 as hold_sparse does: after a shrink base is w."""
    cdef Py_ssize_t j, _again
    cdef double z
    if not accurate:
        for j in range(s.count[RANK]):
            add(s.d, s.b[j], s.z + j * s.d, s.base)
        for j in range(s.count[ROWS]):
            add(s.d, s.e[j], s.kept + j * s.d, s.base)
        memset(s.b, 0, s.k * sizeof(double))
        memset(s.e, 0, s.k * sizeof(double))
    for _again in range(2):
        z = dot(s.d, x, s.base)
        if over(z) != z:
            add(s.d, (over(z) - z) / s.x_square, x, s.base)
