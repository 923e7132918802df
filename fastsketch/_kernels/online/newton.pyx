"""Rounds of the sketched online Newton step between two shrinks, in the small space.

Between shrinks H = B'B + alpha I with B = [F Z'; C X], where Z (d x r) holds what earlier shrinks kept, X the rows
appended since, unscaled, and C = diag(factors) their sqrt(mu + eta) * slope. The model is w = base + Z b + X'e. A round
changes b and e alone: with the inner products Z'x, X x, x'x, base'x of the new row everything else is of size at most
2 m. Only a shrink touches Z and base. How far a step goes, and how M changes, is in _kernels/online/projection (Numba).

    frame (k, k)  F in its upper left r x r; unused rows and columns zero
    small (k, k)  K = B B';   inverse (k, k)  M = (K + alpha I)^-1 while alpha > 0
    scalar, count: the entries of numbers.pxd, r = RANK, t = ROUND

H is FADED (B'B + I alpha / FADED): with decay, B, K and M are those of rows that have not faded since the last shrink,
and alpha is the true one.
"""

cimport cython
from libc.math cimport NAN
from libc.stddef cimport ptrdiff_t
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from fastsketch._kernels.brief cimport BRIEF
from fastsketch._kernels.level cimport follow
from fastsketch._kernels.linalg.blas cimport blas_int
from fastsketch._kernels.linalg.dots cimport fs_dots_d
from fastsketch._kernels.losses cimport finite
from fastsketch._kernels.online.basis cimport add, add_row, keep_row, row_dot, row_products, seen_with
from fastsketch._kernels.online.newton_model cimport (Model, bordered_inverse_t, flat_projection_t, flat_steps_t,
                                                      step_length_t)
from fastsketch._kernels.online.newton_rows cimport LEAST, WIDE, hold_dense, hold_sparse, rebase_dense, rebase_sparse
from fastsketch._kernels.online.newton_shrinking cimport fade, keep_within, shrinking_round
from fastsketch._kernels.online.numbers cimport (ALPHA, BOTH, COUNTS, CURRENT, FLOOR, FewRowsOf, NEXT, RANK, ROWS, SCALARS,
                                                 SEEN, StateArrays, place)
from fastsketch._kernels.online.undo cimport Undo, keep, keep_entries
from fastsketch._kernels.pool cimport fs_blas_alone, fs_pool_from, fs_pool_parts, fs_pool_run, join

import numpy as np

follow()
join()


# -- the loops ---------------------------------------------------------------------------------------------------------
cdef void sparse_loop(Model* s, Py_ssize_t n_rows, const double* data, const int32_t* indices, const int64_t* indptr,
                      const double* targets, const double* sample_weight, double* scores) noexcept nogil:
    """Learn from CSR rows in slots, up to the first one that is refused: its score is not finite."""
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
    # of `block` rows x with base, Z', `held` rows X, and those of the block before each
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
    """Learn from rows as sparse_loop does, in blocks that end with a shrink: all inner products of a block at once, each
    in an order of its own."""
    cdef Py_ssize_t done = 0, block, held, r, n, i, j, m = s.m, d = s.d, ld = 1 + 5 * m
    cdef double* products
    cdef bint accurate
    cdef Products p
    p.s = s
    while done < n_rows:
        held, r = s.count[ROWS], s.count[RANK]
        # a constraint on the next score moves base, of which the next row needs the product
        block = 1 if s.ahead else min(n_rows - done, s.k - held - r)
        # products = x [base; Z'; X; the block]'
        p.block, p.held, p.x = block, held, x
        p.n_parts = fs_pool_parts(<double> block * d * (1 + r + held + block / 2), LEAST)
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
            # base has changed, of which the other rows of the block have their products
            if not accurate or s.extra != 0 or s.rank >= 0:
                break


# -- many models of the same rows ----------------------------------------------------------------------------------------
cdef struct Lesson:
    # what one of them learns
    Model* s
    const double* targets
    double* scores


cdef struct Lessons:
    Lesson* each
    Py_ssize_t n_rows
    const double* data
    const int32_t* indices
    const int64_t* indptr        # NULL: dense rows
    const double* sample_weight


cdef void one_lesson(void* context, ptrdiff_t part, void* _scratch) noexcept nogil:
    cdef Lessons* a = <Lessons*> context
    cdef Lesson* its = a.each + part
    if a.indptr != NULL:
        sparse_loop(its.s, a.n_rows, a.data, a.indices, a.indptr, its.targets, a.sample_weight, its.scores)
    else:
        dense_loop(its.s, a.n_rows, a.data, its.targets, a.sample_weight, its.scores)


cdef void all_lessons(Lessons* a, Py_ssize_t n, bint one_by_one) noexcept nogil:
    cdef Py_ssize_t i
    if one_by_one:
        for i in range(n):
            one_lesson(a, i, NULL)
        return
    fs_blas_alone(1)
    fs_pool_run(n, one_lesson, a, NULL, 0)
    fs_blas_alone(0)


# -- scratch -----------------------------------------------------------------------------------------------------------
cdef Py_ssize_t lay_out(Model* s, double* first, bint sparse) noexcept nogil:
    """Give every workspace its place in one array; returns its size."""
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
    # some rows of Z or columns of Z', moved, and mix with room for an identity
    s.copy = place(&at, m * (max(m, <Py_ssize_t> WIDE) + 2 * m + k))
    if sparse:
        s.c.work = place(&at, s.d)
    else:
        s.products = place(&at, (1 if s.ahead else k) * (1 + 5 * m))
        s.places = <Py_ssize_t*> place(&at, k)
    return at - first


# -- the door ----------------------------------------------------------------------------------------------------------
@cython.auto_pickle(False)
cdef class NewtonRounds(StateArrays):
    """Pointers to the arrays of a NewtonState as its rounds take them, good until one of them is replaced; and their
    scratch.

    state: a NewtonState of fastsketch.online._newton_state, whose fields are read here by name.
    """

    cdef Model s

    def __init__(self, state, setting):
        cdef Model* s = &self.s
        cdef Py_ssize_t n
        if self.n_views:
            raise TypeError("rounds are of one state")
        s.loss, s.m, s.spared = setting.loss, setting.sketch_size, setting.spared
        s.k = 2 * s.m
        s.same, s.ahead = setting.constraint in (CURRENT, BOTH), setting.constraint in (NEXT, BOTH)
        s.by_loss, s.loss_scale = setting.by_loss, setting.loss_scale
        s.grows = setting.method == "rfd"
        s.base, s.scalar = <double*> self.pointer_to(state.base, b"d"), <double*> self.pointer_to(state.scalar, b"d")
        s.count = <int64_t*> self.pointer_to(state.count, b"l")
        s.decay, s.d = setting.decay, state.base.shape[0]
        self.take_steps(s.scalar[ALPHA] == 0 or s.same or s.ahead)
        self.take_rows(state.rows, state.sparse)
        self.take_space(state.space)
        n = lay_out(s, NULL, state.sparse)
        self.scratch = np.zeros(n)
        lay_out(s, &self.scratch[0], state.sparse)

    cdef int take_steps(self, bint singular) except -1:
        # only what this model may need: each takes a tenth of a second where nothing compiled is kept
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
        s.z = <double*> self.pointer_to(rows.z, b"d")
        if not sparse:
            s.kept = <double*> self.pointer_to(rows.kept, b"d")
            return 0
        s.c.width, s.c.z = s.m, s.z
        s.c.data, s.c.room = <double*> self.pointer_to(rows.kept_data, b"d"), rows.kept_data.shape[0]
        s.c.indices = <int32_t*> self.pointer_to(rows.kept_indices, b"i")
        s.c.indptr = <int64_t*> self.pointer_to(rows.kept_indptr, b"l")
        return 0

    cdef int take_space(self, space) except -1:
        cdef Model* s = &self.s
        s.frame, s.small = <double*> self.pointer_to(space.frame, b"d"), <double*> self.pointer_to(space.small, b"d")
        s.b, s.e = <double*> self.pointer_to(space.b, b"d"), <double*> self.pointer_to(space.e, b"d")
        s.factors = <double*> self.pointer_to(space.factors, b"d")
        s.inverse = <double*> self.pointer_to(space.inverse, b"d")
        s.c.frame, s.c.ld_frame = s.frame, s.k
        return 0

    # -- a few rows --------------------------------------------------------------------------------------------------------
    cdef bint is_ready(self, const FewRowsOf* rows) noexcept nogil:
        cdef Model* s = &self.s
        cdef Py_ssize_t held = s.count[ROWS], used
        if s.scalar[ALPHA] == 0:
            return False
        if rows.indptr == NULL:
            return True
        used = s.c.indptr[held]
        return max(s.k * rows.longest, used + (s.k - held) * rows.longest) <= s.c.room

    cdef bint rebases(self, Py_ssize_t n) noexcept nogil:
        """Return whether a shrink may change what n rows must find unchanged if one of them is refused."""
        cdef Py_ssize_t left = self.s.k - self.s.count[RANK] - self.s.count[ROWS]
        return n > left or (n == left and self.s.ahead)

    cdef bint takes_in_whole(self) noexcept nogil:
        cdef Model* s = &self.s
        if not s.ahead and s.decay == 1:
            return True
        # where alpha is put back before the row is learned from, it is not
        return not self.rebases(1) and (s.decay == 1 or s.scalar[ALPHA] * s.decay >= s.scalar[FLOOR] / 2)

    cdef void keep_before(self, Undo* undo, const FewRowsOf* rows) noexcept nogil:
        cdef Model* s = &self.s
        cdef Py_ssize_t held = s.count[ROWS], k = s.k
        cdef bint rebases = self.rebases(rows.n)
        keep(undo, s.scalar, SCALARS * sizeof(double))
        keep(undo, s.count, COUNTS * sizeof(int64_t))
        keep(undo, s.factors, k * sizeof(double))
        keep(undo, s.b, k * sizeof(double))
        keep(undo, s.e, k * sizeof(double))
        keep(undo, s.frame, k * k * sizeof(double))
        keep(undo, s.small, k * k * sizeof(double))
        keep(undo, s.inverse, k * k * sizeof(double))
        if rebases:
            keep(undo, s.base, rows.n_slots * sizeof(double))
            keep(undo, s.z, rows.n_slots * s.m * sizeof(double))
        elif s.same:
            keep(undo, s.base, (s.d if rows.indptr == NULL else rows.n_slots) * sizeof(double))
        elif s.ahead and rows.indptr != NULL:
            keep_entries(undo, s.base, rows.slots, rows.indptr[rows.n])
        elif s.ahead:
            keep(undo, s.base, s.d * sizeof(double))
        if rows.indptr == NULL:
            keep(undo, s.kept if rebases else s.kept + held * s.d, (k if rebases else rows.n) * s.d * sizeof(double))
            return
        if rebases:
            keep(undo, s.c.data, s.c.indptr[held] * sizeof(double))
            keep(undo, s.c.indices, s.c.indptr[held] * sizeof(int32_t))
        keep(undo, s.c.indptr, (k + 1) * sizeof(int64_t))

    cdef bint learn_few(self, const FewRowsOf* rows, const double* targets, const double* weights,
                        double* scores) noexcept nogil:
        cdef Model* s = &self.s
        s.c.seen = s.count[SEEN]
        scores[rows.n - 1] = NAN  # what a call before has left there is no score of these rows
        if rows.indptr == NULL:
            dense_loop(s, rows.n, rows.data, targets, weights, scores)
        else:
            sparse_loop(s, rows.n, rows.data, rows.slots, rows.indptr, targets, weights, scores)
        s.count[SEEN] = s.c.seen
        return finite(scores[rows.n - 1])

    def fade(self, double factor):
        """Multiply the weight of earlier rows by `factor`, in a state with alpha > 0."""
        if not fade(&self.s, factor):
            raise np.linalg.LinAlgError("the small space has no factorisation")


def learn(list rounds, const double[::1] data, const int32_t[::1] indices, const int64_t[::1] indptr,
          const double[:, :] targets, const double[::1] sample_weight, double[:, :] scores):
    """Let models learn from the same rows, each as it does alone, several of them on the threads of the pool.

    rounds: k NewtonRounds; data (n d,) of dense rows, whose indices and indptr are None, or CSR rows in slots, for 2 m
    of the longest of which there must be room in what is kept; targets, scores (k, n), row by row. A row that is refused
    has no finite score, and ends the lesson.
    """
    cdef Py_ssize_t n = targets.shape[1], n_models = len(rounds), i
    cdef double work = 0
    cdef NewtonRounds one
    cdef Lessons a
    cdef bint one_by_one, brief = True
    if n == 0:
        return
    a.n_rows, a.sample_weight, a.data, a.indices, a.indptr = n, &sample_weight[0], NULL, NULL, NULL
    if data.shape[0]:
        a.data = &data[0]
    if indptr is not None:
        a.indptr = &indptr[0]
        if data.shape[0]:
            a.indices = &indices[0]
    a.each = <Lesson*> malloc(n_models * sizeof(Lesson))
    if a.each == NULL:
        raise MemoryError
    try:
        for i in range(n_models):
            one = rounds[i]
            one.s.c.seen = one.s.count[SEEN]
            a.each[i].s, a.each[i].targets, a.each[i].scores = &one.s, &targets[i, 0], &scores[i, 0]
            work += <double> one.s.k * (<double> data.shape[0] + <double> n * one.s.k)
            brief = brief and one.s.c.seen <= BRIEF
        # by the size of the work alone
        one_by_one = n_models == 1 or fs_pool_parts(work, LEAST) == 1
        if brief and work <= BRIEF:
            all_lessons(&a, n_models, one_by_one)
        else:
            with nogil:
                all_lessons(&a, n_models, one_by_one)
        if indptr is not None:
            for i in range(n_models):
                one = rounds[i]
                one.s.count[SEEN] = one.s.c.seen
    finally:
        free(a.each)
