# A round of "rp" and "oja", whose rows all change every time: B = L [Z'; X], L = frame dense.

from libc.string cimport memcpy, memset

from fastsketch._kernels.linalg.blas cimport gesv, potrf, trtri
from fastsketch._kernels.losses cimport finite
from fastsketch._kernels.online.basis cimport add
from fastsketch._kernels.online.newton_model cimport Model, begin, factor_of, matrix_times, over, score, teaches
from fastsketch._kernels.online.numbers cimport ALPHA, APPENDED, ROWS
from fastsketch._kernels.pool cimport fs_blas_alone


cdef inline void mixed_times(Model* s, Py_ssize_t n) noexcept nogil:
    # bx = L [Z'; X] x: gx follows zx
    matrix_times(s.m, s.m + n, s.frame, 3 * s.m, s.zx, s.bx)


cdef inline void add_mixed(Model* s, double scale, Py_ssize_t n) noexcept nogil:
    """Add scale * (L [Z'; X])'q to w."""
    cdef Py_ssize_t i
    for i in range(s.m):
        add(s.m, scale * s.q[i], s.frame + i * 3 * s.m, s.b)
        add(n, scale * s.q[i], s.frame + i * 3 * s.m + s.m, s.e)


cdef inline bint mixed_solve(Model* s, double* h) noexcept nogil:
    """Compute q = M B x and h = x'H^-1 x, for B with K = small (random projection), or B = (steps lam)^(1/2) V, bx = V
    x (Oja)."""
    cdef Py_ssize_t m = s.m, i, j
    cdef double alpha = s.scalar[ALPHA], square
    cdef int info
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
        fs_blas_alone(1)
        info = gesv(m, 1, s.vectors, m, s.ints, s.q, m)
        fs_blas_alone(0)
        if info:
            return False
    for i in range(m):
        h[0] -= s.bx[i] * s.q[i]
    h[0] = max(h[0] / alpha, 0.0)
    return True


cdef inline void lower_solve(Py_ssize_t m, Py_ssize_t width, const double* lower, Py_ssize_t ld,
                             double* rows) noexcept nogil:
    """Set rows <- lower^-1 rows, (m, width): orthonormal ones, for Oja's rule."""
    cdef Py_ssize_t i, j
    for i in range(m):
        for j in range(i):
            add(width, -lower[i * m + j], rows + j * ld, rows + i * ld)
        for j in range(width):
            rows[i * ld + j] /= lower[i * m + i]


cdef inline bint mixed_round(Model* s, double y, double weight, const double* rho, double* out) noexcept nogil:
    """Learn from one example with sketches whose rows all change every round: B = L [Z'; X], L = frame dense; out[0]
    its score. False if numbers would leave their range.

    Random projection: B += rho (a g)'. Oja, s-th gradient: lam = (1 - 1/s) lam + (V a g)^2 / s, V += (V a g)(a g)' / s,
    made orthonormal; B = (s lam)^(1/2) V. s.rank becomes m when X is full.
    """
    cdef Py_ssize_t m = s.m, n = s.count[ROWS], i, j
    cdef double z = score(s, m), at = z, slope, c, alpha = s.scalar[ALPHA], h = 0, step, steps, inner, kappa
    cdef int info
    s.extra, s.rank, out[0] = 0, -1, z
    if not finite(z):
        return False
    mixed_times(s, n)
    if s.ahead and over(z) != z:
        if not mixed_solve(s, &h):
            return False
        if h > 0:
            at = over(z)
    if not begin(s, y, weight, at, &slope):
        return False
    if at != z:
        step = s.step_length(0, 1, h, z, True)
        add_mixed(s, -step / alpha, n)
        s.extra = step / alpha
    z = out[0] = at
    if not teaches(s, slope):
        return True
    c = factor_of(s, slope, 1.0)
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
        fs_blas_alone(1)
        info = potrf(c'U', m, s.vectors, m)  # row-major: the lower triangle
        fs_blas_alone(0)
        if info:
            return False
        lower_solve(m, m + n + 1, s.vectors, 3 * m, s.frame)
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
        return False
    step = s.step_length(slope, 1, h, z, s.same)
    add_mixed(s, -step / alpha, n + 1)
    s.e[n] += step / alpha
    if n + 1 == s.k:
        s.rank = m
    return True


cdef inline bint mixed_settle(Model* s, const double* gram) noexcept nogil:
    """Settle Z after it has become L [Z'; X]: its Gram matrix is K, or Oja's identity, rounded away by `frame`."""
    cdef Py_ssize_t m = s.m, i
    cdef bint failed
    memset(s.frame, 0, 3 * m * m * sizeof(double))
    memset(s.b, 0, m * sizeof(double))
    memset(s.e, 0, s.k * sizeof(double))
    if s.oja:
        memcpy(s.vectors, gram, m * m * sizeof(double))
        # frame = lower^-1 with gram = lower lower'
        fs_blas_alone(1)
        failed = potrf(c'U', m, s.vectors, m) or trtri(c'U', m, s.vectors, m)
        fs_blas_alone(0)
        if failed:
            return False
        for i in range(m):
            memcpy(s.frame + i * 3 * m, s.vectors + i * m, (i + 1) * sizeof(double))
    else:
        memcpy(s.small, gram, m * m * sizeof(double))
        for i in range(m):
            s.frame[i * 3 * m + i] = 1
    s.count[ROWS] = 0
    return True
