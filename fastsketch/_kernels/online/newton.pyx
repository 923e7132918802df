"""Rounds of the sketched online Newton step between two shrinks, in the small space.

Between shrinks H = B'B + alpha I with B = [F Z'; C X], where Z (d x r) holds what earlier shrinks kept, X the rows
appended since, unscaled, and C = diag(factors) their sqrt(mu + eta) * slope. The model is w = base + Z b + X'e. A round
changes b and e alone: with the inner products Z'x, X x, x'x, base'x of the new row everything else is of size at most
2 m. Only a shrink touches Z and base. How far a step goes, and how M changes, is in _kernels/online/projection (Numba).

    frame (k, k)  F in its upper left r x r; unused rows and columns zero
    small (k, k)  K = B B';   inverse (k, k)  M = (K + alpha I)^-1 while alpha > 0
    scalar, count: the entries of a Newton model in online.pxd, r = RANK, t = ROUND

Of "rp" and "oja" all rows of B change in every round: B = L [Z'; X], L = frame (m, 3 m) dense.
"""

cimport cython
from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBUF_FORMAT, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.math cimport NAN, sqrt
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy, memset

from fastsketch._kernels.online.basis cimport (SOME, Basis, add, add_kept_row, add_row, keep_row, recompute, row_dot,
                                        row_products, take_in)
from fastsketch._kernels.linalg.blas cimport blas_int, ddot, gemm, gemv, gesv, potrf, syevd, trtri
from fastsketch._kernels.linalg.dots cimport fs_dots_d
from fastsketch._kernels.level cimport follow
from fastsketch._kernels.losses cimport finite, flat, loss_and_slope
from fastsketch._kernels.online.numbers cimport (ALPHA, APPENDED, BOTH, CURRENT, LOSS, MISTAKES, NEXT, RANK, ROUND, ROWS,
                                         SHRINKAGE)

import numpy as np

follow()


cdef enum:
    # how a round ended
    LEARNED = 0
    BAD = 1                      # numbers would leave their range: nothing has changed
    FAILED = 2                   # a factorisation of the small space did
    WIDE = 512                   # columns of Z' recomputed together
    VIEWS = 16                   # arrays of a state, at most

cdef double MU = 0.125           # C = 1: the curvature constant of the losses, RFD paper, section 6.2
cdef double SHARE = 1e-10        # eigenvalues of K below this share of the largest are zero

ctypedef double (*step_length_t)(double slope, double f, double h, double z, int64_t project) noexcept nogil
ctypedef void (*bordered_inverse_t)(int64_t k, int64_t ld, double c, double f, double alpha, const double* q,
                                    double* inverse) noexcept nogil
ctypedef double (*flat_steps_t)(int64_t k, double share, const double* values, const double* p, double* first,
                                double* second) noexcept nogil
ctypedef void (*flat_projection_t)(int64_t k, double z, double x_square, double h, const double* p,
                                   const double* first, double* out) noexcept nogil
ctypedef void (*less_rank_one_t)(int64_t d, double f, const double* q, double* inverse) noexcept nogil
ctypedef void (*lower_solve_t)(int64_t m, int64_t width, int64_t ld_lower, const double* lower, int64_t ld,
                               double* rows) noexcept nogil


cdef struct Model:
    Py_ssize_t d, m, k, spared
    int loss
    bint same, ahead, grows, mixed, oja
    double* base
    double* scalar
    int64_t* count
    # rows
    double* z                    # dense: Z' (m, d)
    double* kept                 # dense: X (2 m, d)
    Basis c                      # sparse
    # the small space
    double* frame
    double* factors
    double* small
    double* inverse
    double* lam
    double* b
    double* e
    # of the round: filled before it, or scratch (lay_out)
    double* zx                   # Z'x, then
    double* gx                   # X x
    double* bx                   # B x
    double* q
    double* p
    double* first
    double* second
    double* turn                 # (m, k): rows of B after a shrink from those before it
    double* values
    double* vectors
    double* lapack
    Py_ssize_t n_lapack
    double* copy
    double* products             # of the rows of a block
    double* line                 # d
    Py_ssize_t* places
    blas_int* ints
    Py_ssize_t rank              # after the shrink that must follow, or -1
    double x_square, base_x
    double extra                 # multiple of x that base is to get
    step_length_t step_length
    bordered_inverse_t bordered_inverse
    flat_steps_t flat_steps
    flat_projection_t flat_projection
    less_rank_one_t less_rank_one
    lower_solve_t lower_solve


# -- small products ----------------------------------------------------------------------------------------------------
cdef inline void matrix_times(Py_ssize_t rows, Py_ssize_t n, const double* a, Py_ssize_t ld, const double* v,
                              double* out) noexcept nogil:
    # out = a v, each sum in order: four rows at a time, whose sums do not wait for each other
    cdef Py_ssize_t i = 0, j
    cdef double t0, t1, t2, t3
    cdef const double* row
    while i + 4 <= rows:
        row = a + i * ld
        t0 = t1 = t2 = t3 = 0
        for j in range(n):
            t0 += row[j] * v[j]
            t1 += row[ld + j] * v[j]
            t2 += row[2 * ld + j] * v[j]
            t3 += row[3 * ld + j] * v[j]
        out[i], out[i + 1], out[i + 2], out[i + 3] = t0, t1, t2, t3
        i += 4
    while i < rows:
        t0 = 0
        for j in range(n):
            t0 += a[i * ld + j] * v[j]
        out[i] = t0
        i += 1


cdef inline void transposed_times(Py_ssize_t rows, Py_ssize_t n, const double* a, Py_ssize_t ld, const double* v,
                                  double* out) noexcept nogil:
    # out = a'v
    cdef Py_ssize_t i
    memset(out, 0, n * sizeof(double))
    for i in range(rows):
        add(n, v[i], a + i * ld, out)


cdef void times_basis(Model* s, Py_ssize_t n, double* out) noexcept nogil:
    """out = B x."""
    cdef Py_ssize_t r = s.count[RANK], j
    matrix_times(r, r, s.frame, s.k, s.zx, out)
    for j in range(n):
        out[r + j] = s.factors[j] * s.gx[j]


cdef void add_basis(Model* s, double scale, const double* v, Py_ssize_t n) noexcept nogil:
    """w += scale * B'v."""
    cdef Py_ssize_t r = s.count[RANK], j
    transposed_times(r, r, s.frame, s.k, v, s.line)
    for j in range(r):
        s.b[j] += scale * s.line[j]
    for j in range(n):
        s.e[j] += scale * s.factors[j] * v[r + j]


cdef int decompose(Model* s, Py_ssize_t k) noexcept nogil:
    # K = U diag(values) U', ascending
    cdef Py_ssize_t i
    for i in range(k):
        memcpy(s.vectors + i * k, s.small + i * s.k, k * sizeof(double))
    return syevd(c'V', c'L', k, s.vectors, k, s.values, s.lapack, s.n_lapack, s.ints, 3 + 5 * s.k)


# -- one round ---------------------------------------------------------------------------------------------------------
cdef bint begin(Model* s, double y, double weight, double z, double* slope) noexcept nogil:
    """Count an example scored z; False, with nothing changed, if numbers would leave their range."""
    cdef double value = weight * loss_and_slope(s.loss, z, y, slope)
    slope[0] *= weight
    if not (finite(slope[0]) and finite(slope[0] * slope[0] * s.x_square)):
        return False
    s.scalar[LOSS] += value
    s.count[ROUND] += 1
    s.count[MISTAKES] += z * y <= 0
    return True


cdef inline double over(double z) noexcept nogil:
    # the end of the interval that z has left, or z
    return 1.0 if z > 1 else -1.0 if z < -1 else z


cdef inline double score(Model* s, Py_ssize_t r) noexcept nogil:
    # w'x
    cdef Py_ssize_t j
    cdef double z = s.base_x
    for j in range(r):
        z += s.zx[j] * s.b[j]
    for j in range(s.count[ROWS]):
        z += s.gx[j] * s.e[j]
    return z


cdef int project_ahead(Model* s, double z) noexcept nogil:
    """Move w into |w'x| <= 1 before the example is scored."""
    cdef Py_ssize_t n = s.count[ROWS], k = s.count[RANK] + n
    cdef double alpha = s.scalar[ALPHA], h, step
    cdef double out[3]
    times_basis(s, n, s.bx)
    if alpha > 0:
        matrix_times(k, k, s.inverse, s.k, s.bx, s.q)
        h = (s.x_square - ddot(k, s.bx, s.q)) / alpha
        step = s.step_length(0, 1, h, z, True)
        add_basis(s, -step / alpha, s.q, n)
        s.extra = step / alpha
        return LEARNED
    if decompose(s, k):
        return FAILED
    gemv(c'T', k, k, 1.0, s.vectors, k, s.bx, 0.0, s.p)
    h = s.flat_steps(k, SHARE, s.values, s.p, s.first, s.second)
    s.flat_projection(k, z, s.x_square, h, s.p, s.first, out)
    add_eigen(s, k, out, n)
    s.extra = out[2]
    return LEARNED


cdef void add_eigen(Model* s, Py_ssize_t k, const double* f, Py_ssize_t n) noexcept nogil:
    # w += B'U (f[0] first + f[1] second)
    if f[0] != 0:
        gemv(c'N', k, k, 1.0, s.vectors, k, s.first, 0.0, s.q)
        add_basis(s, f[0], s.q, n)
    if f[1] != 0:
        gemv(c'N', k, k, 1.0, s.vectors, k, s.second, 0.0, s.q)
        add_basis(s, f[1], s.q, n)


cdef int shrinking_round(Model* s, double y, double weight, double* out) noexcept nogil:
    """One example from its inner products, out[0] its score.

    If a row is appended, ROWS has grown: gx must have room for it. If B is then full, s.rank becomes the new rank, turn
    combines the old rows of B into the new ones, and the step is made with the H of the shrunk sketch.
    """
    cdef Py_ssize_t r = s.count[RANK], n = s.count[ROWS], k = r + n, i
    cdef double z = score(s, r), at, slope, c, alpha = s.scalar[ALPHA], h, f, step, before = s.scalar[LOSS]
    cdef int64_t mistakes = s.count[MISTAKES]
    s.extra, s.rank, out[0] = 0, -1, z
    if not finite(z):
        return BAD
    at = over(z) if s.ahead and (k > 0 or alpha > 0) else z
    if not begin(s, y, weight, at, &slope):
        out[0] = NAN
        return BAD
    if at != z and project_ahead(s, z) != LEARNED:
        return FAILED
    z = out[0] = at
    if flat(slope) or s.x_square == 0:
        return LEARNED
    # the new row a g = c x: K gets a border
    c = sqrt(MU + 1.0 / s.count[ROUND]) * slope
    times_basis(s, n, s.bx)
    s.factors[n], s.gx[n], s.e[n] = c, s.x_square, 0
    for i in range(k):
        s.small[i * s.k + k] = s.small[k * s.k + i] = c * s.bx[i]
    s.small[k * s.k + k] = c * c * s.x_square
    s.bx[k] = c * s.x_square
    s.count[ROWS] = n + 1
    if k + 1 == s.k:
        if shrunk_step(s, slope, z) == LEARNED:
            return LEARNED
        # as if the example had never come: only a projection ahead cannot be taken back
        s.scalar[LOSS], s.count[MISTAKES], s.count[ROWS] = before, mistakes, n
        s.count[ROUND] -= 1
        return FAILED
    if alpha == 0:
        return flat_step(s, slope, z)
    matrix_times(k, k, s.inverse, s.k, s.bx, s.q)
    # below 0 only by rounding: x lies in the span of far longer rows
    h = max(0.0, (s.x_square - ddot(k, s.bx, s.q)) / alpha)
    f = 1.0 / (1.0 + c * c * h)
    step = s.step_length(slope, f, h, z, s.same)
    add_basis(s, -step / alpha, s.q, n)
    s.e[n] += step / alpha
    s.bordered_inverse(k, s.k, c, f, alpha, s.q, s.inverse)
    return LEARNED


cdef int flat_step(Model* s, double slope, double z) noexcept nogil:
    """The step with the pseudo-inverse of H = B'B, B having its new row."""
    cdef Py_ssize_t n = s.count[ROWS], k = s.count[RANK] + n
    cdef double h
    cdef double out[3]
    if decompose(s, k):
        return FAILED
    gemv(c'T', k, k, 1.0, s.vectors, k, s.bx, 0.0, s.p)
    # H^+ x = B'U L^-2 U'B x
    h = s.flat_steps(k, SHARE, s.values, s.p, s.first, s.second)
    out[0], out[1] = 0, -slope
    add_eigen(s, k, out, n)
    if s.same and over(z - slope * h) != z - slope * h:
        s.flat_projection(k, z - slope * h, s.x_square, h, s.p, s.first, out)
        add_eigen(s, k, out, n)
        s.e[n - 1] += out[2]
    return LEARNED


cdef Py_ssize_t shrink_small(Model* s, Py_ssize_t k) noexcept nogil:
    """Eigenvectors of K with the squared lengths that a shrink leaves; returns the rank, or -1 if there are none.

    Rows of turn[:rank, :k] combine the rows of B into the new ones; small[:rank, :rank] becomes their Gram matrix.
    """
    cdef Py_ssize_t rank = 0, i, j
    cdef double top, delta, value, left
    if decompose(s, k):
        return -1
    top = s.values[k - 1]
    delta = s.values[k - s.m] if s.values[k - s.m] > SHARE * top else 0.0
    memset(s.small, 0, s.k * s.k * sizeof(double))
    for i in range(s.m - 1):
        value = s.values[k - 1 - i]
        if value <= SHARE * top:
            break
        left = value if i < s.spared else value - delta
        if left <= 0:
            continue
        for j in range(k):
            s.turn[rank * s.k + j] = sqrt(left / value) * s.vectors[(k - 1 - i) * k + j]
        s.small[rank * s.k + rank] = left
        rank += 1
    s.scalar[SHRINKAGE] += delta
    if s.grows:
        s.scalar[ALPHA] += delta / 2
    return rank


cdef int shrunk_step(Model* s, double slope, double z) noexcept nogil:
    """B is full: it shrinks in the small space, and the step is made with what is left."""
    cdef Py_ssize_t n = s.count[ROWS], k = s.count[RANK] + n, rank = shrink_small(s, k), i
    cdef double alpha = s.scalar[ALPHA], h, step
    cdef double out[3]
    if rank < 0:
        return FAILED
    s.rank = rank
    memset(s.inverse, 0, s.k * s.k * sizeof(double))
    matrix_times(rank, k, s.turn, s.k, s.bx, s.p)
    if alpha > 0:
        h = s.x_square
        for i in range(rank):
            s.inverse[i * s.k + i] = 1.0 / (s.small[i * s.k + i] + alpha)
            s.first[i] = s.p[i] * s.inverse[i * s.k + i]
            h -= s.p[i] * s.first[i]
        step = s.step_length(slope, 1, max(h / alpha, 0.0), z, s.same)
        add_turned(s, -step / alpha, s.first)
        s.e[n - 1] += step / alpha
        return LEARNED
    for i in range(rank):
        s.values[i] = s.small[i * s.k + i]
    h = s.flat_steps(rank, 0, s.values, s.p, s.first, s.second)
    add_turned(s, -slope, s.second)
    if s.same and over(z - slope * h) != z - slope * h:
        s.flat_projection(rank, z - slope * h, s.x_square, h, s.p, s.first, out)
        if out[0] != 0:
            add_turned(s, out[0], s.first)
        if out[1] != 0:
            add_turned(s, out[1], s.second)
        s.e[n - 1] += out[2]
    return LEARNED


cdef void add_turned(Model* s, double scale, const double* v) noexcept nogil:
    # w += scale * (turn B)'v
    cdef Py_ssize_t n = s.count[ROWS]
    transposed_times(s.rank, s.count[RANK] + n, s.turn, s.k, v, s.q)
    add_basis(s, scale, s.q, n)


# -- one round of "rp" and "oja" ---------------------------------------------------------------------------------------
cdef inline void mixed_times(Model* s, Py_ssize_t n) noexcept nogil:
    # bx = L [Z'; X] x: gx follows zx
    matrix_times(s.m, s.m + n, s.frame, 3 * s.m, s.zx, s.bx)


cdef void add_mixed(Model* s, double scale, Py_ssize_t n) noexcept nogil:
    """w += scale * (L [Z'; X])'q."""
    cdef Py_ssize_t i
    for i in range(s.m):
        add(s.m, scale * s.q[i], s.frame + i * 3 * s.m, s.b)
        add(n, scale * s.q[i], s.frame + i * 3 * s.m + s.m, s.e)


cdef bint mixed_solve(Model* s, double* h) noexcept nogil:
    """q = M B x, h = x'H^-1 x, for B with K = small (random projection), or B = (steps lam)^(1/2) V, bx = V x (Oja)."""
    cdef Py_ssize_t m = s.m, i, j
    cdef double alpha = s.scalar[ALPHA], square
    h[0] = s.x_square
    if s.oja:
        for i in range(m):
            square = s.count[APPENDED] * s.lam[i]
            s.q[i] = square * s.bx[i] / (square + alpha)  # as a combination of rows of V
    else:
        for i in range(m):
            for j in range(m):
                s.vectors[j * m + i] = s.small[i * m + j]
            s.vectors[i * m + i] += alpha
        memcpy(s.q, s.bx, m * sizeof(double))
        if gesv(m, 1, s.vectors, m, s.ints, s.q, m):
            return False
    for i in range(m):
        h[0] -= s.bx[i] * s.q[i]
    h[0] = max(h[0] / alpha, 0.0)
    return True


cdef int mixed_round(Model* s, double y, double weight, const double* rho, double* out) noexcept nogil:
    """One example for sketches whose rows all change every round: B = L [Z'; X], L = frame dense; out[0] its score.

    Random projection: B += rho (a g)'. Oja, s-th gradient: lam = (1 - 1/s) lam + (V a g)^2 / s, V += (V a g)(a g)' / s,
    made orthonormal; B = (s lam)^(1/2) V. s.rank becomes m when X is full.
    """
    cdef Py_ssize_t m = s.m, n = s.count[ROWS], i, j
    cdef double z = score(s, m), at = z, slope, c, alpha = s.scalar[ALPHA], h, step, steps, inner, kappa
    s.extra, s.rank, out[0] = 0, -1, z
    if not finite(z):
        return BAD
    mixed_times(s, n)
    if s.ahead and over(z) != z:
        if not mixed_solve(s, &h):
            return FAILED
        if h > 0:
            at = over(z)
    if not begin(s, y, weight, at, &slope):
        out[0] = NAN
        return BAD
    if at != z:
        step = s.step_length(0, 1, h, z, True)
        add_mixed(s, -step / alpha, n)
        s.extra = step / alpha
    z = out[0] = at
    if flat(slope) or s.x_square == 0:
        return LEARNED
    c = sqrt(MU + 1.0 / s.count[ROUND]) * slope
    s.count[APPENDED] += 1
    s.count[ROWS] = n + 1
    s.gx[n], s.e[n] = s.x_square, 0
    if s.oja:
        steps = s.count[APPENDED]
        kappa = 2.0 / steps + c * c * s.x_square / (steps * steps)
        # the Gram matrix of the new rows, in `vectors`
        memset(s.vectors, 0, m * m * sizeof(double))
        for i in range(m):
            inner = c * s.bx[i]
            s.vectors[i * m + i] = 1
            s.lam[i] = (1.0 - 1.0 / steps) * s.lam[i] + inner * inner / steps
            s.frame[i * 3 * m + m + n] = c * inner / steps
            for j in range(m):
                s.vectors[i * m + j] += kappa * inner * c * s.bx[j]
        if potrf(c'U', m, s.vectors, m):  # row-major: the lower triangle
            return FAILED
        s.lower_solve(m, m + n + 1, m, s.vectors, 3 * m, s.frame)
        mixed_times(s, n + 1)
    else:
        for i in range(m):
            for j in range(m):
                s.small[i * m + j] += (c * (rho[i] * s.bx[j] + s.bx[i] * rho[j])
                                       + c * c * s.x_square * rho[i] * rho[j])
        for i in range(m):
            s.frame[i * 3 * m + m + n] = c * rho[i]
            s.bx[i] += c * s.x_square * rho[i]
    if not mixed_solve(s, &h):
        return FAILED
    step = s.step_length(slope, 1, h, z, s.same)
    add_mixed(s, -step / alpha, n + 1)
    s.e[n] += step / alpha
    if n + 1 == s.k:
        s.rank = m
    return LEARNED


cdef bint mixed_settle(Model* s, const double* gram) noexcept nogil:
    """After Z has become L [Z'; X]: its Gram matrix is K; Oja's is the identity, whose rounding `frame` takes away."""
    cdef Py_ssize_t m = s.m, i
    memset(s.frame, 0, 3 * m * m * sizeof(double))
    memset(s.b, 0, m * sizeof(double))
    memset(s.e, 0, s.k * sizeof(double))
    if s.oja:
        memcpy(s.vectors, gram, m * m * sizeof(double))
        # frame = lower^-1 with gram = lower lower'
        if potrf(c'U', m, s.vectors, m) or trtri(c'U', m, s.vectors, m):
            return False
        for i in range(m):
            memcpy(s.frame + i * 3 * m, s.vectors + i * m, (i + 1) * sizeof(double))
    else:
        memcpy(s.small, gram, m * m * sizeof(double))
        for i in range(m):
            s.frame[i * 3 * m + i] = 1
    s.count[ROWS] = 0
    return True


# -- a rebase: Z takes X in --------------------------------------------------------------------------------------------
cdef double* mixture(Model* s, double* moved, Py_ssize_t gap, Py_ssize_t* ld) noexcept nogil:
    """B after a shrink is moved Z' + mix X: moved = N1 F (rank, r), mix = N2 C (rank, n) behind `gap` free columns."""
    cdef Py_ssize_t r = s.count[RANK], n = s.count[ROWS], rank = s.rank, i, j
    cdef double* mix = moved + rank * r
    ld[0] = gap + n
    if s.mixed:
        for i in range(rank):
            memcpy(moved + i * r, s.frame + i * 3 * s.m, r * sizeof(double))
            memcpy(mix + i * ld[0] + gap, s.frame + i * 3 * s.m + r, n * sizeof(double))
        return mix + gap
    for i in range(rank):
        transposed_times(r, r, s.frame, s.k, s.turn + i * s.k, moved + i * r)
        for j in range(n):
            mix[i * ld[0] + gap + j] = s.turn[i * s.k + r + j] * s.factors[j]
    return mix + gap


cdef void settle(Model* s) noexcept nogil:
    """No rows since the last shrink."""
    memset(s.factors, 0, s.k * sizeof(double))
    memset(s.e, 0, s.k * sizeof(double))
    s.count[RANK], s.count[ROWS] = s.rank, 0


cdef void identity_frame(Model* s) noexcept nogil:
    cdef Py_ssize_t i
    memset(s.b, 0, s.k * sizeof(double))
    for i in range(s.rank):
        s.frame[i * s.k + i] = 1


cdef bint rebase_sparse(Model* s) noexcept nogil:
    """Z takes the new rows in, touching nonzeros only, where F stays well-conditioned; else it is recomputed."""
    cdef Py_ssize_t r = s.count[RANK], n = s.count[ROWS], rank = s.rank, i, j, ld
    cdef double* moved = s.copy + max(rank, <Py_ssize_t> SOME) * rank
    cdef double* mix
    if rank == r and rank > 0 and not s.mixed:
        mix = mixture(s, moved, rank, &ld)
        if take_in(&s.c, rank, n, moved, mix - rank, s.copy):
            # base loses the growth of Z b
            for j in range(n):
                for i in range(r):
                    s.e[j] -= mix[i * ld + j] * s.b[i]
                add_kept_row(&s.c, j, s.e[j], s.base)
            settle(s)
            return True
    mix = mixture(s, moved, 0, &ld)
    # base += Z b + X'e
    recompute(&s.c, rank, r, n, moved, mix, ld, s.copy, 1, s.b, s.base)
    for j in range(n):
        add_kept_row(&s.c, j, s.e[j], s.base)
    if s.mixed:
        # gram = Z'Z
        gemm(c'N', c'T', rank, rank, s.d, 1.0, s.z, s.m, s.z, s.m, 0.0, s.copy, rank)
        return mixed_settle(s, s.copy)
    memset(s.frame, 0, s.k * s.k * sizeof(double))
    identity_frame(s)
    settle(s)
    return True


cdef bint rebase_dense(Model* s) noexcept nogil:
    """Z' <- moved Z' + mix X, some columns at a time; base takes b and e in."""
    cdef Py_ssize_t r = s.count[RANK], n = s.count[ROWS], rank = s.rank, i, j = 0, ld, width
    cdef double* moved = s.copy + rank * WIDE
    cdef double* mix = mixture(s, moved, 0, &ld)
    # base += Z b + X'e: the sums first, so that none is rounded at the size of base
    gemv(c'N', s.d, n, 1.0, s.kept, s.d, s.e, 0.0, s.line)
    add(s.d, 1, s.line, s.base)
    if r:
        gemv(c'N', s.d, r, 1.0, s.z, s.d, s.b, 0.0, s.line)
        add(s.d, 1, s.line, s.base)
    while j < s.d:
        width = min(<Py_ssize_t> WIDE, s.d - j)
        # a row-major matrix is its transpose to gemm
        gemm(c'N', c'N', width, rank, n, 1.0, s.kept + j, s.d, mix, ld, 0.0, s.copy, width)
        if r:
            gemm(c'N', c'N', width, rank, r, 1.0, s.z + j, s.d, moved, r, 1.0, s.copy, width)
        for i in range(rank):
            memcpy(s.z + i * s.d + j, s.copy + i * width, width * sizeof(double))
        j += width
    if s.mixed:
        # gram = Z'Z
        gemm(c'T', c'N', rank, rank, s.d, 1.0, s.z, s.d, s.z, s.d, 0.0, s.copy, rank)
        return mixed_settle(s, s.copy)
    memset(s.frame, 0, s.k * s.k * sizeof(double))
    identity_frame(s)
    settle(s)
    return True


# -- the loops ---------------------------------------------------------------------------------------------------------
cdef inline int round_of(Model* s, double y, double weight, const double* rho, double* out) noexcept nogil:
    return mixed_round(s, y, weight, rho, out) if s.mixed else shrinking_round(s, y, weight, out)


cdef int sparse_loop(Model* s, Py_ssize_t n_rows, const double* data, const int32_t* indices, const int64_t* indptr,
                     const double* targets, const double* sample_weight, const double* rho,
                     double* scores) noexcept nogil:
    cdef Py_ssize_t i, n, nonzeros
    cdef const double* values
    cdef const int32_t* places
    cdef int status
    for i in range(n_rows):
        values, places, nonzeros = data + indptr[i], indices + indptr[i], <Py_ssize_t> (indptr[i + 1] - indptr[i])
        n = s.count[ROWS]
        s.x_square = row_products(&s.c, s.count[RANK], n, values, places, nonzeros, s.zx, s.gx)
        s.base_x = row_dot(0, values, places, nonzeros, s.base)
        status = round_of(s, targets[i], sample_weight[i], rho + i * s.m if rho else NULL, scores + i)
        if status != LEARNED:
            return status
        if s.extra != 0:
            add_row(s.extra, values, places, nonzeros, s.base)
        if s.count[ROWS] > n:
            keep_row(&s.c, n, values, places, nonzeros)
        if s.rank >= 0 and not rebase_sparse(s):
            return FAILED
    return LEARNED


cdef int dense_loop(Model* s, Py_ssize_t n_rows, const double* x, const double* targets, const double* sample_weight,
                    const double* rho, double* scores) noexcept nogil:
    """Blocks of rows that end with a shrink: all inner products of a block at once, each in an order of its own."""
    cdef Py_ssize_t done = 0, block, held, r, n, i, j, m = s.m, d = s.d, ld = 1 + 5 * m
    cdef double* products
    cdef int status
    while done < n_rows:
        held, r = s.count[ROWS], s.count[RANK]
        # a constraint on the next score moves base, of which the next row needs the product
        block = 1 if s.ahead else min(n_rows - done, s.k - held - (0 if s.mixed else r))
        # products = x [base; Z'; X; the block]'
        fs_dots_d(block, 1, d, x, d, s.base, d, s.products, ld, False)
        fs_dots_d(block, r, d, x, d, s.z, d, s.products + 1, ld, False)
        fs_dots_d(block, held, d, x, d, s.kept, d, s.products + 1 + m, ld, False)
        fs_dots_d(block, block, d, x, d, x, d, s.products + 1 + m + held, ld, True)
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
    """FULL-ON on C-ordered rows: inverse (d, d) is H^-1, changed by one term a round."""
    cdef Py_ssize_t d = s.d, i
    cdef double z, at, slope, h, c, f
    for i in range(n_rows):
        z = at = ddot(d, s.base, x)
        s.x_square = ddot(d, x, x)
        scores[i] = z
        if not finite(z):
            return BAD
        if s.ahead:
            at = over(z)
        if not begin(s, targets[i], sample_weight[i], at, &slope):
            scores[i] = NAN
            return BAD
        scores[i] = at
        if at != z or not flat(slope):
            # q = H^-1 x
            gemv(c'T', d, d, 1.0, s.inverse, d, x, 0.0, s.line)
            h = ddot(d, x, s.line)
            if at != z:
                add(d, s.step_length(0, 1, h, z, True), s.line, s.base)
            if not flat(slope) and h > 0:
                c = (MU + 1.0 / s.count[ROUND]) * slope * slope
                f = 1.0 / (1.0 + c * h)
                s.less_rank_one(d, c * f, s.line, s.inverse)
                add(d, s.step_length(slope, f, h, at, s.same), s.line, s.base)
        x += d
    return LEARNED


# -- scratch -----------------------------------------------------------------------------------------------------------
cdef inline double* place(double** at, Py_ssize_t n) noexcept nogil:
    cdef double* here = at[0]
    at[0] = here + n
    return here


cdef Py_ssize_t lay_out(Model* s, double* first, bint sparse) noexcept nogil:
    """Give every workspace its place in one array; returns its size."""
    cdef double* at = first
    cdef Py_ssize_t m = s.m, k = s.k
    s.line = place(&at, max(s.d, k))
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
    """The arrays of a NewtonState as its rounds take them, good until one of them is replaced; and their scratch.

    state: a SketchState or FullState of fastsketch.online._newton_state, whose fields are read here by name.
    """

    cdef Model s
    cdef Py_buffer views[VIEWS]  # of the arrays that the pointers point to
    cdef int n_views
    cdef double[::1] scratch

    def __init__(self, state, setting):
        cdef Model* s = &self.s
        cdef Py_ssize_t n
        if self.n_views:
            raise TypeError("Rounds are of one state")
        s.loss, s.m, s.spared = setting.loss, setting.sketch_size, setting.spared
        s.k = 2 * s.m
        s.same, s.ahead = setting.constraint in (CURRENT, BOTH), setting.constraint in (NEXT, BOTH)
        s.grows, s.mixed, s.oja = setting.method == "rfd", setting.mixed, setting.method == "oja"
        s.base, s.scalar = <double*> self.of(state.base, b"d"), <double*> self.of(state.scalar, b"d")
        s.count = <int64_t*> self.of(state.count, b"l")
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
        """The first element of an array, which stays where it is."""
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
        s.c.d, s.c.width, s.c.z = s.d, s.m, s.z
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
        """Learn from CSR rows; there must be room for 2 m of the longest in what is kept."""
        cdef Py_ssize_t n = indptr.shape[0] - 1
        cdef int status
        cdef const double* numbers = NULL
        if n == 0:
            return
        if rho is not None:
            numbers = &rho[0, 0]
        with nogil:
            status = sparse_loop(&self.s, n, &data[0] if data.shape[0] else NULL,
                                 &indices[0] if data.shape[0] else NULL, &indptr[0], &targets[0], &sample_weight[0],
                                 numbers, &scores[0])
        if status == FAILED:
            raise np.linalg.LinAlgError("the small space has no factorisation")
