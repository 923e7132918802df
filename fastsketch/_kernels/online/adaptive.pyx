"""Rounds of adaptive subgradients whose H = delta I + (S'S)^(1/2) has low rank (ADA-FD, ADA-FFD, ADA-FULL, FD-SON).

S'S = V diag(lam) V' with orthonormal V = C'T. The rows C (at most `cap`) are those that the last rebase left and the
rows of the gradients since; T turns with every gradient, C does not. So a round costs one pass over C, for p = C x, and
work in the small space: y = V'x = T'p, a rank-one change of the eigenvalues (csrc/fs_secular), T <- T W. Only a rebase,
C <- T'C, costs as much as an SVD.

The model is w = scale (base + Z b) + C'steps. Mirror descent moves base and steps; dual averaging keeps the sum of
gradients in base, scale = -eta / delta.

Rows of C are dense; or C = [F Z'; X] with Z (d x r) feature-major and X sparse, as in _kernels/online/basis.pxd, and a round
costs the nonzeros of x; d then stands for slots of columns. The arrays are those of
fastsketch.online._adaptive_state.SketchedState:

    turn (most, cap)    T'                      lam (most,)         descending
    gram (cap, cap)     C C', from the products of the rounds
    base (d,)   steps (cap,)   scalar, count: entries of numbers.pxd
    inner (cap,)        C v for the v that base stands for: w / scale, or the sum of gradients

In units of residuals, of real targets, the sketch takes slopes in units of the root mean square of the residuals so far,
and steps are of that size: so that a model of c y is c times that of y.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t

from fastsketch._kernels.brief cimport BRIEF
from fastsketch._kernels.level cimport follow
from fastsketch._kernels.losses cimport L1_PENALTY, L2_PENALTY
from fastsketch._kernels.online.adaptive_dense cimport dense_round
from fastsketch._kernels.online.adaptive_l1 cimport PACKED
from fastsketch._kernels.online.adaptive_model cimport Model
from fastsketch._kernels.online.adaptive_sparse cimport BAD, LEARNED, ROOM, sparse_round
from fastsketch._kernels.online.basis cimport SOME, seen_with
from fastsketch._kernels.online.numbers cimport (BUFFERED, COUNTS, FewRowsOf, OLD, RANK, ROWS, SCALARS, SEEN, StateArrays, WHEN_FULL,
                                                 place)
from fastsketch._kernels.online.turning cimport ints_size, secular_size, small_size
from fastsketch._kernels.online.undo cimport Undo, keep, keep_entries
from fastsketch._kernels.pool cimport join

import numpy as np

follow()
join()


cdef Py_ssize_t loop(Model* s, Py_ssize_t first, Py_ssize_t n, const double* data, const int32_t* indices,
                     const int64_t* indptr, const double* targets, const double* sample_weight, double* scores,
                     int* status) noexcept nogil:
    """Learn from rows from `first` on, dense ones without indptr, and return how many have been learned from: fewer
    than n if the next has no finite score, or stops for lack of room."""
    cdef Py_ssize_t i, nonzeros, before = s.c.seen
    for i in range(first, n):
        if indptr == NULL:
            status[0] = LEARNED if dense_round(s, data + i * s.d, targets[i], sample_weight[i]) else BAD
        else:
            nonzeros, before = indptr[i + 1] - indptr[i], s.c.seen
            s.c.seen = seen_with(before, indices + indptr[i], nonzeros)
            status[0] = sparse_round(s, data + indptr[i], indices + indptr[i], nonzeros, targets[i], sample_weight[i])
        if status[0] != LEARNED:
            s.c.seen = before
            return i
        scores[i] = s.score
    return n


cdef Py_ssize_t lay_out(Model* s, double* first) noexcept nogil:
    """Give every workspace its place in one array; returns its size."""
    cdef double* at = first
    cdef Py_ssize_t most = s.t.most, cap = s.t.cap
    s.p, s.t.y = place(&at, cap + 1), place(&at, most + 1)
    # for the directions, then for the rows of C
    s.f = place(&at, most + cap + 1)
    s.t.secular = place(&at, secular_size(most))
    # the largest of a turn, of which the rebases need less; step_l1: active, half, jacobian; rebase_sparse: one square,
    # moved, mix, copy
    s.t.small = place(&at, max(small_size(most, cap), cap * cap + most * (most + cap),
                               most * (most + 2 * s.width + cap + max(most, <Py_ssize_t> SOME))))
    s.t.ints = <int32_t*> place(&at, ints_size(most) // 2 + 1)
    # a row, or the workspace of step_l1
    s.extra = s.c.work = place(&at, 3 * s.d + 6 * most + PACKED * cap if s.phi == L1_PENALTY else s.d)
    return at - first


@cython.auto_pickle(False)
cdef class AdaptiveRounds(StateArrays):
    """Pointers to the arrays of a SketchedState as its rounds take them, good until one of them is replaced; and their
    scratch.

    state: of fastsketch.online._adaptive_state, whose fields are read here by name; setting: an AdaptiveSetting. A
    state with dense rows needs `total` for phi = L1_PENALTY in the dual form.
    """

    cdef Model s

    def __init__(self, state, setting):
        cdef Model* s = &self.s
        rows = state.held
        if self.n_views:
            raise TypeError("rounds are of one state")
        s.loss, s.t.rule, s.phi, s.dual = setting.loss, setting.method, setting.phi, setting.dual
        s.t.root, s.fade, s.t.tau, s.strength = setting.root, setting.fade, setting.sketch_size, setting.strength
        s.eta, s.decay, s.in_units = setting.learning_rate, setting.decay, setting.in_units
        s.d, (s.t.most, s.t.cap) = state.base.shape[0], state.turn.shape
        s.base, s.scalar = <double*> self.pointer_to(state.base, b"d"), <double*> self.pointer_to(state.scalar, b"d")
        s.t.count = <int64_t*> self.pointer_to(state.count, b"l")
        s.t.buffered = s.scalar + BUFFERED if s.fade else NULL
        s.t.turn, s.t.lam = <double*> self.pointer_to(state.turn, b"d"), <double*> self.pointer_to(state.lam, b"d")
        s.t.gram, s.steps = <double*> self.pointer_to(state.gram, b"d"), <double*> self.pointer_to(state.steps, b"d")
        s.inner = <double*> self.pointer_to(state.inner, b"d")
        if state.sparse:
            s.width = s.c.width = s.c.ld_frame = rows.z.shape[1]
            s.c.z, s.c.frame = <double*> self.pointer_to(rows.z, b"d"), <double*> self.pointer_to(rows.frame, b"d")
            s.c.data, s.c.room = <double*> self.pointer_to(rows.kept_data, b"d"), rows.kept_data.shape[0]
            s.c.indices = <int32_t*> self.pointer_to(rows.kept_indices, b"i")
            s.c.indptr = <int64_t*> self.pointer_to(rows.kept_indptr, b"l")
            s.b = <double*> self.pointer_to(rows.b, b"d")
        else:
            s.rows, s.total = <double*> self.pointer_to(rows.rows, b"d"), <double*> self.pointer_to(rows.total, b"d")
        self.scratch = np.zeros(lay_out(s, NULL))
        lay_out(s, &self.scratch[0])

    # -- a few rows --------------------------------------------------------------------------------------------------------
    cdef bint is_ready(self, const FewRowsOf* rows) noexcept nogil:
        cdef Model* s = &self.s
        cdef Py_ssize_t held = s.t.count[ROWS] - s.t.count[OLD]
        return rows.indptr == NULL or s.c.indptr[held] + rows.longest * min(s.t.cap - held, rows.n) <= s.c.room

    cdef bint takes_in_whole(self) noexcept nogil:
        return True

    cdef void keep_before(self, Undo* undo, const FewRowsOf* rows) noexcept nogil:
        cdef Model* s = &self.s
        cdef Py_ssize_t held = s.t.count[ROWS], cap = s.t.cap, left = cap - held
        if s.t.rule == WHEN_FULL:
            left = min(left, 2 * s.t.tau - s.t.count[RANK])
            if s.t.buffered != NULL:
                left = min(left, 2 * s.t.tau - <Py_ssize_t> s.t.buffered[0])
        cdef bint rebases = rows.n > left
        keep(undo, s.scalar, SCALARS * sizeof(double))
        keep(undo, s.t.count, COUNTS * sizeof(int64_t))
        keep(undo, s.t.turn, s.t.most * cap * sizeof(double))
        keep(undo, s.t.lam, s.t.most * sizeof(double))
        keep(undo, s.t.gram, cap * cap * sizeof(double))
        keep(undo, s.steps, cap * sizeof(double))
        keep(undo, s.inner, cap * sizeof(double))
        if rows.indptr == NULL:
            keep(undo, s.base, s.d * sizeof(double))
            keep(undo, s.total, s.d * sizeof(double))
            keep(undo, s.rows if rebases else s.rows + held * s.d, (cap if rebases else rows.n) * s.d * sizeof(double))
            return
        keep(undo, s.c.indptr, (cap + 1) * sizeof(int64_t))
        keep(undo, s.b, s.width * sizeof(double))
        if not rebases and s.phi != L2_PENALTY:
            keep_entries(undo, s.base, rows.slots, rows.indptr[rows.n])
            return
        # a scale that goes to zero is multiplied into all of base
        keep(undo, s.base, rows.n_slots * sizeof(double))
        if rebases:
            held -= s.t.count[OLD]
            keep(undo, s.c.z, rows.n_slots * s.width * sizeof(double))
            keep(undo, s.c.frame, s.width * s.width * sizeof(double))
            keep(undo, s.c.data, s.c.indptr[held] * sizeof(double))
            keep(undo, s.c.indices, s.c.indptr[held] * sizeof(int32_t))

    cdef bint learn_few(self, const FewRowsOf* rows, const double* targets, const double* weights,
                        double* scores) noexcept nogil:
        cdef Model* s = &self.s
        cdef int status = LEARNED
        s.c.seen = s.t.count[SEEN]
        loop(s, 0, rows.n, rows.data, rows.slots, rows.indptr, targets, weights, scores, &status)
        s.t.count[SEEN] = s.c.seen
        return status == LEARNED

    def learn(self, const double[::1] data, const int32_t[::1] indices, const int64_t[::1] indptr, Py_ssize_t first,
              const double[:] targets, const double[::1] sample_weight, double[:] scores):
        """Learn from rows from `first` on: CSR ones in slots, or dense ones (data their n d values, the others None).

        targets and scores (n,) are contiguous. Returns (rows done in all, whether it stopped for lack of room in what
        is kept): fewer than all if the next has no finite score.
        """
        cdef Py_ssize_t n = targets.shape[0], done
        cdef Model* s = &self.s
        cdef bint some = data.shape[0] > 0
        cdef const double* values = &data[0] if some else NULL
        cdef const int32_t* places = &indices[0] if some and indptr is not None else NULL
        cdef const int64_t* starts = &indptr[0] if indptr is not None else NULL
        cdef int status = LEARNED
        if n == 0:
            return 0, False
        s.c.seen = s.t.count[SEEN]
        if s.phi != L1_PENALTY and s.t.cap * (data.shape[0] + n * s.t.most) <= BRIEF and s.c.seen <= BRIEF:
            done = loop(s, first, n, values, places, starts, &targets[0], &sample_weight[0], &scores[0], &status)
        else:
            with nogil:
                done = loop(s, first, n, values, places, starts, &targets[0], &sample_weight[0], &scores[0], &status)
        s.t.count[SEEN] = s.c.seen
        return done, status == ROOM
