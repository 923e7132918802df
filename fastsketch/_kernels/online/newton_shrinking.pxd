# A round of "rfd", "fd" and "pfd": B = [F Z'; C X] grows by a row until it is full and shrinks.

from libc.float cimport DBL_EPSILON
from libc.math cimport fabs, sqrt
from libc.stdint cimport int64_t
from libc.string cimport memset

from fastsketch._kernels.losses cimport dot, finite
from fastsketch._kernels.online.basis cimport tolerance
from fastsketch._kernels.online.newton_model cimport (Model, add_basis, at_end, begin, decompose, factor_of,
                                                      matrix_times, over, score, teaches, times_basis,
                                                      transposed_times)
from fastsketch._kernels.online.numbers cimport (ALPHA, FADED, FLOOR, LOSS, MISTAKES, RANK, RESIDUALS, ROUND, ROWS,
                                                 SHRINKAGE, WEIGHTS)


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


# -- forgetting --------------------------------------------------------------------------------------------------------
cdef inline bint lift(Model* s) noexcept nogil:
    """Put alpha back to its floor: B, K and M are made anew, as they are and not as they were."""
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
    """Multiply the weight of earlier rows by `factor`: H = factor H, but for the floor of alpha.

    B, K and M stay as they are, and their factor is kept beside them.
    """
    if s.count[RANK] + s.count[ROWS] == 0 and s.scalar[ALPHA] <= s.scalar[FLOOR]:
        return True
    s.scalar[FADED] *= factor
    s.scalar[ALPHA] *= factor
    s.scalar[SHRINKAGE] *= factor
    return s.scalar[ALPHA] >= s.scalar[FLOOR] / 2 or lift(s)


cdef inline double inverse_form(const Model* s, Py_ssize_t k, double faded) noexcept nogil:
    """Return x'H^-1 x = (x'x - (B x)'q) / alpha for q = (B B' + alpha I)^-1 B x.

    It is |q|^2 + alpha |H^-1 x|^2 as well, so at least |q|^2: that is all that rounding leaves where x lies in the span
    of far longer rows.
    """
    return max((s.x_square - dot(k, s.bx, s.q)) / s.scalar[ALPHA], dot(k, s.q, s.q) / faded)


cdef inline bint regular(const Model* s, Py_ssize_t k) noexcept nogil:
    """Return whether alpha counts beside the eigenvalues of B B'. Below the share of them that counts as zero the
    projections are those of H = B'B, as with alpha = 0: H^-1 x would be rounding."""
    cdef Py_ssize_t i
    cdef double trace = 0
    for i in range(k):
        trace += s.small[i * (s.k + 1)]
    return rank_share() * trace * s.scalar[FADED] < s.scalar[ALPHA]


cdef inline bint project_ahead(Model* s, double z) noexcept nogil:
    """Move w into |w'x| <= 1 before the example is scored."""
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
    """Make the step with the pseudo-inverse of H = FADED B'B, B having its new row; False, with nothing changed, if
    there is none."""
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
    """Compute the eigenvectors of K with the squared lengths that a shrink leaves; return the rank, or -1 if there are
    none.

    Rows of turn[:rank, :k] combine the rows of B into the new ones; small[:rank, :rank] becomes their Gram matrix.
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
        # a row of rounding alone takes no place: equal eigenvalues, of which one is delta
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
    """Shrink B, which is full, in the small space, and make the step with what is left."""
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
    """Move w by the shortest way into |w'x| <= 1 where the projection has missed it by rounding.

    x'H^-1 x is the difference of two numbers of the size of x'x / alpha: little is left of it where x lies in the span
    of far longer rows. Return whether base + Z b + X'e is as accurate as the constraint; n: rows of X before x.
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
    """Learn from one example by its inner products, out[0] its score; return False if numbers would leave their range,
    or the small space has no factorisation.

    If a row is appended, ROWS has grown: gx must have room for it. If B is then full, s.rank becomes the new rank, turn
    combines the old rows of B into the new ones, and the step is made with the H of the shrunk sketch.
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
        # without a gradient H and w stay, but for the projection
        if not s.same or over(z) == z or (k == 0 and alpha == 0) or project_ahead(s, z):
            return True
        s.scalar[LOSS], s.count[MISTAKES] = before, mistakes
        s.scalar[RESIDUALS], s.scalar[WEIGHTS] = residuals, weights
        s.count[ROUND] -= 1
        return False
    # the new row a g = c x as it is stored: K gets a border
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
        # as if the example had never come: only a projection ahead cannot be taken back
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
