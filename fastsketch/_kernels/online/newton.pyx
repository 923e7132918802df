"""Rounds of the sketched online Newton step between two shrinks, in the small space.

Between shrinks H = B'B + alpha I with B = [F Z'; C X], where Z (d x r) holds what earlier shrinks kept, X the rows
appended since, unscaled, and C = diag(factors) their sqrt(mu + eta) * slope. The model is w = base + Z b + X'e. A round
changes b and e alone: with the inner products Z'x, X x, x'x, base'x of the new row everything else is of size at most
2 m. Only a shrink touches Z and base. How far a step goes, and how M changes, is in _kernels/online/projection (Numba).

    frame (k, k)  F in its upper left r x r; unused rows and columns zero
    small (k, k)  K = B B';   inverse (k, k)  M = (K + alpha I)^-1 while alpha > 0
    scalar, count: the entries of a Newton model in online.pxd, r = RANK, t = ROUND
    fading        H is fading[FADED] (B'B + I alpha / fading[FADED]): with decay, B, K and M are those of rows that have
                  not faded since the last shrink, and alpha is the true one

Of "rp" and "oja" all rows of B change in every round: B = L [Z'; X], L = frame (m, 3 m) dense.
"""

cimport cython
from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBUF_FORMAT, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.math cimport NAN
from libc.stddef cimport ptrdiff_t
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from fastsketch._kernels.brief cimport BRIEF, is_brief
from fastsketch._kernels.level cimport follow
from fastsketch._kernels.linalg.blas cimport blas_int, gemv
from fastsketch._kernels.linalg.dots cimport fs_dots_d
from fastsketch._kernels.losses cimport finite
from fastsketch._kernels.online.basis cimport add, add_row, keep_row, row_dot, row_products, seen_with
from fastsketch._kernels.online.newton_mixed cimport mixed_round
from fastsketch._kernels.online.newton_model cimport (BAD, FAILED, LEARNED, Model, begin, bordered_inverse_t,
                                                      flat_projection_t, flat_steps_t, less_rank_one_t, lower_solve_t,
                                                      mu, over, step_length_t, teaches)
from fastsketch._kernels.online.newton_rows cimport LEAST, WIDE, rebase_dense, rebase_sparse
from fastsketch._kernels.online.newton_shrinking cimport fade, shrinking_round
from fastsketch._kernels.online.numbers cimport ALPHA, BOTH, CURRENT, NEXT, RANK, ROUND, ROWS
from fastsketch._kernels.pool cimport fs_blas_alone, fs_pool_from, fs_pool_parts, fs_pool_run, join

import numpy as np

follow()
join()

cdef enum:
    VIEWS = 16                   # arrays of a state, at most


# -- the loops ---------------------------------------------------------------------------------------------------------
cdef inline int round_of(Model* s, double y, double weight, const double* rho, double* out) noexcept nogil:
    return mixed_round(s, y, weight, rho, out) if s.mixed else shrinking_round(s, y, weight, out)


cdef int sparse_loop(Model* s, Py_ssize_t n_rows, const double* data, const int32_t* indices, const int64_t* indptr,
                     const double* targets, const double* sample_weight, const double* rho,
                     double* scores) noexcept nogil:
    cdef Py_ssize_t i, n, nonzeros
    cdef const double* values
    cdef const int32_t* places
    cdef Py_ssize_t before
    cdef int status
    for i in range(n_rows):
        values, places, nonzeros = data + indptr[i], indices + indptr[i], <Py_ssize_t> (indptr[i + 1] - indptr[i])
        n, before = s.count[ROWS], s.c.seen
        s.c.seen = seen_with(before, places, nonzeros)
        s.x_square = row_products(&s.c, s.count[RANK], n, values, places, nonzeros, s.zx, s.gx)
        s.base_x = row_dot(0, values, places, nonzeros, s.base)
        status = round_of(s, targets[i], sample_weight[i], rho + i * s.m if rho else NULL, scores + i)
        if status != LEARNED:
            s.c.seen = before
            return status
        if s.extra != 0:
            add_row(s.extra, values, places, nonzeros, s.base)
        if s.count[ROWS] > n:
            keep_row(&s.c, n, values, places, nonzeros)
        if s.rank >= 0 and not rebase_sparse(s):
            return FAILED
    return LEARNED


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


cdef int dense_loop(Model* s, Py_ssize_t n_rows, const double* x, const double* targets, const double* sample_weight,
                    const double* rho, double* scores) noexcept nogil:
    """Run blocks of rows that end with a shrink: all inner products of a block at once, each in an order of its own."""
    cdef Py_ssize_t done = 0, block, held, r, n, i, j, m = s.m, d = s.d, ld = 1 + 5 * m
    cdef double* products
    cdef Products p
    cdef int status
    p.s = s
    while done < n_rows:
        held, r = s.count[ROWS], s.count[RANK]
        # a constraint on the next score moves base, of which the next row needs the product
        block = 1 if s.ahead else min(n_rows - done, s.k - held - (0 if s.mixed else r))
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
            status = round_of(s, targets[done], sample_weight[done], rho + done * m if rho else NULL,
                              scores + done)
            if status != LEARNED:
                return status
            if s.extra != 0:
                add(d, s.extra, x, s.base)
            if s.count[ROWS] > n:
                memcpy(s.kept + n * d, x, d * sizeof(double))
                s.places[n] = 1 + m + held + i
            x += d
            done += 1
            if s.rank >= 0:
                if not rebase_dense(s):
                    return FAILED
                break
    return LEARNED


cdef int full_loop(Model* s, Py_ssize_t n_rows, const double* x, const double* targets, const double* sample_weight,
                   double* scores) noexcept nogil:
    """Run FULL-ON on C-ordered rows: inverse (d, d) is H^-1, changed by one term a round."""
    cdef Py_ssize_t d = s.d, i
    cdef double z = 0, at, slope, h = 0, c, f
    for i in range(n_rows):
        fs_dots_d(1, 1, d, x, d, s.base, d, &z, 1, False)
        fs_dots_d(1, 1, d, x, d, x, d, &s.x_square, 1, False)
        at = z
        scores[i] = z
        if not finite(z):
            return BAD
        if s.ahead:
            at = over(z)
        if not begin(s, targets[i], sample_weight[i], at, &slope):
            scores[i] = NAN
            return BAD
        scores[i] = at
        if at != z or teaches(s, slope):
            # q = H^-1 x
            fs_blas_alone(1)
            gemv(c'T', d, d, 1.0, s.inverse, d, x, 0.0, s.line)
            fs_blas_alone(0)
            fs_dots_d(1, 1, d, x, d, s.line, d, &h, 1, False)
            if at != z:
                add(d, s.step_length(0, 1, h, z, True), s.line, s.base)
            if teaches(s, slope) and h > 0:
                c = s.curve if s.by_loss else (mu() + 1.0 / s.count[ROUND]) * slope * slope / s.times
                f = 1.0 / (1.0 + c * h)
                s.less_rank_one(d, c * f, s.line, s.inverse)
                add(d, s.step_length(slope, f, h, at, s.same), s.line, s.base)
        x += d
    return LEARNED


# -- many models of the same rows ----------------------------------------------------------------------------------------
cdef struct Lesson:
    # what one of them learns
    Model* s
    const double* targets
    double* scores
    int status


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
        its.status = sparse_loop(its.s, a.n_rows, a.data, a.indices, a.indptr, its.targets, a.sample_weight, NULL,
                                 its.scores)
    elif its.s.frame == NULL:
        its.status = full_loop(its.s, a.n_rows, a.data, its.targets, a.sample_weight, its.scores)
    else:
        its.status = dense_loop(its.s, a.n_rows, a.data, its.targets, a.sample_weight, NULL, its.scores)


cdef void all_lessons(Lessons* a, Py_ssize_t n, bint small) noexcept nogil:
    cdef Py_ssize_t i
    if small:
        for i in range(n):
            one_lesson(a, i, NULL)
        return
    fs_blas_alone(1)
    fs_pool_run(n, one_lesson, a, NULL, 0)
    fs_blas_alone(0)


# -- scratch -----------------------------------------------------------------------------------------------------------
cdef inline double* place(double** at, Py_ssize_t n) noexcept nogil:
    cdef double* here = at[0]
    at[0] = here + n
    return here


cdef Py_ssize_t lay_out(Model* s, double* first, bint sparse) noexcept nogil:
    """Give every workspace its place in one array; returns its size."""
    cdef double* at = first
    cdef Py_ssize_t m = s.m, k = s.k
    s.line = place(&at, k if sparse else max(s.d, k))
    if s.frame == NULL:
        return at - first
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
cdef class Rounds:
    """Pointers to the arrays of a NewtonState as its rounds take them, good until one of them is replaced; and their
    scratch.

    state: a SketchState or FullState of fastsketch.online._newton_state, whose fields are read here by name.
    """

    cdef Model s
    cdef Py_buffer views[VIEWS]  # of the arrays that the pointers point to
    cdef int n_views
    cdef int64_t* seen
    cdef double[::1] scratch

    def __init__(self, state, setting):
        cdef Model* s = &self.s
        cdef Py_ssize_t n
        if self.n_views:
            raise TypeError("Rounds are of one state")
        s.loss, s.m, s.spared = setting.loss, setting.sketch_size, setting.spared
        s.k = 2 * s.m
        s.same, s.ahead = setting.constraint in (CURRENT, BOTH), setting.constraint in (NEXT, BOTH)
        s.by_loss, s.loss_scale = setting.by_loss, setting.loss_scale
        s.grows, s.mixed, s.oja = setting.method == "rfd", setting.mixed, setting.method == "oja"
        s.base, s.scalar = <double*> self.of(state.base, b"d"), <double*> self.of(state.scalar, b"d")
        s.count = <int64_t*> self.of(state.count, b"l")
        s.fading, s.decay = <double*> self.of(state.fading, b"d"), setting.decay
        self.seen = <int64_t*> self.of(state.seen, b"l")
        s.d = state.base.shape[0]
        self.take_steps(setting.method, s.scalar[ALPHA] == 0)
        if setting.method == "full":
            s.inverse = <double*> self.of(state.inverse, b"d")
        else:
            self.take_rows(state.rows, state.sparse)
            self.take_space(state.space)
        n = lay_out(s, NULL, state.sparse)
        self.scratch = np.zeros(n)
        lay_out(s, &self.scratch[0], state.sparse)

    def __dealloc__(self):
        cdef int i
        for i in range(self.n_views):
            PyBuffer_Release(&self.views[i])

    cdef void* of(self, array, bytes kind) except? NULL:
        """Return the address of the first element of an array, which stays where it is."""
        cdef Py_buffer* view = &self.views[self.n_views]
        PyObject_GetBuffer(array, view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | PyBUF_WRITABLE)
        self.n_views += 1
        if view.itemsize != (4 if kind == b"i" else 8) or (kind == b"d") != (view.format[0] == c"d"):
            raise TypeError(f"an array of the state has the format {view.format.decode()}")
        return view.buf

    cdef int take_steps(self, method, bint singular) except -1:
        # only what this model may need: each takes a tenth of a second where nothing compiled is kept
        from fastsketch._kernels.online.projection import addresses

        cdef Model* s = &self.s
        cdef size_t address
        address = addresses("step_length")[0]
        s.step_length = <step_length_t> address
        if method == "full":
            address = addresses("less_rank_one")[0]
            s.less_rank_one = <less_rank_one_t> address
        elif s.oja:
            address = addresses("lower_solve")[0]
            s.lower_solve = <lower_solve_t> address
        elif not s.mixed:
            address = addresses("bordered_inverse")[0]
            s.bordered_inverse = <bordered_inverse_t> address
            if singular:
                address = addresses("flat_steps")[0]
                s.flat_steps = <flat_steps_t> address
                address = addresses("flat_projection")[0]
                s.flat_projection = <flat_projection_t> address
        return 0

    cdef int take_rows(self, rows, bint sparse) except -1:
        cdef Model* s = &self.s
        s.z = <double*> self.of(rows.z, b"d")
        if not sparse:
            s.kept = <double*> self.of(rows.kept, b"d")
            return 0
        s.c.width, s.c.z = s.m, s.z
        s.c.data, s.c.room = <double*> self.of(rows.kept_data, b"d"), rows.kept_data.shape[0]
        s.c.indices = <int32_t*> self.of(rows.kept_indices, b"i")
        s.c.indptr = <int64_t*> self.of(rows.kept_indptr, b"l")
        return 0

    cdef int take_space(self, space) except -1:
        cdef Model* s = &self.s
        s.frame, s.small = <double*> self.of(space.frame, b"d"), <double*> self.of(space.small, b"d")
        s.b, s.e = <double*> self.of(space.b, b"d"), <double*> self.of(space.e, b"d")
        if s.mixed:
            s.lam = <double*> self.of(space.lam, b"d")
        else:
            s.factors, s.inverse = <double*> self.of(space.factors, b"d"), <double*> self.of(space.inverse, b"d")
        s.c.frame, s.c.ld_frame = s.frame, s.k
        return 0

    def fade(self, double factor):
        """Multiply the weight of earlier rows by `factor`, in a state of "rfd", "fd" or "pfd" with alpha > 0."""
        if not fade(&self.s, factor):
            raise np.linalg.LinAlgError("the small space has no factorisation")

    def dense(self, const double[:, ::1] rows, const double[::1] targets, const double[::1] sample_weight,
              const double[:, ::1] rho, double[::1] scores):
        """Learn from rows (n, d); rho (n, m): the random numbers of "rp". A row that is refused has no finite score."""
        cdef Py_ssize_t n = rows.shape[0]
        cdef int status
        cdef const double* numbers = NULL
        if n == 0:
            return
        if rho is not None:
            numbers = &rho[0, 0]
        if is_brief(n, self.s.k * (self.s.d + self.s.k)) and self.s.frame != NULL:
            status = dense_loop(&self.s, n, &rows[0, 0], &targets[0], &sample_weight[0], numbers, &scores[0])
        else:
            with nogil:
                if self.s.frame == NULL:
                    status = full_loop(&self.s, n, &rows[0, 0], &targets[0], &sample_weight[0], &scores[0])
                else:
                    status = dense_loop(&self.s, n, &rows[0, 0], &targets[0], &sample_weight[0], numbers, &scores[0])
        if status == FAILED:
            raise np.linalg.LinAlgError("the small space has no factorisation")

    def sparse(self, const double[::1] data, const int32_t[::1] indices, const int64_t[::1] indptr,
               const double[::1] targets, const double[::1] sample_weight, const double[:, ::1] rho,
               double[::1] scores):
        """Learn from CSR rows in slots; there must be room for 2 m of the longest in what is kept, and for their slots."""
        cdef Py_ssize_t n = indptr.shape[0] - 1
        cdef int status
        cdef const double* numbers = NULL
        cdef const double* values = NULL
        cdef const int32_t* places = NULL
        if n == 0:
            return
        if data.shape[0]:
            values, places = &data[0], &indices[0]
        if rho is not None:
            numbers = &rho[0, 0]
        self.s.c.seen = self.seen[0]
        if is_brief(1, self.s.k * (data.shape[0] + n * self.s.k)) and self.s.c.seen <= BRIEF:
            status = sparse_loop(&self.s, n, values, places, &indptr[0], &targets[0], &sample_weight[0], numbers,
                                 &scores[0])
        else:
            with nogil:
                status = sparse_loop(&self.s, n, values, places, &indptr[0], &targets[0], &sample_weight[0], numbers,
                                     &scores[0])
        self.seen[0] = self.s.c.seen
        if status == FAILED:
            raise np.linalg.LinAlgError("the small space has no factorisation")


def together(list rounds, const double[::1] data, const int32_t[::1] indices, const int64_t[::1] indptr,
             const double[:, :] targets, const double[::1] sample_weight, double[:, :] scores):
    """Let several models learn from the same rows, each as it does alone, on the threads of the pool.

    rounds: k Rounds, of any method but "rp"; data (n d,) of dense rows, whose indices and indptr are None, or CSR rows
    in slots; targets, scores (k, n), row by row. What a row leaves that has no finite score is as for one model; a
    model whose small space has no factorisation has NaN as its last score.
    """
    cdef Py_ssize_t n = targets.shape[1], n_models = len(rounds), i
    cdef double each
    cdef Rounds one
    cdef Lessons a
    cdef bint small, brief
    if not (targets.shape[0] == n_models == scores.shape[0] and scores.shape[1] == n == sample_weight.shape[0]):
        raise ValueError("targets and scores must have a row for each model, and an entry for each row")
    if n == 0 or n_models == 0:
        return
    if targets.strides[1] != sizeof(double) or scores.strides[1] != sizeof(double):
        raise ValueError("rows of targets and scores must be contiguous")
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
        brief, each = True, 0
        for i in range(n_models):
            one = rounds[i]
            one.s.c.seen = one.seen[0]
            a.each[i].s, a.each[i].targets, a.each[i].scores = &one.s, &targets[i, 0], &scores[i, 0]
            each = <double> one.s.k * (<double> data.shape[0] + <double> n * one.s.k)
            brief = brief and one.s.frame != NULL and one.s.c.seen <= BRIEF
        # of the size of the work alone
        small = fs_pool_parts(each * n_models, LEAST) == 1
        if brief and each * n_models <= BRIEF:
            all_lessons(&a, n_models, small)
        else:
            with nogil:
                all_lessons(&a, n_models, small)
        for i in range(n_models):
            one = rounds[i]
            if indptr is not None:
                one.seen[0] = one.s.c.seen
            if a.each[i].status == FAILED:
                scores[i, n - 1] = NAN
    finally:
        free(a.each)
