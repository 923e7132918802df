# A round of the sketched Newton learners in the small space: the model, the gradient, the step and the shrink. What
# a rebase does to the rows of length d is in newton.pyx.

from libc.float cimport DBL_EPSILON
from libc.math cimport fabs, sqrt
from libc.stdint cimport int64_t
from libc.string cimport memcpy, memset

from fastsketch._kernels.linalg.blas cimport blas_int, syevd
from fastsketch._kernels.losses cimport HUBER, bowl, dot, finite, flat, loss_and_slope, squares_with
from fastsketch._kernels.online.basis cimport Basis, add, tolerance
from fastsketch._kernels.online.numbers cimport (ALPHA, FADED, FLOOR, LOSS, MISTAKES, RANK, RESIDUALS, ROUND, ROWS,
                                                 SHRINKAGE, WEIGHTS)
from fastsketch._kernels.pool cimport fs_blas_alone

# Functions of projection.py, which are compiled by Numba.
ctypedef double (*step_length_t)(double slope, double f, double h, double z, int64_t project) noexcept nogil
ctypedef void (*bordered_inverse_t)(int64_t k, int64_t ld, double c, double f, double alpha, const double* q,
                                    double* inverse) noexcept nogil
ctypedef double (*flat_steps_t)(int64_t k, double share, const double* values, const double* p, double* first,
                                double* second) noexcept nogil
ctypedef void (*flat_projection_t)(int64_t k, double z, double x_square, double h, const double* p,
                                   const double* first, double* out) noexcept nogil


cdef inline double mu() noexcept nogil:
    return 0.125                 # C = 1: the curvature constant of the losses, RFD paper, section 6.2


cdef struct Model:
    Py_ssize_t d, m, k, spared   # columns (dense rows) or slots; sketch_size; 2 m; rows that a "pfd" shrink spares
    int loss
    bint same, ahead             # constraint on the score of the current, of the next example
    bint grows                   # alpha grows with shrinks ("rfd")
    bint by_loss                 # curvature="loss": H of curvatures of the losses, not of gradients
    double loss_scale            # a factor of the weights of the examples
    double* base
    double* scalar
    double decay
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
    double* b
    double* e
    # products of the current row, and scratch
    double* zx                   # Z'x
    double* gx                   # X x, stored behind zx
    double* bx                   # B x
    double* q
    double* p
    double* first
    double* second
    double* turn                 # (m, k): the shrink is B <- turn B
    double* values
    double* vectors
    double* lapack
    Py_ssize_t n_lapack
    double* copy
    double* products             # of the rows of a block
    double* line                 # scratch of max(d, k) for dense rows, else k
    Py_ssize_t* places
    blas_int* ints
    Py_ssize_t rank              # rank after the shrink of this round, which a rebase must follow; -1: no shrink
    double x_square, base_x
    double extra                 # the caller adds extra * x to base
    double curve                 # weighted curvature of the loss, with by_loss
    double times                 # weight of the example without loss_scale
    step_length_t step_length
    bordered_inverse_t bordered_inverse
    flat_steps_t flat_steps
    flat_projection_t flat_projection


# -- small products ----------------------------------------------------------------------------------------------------
cdef inline void matrix_times(Py_ssize_t rows, Py_ssize_t n, const double* a, Py_ssize_t ld, const double* v,
                              double* out) noexcept nogil:
    # out = a v; each sum in order, four of them interleaved to hide the latency of additions
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


cdef inline void times_basis(Model* s, Py_ssize_t n, double* out) noexcept nogil:
    """Compute out = B x."""
    cdef Py_ssize_t r = s.count[RANK], j
    matrix_times(r, r, s.frame, s.k, s.zx, out)
    for j in range(n):
        out[r + j] = s.factors[j] * s.gx[j]


cdef inline void add_basis(Model* s, double scale, const double* v, Py_ssize_t n) noexcept nogil:
    """Add scale * B'v to w."""
    cdef Py_ssize_t r = s.count[RANK], j
    transposed_times(r, r, s.frame, s.k, v, s.line)
    for j in range(r):
        s.b[j] += scale * s.line[j]
    for j in range(n):
        s.e[j] += scale * s.factors[j] * v[r + j]


cdef inline int decompose(Model* s, Py_ssize_t k) noexcept nogil:
    # Decompose K = U diag(values) U', ascending; row i of `vectors` is column i of U. Returns LAPACK's info.
    cdef Py_ssize_t i
    cdef int info
    for i in range(k):
        memcpy(s.vectors + i * k, s.small + i * s.k, k * sizeof(double))
    fs_blas_alone(1)
    info = syevd(c'V', c'L', k, s.vectors, k, s.values, s.lapack, s.n_lapack, s.ints, 3 + 5 * s.k)
    fs_blas_alone(0)
    return info


# -- one round ---------------------------------------------------------------------------------------------------------
cdef inline bint begin(Model* s, double y, double weight, double z, double* slope) noexcept nogil:
    """Compute the slope of an example with score z and count its loss; return False, with nothing changed, on overflow.

    weight: that of the example times loss_scale. slope is written. Sets s.curve and s.times.
    """
    cdef double value = weight * loss_and_slope(s.loss, z, y, slope), scale, squares = 0
    cdef bint robust = s.by_loss and s.loss == HUBER
    if s.by_loss:
        # scale of the losses: their mean, including this example
        scale = (s.scalar[LOSS] + value) / (s.count[ROUND] + 1)
        if robust:
            squares = squares_with(HUBER, s.scalar[RESIDUALS], s.scalar[WEIGHTS], y, z - y, weight)
            scale = sqrt(squares / (s.scalar[WEIGHTS] + weight))
        s.curve = weight * bowl(s.loss, z, y, scale, slope)
    slope[0] *= weight
    s.times = weight / s.loss_scale
    if not (finite(slope[0]) and finite(slope[0] * slope[0] * s.x_square) and finite(squares)):
        return False
    if s.times < 1 and slope[0] != 0 and not finite(slope[0] * slope[0] * s.x_square / s.times):
        return False
    if robust:
        s.scalar[RESIDUALS] = squares
        s.scalar[WEIGHTS] += weight
    s.scalar[LOSS] += value
    s.count[ROUND] += 1
    s.count[MISTAKES] += z * y <= 0
    return True


cdef inline bint teaches(const Model* s, double slope) noexcept nogil:
    # Whether an example changes w. Tiny slopes count as zero where the step is divided by the slope.
    return s.x_square > 0 and (slope != 0 if s.by_loss else not flat(slope))


cdef inline double factor_of(const Model* s, double slope, double faded) noexcept nogil:
    # Return c of the new row c x of B, for the factor `faded` of the stored B. The slope contains the weight of the row;
    # H gets the weight once, not squared, as if the row had come that many times.
    return sqrt(s.curve / faded) if s.by_loss else sqrt((mu() + 1.0 / s.count[ROUND]) / faded) * slope / sqrt(s.times)


cdef inline double over(double z) noexcept nogil:
    # clip z to [-1, 1]
    return 1.0 if z > 1 else -1.0 if z < -1 else z


cdef inline double at_end(double z) noexcept nogil:
    # Round z to -1 or 1 if it differs by rounding only: the absolute loss has its kink there.
    return z if fabs(fabs(z) - 1) > tolerance() else 1.0 if z > 0 else -1.0


cdef inline double score(Model* s, Py_ssize_t r) noexcept nogil:
    # w'x
    cdef Py_ssize_t j
    cdef double z = s.base_x
    for j in range(r):
        z += s.zx[j] * s.b[j]
    for j in range(s.count[ROWS]):
        z += s.gx[j] * s.e[j]
    return z


cdef inline double rank_share() noexcept nogil:
    return 1e-10                 # eigenvalues of K below this share of the largest are zero


cdef inline void add_eigen(Model* s, Py_ssize_t k, const double* f, Py_ssize_t n) noexcept nogil:
    # w += B'U (f[0] first + f[1] second)
    if f[0] != 0:
        transposed_times(k, k, s.vectors, k, s.first, s.q)
        add_basis(s, f[0], s.q, n)
    if f[1] != 0:
        transposed_times(k, k, s.vectors, k, s.second, s.q)
        add_basis(s, f[1], s.q, n)


# -- decay -------------------------------------------------------------------------------------------------------------
cdef inline bint lift(Model* s) noexcept nogil:
    """Reset alpha to its floor. B, K and M are computed again with the decay so far, and FADED becomes 1.

    Returns False if K has no eigendecomposition.
    """
    cdef Py_ssize_t r = s.count[RANK], n = s.count[ROWS], k = r + n, i, j, v
    cdef double faded = s.scalar[FADED], root = sqrt(faded), alpha = s.scalar[FLOOR], f
    if k > 0 and decompose(s, k):
        return False
    for i in range(r):
        for j in range(r):
            s.frame[i * s.k + j] *= root
    for i in range(n):
        s.factors[i] *= root
    # M = U diag(1 / (values + alpha)) U'
    for i in range(k):
        memset(s.inverse + i * s.k, 0, k * sizeof(double))
        for j in range(k):
            s.small[i * s.k + j] *= faded
    for v in range(k):
        f = 1.0 / (max(faded * s.values[v], 0.0) + alpha)
        for i in range(k):
            for j in range(k):
                s.inverse[i * s.k + j] += f * s.vectors[v * k + i] * s.vectors[v * k + j]
    s.scalar[ALPHA], s.scalar[FADED] = alpha, 1
    return True


cdef inline bint fade(Model* s, double factor) noexcept nogil:
    """Multiply the weight of earlier rows by `factor`: H <- factor H, with alpha reset when it falls below half its floor.

    Only FADED, alpha and the shrinkage change. Returns False if alpha cannot be reset.
    """
    if s.count[RANK] + s.count[ROWS] == 0 and s.scalar[ALPHA] <= s.scalar[FLOOR]:
        return True
    s.scalar[FADED] *= factor
    s.scalar[ALPHA] *= factor
    s.scalar[SHRINKAGE] *= factor
    return s.scalar[ALPHA] >= s.scalar[FLOOR] / 2 or lift(s)


cdef inline double inverse_form(const Model* s, Py_ssize_t k, double faded) noexcept nogil:
    """Return x'H^-1 x = (x'x - (B x)'q) / alpha for q = (B B' + alpha I)^-1 B x.

    It also equals |q|^2 + alpha |H^-1 x|^2. The lower bound |q|^2 is returned if cancellation in the difference leaves
    less, which happens if x lies in the span of much longer rows.
    """
    return max((s.x_square - dot(k, s.bx, s.q)) / s.scalar[ALPHA], dot(k, s.q, s.q) / faded)


cdef inline bint regular(const Model* s, Py_ssize_t k) noexcept nogil:
    """Return whether alpha is above the share of trace(B B') below which eigenvalues count as zero.

    Otherwise projections use H = B'B, as with alpha = 0, because H^-1 x would consist of rounding errors.
    """
    cdef Py_ssize_t i
    cdef double trace = 0
    for i in range(k):
        trace += s.small[i * (s.k + 1)]
    return rank_share() * trace * s.scalar[FADED] < s.scalar[ALPHA]


cdef inline bint project_ahead(Model* s, double z) noexcept nogil:
    """Project w so that |w'x| <= 1, for the score z = w'x; return False if K has no eigendecomposition."""
    cdef Py_ssize_t n = s.count[ROWS], k = s.count[RANK] + n
    cdef double alpha = s.scalar[ALPHA], h, step
    cdef double out[3]
    times_basis(s, n, s.bx)
    if alpha > 0 and (k == 0 or regular(s, k)):
        matrix_times(k, k, s.inverse, s.k, s.bx, s.q)
        h = inverse_form(s, k, s.scalar[FADED])
        step = s.step_length(0, 1, h, z, True)
        add_basis(s, -step / alpha, s.q, n)
        s.extra = step / alpha
        return True
    if decompose(s, k):
        return False
    matrix_times(k, k, s.vectors, k, s.bx, s.p)
    h = s.flat_steps(k, rank_share(), s.values, s.p, s.first, s.second)
    s.flat_projection(k, z, s.x_square, h, s.p, s.first, out)
    add_eigen(s, k, out, n)
    s.extra = out[2]
    return True


cdef inline bint flat_step(Model* s, double slope, double z) noexcept nogil:
    """Make the step with the pseudo-inverse of H = FADED B'B, once B has its new row.

    Returns False, with nothing changed, if K has no eigendecomposition.
    """
    cdef Py_ssize_t n = s.count[ROWS], k = s.count[RANK] + n
    cdef double h
    cdef double out[3]
    if decompose(s, k):
        return False
    matrix_times(k, k, s.vectors, k, s.bx, s.p)
    # (B'B)^+ x = B'U L^-2 U'B x
    h = s.flat_steps(k, rank_share(), s.values, s.p, s.first, s.second)
    slope /= s.scalar[FADED]
    out[0], out[1] = 0, -slope
    add_eigen(s, k, out, n)
    if s.same and over(z - slope * h) != z - slope * h:
        s.flat_projection(k, z - slope * h, s.x_square, h, s.p, s.first, out)
        add_eigen(s, k, out, n)
        s.e[n - 1] += out[2]
    return True


cdef inline Py_ssize_t shrink_small(Model* s, Py_ssize_t k) noexcept nogil:
    """Shrink K; return the new rank, or -1 if K has no eigendecomposition.

    turn[:rank, :k] becomes the matrix of the shrink B <- turn B, small[:rank, :rank] the Gram matrix of the result.
    """
    cdef Py_ssize_t rank = 0, i, j
    cdef double top, delta, value, left, faded = s.scalar[FADED]
    if decompose(s, k):
        return -1
    top = s.values[k - 1]
    delta = s.values[k - s.m] if s.values[k - s.m] > rank_share() * top else 0.0
    memset(s.small, 0, s.k * s.k * sizeof(double))
    for i in range(s.m - 1):
        value = s.values[k - 1 - i]
        if value <= rank_share() * top:
            break
        left = (value if i < s.spared else value - delta) * faded
        # equal eigenvalues, one of which is delta, would leave a row of rounding errors
        if left <= rank_share() * top * faded:
            continue
        for j in range(k):
            s.turn[rank * s.k + j] = sqrt(left / value) * s.vectors[(k - 1 - i) * k + j]
        s.small[rank * s.k + rank] = left
        rank += 1
    s.scalar[SHRINKAGE] += delta * faded
    if s.grows:
        s.scalar[ALPHA] += delta * faded / 2
    s.scalar[FADED] = 1
    return rank


cdef inline void add_turned(Model* s, double scale, const double* v) noexcept nogil:
    # w += scale * (turn B)'v
    cdef Py_ssize_t n = s.count[ROWS]
    transposed_times(s.rank, s.count[RANK] + n, s.turn, s.k, v, s.q)
    add_basis(s, scale, s.q, n)


cdef inline bint shrunk_step(Model* s, double slope, double z) noexcept nogil:
    """Shrink the full B in the small space, and make the step with the shrunk H; return False if K cannot be decomposed."""
    cdef Py_ssize_t n = s.count[ROWS], k = s.count[RANK] + n, rank = shrink_small(s, k), i
    cdef double alpha = s.scalar[ALPHA], h, step
    cdef double out[3]
    if rank < 0:
        return False
    s.rank = rank
    memset(s.inverse, 0, s.k * s.k * sizeof(double))
    matrix_times(rank, k, s.turn, s.k, s.bx, s.p)
    if alpha > 0:
        for i in range(rank):
            s.inverse[i * s.k + i] = 1.0 / (s.small[i * s.k + i] + alpha)
    if alpha > 0 and (not s.same or regular(s, rank)):
        h = s.x_square
        for i in range(rank):
            s.first[i] = s.p[i] * s.inverse[i * s.k + i]
            h -= s.p[i] * s.first[i]
        h = max(h / alpha, dot(rank, s.first, s.first))
        step = s.step_length(slope, 1, h, z, s.same)
        add_turned(s, -step / alpha, s.first)
        s.e[n - 1] += step / alpha
        return True
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
    return True


cdef inline bint keep_within(Model* s, Py_ssize_t n) noexcept nogil:
    """Project w so that |w'x| <= 1 along x if the projection in the norm of H has missed it by rounding.

    That happens if x lies in the span of much longer rows, where x'H^-1 x is a difference of nearly equal numbers. n is
    the number of rows of X before x. Returns whether base + Z b + X'e is accurate enough for the constraint.
    """
    cdef Py_ssize_t r = s.count[RANK], j
    cdef double z, size, length
    if s.x_square == 0 or s.rank >= 0:
        return True
    z = score(s, r) + s.extra * s.x_square
    if fabs(z) > 1 + tolerance():
        if s.count[ROWS] > n:
            s.e[n] += (over(z) - z) / s.x_square
        else:
            s.extra += (over(z) - z) / s.x_square
    size = fabs(s.base_x) + fabs(s.extra) * s.x_square
    for j in range(r):
        size += fabs(s.zx[j] * s.b[j])
    for j in range(s.count[ROWS]):
        length = sqrt(s.small[(r + j) * (s.k + 1)] * s.x_square)
        size += fabs(s.e[j] / s.factors[j]) * length
    return size * DBL_EPSILON <= tolerance()


cdef inline bint shrinking_round(Model* s, double y, double weight, double* out) noexcept nogil:
    """Learn one example from its inner products zx, gx, x_square and base_x; out[0] becomes its score.

    Returns False if a number overflows or K has no eigendecomposition; the counts are then unchanged, but decay and a
    projection ahead remain. The caller adds s.extra * x to base, and stores x in X if ROWS has grown. If B is full, it is shrunk in the small space:
    s.rank is then the new rank and the shrink is B <- turn B, which the caller applies to Z (rebase).
    """
    cdef Py_ssize_t r = s.count[RANK], n = s.count[ROWS], k = r + n, i
    cdef double z = score(s, r), at, slope, c, alpha = s.scalar[ALPHA], h, f, step, before = s.scalar[LOSS], faded
    cdef double residuals = s.scalar[RESIDUALS], weights = s.scalar[WEIGHTS]
    cdef int64_t mistakes = s.count[MISTAKES]
    s.extra, s.rank = 0, -1
    if s.same or s.ahead:
        z = at_end(z)
    out[0] = z
    if not finite(z):
        return False
    at = over(z) if s.ahead and (k > 0 or alpha > 0) else z
    if not begin(s, y, weight, at, &slope):
        return False
    if s.decay != 1:
        if not fade(s, s.decay):
            return False
        alpha = s.scalar[ALPHA]
    if at != z and not project_ahead(s, z):
        return False
    z = out[0] = at
    if not teaches(s, slope):
        # without a gradient only the projection may change w
        if not s.same or over(z) == z or (k == 0 and alpha == 0) or project_ahead(s, z):
            return True
        s.scalar[LOSS], s.count[MISTAKES] = before, mistakes
        s.scalar[RESIDUALS], s.scalar[WEIGHTS] = residuals, weights
        s.count[ROUND] -= 1
        return False
    # border K for the new row c x of B
    faded = s.scalar[FADED]
    c = factor_of(s, slope, faded)
    times_basis(s, n, s.bx)
    s.factors[n], s.gx[n], s.e[n] = c, s.x_square, 0
    for i in range(k):
        s.small[i * s.k + k] = s.small[k * s.k + i] = c * s.bx[i]
    s.small[k * s.k + k] = c * c * s.x_square
    s.bx[k] = c * s.x_square
    s.count[ROWS] = n + 1
    if k + 1 == s.k:
        if shrunk_step(s, slope, z):
            return True
        # undo the counts; decay and a projection ahead remain
        s.scalar[LOSS], s.count[MISTAKES], s.count[ROWS] = before, mistakes, n
        s.scalar[RESIDUALS], s.scalar[WEIGHTS] = residuals, weights
        s.count[ROUND] -= 1
        return False
    if alpha == 0:
        return flat_step(s, slope, z)
    matrix_times(k, k, s.inverse, s.k, s.bx, s.q)
    h = inverse_form(s, k, faded)
    f = 1.0 / (1.0 + c * c * faded * h)
    step = s.step_length(slope, f, h, z, s.same)
    s.bordered_inverse(k, s.k, c, f, alpha / faded, s.q, s.inverse)
    if s.same and not regular(s, k + 1) and flat_step(s, slope, z):
        return True
    add_basis(s, -step / alpha, s.q, n)
    s.e[n] += step / alpha
    return True
