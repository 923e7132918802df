"""Rounds of adaptive subgradients whose H = delta I + (S'S)^(1/2) has low rank (ADA-FD, ADA-FFD, ADA-FULL, FD-SON).

FTSL has H = delta I + (S'S + rho I)^(1/2), where rho is the sum of what shrinks have removed.

S'S = V diag(lam) V' with orthonormal V = C'T. C has at most `cap` rows: those of the last rebase, and the examples x since
then. A gradient changes T but not the rows of C. So a round costs one pass over C, for p = C x, and work in the small
space: y = V'x = T'p, a rank-one update of the eigenvalues (csrc/fs_secular), T <- T W. Only a rebase, C <- T'C, costs as
much as an SVD.

The model is w = scale (base + Z b) + C'steps. Mirror descent moves base and steps; dual averaging keeps the sum of
gradients in base, scale = -eta / delta.

For sparse rows C = [F Z'; X] with Z (d x r) feature-major and X sparse (basis.pxd); a round then costs the nonzeros of x,
and d is the number of slots. The arrays are those of SketchedState in fastsketch.online._adaptive_state:

    turn (most, cap)    T'                      lam (most,)         descending
    gram (cap, cap)     C C', from the products of the rounds
    base (d,)   steps (cap,)   scalar, count: see numbers.pxd
    inner (cap,)        C v, where v is w / scale (mirror descent) or the sum of gradients (dual averaging)

With `in_units`, for real targets, the sketch takes slopes divided by the root mean square of the residuals so far, while
steps are as long as the slopes themselves: so that a model of c y is c times that of y.
"""

cimport cython
from libc.math cimport fabs, sqrt
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy, memset

from fastsketch._kernels.level cimport follow
from fastsketch._kernels.linalg.blas cimport gemm
from fastsketch._kernels.linalg.dots cimport fs_dots_d
from fastsketch._kernels.losses cimport L1_PENALTY, L2_PENALTY, dot, flat
from fastsketch._kernels.online.adaptive_round cimport (PACKED, Model, count_losses, give_up_steps, idle, keep_scale, predict,
                                                        sketch, sketch_slope, step, step_l1, take_row, take_x, turn_inner)
from fastsketch._kernels.online.basis cimport (SOME, add, add_kept_row, add_row, keep_row, largest_move, recompute, row_dot,
                                               row_products, seen_with, take_in, tolerance)
from fastsketch._kernels.online.numbers cimport (BUFFERED, COUNTS, Lesson, OLD, PART_WORK, RANK, ROWS, RowBlock, SCALARS, SCALE,
                                                 SEEN, SHRINKAGE, StateArrays, WHEN_FULL, place)
from fastsketch._kernels.online.rollback cimport Rollback, save_array, save_entries
from fastsketch._kernels.online.turning cimport (clear, fresh_basis, full, ints_size, least_new, must_rebase, polish, project,
                                                 secular_size, small_size)
from fastsketch._kernels.pool cimport fs_blas_alone, join

import numpy as np

follow()
join()

# -- dense rows C --------------------------------------------------------------------------------------------------------
cdef inline void rebase_dense(Model* s) noexcept nogil:
    """Rebase dense rows: C <- T'C, with RANK rows. Mirror descent also adds C'steps / scale to base."""
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
    """Append the component of x that is orthogonal to C, normalised, as a row of C, unless it is rounding.

    It is orthogonalised twice.
    """
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
    """Set p = C x and base_x = base'x for a dense row."""
    fs_dots_d(1, s.t.count[ROWS], s.d, x, s.d, s.rows, s.d, s.p, s.t.cap, False)
    fs_dots_d(1, 1, s.d, x, s.d, s.base, s.d, &s.base_x, 1, False)


cdef inline bint dense_round(Model* s, const double* x, double y, double weight) noexcept nogil:
    """Learn one dense row; s.score becomes its score. Return False, with nothing changed, if that is not finite."""
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


# -- sparse rows C = [F Z'; X] (basis.pxd) ---------------------------------------------------------------------------------
cdef enum:
    # How a round ended.
    LEARNED = 0
    BAD = 1                      # the score, or a square, is not finite
    ROOM = 2                     # the arrays of X have no room for the row


cdef inline double noise() noexcept nogil:
    # A squared residual below this share of x'x may be the rounding error of y'y.
    return 1e-13


cdef inline void rebase_sparse(Model* s) noexcept nogil:
    """Rebase sparse rows: C <- T'C = [F Z'].

    If F stays well-conditioned, Z changes at the nonzeros of X only. Otherwise all of Z is computed again, and F is I but
    for a correction of its rounding.
    """
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
        # the rows V' have length 1, also where decay has reduced the eigenvalue
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
    """Append the component of a sparse x as explicit_dense does; return False, with nothing changed, if X has no room."""
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
    """Set p = C x, x_square = x'x and base_x = (base + Z b)'x for a sparse row."""
    cdef Py_ssize_t old = s.t.count[OLD], i
    cdef double* g = s.t.small
    s.x_square = row_products(&s.c, old, s.t.count[ROWS] - old, values, places, nonzeros, g, s.p + old)
    for i in range(old):
        s.p[i] = dot(old, s.c.frame + i * s.width, g)
    s.base_x = row_dot(dot(old, s.b, g), values, places, nonzeros, s.base)


cdef inline int sparse_round(Model* s, const double* values, const int32_t* places, Py_ssize_t nonzeros, double y,
                             double weight) noexcept nogil:
    """Learn one sparse row and return how that ended.

    BAD changes nothing. ROOM may leave the effect of a rebase, after which the same row can be tried again.
    """
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


# -- batches -------------------------------------------------------------------------------------------------------------
cdef void learn_block(Lesson* its, Py_ssize_t _n_lessons, const RowBlock* rows) noexcept nogil:
    cdef Model* s = <Model*> its.model
    cdef Py_ssize_t i, nonzeros, before
    cdef int status
    s.c.seen = s.t.count[SEEN]
    for i in range(rows.n):
        before = s.c.seen
        if rows.indptr == NULL:
            status = LEARNED if dense_round(s, rows.data + i * s.d, its.targets[i], rows.sample_weight[i]) else BAD
        else:
            nonzeros = rows.indptr[i + 1] - rows.indptr[i]
            s.c.seen = seen_with(before, rows.slots + rows.indptr[i], nonzeros)
            status = sparse_round(s, rows.data + rows.indptr[i], rows.slots + rows.indptr[i], nonzeros, its.targets[i],
                                  rows.sample_weight[i])
        if status != LEARNED:
            its.lacks_room, s.c.seen = status == ROOM, before
            break
        its.scores[i], its.done = s.score, i + 1
    s.t.count[SEEN] = s.c.seen


cdef Py_ssize_t lay_out(Model* s, double* first) noexcept nogil:
    """Set the pointers to all workspaces in one array that begins at `first`; return its size in doubles."""
    cdef double* at = first
    cdef Py_ssize_t most = s.t.most, cap = s.t.cap
    s.p, s.t.y = place(&at, cap + 1), place(&at, most + 1)
    # first for the directions, then for the rows of C
    s.f = place(&at, most + cap + 1)
    s.t.secular = place(&at, secular_size(most))
    # the largest of what rank_one and the rebases need; step_l1: active, half, jacobian; rebase_sparse: a square matrix,
    # moved, mix, copy
    s.t.small = place(&at, max(small_size(most, cap), cap * cap + most * (most + cap),
                               most * (most + 2 * s.width + cap + max(most, <Py_ssize_t> SOME))))
    s.t.ints = <int32_t*> place(&at, ints_size(most) // 2 + 1)
    # a row, or the workspace of step_l1
    s.extra = s.c.work = place(&at, 3 * s.d + 6 * most + PACKED * cap if s.phi == L1_PENALTY else s.d)
    return at - first


@cython.auto_pickle(False)
cdef class AdaptiveRounds(StateArrays):
    """Pointers to the arrays of a SketchedState, valid until one of the arrays is replaced, and scratch.

    setting: an AdaptiveSetting. A state with dense rows needs `total` for phi = L1_PENALTY with dual averaging.
    """

    cdef Model s

    def __init__(self, state, setting):
        cdef Model* s = &self.s
        rows = state.rows
        if self.n_views:
            raise TypeError("rounds are of one state")
        self.model, self.learn_block, self.together, self.part_work = s, learn_block, 1, PART_WORK
        s.loss, s.t.rule, s.phi, s.dual = setting.loss, setting.method, setting.phi, setting.dual
        s.t.root, s.fade, s.t.tau, s.strength = setting.root, setting.fade, setting.sketch_size, setting.strength
        s.eta, s.decay, s.in_units = setting.learning_rate, setting.decay, setting.in_units
        s.d, (s.t.most, s.t.cap) = state.base.shape[0], state.turn.shape
        s.base, s.scalar = self.doubles(state.base), self.doubles(state.scalar)
        s.t.count = <int64_t*> self.pointer_to(state.count, b"l")
        s.t.buffered = s.scalar + BUFFERED if s.fade else NULL
        s.t.carried = s.scalar + SHRINKAGE if setting.compensate else NULL
        s.t.turn, s.t.lam = self.doubles(state.turn), self.doubles(state.lam)
        s.t.gram, s.steps = self.doubles(state.gram), self.doubles(state.steps)
        s.inner = self.doubles(state.inner)
        if state.sparse:
            s.width = s.c.width = s.c.ld_frame = rows.z.shape[1]
            s.c.z, s.c.frame = self.doubles(rows.z), self.doubles(rows.frame)
            s.c.data, s.c.room = self.doubles(rows.kept_data), rows.kept_data.shape[0]
            s.c.indices = <int32_t*> self.pointer_to(rows.kept_indices, b"i")
            s.c.indptr = <int64_t*> self.pointer_to(rows.kept_indptr, b"l")
            s.b = self.doubles(rows.b)
        else:
            s.rows, s.total = self.doubles(rows.rows), self.doubles(rows.total)
        self.scratch = np.zeros(lay_out(s, NULL))
        lay_out(s, &self.scratch[0])

    cdef double work(self, double n_values, double n) noexcept nogil:
        cdef Model* s = &self.s
        if s.phi == L1_PENALTY:  # about 20 Newton steps
            return 20 * n * s.d * s.t.most * s.t.cap
        # a rebase may touch all slots
        return max(s.t.cap * (n_values + n * s.t.most), <double> s.t.count[SEEN])

    cdef bint is_ready(self, const RowBlock* rows) noexcept nogil:
        cdef Model* s = &self.s
        cdef Py_ssize_t held = s.t.count[ROWS] - s.t.count[OLD]
        return rows.indptr == NULL or s.c.indptr[held] + rows.longest * min(s.t.cap - held, rows.n) <= s.c.room

    cdef bint takes_in_whole(self) noexcept nogil:
        return True

    cdef void save_before(self, Rollback* before, const RowBlock* rows) noexcept nogil:
        cdef Model* s = &self.s
        cdef Py_ssize_t held = s.t.count[ROWS], cap = s.t.cap, left = cap - held
        if s.t.rule == WHEN_FULL:
            left = min(left, 2 * s.t.tau - s.t.count[RANK])
            if s.t.buffered != NULL:
                left = min(left, 2 * s.t.tau - <Py_ssize_t> s.t.buffered[0])
        cdef bint rebases = rows.n > left
        save_array(before, s.scalar, SCALARS * sizeof(double))
        save_array(before, s.t.count, COUNTS * sizeof(int64_t))
        save_array(before, s.t.turn, s.t.most * cap * sizeof(double))
        save_array(before, s.t.lam, s.t.most * sizeof(double))
        save_array(before, s.t.gram, cap * cap * sizeof(double))
        save_array(before, s.steps, cap * sizeof(double))
        save_array(before, s.inner, cap * sizeof(double))
        if rows.indptr == NULL:
            save_array(before, s.base, s.d * sizeof(double))
            save_array(before, s.total, s.d * sizeof(double))
            save_array(before, s.rows if rebases else s.rows + held * s.d, (cap if rebases else rows.n) * s.d * sizeof(double))
            return
        save_array(before, s.c.indptr, (cap + 1) * sizeof(int64_t))
        save_array(before, s.b, s.width * sizeof(double))
        if not rebases and s.phi != L2_PENALTY:
            save_entries(before, s.base, rows.slots, rows.indptr[rows.n])
            return
        # `keep_scale` may multiply all of base
        save_array(before, s.base, rows.n_slots * sizeof(double))
        if rebases:
            held -= s.t.count[OLD]
            save_array(before, s.c.z, rows.n_slots * s.width * sizeof(double))
            save_array(before, s.c.frame, s.width * s.width * sizeof(double))
            save_array(before, s.c.data, s.c.indptr[held] * sizeof(double))
            save_array(before, s.c.indices, s.c.indptr[held] * sizeof(int32_t))
