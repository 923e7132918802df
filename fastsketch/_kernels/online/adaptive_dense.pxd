# Rounds of adaptive subgradients whose rows C are dense.

from libc.math cimport sqrt
from libc.string cimport memcpy, memset

from fastsketch._kernels.linalg.blas cimport gemm
from fastsketch._kernels.linalg.dots cimport fs_dots_d
from fastsketch._kernels.losses cimport L1_PENALTY, dot, flat
from fastsketch._kernels.online.adaptive_l1 cimport step_l1
from fastsketch._kernels.online.adaptive_model cimport (Model, count_losses, give_up_steps, idle, keep_scale, predict,
                                                        sketch, sketch_slope, step, take_row, take_x, turn_inner)
from fastsketch._kernels.online.basis cimport add
from fastsketch._kernels.online.numbers cimport RANK, ROWS, SCALE
from fastsketch._kernels.online.turning cimport (clear, fresh_basis, full, least_new, must_rebase, polish, project)
from fastsketch._kernels.pool cimport fs_blas_alone


cdef inline void rebase_dense(Model* s) noexcept nogil:
    """Rebase: C <- T'C, its first RANK rows; steps are added to base."""
    cdef Py_ssize_t n = s.t.count[RANK], rows = s.t.count[ROWS], i, j, width
    cdef double* made = s.t.small + s.t.most * s.t.most
    fs_blas_alone(1)
    # the true C C', without the rounding of the rounds
    gemm(c'T', c'N', rows, rows, s.d, 1.0, s.rows, s.d, s.rows, s.d, 0.0, s.t.gram, s.t.cap)
    polish(&s.t)
    if not s.dual:
        give_up_steps(s)
        for i in range(rows):
            add(s.d, s.steps[i] / s.scalar[SCALE], s.rows + i * s.d, s.base)
    turn_inner(s)
    j = 0
    while j < s.d:
        width = min(s.t.cap, s.d - j)
        gemm(c'N', c'N', width, n, rows, 1.0, s.rows + j, s.d, s.t.turn, s.t.cap, 0.0, made, width)
        for i in range(n):
            memcpy(s.rows + i * s.d + j, made + i * width, width * sizeof(double))
        j += width
    fs_blas_alone(0)
    for i in range(n, rows):
        memset(s.rows + i * s.d, 0, s.d * sizeof(double))
    fresh_basis(&s.t)


cdef inline void explicit_dense(Model* s, const double* x) noexcept nogil:
    """Append the new part of x, orthonormalised twice, as a row of C if it is more than rounding."""
    cdef Py_ssize_t rows = s.t.count[ROWS], rank = s.t.count[RANK], i, _again
    cdef double* p = s.f + s.t.most
    cdef double* v = s.extra
    cdef double size
    memcpy(v, x, s.d * sizeof(double))
    for _again in range(2):
        fs_dots_d(1, rows, s.d, v, s.d, s.rows, s.d, p, rows, False)
        memset(s.t.small, 0, rows * sizeof(double))
        for i in range(rank):
            add(rows, dot(rows, s.t.turn + i * s.t.cap, p), s.t.turn + i * s.t.cap, s.t.small)
        for i in range(rows):
            add(s.d, -s.t.small[i], s.rows + i * s.d, v)
    size = sqrt(dot(s.d, v, v))
    if not size > least_new() * sqrt(s.x_square):
        return
    for i in range(s.d):
        v[i] /= size
    fs_dots_d(1, rows, s.d, v, s.d, s.rows, s.d, p, rows, False)
    fs_dots_d(1, 1, s.d, v, s.d, s.base, s.d, &s.base_x, 1, False)
    s.p[rows] = dot(s.d, v, x)
    memcpy(s.rows + rows * s.d, v, s.d * sizeof(double))
    take_row(s, p, dot(s.d, v, v), s.p[rows], True)


cdef inline void dense_products(Model* s, const double* x) noexcept nogil:
    """Compute p = C x and base_x of a dense row."""
    fs_dots_d(1, s.t.count[ROWS], s.d, x, s.d, s.rows, s.d, s.p, s.t.cap, False)
    fs_dots_d(1, 1, s.d, x, s.d, s.base, s.d, &s.base_x, 1, False)


cdef inline bint dense_round(Model* s, const double* x, double y, double weight) noexcept nogil:
    """Learn from one row, whose score is then s.score; False, with nothing changed, if that is not finite."""
    cdef double rest
    cdef bint moving
    fs_dots_d(1, 1, s.d, x, s.d, x, s.d, &s.x_square, 1, False)
    dense_products(s, x)
    if not predict(s, y, weight):
        return False
    count_losses(s, y, weight)
    if idle(s, weight):
        return True
    moving = not flat(sketch_slope(s, weight)) and s.x_square > 0
    if (moving or full(&s.t)) and must_rebase(&s.t):
        rebase_dense(s)
        dense_products(s, x)
    if moving:
        project(&s.t, s.p)
        if s.t.count[RANK] < s.t.most:
            rest = s.x_square - dot(s.t.count[RANK], s.t.y, s.t.y)
            if rest > clear() * s.x_square:
                memcpy(s.rows + s.t.count[ROWS] * s.d, x, s.d * sizeof(double))
                take_x(s, rest)
            else:
                explicit_dense(s, x)
        sketch(s, sketch_slope(s, weight))
    if s.phi == L1_PENALTY:
        fs_blas_alone(1)
        step_l1(s, x)
        fs_blas_alone(0)
        return True
    step(s)
    if s.slope != 0:
        add(s.d, s.slope, x, s.base)
    keep_scale(s)
    return True
