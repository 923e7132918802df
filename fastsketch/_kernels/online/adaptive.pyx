"""Rounds of adaptive subgradients whose H = delta I + (S'S)^(1/2) has low rank (ADA-FD, ADA-FFD, ADA-FULL, FD-SON).

S'S = V diag(lam) V' with orthonormal V = C'T. The rows C (at most `cap`) are those that the last rebase left and the
rows of the gradients since; T turns with every gradient, C does not. So a round costs one pass over C, for p = C x, and
work in the small space: y = V'x = T'p, a rank-one change of the eigenvalues (csrc/fs_secular), T <- T W. Only a rebase,
C <- T'C, costs as much as an SVD.

At point k of the grid of (learning rate eta, delta) the model is w = scale (base + Z b) + C'steps. Mirror descent moves
base and steps; dual averaging keeps the sum of gradients in base, scale = -eta / delta.

Rows of C are dense; or C = [F Z'; X] with Z (d x r) feature-major and X sparse, as in _kernels/online/basis.pxd, and a round
costs the nonzeros of x; d then stands for slots of columns. The arrays are those of
fastsketch.online._adaptive_state.SketchedState:

    turn (most, cap)    T'                      lam (most,)         descending
    gram (cap, cap)     C C', from the products of the rounds
    base (points, d)    scale (points,)         steps (points, cap)
    inner (points, cap) C v for the v that base stands for: w / scale, or the sum of gradients
    losses (points,)    mistakes (points,)      count: the entries of an adaptive model in online.pxd

With `residuals` (2,), of real targets and one point, the sketch takes slopes in units of the root mean square of the
residuals so far, and steps are of that size: so that a model of c y is c times that of y.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t

from fastsketch._kernels.brief cimport BRIEF, is_brief
from fastsketch._kernels.level cimport follow
from fastsketch._kernels.losses cimport L1_PENALTY
from fastsketch._kernels.online.adaptive_dense cimport dense_round
from fastsketch._kernels.online.adaptive_l1 cimport PACKED
from fastsketch._kernels.online.adaptive_model cimport Model
from fastsketch._kernels.online.adaptive_sparse cimport LEARNED, ROOM, sparse_round
from fastsketch._kernels.online.basis cimport SOME, Basis, seen_with
from fastsketch._kernels.online.turning cimport ints_size, secular_size, small_size
from fastsketch._kernels.pool cimport join

follow()
join()


# -- the loops ---------------------------------------------------------------------------------------------------------
cdef Py_ssize_t dense_loop(Model* s, Py_ssize_t n, const double* x, const double* targets, const double* sample_weight,
                           double* extra, double* scores) noexcept nogil:
    """Run rounds and return how many rows were learned from: fewer than n if the next has no finite score."""
    cdef Py_ssize_t i
    for i in range(n):
        if not dense_round(s, x + i * s.d, targets[i], sample_weight[i], extra, scores + i):
            return i
    return n


cdef Py_ssize_t sparse_loop(Model* s, Py_ssize_t first, Py_ssize_t n, const double* values, const int32_t* places,
                            const int64_t* indptr, const double* targets, const double* sample_weight,
                            double* scores, int* status) noexcept nogil:
    """Run rounds for sparse rows from `first` on, which may also stop for lack of room."""
    cdef Py_ssize_t i, before
    for i in range(first, n):
        before = s.c.seen
        s.c.seen = seen_with(before, places + indptr[i], <Py_ssize_t> (indptr[i + 1] - indptr[i]))
        status[0] = sparse_round(s, values + indptr[i], places + indptr[i], <Py_ssize_t> (indptr[i + 1] - indptr[i]),
                                 targets[i], sample_weight[i], scores + i)
        if status[0] != LEARNED:
            s.c.seen = before
            return i
    return n


# -- the door ----------------------------------------------------------------------------------------------------------
cdef struct Sizes:
    Py_ssize_t doubles, integers


cdef Sizes lay_out(Model* s, double* doubles, int32_t* integers, Py_ssize_t points) noexcept nogil:
    """Give every workspace its place in two arrays; returns their sizes."""
    cdef Sizes used
    cdef Py_ssize_t at = 0
    s.p = doubles + at
    at += s.t.cap + 1
    s.t.y = doubles + at
    at += s.t.most + 1
    # for the directions, then for the rows of C
    s.f = doubles + at
    at += s.t.most + s.t.cap + 1
    s.t.secular = doubles + at
    at += secular_size(s.t.most)
    s.slopes = doubles + at
    at += points
    s.scores = doubles + at
    at += points
    s.base_x = doubles + at
    at += points
    s.t.small = doubles + at
    # the largest of a turn, of which the rebases need less; step_l1: active, half, jacobian; rebase_sparse: one square,
    # moved, mix, copy
    at += max(small_size(s.t.most, s.t.cap), s.t.cap * s.t.cap + s.t.most * (s.t.most + s.t.cap),
              s.t.most * (s.t.most + 2 * s.width + s.t.cap + max(s.t.most, <Py_ssize_t> SOME)))
    used.doubles = at
    s.t.ints = integers
    used.integers = ints_size(s.t.most)
    return used


def space_sizes(most, cap, width, points):
    """Return the sizes of the arrays space (float64) and ints (int32) of a model."""
    cdef Model s
    s.t.most, s.t.cap, s.width = most, cap, width
    cdef Sizes sizes = lay_out(&s, NULL, NULL, points)
    return sizes.doubles, sizes.integers


def extra_size(d, most, cap, phi):
    """Return the size of the array extra of a model with dense rows: one row, or the workspace of step_l1."""
    return 3 * d + 6 * most + PACKED * cap if phi == L1_PENALTY else d


@cython.auto_pickle(False)
cdef class Rounds:
    """Pointers to the arrays of a SketchedState as its rounds take them, good until one of them is replaced.

    state: of fastsketch.online._adaptive_state, whose fields are read here by name; setting: a SketchedSetting. A
    state with
    dense rows needs `total` for phi = L1_PENALTY in the dual form.
    """

    cdef Model s
    cdef double* extra
    cdef int64_t* seen
    cdef list arrays             # whose memory the pointers point to

    def __init__(self, state, setting):
        cdef Model* s = &self.s
        cdef double[:, ::1] turn = state.turn, gram = state.gram, base = state.base, steps = state.steps
        cdef double[:, ::1] inner = state.inner
        cdef double[::1] lam = state.lam, scale = state.scale, losses = state.losses, space = state.space
        cdef const double[::1] eta = state.learning_rate, delta = state.delta
        cdef int64_t[::1] count = state.count, mistakes = state.mistakes, seen = state.seen
        cdef int32_t[::1] ints = state.ints
        cdef double[::1] residuals
        cdef Sizes sizes
        self.arrays = [state.turn, state.gram, state.base, state.steps, state.inner, state.lam, state.scale,
                       state.losses, state.space, state.learning_rate, state.delta, state.count, state.mistakes,
                       state.ints, state.seen, state.residuals]
        self.seen = &seen[0]
        s.residuals = NULL
        if state.residuals is not None:
            residuals = state.residuals
            s.residuals = &residuals[0]
        s.loss, s.t.rule, s.phi, s.dual = setting.loss, setting.rule, setting.phi, setting.dual
        s.t.root, s.fade, s.t.tau, s.strength = setting.root, setting.fade, setting.sketch_size, setting.strength
        s.decay = setting.decay
        s.points, s.d = base.shape[0], base.shape[1]
        s.c.seen = seen[0]
        s.t.most, s.t.cap = turn.shape[0], turn.shape[1]
        if eta.shape[0] != s.points or delta.shape[0] != s.points:
            raise ValueError("learning_rate and delta must have one entry for each point")
        if state.sparse:
            self.take_sparse(state.held)
        else:
            self.take_dense(state.held)
        sizes = lay_out(s, &space[0], &ints[0], s.points)
        if space.shape[0] < sizes.doubles or ints.shape[0] < sizes.integers:
            raise ValueError("space or ints is too small")
        s.eta, s.delta = &eta[0], &delta[0]
        s.t.turn, s.t.gram, s.base, s.steps, s.inner = &turn[0, 0], &gram[0, 0], &base[0, 0], &steps[0, 0], &inner[0, 0]
        s.t.lam, s.scale, s.losses, s.t.count, s.mistakes = &lam[0], &scale[0], &losses[0], &count[0], &mistakes[0]

    cdef int take_dense(self, held) except -1:
        cdef double[:, ::1] rows = held.rows, total
        cdef double[::1] extra = held.extra
        self.arrays += [held.rows, held.total, held.extra]
        self.s.rows, self.extra = &rows[0, 0], &extra[0]
        if held.total is not None:
            total = held.total
            self.s.total = &total[0, 0]
        if extra.shape[0] < extra_size(self.s.d, self.s.t.most, self.s.t.cap, self.s.phi):
            raise ValueError("extra is too small")
        return 0

    cdef int take_sparse(self, held) except -1:
        cdef Basis* c = &self.s.c
        cdef double[:, ::1] z = held.z, b = held.b, frame = held.frame
        cdef double[::1] kept_data = held.kept_data, work = held.work
        cdef int32_t[::1] kept_indices = held.kept_indices
        cdef int64_t[::1] kept_indptr = held.kept_indptr
        self.arrays += [held.z, held.b, held.frame, held.kept_data, held.work, held.kept_indices, held.kept_indptr]
        self.s.width = c.width = c.ld_frame = z.shape[1]
        c.z, c.frame, c.work, c.room = &z[0, 0], &frame[0, 0], &work[0], kept_data.shape[0]
        c.data = &kept_data[0] if c.room else NULL
        c.indices = &kept_indices[0] if c.room else NULL
        c.indptr = &kept_indptr[0]
        self.s.b = &b[0, 0]
        return 0

    def dense(self, const double[:, ::1] rows, const double[::1] targets, const double[::1] sample_weight,
              double[::1] scores):
        """Learn from rows (n, d); returns how many were learned from: fewer than n if the next has no finite score."""
        cdef Py_ssize_t n = rows.shape[0], done
        cdef Model* s = &self.s
        if n == 0:
            return 0
        if s.phi != L1_PENALTY and is_brief(n, s.t.cap * (s.d + s.t.most)):
            return dense_loop(s, n, &rows[0, 0], &targets[0], &sample_weight[0], self.extra, &scores[0])
        with nogil:
            done = dense_loop(s, n, &rows[0, 0], &targets[0], &sample_weight[0], self.extra, &scores[0])
        return done

    def sparse(self, const double[::1] data, const int32_t[::1] indices, const int64_t[::1] indptr, Py_ssize_t first,
               const double[::1] targets, const double[::1] sample_weight, double[::1] scores):
        """Learn from the CSR rows in slots from `first` on: (rows done in all, whether it stopped for lack of room in what is kept)."""
        cdef Py_ssize_t n = indptr.shape[0] - 1, done
        cdef Model* s = &self.s
        cdef const double* values
        cdef const int32_t* places
        cdef int status = LEARNED
        if n == 0:
            return 0, False
        values, places = &data[0] if data.shape[0] else NULL, &indices[0] if data.shape[0] else NULL
        s.c.seen = self.seen[0]
        if is_brief(1, s.t.cap * (data.shape[0] + n * s.t.most)) and s.c.seen <= BRIEF:
            done = sparse_loop(s, first, n, values, places, &indptr[0], &targets[0], &sample_weight[0], &scores[0],
                               &status)
        else:
            with nogil:
                done = sparse_loop(s, first, n, values, places, &indptr[0], &targets[0], &sample_weight[0],
                                   &scores[0], &status)
        self.seen[0] = s.c.seen
        return done, status == ROOM
