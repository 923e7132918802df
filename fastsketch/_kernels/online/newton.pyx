"""Rounds of the sketched online Newton step between two shrinks, in the small space.

Between shrinks H = B'B + alpha I with B = [F Z'; C X]. Z (d x r) is the result of earlier shrinks, X has the rows appended
since, unscaled, and C = diag(factors) their factors sqrt(mu + eta) * slope. The model is w = base + Z b + X'e. A round
changes only b and e: given the inner products Z'x, X x, x'x, base'x of the new row, all other computations have size at
most 2 m. Only a shrink changes Z and base (a "rebase"). The length of a step and the update of M are in projection.py
(Numba); the rest of a round is in newton_round.pxd.

    frame (k, k)  F in its upper left r x r; unused rows and columns zero
    small (k, k)  K = B B';   inverse (k, k)  M = (K + alpha I)^-1 while alpha > 0
    scalar, count: see numbers.pxd; r = RANK, t = ROUND

With decay, H = FADED (B'B + I alpha / FADED): B, K and M are stored without the decay since the last shrink, while alpha
includes it.
"""

cimport cython
from libc.float cimport DBL_EPSILON
from libc.math cimport NAN, fabs
from libc.stddef cimport ptrdiff_t
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy, memset

from fastsketch._kernels.level cimport follow
from fastsketch._kernels.linalg.blas cimport blas_int, gemm, gemv
from fastsketch._kernels.linalg.dots cimport fs_dots_d
from fastsketch._kernels.losses cimport dot, finite
from fastsketch._kernels.online.basis cimport (SOME, add, add_kept_row, add_row, keep_row, largest_move, recompute, row_dot,
                                               row_products, seen_with, take_in, tolerance)
from fastsketch._kernels.online.newton_round cimport (Model, bordered_inverse_t, fade, flat_projection_t, flat_steps_t,
                                                      keep_within, over, shrinking_round, step_length_t, transposed_times)
from fastsketch._kernels.online.numbers cimport (ALPHA, BOTH, COUNTS, CURRENT, FLOOR, Lesson, NEXT, PART_WORK, RANK, ROWS,
                                                 RowBlock, SCALARS, SEEN, StateArrays, place)
from fastsketch._kernels.online.rollback cimport Rollback, save_array, save_entries
from fastsketch._kernels.pool cimport fs_blas_alone, fs_pool_from, fs_pool_parts, fs_pool_run, join

import numpy as np

follow()
join()

# -- a rebase: Z takes in X ---------------------------------------------------------------------------------------------
cdef enum:
    WIDE = 512                   # columns of Z' recomputed together in a rebase of dense rows


cdef inline double* mixture(Model* s, double* moved, Py_ssize_t gap, Py_ssize_t* ld) noexcept nogil:
    """Compute moved (rank, r) and mix (rank, n) of the shrunk B = moved Z' + mix X, where the shrink is B <- turn B.

    mix is stored behind `moved`, with `gap` free columns before it; returns it, and its leading dimension in ld.
    """
    cdef Py_ssize_t r = s.count[RANK], n = s.count[ROWS], rank = s.rank, i, j
    cdef double* mix = moved + rank * r
    ld[0] = gap + n
    for i in range(rank):
        transposed_times(r, r, s.frame, s.k, s.turn + i * s.k, moved + i * r)
        for j in range(n):
            mix[i * ld[0] + gap + j] = s.turn[i * s.k + r + j] * s.factors[j]
    return mix + gap


cdef inline void settle(Model* s) noexcept nogil:
    """Clear X after a rebase and set the new rank."""
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
    """Rebase: move the sparse rows X into Z, only at their nonzeros if F stays well-conditioned, else recompute Z."""
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
    # Arguments of the threads that compute Z' <- moved Z' + mix X and base += Z b + X'e.
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
        # add the products up before they are added to base, which may be much larger
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
    """Rebase: set Z' <- moved Z' + mix X by blocks of columns on several threads, and add Z b + X'e to base."""
    cdef Py_ssize_t r = s.count[RANK], n = s.count[ROWS], rank = s.rank
    cdef Columns c
    c.s, c.moved = s, s.copy + rank * WIDE
    c.mix = mixture(s, c.moved, 0, &c.ld)
    c.n_parts = fs_pool_parts(<double> s.d * (rank + 1) * (r + n), PART_WORK)
    fs_blas_alone(1)
    fs_pool_run(c.n_parts, rebase_columns, &c, s.copy, rank * WIDE * sizeof(double))
    fs_blas_alone(0)
    identity_frame(s)
    settle(s)


# -- the constraint |w'x| <= 1 where base + Z b + X'e is too inaccurate for it ------------------------------------------
cdef inline void form_sparse(Model* s) noexcept nogil:
    """Set base = w and b = e = 0."""
    cdef Py_ssize_t j
    for j in range(s.c.seen):
        s.base[j] += dot(s.count[RANK], s.c.z + j * s.c.width, s.b)
    for j in range(s.count[ROWS]):
        add_kept_row(&s.c, j, s.e[j], s.base)
    memset(s.b, 0, s.k * sizeof(double))
    memset(s.e, 0, s.k * sizeof(double))


cdef inline void hold_sparse(Model* s, bint accurate, const double* values, const int32_t* places,
                             Py_ssize_t nonzeros) noexcept nogil:
    """Project w so that |w'x| <= 1 for the example learned last, after a shrink or if w is not accurate enough.

    If it is not, w is first formed in base. base moves along x twice, because the first move leaves an error of the
    rounding of the previous w.
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
    """Project w as hold_sparse does; after a shrink of dense rows base is w."""
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


# -- the loops ---------------------------------------------------------------------------------------------------------
cdef void sparse_loop(Model* s, Py_ssize_t n_rows, const double* data, const int32_t* indices, const int64_t* indptr,
                      const double* targets, const double* sample_weight, double* scores) noexcept nogil:
    """Learn CSR rows in slots until one is refused, whose score is set to NaN."""
    cdef Py_ssize_t i, n, nonzeros
    cdef const double* values
    cdef const int32_t* places
    cdef Py_ssize_t before
    cdef bint accurate
    for i in range(n_rows):
        values, places, nonzeros = data + indptr[i], indices + indptr[i], <Py_ssize_t> (indptr[i + 1] - indptr[i])
        n, before = s.count[ROWS], s.c.seen
        s.c.seen = seen_with(before, places, nonzeros)
        s.x_square = row_products(&s.c, s.count[RANK], n, values, places, nonzeros, s.zx, s.gx)
        s.base_x = row_dot(0, values, places, nonzeros, s.base)
        if not shrinking_round(s, targets[i], sample_weight[i], scores + i):
            s.c.seen, scores[i] = before, NAN
            return
        accurate = not s.same or keep_within(s, n)
        if s.extra != 0:
            add_row(s.extra, values, places, nonzeros, s.base)
        if s.count[ROWS] > n:
            keep_row(&s.c, n, values, places, nonzeros)
        if s.rank >= 0:
            rebase_sparse(s)
        if not accurate or (s.same and s.rank >= 0):
            hold_sparse(s, accurate, values, places, nonzeros)


cdef struct Products:
    # Arguments of the threads that compute the inner products of `block` rows x with base, Z', the `held` rows of X and the
    # rows of the block before each.
    Model* s
    Py_ssize_t n_parts, block, held
    const double* x


cdef void some_products(void* context, ptrdiff_t part, void* _scratch) noexcept nogil:
    cdef Products* p = <Products*> context
    cdef Model* s = p.s
    cdef Py_ssize_t first = fs_pool_from(p.block, p.n_parts, part, 12)  # rows that fs_dots takes together
    cdef Py_ssize_t n = fs_pool_from(p.block, p.n_parts, part + 1, 12) - first
    cdef Py_ssize_t d = s.d, m = s.m, ld = 1 + 5 * m
    cdef const double* x = p.x + first * d
    cdef double* out = s.products + first * ld
    fs_dots_d(n, 1, d, x, d, s.base, d, out, ld, False)
    fs_dots_d(n, s.count[RANK], d, x, d, s.z, d, out + 1, ld, False)
    fs_dots_d(n, p.held, d, x, d, s.kept, d, out + 1 + m, ld, False)
    out += 1 + m + p.held
    fs_dots_d(n, first, d, x, d, p.x, d, out, ld, False)
    fs_dots_d(n, n, d, x, d, x, d, out + first, ld, True)


cdef void dense_loop(Model* s, Py_ssize_t n_rows, const double* x, const double* targets, const double* sample_weight,
                     double* scores) noexcept nogil:
    """Learn dense rows until one is refused, whose score is set to NaN.

    Blocks end with a shrink. All inner products of a block are computed together, each with a fixed order of summation.
    """
    cdef Py_ssize_t done = 0, block, held, r, n, i, j, m = s.m, d = s.d, ld = 1 + 5 * m
    cdef double* products
    cdef bint accurate
    cdef Products p
    p.s = s
    while done < n_rows:
        held, r = s.count[ROWS], s.count[RANK]
        # constraint="next" moves base before each row, so that products with base cannot be computed ahead
        block = 1 if s.ahead else min(n_rows - done, s.k - held - r)
        # products = x [base; Z'; X; the block]'
        p.block, p.held, p.x = block, held, x
        p.n_parts = fs_pool_parts(<double> block * d * (1 + r + held + block / 2), PART_WORK)
        fs_pool_run(p.n_parts, some_products, &p, NULL, 0)
        for i in range(held):
            s.places[i] = 1 + m + i
        for i in range(block):
            products, n = s.products + i * ld, s.count[ROWS]
            s.base_x, s.x_square = products[0], products[1 + m + held + i]
            memcpy(s.zx, products + 1, r * sizeof(double))
            for j in range(n):
                s.gx[j] = products[s.places[j]]
            if not shrinking_round(s, targets[done], sample_weight[done], scores + done):
                scores[done] = NAN
                return
            accurate = not s.same or keep_within(s, n)
            if s.extra != 0:
                add(d, s.extra, x, s.base)
            if s.count[ROWS] > n:
                memcpy(s.kept + n * d, x, d * sizeof(double))
                s.places[n] = 1 + m + held + i
            x += d
            done += 1
            if s.rank >= 0:
                rebase_dense(s)
            if not accurate or (s.same and s.rank >= 0):
                hold_dense(s, accurate, x - d)
            # base has changed: the products of the other rows of the block are stale
            if not accurate or s.extra != 0 or s.rank >= 0:
                break


cdef void learn_block(Lesson* its, Py_ssize_t _n_lessons, const RowBlock* rows) noexcept nogil:
    cdef Model* s = <Model*> its.model
    cdef double* last = its.scores + rows.n - 1
    s.c.seen, last[0] = s.count[SEEN], NAN  # a score from an earlier call must not count as one of this
    if rows.indptr == NULL:
        dense_loop(s, rows.n, rows.data, its.targets, rows.sample_weight, its.scores)
    else:
        sparse_loop(s, rows.n, rows.data, rows.slots, rows.indptr, its.targets, rows.sample_weight, its.scores)
    s.count[SEEN] = s.c.seen
    if finite(last[0]):
        its.done = rows.n


# -- scratch -----------------------------------------------------------------------------------------------------------
cdef Py_ssize_t lay_out(Model* s, double* first, bint sparse) noexcept nogil:
    """Set the pointers to all workspaces in one array that begins at `first`; return its size in doubles."""
    cdef double* at = first
    cdef Py_ssize_t m = s.m, k = s.k
    s.line = place(&at, k if sparse else max(s.d, k))
    # gx follows zx
    s.zx = place(&at, m)
    s.gx = place(&at, k + 1)
    s.bx, s.q, s.p = place(&at, k + 1), place(&at, k + 1), place(&at, k + 1)
    s.first, s.second, s.values = place(&at, k + 1), place(&at, k + 1), place(&at, k + 1)
    s.turn, s.vectors = place(&at, m * k), place(&at, k * k)
    s.n_lapack = 1 + 38 * k + 2 * k * k
    s.lapack = place(&at, s.n_lapack)
    s.ints = <blas_int*> place(&at, 3 + 5 * k)
    # a block of Z, then moved, then mix with an identity before it
    s.copy = place(&at, m * (max(m, <Py_ssize_t> WIDE) + 2 * m + k))
    if sparse:
        s.c.work = place(&at, s.d)
    else:
        s.products = place(&at, (1 if s.ahead else k) * (1 + 5 * m))
        s.places = <Py_ssize_t*> place(&at, k)
    return at - first


# -- what Python calls ---------------------------------------------------------------------------------------------------
@cython.auto_pickle(False)
cdef class NewtonRounds(StateArrays):
    """Pointers to the arrays of a NewtonState, valid until one of the arrays is replaced, and scratch.

    setting: a NewtonSetting of fastsketch.online._newton_state.
    """

    cdef Model s

    def __init__(self, state, setting):
        cdef Model* s = &self.s
        cdef Py_ssize_t n
        if self.n_views:
            raise TypeError("rounds are of one state")
        self.model, self.learn_block, self.together, self.part_work = s, learn_block, 1, PART_WORK
        s.loss, s.m, s.spared = setting.loss, setting.sketch_size, setting.spared
        s.k = 2 * s.m
        s.same, s.ahead = setting.constraint in (CURRENT, BOTH), setting.constraint in (NEXT, BOTH)
        s.by_loss, s.loss_scale = setting.by_loss, setting.loss_scale
        s.grows = setting.method == "rfd"
        s.base, s.scalar = self.doubles(state.base), self.doubles(state.scalar)
        s.count = <int64_t*> self.pointer_to(state.count, b"l")
        s.decay, s.d = setting.decay, state.base.shape[0]
        self.take_steps(s.scalar[ALPHA] == 0 or s.same or s.ahead)
        self.take_rows(state.rows, state.sparse)
        self.take_space(state.space)
        n = lay_out(s, NULL, state.sparse)
        self.scratch = np.zeros(n)
        lay_out(s, &self.scratch[0], state.sparse)

    cdef int take_steps(self, bint singular) except -1:
        # only the functions that this model may need: without a cache Numba takes a tenth of a second to compile each
        from fastsketch._kernels.online.projection import (address, bordered_inverse, flat_projection, flat_steps,
                                                           step_length)

        cdef Model* s = &self.s
        s.step_length = <step_length_t> <size_t> address(step_length)
        s.bordered_inverse = <bordered_inverse_t> <size_t> address(bordered_inverse)
        if singular:
            s.flat_steps = <flat_steps_t> <size_t> address(flat_steps)
            s.flat_projection = <flat_projection_t> <size_t> address(flat_projection)
        return 0

    cdef int take_rows(self, rows, bint sparse) except -1:
        cdef Model* s = &self.s
        s.z = self.doubles(rows.z)
        if not sparse:
            s.kept = self.doubles(rows.kept)
            return 0
        s.c.width, s.c.z = s.m, s.z
        s.c.data, s.c.room = self.doubles(rows.kept_data), rows.kept_data.shape[0]
        s.c.indices = <int32_t*> self.pointer_to(rows.kept_indices, b"i")
        s.c.indptr = <int64_t*> self.pointer_to(rows.kept_indptr, b"l")
        return 0

    cdef int take_space(self, space) except -1:
        cdef Model* s = &self.s
        s.frame, s.small = self.doubles(space.frame), self.doubles(space.small)
        s.b, s.e = self.doubles(space.b), self.doubles(space.e)
        s.factors = self.doubles(space.factors)
        s.inverse = self.doubles(space.inverse)
        s.c.frame, s.c.ld_frame = s.frame, s.k
        return 0

    cdef double work(self, double n_values, double n) noexcept nogil:
        # a rebase may touch all slots
        return max(<double> self.s.k * (n_values + n * self.s.k), <double> self.s.count[SEEN])

    cdef bint is_ready(self, const RowBlock* rows) noexcept nogil:
        cdef Model* s = &self.s
        cdef Py_ssize_t held = s.count[ROWS], used
        if s.scalar[ALPHA] == 0:
            return False
        if rows.indptr == NULL:
            return True
        used = s.c.indptr[held]
        return max(s.k * rows.longest, used + (s.k - held) * rows.longest) <= s.c.room

    cdef bint rebases(self, Py_ssize_t n) noexcept nogil:
        """Return whether learning n rows may shrink the sketch, even if one of them or another state refuses a row."""
        return n >= self.s.k - self.s.count[RANK] - self.s.count[ROWS]

    cdef bint takes_in_whole(self) noexcept nogil:
        cdef Model* s = &self.s
        if not s.ahead and s.decay == 1:
            return True
        # a reset of alpha before the row is learned would remain
        return not self.rebases(1) and (s.decay == 1 or s.scalar[ALPHA] * s.decay >= s.scalar[FLOOR] / 2)

    cdef void save_before(self, Rollback* before, const RowBlock* rows) noexcept nogil:
        cdef Model* s = &self.s
        cdef Py_ssize_t held = s.count[ROWS], k = s.k
        cdef bint rebases = self.rebases(rows.n)
        save_array(before, s.scalar, SCALARS * sizeof(double))
        save_array(before, s.count, COUNTS * sizeof(int64_t))
        save_array(before, s.factors, k * sizeof(double))
        save_array(before, s.b, k * sizeof(double))
        save_array(before, s.e, k * sizeof(double))
        save_array(before, s.frame, k * k * sizeof(double))
        save_array(before, s.small, k * k * sizeof(double))
        save_array(before, s.inverse, k * k * sizeof(double))
        if rebases:
            save_array(before, s.base, rows.n_slots * sizeof(double))
            save_array(before, s.z, rows.n_slots * s.m * sizeof(double))
        elif s.same:
            save_array(before, s.base, (s.d if rows.indptr == NULL else rows.n_slots) * sizeof(double))
        elif s.ahead and rows.indptr != NULL:
            save_entries(before, s.base, rows.slots, rows.indptr[rows.n])
        elif s.ahead:
            save_array(before, s.base, s.d * sizeof(double))
        if rows.indptr == NULL:
            save_array(before, s.kept if rebases else s.kept + held * s.d, (k if rebases else rows.n) * s.d * sizeof(double))
            return
        if rebases:
            save_array(before, s.c.data, s.c.indptr[held] * sizeof(double))
            save_array(before, s.c.indices, s.c.indptr[held] * sizeof(int32_t))
        save_array(before, s.c.indptr, (k + 1) * sizeof(int64_t))

    def fade(self, double factor):
        """Multiply the weight of earlier rows in H by `factor`; needs alpha > 0."""
        if not fade(&self.s, factor):
            raise np.linalg.LinAlgError("the small space has no factorisation")
