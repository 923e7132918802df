# Rounds of adaptive subgradients on C = [F Z'; X] (basis.pxd).

from libc.math cimport fabs, sqrt
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy, memset

from fastsketch._kernels.linalg.blas cimport gemm
from fastsketch._kernels.losses cimport dot, flat
from fastsketch._kernels.online.adaptive_model cimport (Model, count_losses, give_up_steps, idle, keep_scale, predict,
                                                        sketch, sketch_slope, step, take_row, take_x, turn_inner)
from fastsketch._kernels.online.basis cimport (add, add_kept_row, add_row, keep_row, largest_move, recompute, row_dot, row_products, take_in, tolerance)
from fastsketch._kernels.online.numbers cimport OLD, RANK, ROWS, SCALE
from fastsketch._kernels.online.turning cimport clear, fresh_basis, full, least_new, must_rebase, polish, project
from fastsketch._kernels.pool cimport fs_blas_alone

cdef enum:
    # how a round ended
    LEARNED = 0
    BAD = 1                      # a score is not finite
    ROOM = 2                     # X has no room for its row


cdef inline double noise() noexcept nogil:
    # below this share of x'x nothing of a row is new: it may be the rounding of y'y
    return 1e-13


cdef inline void rebase_sparse(Model* s) noexcept nogil:
    """Rebase: C <- T'C as [F Z'] with new F, touching nonzeros of X only where F stays well-conditioned; else F = I."""
    cdef Py_ssize_t n = s.t.count[RANK], old = s.t.count[OLD], fresh = s.t.count[ROWS] - old, width = s.width, i, j
    cdef double* moved = s.t.small + s.t.most * s.t.most       # n x old
    cdef double* mix = moved + s.t.most * width            # n x (n + fresh)
    cdef double* copy = mix + s.t.most * (width + s.t.cap)
    cdef double g, move = largest_move(&s.c, fresh, s.steps + old) / fabs(s.scalar[SCALE])
    polish(&s.t)
    if not s.dual:
        give_up_steps(s)
        # b += F'steps / scale
        for i in range(old):
            add(old, s.steps[i] / s.scalar[SCALE], s.c.frame + i * width, s.b)
        for i in range(fresh):
            add_kept_row(&s.c, i, s.steps[old + i] / s.scalar[SCALE], s.base)
    turn_inner(s)
    # V' = moved Z' + mix X
    memset(moved, 0, n * old * sizeof(double))
    for i in range(n):
        for j in range(old):
            add(old, s.t.turn[i * s.t.cap + j], s.c.frame + j * width, moved + i * old)
    if n == old and n > 0:
        for i in range(n):
            memcpy(mix + i * (n + fresh) + n, s.t.turn + i * s.t.cap + old, fresh * sizeof(double))
        # what fades leaves V, and F would hold small multiples of a large Z
        for i in range(n):
            s.f[i] = 1
        # H^-1 = (I - V share V') / delta changes by 2 delta^-1 times the errors of the rows V'
        if take_in(&s.c, n, fresh, moved, mix, copy, s.f,
                   1.0, s.b, move, 10 * tolerance()):
            # base loses the growth of Z b
            for j in range(fresh):
                g = 0
                for i in range(n):
                    g += mix[i * (n + fresh) + n + j] * s.b[i]
                add_kept_row(&s.c, j, -g, s.base)
            s.c.indptr[0] = 0
            fresh_basis(&s.t)
            return
    fs_blas_alone(1)
    recompute(&s.c, n, old, fresh, moved, s.t.turn + old, s.t.cap, copy, s.b, s.base)
    memset(s.b, 0, width * sizeof(double))
    # F = 3/2 I - 1/2 Z'Z: the computed Z is not exactly orthonormal
    memset(s.c.frame, 0, width * width * sizeof(double))
    gemm(c'N', c'T', n, n, s.c.seen, -0.5, s.c.z, width, s.c.z, width, 0.0, s.c.frame, width)
    fs_blas_alone(0)
    for i in range(n):
        s.c.frame[i * width + i] += 1.5
    s.t.count[OLD] = n
    fresh_basis(&s.t)


cdef inline bint explicit_sparse(Model* s, const double* values, const int32_t* places, Py_ssize_t nonzeros) noexcept nogil:
    """Append the new part of x as explicit_dense does; return False, with nothing changed, where X has no room."""
    cdef Py_ssize_t rows = s.t.count[ROWS], old = s.t.count[OLD], rank = s.t.count[RANK], i, j, c, again
    cdef int64_t used = s.c.indptr[rows - old], q
    cdef double* v = s.c.work
    cdef double* p = s.f + s.t.most
    cdef double* g = s.t.small
    cdef double size, total
    if used + s.c.seen > s.c.room:
        return False
    for i in range(nonzeros):
        v[places[i]] = values[i]
    for again in range(3):
        # p = C v: twice for the residual, once for the gram matrix
        memset(g, 0, old * sizeof(double))
        for c in range(s.c.seen):
            if v[c] != 0:
                add(old, v[c], s.c.z + c * s.width, g)
        for i in range(old):
            p[i] = dot(old, s.c.frame + i * s.width, g)
        for j in range(rows - old):
            total = 0
            for q in range(s.c.indptr[j], s.c.indptr[j + 1]):
                total += s.c.data[q] * v[s.c.indices[q]]
            p[old + j] = total
        if again == 2:
            break
        # v -= C'T T'p
        memset(g, 0, rows * sizeof(double))
        for i in range(rank):
            add(rows, dot(rows, s.t.turn + i * s.t.cap, p), s.t.turn + i * s.t.cap, g)
        memset(g + rows, 0, old * sizeof(double))
        for i in range(old):
            add(old, g[i], s.c.frame + i * s.width, g + rows)
        if old:
            for c in range(s.c.seen):
                v[c] -= dot(old, s.c.z + c * s.width, g + rows)
        for j in range(rows - old):
            add_kept_row(&s.c, j, -g[old + j], v)
    size = sqrt(dot(s.c.seen, v, v))
    if size > least_new() * sqrt(s.x_square):
        for i in range(rows):
            p[i] /= size
        for c in range(s.c.seen):
            if v[c] != 0:
                s.c.data[used], s.c.indices[used] = v[c] / size, <int32_t> c
                used += 1
        s.c.indptr[rows - old + 1] = used
        total = 0
        for i in range(nonzeros):
            total += values[i] * v[places[i]]
        s.p[rows] = total / size
        total = 0
        for c in range(s.c.seen):
            total += v[c] * (s.base[c] + dot(old, s.c.z + c * s.width, s.b))
        s.base_x = total / size
        take_row(s, p, 1.0, s.p[rows], True)
    memset(v, 0, s.c.seen * sizeof(double))
    return True


cdef inline void sparse_products(Model* s, const double* values, const int32_t* places, Py_ssize_t nonzeros) noexcept nogil:
    """Compute p = C x, x_square and base_x of a sparse row."""
    cdef Py_ssize_t old = s.t.count[OLD], i
    cdef double* g = s.t.small
    s.x_square = row_products(&s.c, old, s.t.count[ROWS] - old, values, places, nonzeros, g, s.p + old)
    for i in range(old):
        s.p[i] = dot(old, s.c.frame + i * s.width, g)
    s.base_x = row_dot(dot(old, s.b, g), values, places, nonzeros, s.base)


cdef inline int sparse_round(Model* s, const double* values, const int32_t* places, Py_ssize_t nonzeros, double y,
                             double weight) noexcept nogil:
    """Learn from one row: LEARNED, or BAD or ROOM with nothing changed that another try would not change again."""
    cdef Py_ssize_t fresh
    cdef double rest
    cdef bint moving, quiet
    sparse_products(s, values, places, nonzeros)
    if not predict(s, y, weight):
        return BAD
    moving = not flat(sketch_slope(s, weight)) and s.x_square > 0
    quiet = idle(s, weight)
    if not quiet and (moving or full(&s.t)) and must_rebase(&s.t):
        rebase_sparse(s)
        sparse_products(s, values, places, nonzeros)
    if moving:
        project(&s.t, s.p)
        if s.t.count[RANK] < s.t.most:
            rest = s.x_square - dot(s.t.count[RANK], s.t.y, s.t.y)
            if rest > clear() * s.x_square:
                fresh = s.t.count[ROWS] - s.t.count[OLD]
                if s.c.indptr[fresh] + nonzeros > s.c.room:
                    return ROOM
                keep_row(&s.c, fresh, values, places, nonzeros)
                take_x(s, rest)
            elif rest > noise() * s.x_square:
                if not explicit_sparse(s, values, places, nonzeros):
                    return ROOM
    count_losses(s, y, weight)
    if quiet:
        return LEARNED
    if moving:
        sketch(s, sketch_slope(s, weight))
    step(s)
    if s.slope != 0:
        add_row(s.slope, values, places, nonzeros, s.base)
    keep_scale(s)
    return LEARNED
