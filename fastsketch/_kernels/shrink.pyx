"""The shrink of Frequent Directions, in place on a row buffer, in two ways: from the Gram matrix, or by gesdd.

A row-major m x d buffer F is the column-major d x m matrix F'; every BLAS call below sees it so.
"""
from libc.math cimport sqrt
from libc.string cimport memcpy, memset

from fastsketch._kernels.blas cimport real, blas_int, gemm, syrk, sytrd, stedc, ormtr, gesdd

import numpy as np


cdef Py_ssize_t arena_size(Py_ssize_t m) noexcept nogil:
    """Reals that gram_shrink works in: G, Z, stedc's workspace (1 + 4m + m^2) and four vectors."""
    return 3 * m * m + 8 * m + 1


cdef Py_ssize_t iwork_size(Py_ssize_t m) noexcept nogil:
    """Integers for stedc (3 + 5m) or gesdd (8m)."""
    return 3 + 8 * m


cdef int top_eigenpairs(Py_ssize_t m, Py_ssize_t k, real* g, real* w, real* z, real* work, Py_ssize_t lwork,
                        blas_int* iwork) noexcept nogil:
    """Eigenvalues (ascending, all m) and the top k eigenvectors (last k columns of z) of the lower triangle of g.

    The stages of syevd, called one by one so that the back-transformation touches k vectors instead of m.
    work holds 3m + max(m^2 + 4m + 1, 64 m) reals, or less (then LAPACK blocks less).
    """
    cdef real* e = work
    cdef real* tau = work + m
    cdef real* rest = work + 2 * m
    cdef int info
    lwork -= 2 * m
    info = sytrd(c'L', m, g, m, w, e, tau, rest, lwork)
    if info:
        return info
    info = stedc(c'I', m, w, e, z, m, rest, lwork, iwork, iwork_size(m))
    if info:
        return info
    # z[:, -k:] = Q @ z[:, -k:]
    return ormtr(c'L', c'L', c'N', m, k, g, m, tau, z + (m - k) * m, m, rest, lwork)


cdef double shrink_weights(Py_ssize_t m, Py_ssize_t n_keep, Py_ssize_t n_spare, const real* w, const real* z,
                           real* out, double* lam) noexcept nogil:
    """Columns of out (m x n_keep): the combinations of buffer rows that replace them, largest first.

    lambda_1 >= ... are the eigenvalues w reversed, delta = lambda_{n_keep+1}; the first n_spare keep their length:
    # out[:, i] = z[:, i] * sqrt(max(lambda_i - delta, 0) / lambda_i)
    Returns delta; lam[i] gets the new squared norms.
    """
    cdef Py_ssize_t i, j
    cdef double delta, value, factor
    cdef const real* column
    delta = <double> w[m - 1 - n_keep] if n_keep < m else 0.0
    if delta < 0.0:
        delta = 0.0  # rounding on a rank-deficient buffer
    for i in range(n_keep):
        if i >= m:
            lam[i] = 0.0
            continue
        value = <double> w[m - 1 - i]
        factor = 0.0
        lam[i] = 0.0
        if value > 0.0:
            if i < n_spare:
                lam[i] = value
                factor = 1.0
            elif value > delta:
                lam[i] = value - delta
                factor = sqrt(lam[i] / value)
        column = z + (m - 1 - i) * m
        for j in range(m):
            out[i * m + j] = <real> (factor * <double> column[j])
    return delta


cdef int gram_shrink(Py_ssize_t m, Py_ssize_t kept, Py_ssize_t d, Py_ssize_t n_keep, Py_ssize_t n_spare,
                     bint diagonal, real* f, double* lam, double* delta, real* arena,
                     blas_int* iwork) noexcept nogil:
    """Shrink the m x d buffer f to n_keep rows in place. With `diagonal` the first `kept` rows are orthogonal
    with squared norms lam, and only the blocks that involve new rows are computed."""
    cdef real* g = arena
    cdef real* z = g + m * m
    cdef real* w = z + m * m
    cdef real* work = w + m
    cdef Py_ssize_t lwork = arena_size(m) - 2 * m * m - m
    cdef Py_ssize_t new = m - kept, i, start, width, panel, r
    cdef real* fresh = f + kept * d
    cdef int info
    r = n_keep if n_keep < m else m
    if diagonal and kept > 0:
        # G[:kept, :kept] = diag(lam)
        for i in range(kept):
            memset(g + i * m, 0, kept * sizeof(real))
            g[i * m + i] = <real> lam[i]
    elif kept > 0:
        # G[:kept, :kept] = K @ K.T
        syrk(c'L', c'T', kept, d, <real> 1.0, f, d, <real> 0.0, g, m)
    # G[kept:, :kept] = N @ K.T
    gemm(c'T', c'N', new, kept, d, <real> 1.0, fresh, d, f, d, <real> 0.0, g + kept, m)
    # G[kept:, kept:] = N @ N.T
    syrk(c'L', c'T', new, d, <real> 1.0, fresh, d, <real> 0.0, g + kept * m + kept, m)
    info = top_eigenpairs(m, r, g, w, z, work, lwork, iwork)
    if info:
        return info
    delta[0] = shrink_weights(m, n_keep, n_spare, w, z, g, lam)
    # F[:r] = W.T @ F, in place: a panel of columns at a time through the space that the eigenvectors leave.
    panel = (arena_size(m) - m * m) // r
    start = 0
    while start < d:
        width = panel if panel < d - start else d - start
        gemm(c'N', c'N', width, r, m, <real> 1.0, f + start, d, g, m, <real> 0.0, z, width)
        for i in range(r):
            memcpy(f + i * d + start, z + i * width, width * sizeof(real))
        start += width
    if n_keep > r:
        memset(f + r * d, 0, (n_keep - r) * d * sizeof(real))
    return 0


cdef Py_ssize_t svd_work_size(Py_ssize_t m, Py_ssize_t d, real* kind) noexcept nogil:
    """Reals that svd_shrink works in (`kind` only selects the type); negative where LAPACK's int would overflow."""
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
    # The query comes back as a real: in float32 a large one may be rounded down.
    return r + r * m + d * d * (d < m) + minimum + <Py_ssize_t> (1.01 * <double> query) + 1


cdef int svd_shrink(Py_ssize_t m, Py_ssize_t d, Py_ssize_t n_keep, Py_ssize_t n_spare, real* f, double* lam,
                    double* delta, real* work, Py_ssize_t lwork, blas_int* iwork) noexcept nogil:
    """Shrink the m x d buffer f to n_keep rows in place by LAPACK's gesdd."""
    cdef Py_ssize_t r = m if m < d else d, i, j
    cdef real* s = work
    cdef real* vt = s + r
    cdef real* u
    cdef real* rest
    cdef double value, factor
    cdef int info
    if d >= m:
        # F' = U S V'; U overwrites F', that is, F's rows become its right singular vectors
        rest = vt + m * m
        info = gesdd(c'O', d, m, f, d, s, f, d, vt, m, rest, lwork - r - m * m, iwork)
    else:
        u = vt + d * m
        rest = u + d * d
        info = gesdd(c'S', d, m, f, d, s, u, d, vt, d, rest, lwork - r - d * m - d * d, iwork)
        if info == 0:
            memcpy(f, u, d * d * sizeof(real))
    if info:
        return info
    delta[0] = <double> s[n_keep] * <double> s[n_keep] if n_keep < r else 0.0
    for i in range(n_keep):
        value = <double> s[i] * <double> s[i] if i < r else 0.0
        if i >= n_spare:
            value -= delta[0]
        lam[i] = value if value > 0.0 else 0.0
        # F[i] = sqrt(lam_i) v_i
        factor = sqrt(lam[i])
        if i < r:
            for j in range(d):
                f[i * d + j] = <real> (factor * <double> f[i * d + j])
        else:
            memset(f + i * d, 0, d * sizeof(real))
    return 0


def top_eigh(double[:, ::1] lower, Py_ssize_t k):
    """(all eigenvalues ascending, top k eigenvectors as rows, largest last) of a symmetric matrix.

    `lower` holds the lower triangle column by column, that is, the upper triangle of the C-ordered array; it is
    overwritten.
    """
    cdef Py_ssize_t m = lower.shape[0]
    w = np.empty(m)
    z = np.empty((m, m))
    work = np.empty(m * m + 7 * m + 1)
    iwork = np.empty(iwork_size(m), np.intc)
    cdef double[::1] w_v = w, work_v = work
    cdef double[:, ::1] z_v = z
    cdef blas_int[::1] iwork_v = iwork
    cdef int info
    with nogil:
        info = top_eigenpairs(m, k, &lower[0, 0], &w_v[0], &z_v[0, 0], &work_v[0], work_v.shape[0], &iwork_v[0])
    if info:
        raise np.linalg.LinAlgError(f"the symmetric eigensolver did not converge (LAPACK info {info})")
    return w, z[m - k:]
