"""The shrink of Frequent Directions, in place on a row buffer: from the Gram matrix, or by gesdd.

A row-major m x d buffer F is the column-major d x m matrix F'; every BLAS call below sees it so.
"""
from libc.math cimport isfinite, sqrt
from libc.string cimport memcpy, memset

from fastsketch._kernels.linalg.blas cimport (
    NOT_FINITE, real, blas_int, converged, sytrd, stedc, ormtr, gemm, larft, gesdd)
from fastsketch._kernels.sketching.ledger cimport Ledger, post
from fastsketch._kernels.level cimport follow
from fastsketch._kernels.linalg.householder cimport fs_tridiagonal_pays, tridiagonalise
from fastsketch._kernels.linalg.rows cimport scan_rows
from fastsketch._kernels.linalg.tridiagonal cimport tridiagonal_top, doubles_size, integers_size
from fastsketch._kernels.pool cimport FS_PARTS, fs_blas_alone, fs_part, fs_pool_from, fs_pool_parts, fs_pool_run, join
from fastsketch._kernels.sketching.products cimport gram_products, rotate_rows

import numpy as np


follow()
join()


cdef Py_ssize_t arena_size(Py_ssize_t m) noexcept nogil:
    """Return the number of reals of workspace of gram_shrink: G, Z, stedc's workspace (1 + 4m + m^2), four vectors."""
    return 3 * m * m + 8 * m + 1


cdef Py_ssize_t iwork_size(Py_ssize_t m) noexcept nogil:
    """Return the number of integers of workspace of the eigensolver, or of gesdd (8m)."""
    return max(3 + 8 * m, integers_size(m))


cdef Py_ssize_t small_size(Py_ssize_t m, Py_ssize_t n_keep) noexcept nogil:
    """Return the number of doubles of workspace of gram_shrink, in addition to the arena."""
    return (FS_PARTS + 1) * (n_keep + 1) + doubles_size(m)


cdef int reduce_to_tridiagonal(Py_ssize_t m, real* g, real* d, real* e, real* tau, real* work,
                               Py_ssize_t lwork) noexcept nogil:
    """Reduce the lower triangle to tridiagonal form: by our one-pass version where it is faster, else by sytrd."""
    if not fs_tridiagonal_pays(m, sizeof(real)):
        return sytrd(c'L', m, g, m, d, e, tau, work, lwork)
    tridiagonalise(m, g, d, e, tau, work)
    return 0


# Reflectors that are applied together, and the size from which our version is at least as fast as LAPACK's ormtr.
cdef enum:
    TOGETHER = 32
    BACK_FROM = 96
cdef double LEAST_BACK = 4e5  # smallest number of products of a part


cdef struct Back:
    Py_ssize_t m, k, n_blocks, n_parts
    void* g
    const void* tau
    void* v
    void* z


cdef inline Py_ssize_t before_block(Py_ssize_t m, Py_ssize_t b) noexcept nogil:
    """Return the number of reals of V in blocks 0 .. b - 1, of m - 1, m - 1 - TOGETHER, .. rows."""
    return TOGETHER * (b * (m - 1) - TOGETHER * (b * (b - 1) // 2))


cdef void reflectors(Back* job, ptrdiff_t part, real* t) noexcept nogil:
    """Compute V and U = V T of one block, the product of whose reflectors is I - U V'. U replaces its columns of g.

    V gets the unit diagonal and the zeros above it that LAPACK omits, so that V'Z is one product, where its larfb has
    three and two copies. Both are stored without gaps: in columns m reals apart, m a power of two, rows of a product
    would share the few places of one set of the L1 cache.
    """
    cdef Py_ssize_t i = part * TOGETHER, m = job.m, n = m - 1 - i, count = min(TOGETHER, n), j
    cdef real* g = <real*> job.g + i * m
    cdef real* v = <real*> job.v + before_block(m, part)
    for j in range(count):
        memset(v + j * n, 0, j * sizeof(real))
        v[j * n + j] = 1.0
        memcpy(v + j * n + j + 1, g + j * m + i + j + 2, (n - j - 1) * sizeof(real))
    larft(n, count, v, n, <const real*> job.tau + i, t, TOGETHER)
    for j in range(count):
        memset(t + j * TOGETHER + j + 1, 0, (count - j - 1) * sizeof(real))
    gemm(c'N', c'N', n, count, count, <real> 1.0, v, n, t, TOGETHER, <real> 0.0, g, n)


cdef void turn_columns(Back* job, ptrdiff_t part, real* w) noexcept nogil:
    """Apply all blocks of reflectors, the last first, to some columns of z: Z -= U (V'Z)."""
    cdef Py_ssize_t first = fs_pool_from(job.k, job.n_parts, part, 1), m = job.m, b, i, n, together
    cdef Py_ssize_t count = fs_pool_from(job.k, job.n_parts, part + 1, 1) - first
    cdef real* z
    for b in range(job.n_blocks - 1, -1, -1):
        i = b * TOGETHER
        n = m - 1 - i
        together = min(TOGETHER, n)
        z = <real*> job.z + first * m + i + 1
        gemm(c'T', c'N', together, count, n, <real> 1.0, <const real*> job.v + before_block(m, b), n, z, m, <real> 0.0,
             w, TOGETHER)
        gemm(c'N', c'N', n, count, together, <real> -1.0, <const real*> job.g + i * m, n, w, TOGETHER, <real> 1.0, z, m)


cdef int turn_back(Py_ssize_t m, Py_ssize_t k, real* g, real* tau, real* z, real* work,
                   Py_ssize_t lwork) noexcept nogil:
    """Set z (m x k) = Q @ z, Q the product of the reflectors below the subdiagonal of g; lwork >= m^2 + 5m + 1.

    g is overwritten.
    """
    cdef Back job
    cdef Py_ssize_t widest
    cdef real* scratch
    if m < BACK_FROM:
        return ormtr(c'L', c'L', c'N', m, k, g, m, tau, z, m, work, lwork)
    job.m, job.k, job.g, job.tau, job.v, job.z = m, k, g, tau, work, z
    job.n_blocks = (m - 1 + TOGETHER - 1) // TOGETHER
    scratch = work + before_block(m, job.n_blocks)
    fs_pool_run(job.n_blocks, <fs_part> reflectors[real], &job, scratch, TOGETHER * TOGETHER * sizeof(real))
    job.n_parts = min(fs_pool_parts(<double> m * m * k, LEAST_BACK), 1 + k // TOGETHER)
    widest = fs_pool_from(k, job.n_parts, 1, 1)
    fs_pool_run(job.n_parts, <fs_part> turn_columns[real], &job, scratch, widest * TOGETHER * sizeof(real))
    return 0


cdef bint trace_is_finite(Py_ssize_t m, const real* g) noexcept nogil:
    cdef Py_ssize_t i
    cdef double trace = 0.0
    for i in range(m):
        trace += <double> g[i * m + i]
    return isfinite(trace)


# From this size our divide and conquer is faster than LAPACK's, and its workspace suffices.
cdef enum:
    DIVIDE_FROM = 40


cdef int eigenpairs_of(Py_ssize_t m, Py_ssize_t k, real* g, real* w, real* z, real* e, real* tau, real* rest,
                       Py_ssize_t lwork, double* doubles, blas_int* iwork) noexcept nogil:
    cdef Py_ssize_t i
    cdef int info
    info = reduce_to_tridiagonal(m, g, w, e, tau, rest, lwork)
    if info:
        return info
    if DIVIDE_FROM <= m and k <= m // 2 + 2:
        info = tridiagonal_top(m, k, w, e, z, rest, doubles, iwork)
    else:
        info = stedc(c'I', m, w, e, z, m, rest, lwork, iwork, iwork_size(m))
    if info:
        return info
    for i in range(m):
        if not isfinite(w[i]):
            return NOT_FINITE
    # z[:, -k:] = Q @ z[:, -k:]
    return turn_back(m, k, g, tau, z + (m - k) * m, rest, lwork)


cdef int top_eigenpairs(Py_ssize_t m, Py_ssize_t k, real* g, real* w, real* z, real* work, Py_ssize_t lwork,
                        double* doubles, blas_int* iwork) noexcept nogil:
    """Compute all eigenvalues w, ascending, and the top k eigenvectors (last k columns of z) of the lower triangle of
    g.

    g is overwritten. These are the stages of syevd, called separately so that the last two process k vectors instead of
    m. Returns 0, a LAPACK status or NOT_FINITE. work holds m^2 + 7m + 1
    reals, doubles doubles_size(m), iwork iwork_size(m).
    """
    cdef real* e = work
    cdef real* tau = work + m
    cdef real* rest = work + 2 * m
    cdef int info
    # The trace of a Gram matrix bounds all its entries: overflow ends here, before an eigensolver sees an infinity.
    if not trace_is_finite(m, g):
        return NOT_FINITE
    lwork -= 2 * m
    fs_blas_alone(1)
    info = eigenpairs_of(m, k, g, w, z, e, tau, rest, lwork, doubles, iwork)
    fs_blas_alone(0)
    return info


cdef void rotation(Py_ssize_t m, Py_ssize_t first, Py_ssize_t kept, Py_ssize_t r, const real* z, const double* gain,
                   Py_ssize_t step, real* out, double* square) noexcept nogil:
    """Set the columns of out (m x r) to the coefficients of the top r directions in the buffer rows, largest first.

    Rows first .. first + kept - 1 of the buffer are the retained ones, with gains gain[0], gain[step], ...
    # out[:, i] = z[:, -1-i] * (gain for kept rows, 1 for new ones), square[i] = |z[:, -1-i]|^2 as rounded
    """
    cdef Py_ssize_t i, j
    cdef const real* column
    cdef real* to
    for i in range(r):
        column = z + (m - 1 - i) * m
        to = out + i * m
        square[i] = 0.0
        for j in range(m):
            square[i] += <double> column[j] * <double> column[j]
            to[j] = column[j]
        for j in range(kept):
            to[first + j] = <real> (gain[j * step] * <double> column[first + j])


cdef inline bint spares(Ledger ledger, Py_ssize_t n_spare, Py_ssize_t i) noexcept nogil:
    """Return whether direction i keeps its length in the shrink."""
    if ledger is None:
        return i < n_spare
    return ledger.spared[i]


cdef double shorten(Py_ssize_t m, Py_ssize_t n_keep, Py_ssize_t n_spare, Ledger ledger, const double* square,
                    const double* vector_square, double* lam, double* gain) noexcept nogil:
    """Set squared norms lam and gains of the retained rows, from the squared norms of the rows as computed.

    Row i is stored as computed, and represents gain[i] times itself. Its eigenvalue is taken from the row, not from the
    eigensolver: rounding would otherwise shift every lambda by up to eps lambda_1 in the same direction in every
    shrink, and a factor sqrt(1 - delta / lambda_1) within eps of 1 would be lost when it is applied to the entries.
    # lambda = square / vector_square;  delta = lambda_{n_keep+1};  lam = max(lambda - delta, 0), but lambda for the
    # first n_spare rows, or those that a ledger selects
    Returns delta.
    """
    cdef Py_ssize_t i
    cdef double delta = 0.0, value
    if n_keep < m and vector_square[n_keep] > 0.0:
        delta = square[n_keep] / vector_square[n_keep]
    for i in range(n_keep):
        lam[i] = gain[i] = 0.0
        if i < m and square[i] > 0.0:
            value = square[i] / vector_square[i]
            if not spares(ledger, n_spare, i):
                value -= delta
            if value > 0.0:
                lam[i] = value
                gain[i] = sqrt(value / square[i])
    return delta


cdef int gram_shrink(Py_ssize_t m, Py_ssize_t kept, Py_ssize_t d, Py_ssize_t n_keep, Py_ssize_t n_spare,
                     Ledger ledger, bint diagonal, real* f, double* lam, double* gain, double* top, double* delta,
                     real* arena, real* partials, double* small, blas_int* iwork) noexcept nogil:
    """Shrink the buffer f of m > n_keep rows to its last n_keep rows, in place. Return 0 or a status.

    The buffer is [N; K]: new rows, then the retained ones, shortest first; row m-1-i represents gain[i] times itself.
    With `diagonal` the retained rows are taken as orthogonal, with squared norms lam, and only the blocks that involve
    new rows are computed. top is set to the largest eigenvalue, delta to what was subtracted; small holds
    small_size(m, n_keep) doubles, partials partials_size(m, d) reals.

    The order matters: gemm adds row after row into a float. With a long row first the same part of every later short
    row would be rounded away, with the same sign, in every shrink. With the longest row last the error of a float32
    sketch was 100 times smaller after 4,000 shrinks of image patches.
    """
    cdef real* g = arena
    cdef real* z = g + m * m
    cdef real* w = z + m * m
    cdef real* work = w + m
    cdef Py_ssize_t lwork = arena_size(m) - 2 * m * m - m
    cdef Py_ssize_t spare = arena_size(m) - m * m  # from z on: free before and after the eigensolver
    cdef Py_ssize_t h = m - kept, r = n_keep + 1, i, j
    cdef real* corner = g + h * m + h
    cdef double* vector_square = small
    cdef double* square = small + r
    cdef int info
    gram_products(m, kept, d, diagonal, f, g, partials, z, spare)
    for j in range(h):
        for i in range(kept):
            g[j * m + h + i] = <real> (gain[kept - 1 - i] * <double> g[j * m + h + i])
    if diagonal:
        # G[h:, h:] = diag(lam)
        for i in range(kept):
            memset(corner + i * m, 0, kept * sizeof(real))
            corner[i * m + i] = <real> lam[kept - 1 - i]
    else:
        for i in range(kept):
            for j in range(i, kept):
                corner[i * m + j] = <real> (gain[kept - 1 - i] * gain[kept - 1 - j] * <double> corner[i * m + j])
    info = top_eigenpairs(m, r, g, w, z, work, lwork, small + (FS_PARTS + 1) * r, iwork)
    if info:
        return info
    top[0] = <double> w[m - 1]
    rotation(m, h, kept, r, z, gain + kept - 1, -1, g, vector_square)
    if ledger is not None and post(ledger, m, kept, d, n_keep, z + (m - 1) * m, -m, 1, m - 1, -1, w + m - 1, -1, m,
                                   False, lam):
        return NOT_FINITE
    # F[-1-i] = z_i.T @ F, in place, with the eigenvectors' memory as workspace; direction n_keep is needed for delta
    # only
    rotate_rows(m, r, d, f, g, square, z, spare)
    delta[0] = shorten(m, n_keep, n_spare, ledger, square, vector_square, lam, gain)
    return 0


cdef Py_ssize_t svd_work_size(Py_ssize_t m, Py_ssize_t d, real* kind) noexcept nogil:
    """Return the reals of workspace of svd_shrink, or -1 beyond LAPACK's int; `kind` only selects the type."""
    cdef Py_ssize_t r = m if m < d else d
    cdef Py_ssize_t minimum = 3 * r + (m if m > d else d) + 5 * r * r + 4 * r
    cdef real query = 0
    cdef real dummy = 0
    cdef blas_int idummy = 0
    if minimum > 2147483647:
        return -1
    if d >= m:
        gesdd(c'O', d, m, &dummy, d, &dummy, &dummy, d, &dummy, m, &query, -1, &idummy)
    else:
        gesdd(c'S', d, m, &dummy, d, &dummy, &dummy, d, &dummy, d, &query, -1, &idummy)
    # The answer is a real: in float32 a large one may be rounded down.
    return r + r * m + d * d * (d < m) + minimum + <Py_ssize_t> (1.01 * <double> query) + 1


cdef int svd_shrink(Py_ssize_t m, Py_ssize_t kept, Py_ssize_t d, Py_ssize_t n_keep, Py_ssize_t n_spare,
                    Ledger ledger, real* f, double* lam, double* gain, double* top, double* delta, real* work,
                    Py_ssize_t lwork, blas_int* iwork) noexcept nogil:
    """Shrink the buffer by LAPACK's gesdd; layout and arguments as in gram_shrink."""
    cdef Py_ssize_t r = m if m < d else d, i, j
    cdef real* s = work
    cdef real* vt = s + r
    cdef real* u
    cdef real* rest
    cdef real* row
    cdef real* other
    cdef real swap
    cdef double value, square
    cdef int info
    for i in range(kept):
        row = f + (m - 1 - i) * d
        for j in range(d):
            row[j] = <real> (gain[i] * <double> row[j])
        gain[i] = 1.0
    # LAPACK handles squares that overflow, but no infinities
    if scan_rows(m, d, d, f, &value) >= 0:
        return NOT_FINITE
    if d >= m:
        # F' = U S V'; U overwrites F', that is, F's rows become its right singular vectors
        rest = vt + m * m
        fs_blas_alone(1)
        info = gesdd(c'O', d, m, f, d, s, f, d, vt, m, rest, lwork - r - m * m, iwork)
        fs_blas_alone(0)
    else:
        u = vt + d * m
        rest = u + d * d
        fs_blas_alone(1)
        info = gesdd(c'S', d, m, f, d, s, u, d, vt, d, rest, lwork - r - d * m - d * d, iwork)
        fs_blas_alone(0)
        if info == 0:
            memcpy(f, u, d * d * sizeof(real))
    if info:
        return info
    if ledger is not None and post(ledger, m, kept, d, n_keep, vt, 1, r, m - 1, -1, s, 1, r, True, lam):
        return NOT_FINITE
    # the longest row goes last
    for i in range(m // 2):
        row = f + i * d
        other = f + (m - 1 - i) * d
        for j in range(d):
            swap = row[j]
            row[j] = other[j]
            other[j] = swap
    top[0] = <double> s[0] * <double> s[0]
    delta[0] = <double> s[n_keep] * <double> s[n_keep] if n_keep < r else 0.0
    for i in range(n_keep):
        lam[i] = gain[i] = 0.0
        row = f + (m - 1 - i) * d
        if i >= r:
            memset(row, 0, d * sizeof(real))
            continue
        value = <double> s[i] * <double> s[i]
        if not spares(ledger, n_spare, i):
            value -= delta[0]
        # the row is v_i, and represents sqrt(lam_i) v_i
        square = 0.0
        for j in range(d):
            square += <double> row[j] * <double> row[j]
        if value > 0.0:
            lam[i] = value
            gain[i] = sqrt(value / square)
    return 0


def top_eigh(real[:, ::1] lower, Py_ssize_t k):
    """Return (all eigenvalues, ascending; top k eigenvectors as rows, the largest last) of a symmetric matrix.

    `lower` holds the lower triangle column by column, that is, the upper triangle of the C-ordered array. It is
    overwritten.
    """
    cdef Py_ssize_t m = lower.shape[0]
    dtype = np.asarray(lower).dtype
    w = np.empty(m, dtype)
    z = np.empty((m, m), dtype)
    work = np.empty(m * m + 7 * m + 1, dtype)
    iwork = np.empty(iwork_size(m), np.intc)
    cdef real[::1] w_v = w, work_v = work
    cdef real[:, ::1] z_v = z
    cdef double[::1] doubles_v = np.empty(doubles_size(m))
    cdef blas_int[::1] iwork_v = iwork
    cdef int info
    with nogil:
        info = top_eigenpairs(m, k, &lower[0, 0], &w_v[0], &z_v[0, 0], &work_v[0], work_v.shape[0], &doubles_v[0],
                              &iwork_v[0])
    converged(info, "the symmetric eigensolver")
    return w, z[m - k:]
