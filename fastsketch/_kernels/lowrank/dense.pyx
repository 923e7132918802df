"""Dense products of low-rank models, whose bits do not depend on the number of threads: scores of many rows with all
columns, Gram matrices of factors and their eigenvalues. The best columns of each row are found by `_kernels/linalg/best.pyx`.
"""

from fastsketch._kernels.linalg.blas cimport blas_int, converged, gemm, real, syevd
from fastsketch._kernels.pool cimport fs_blas_alone, fs_part, fs_pool_run, join

import numpy as np

join()

cdef enum:
    # scores of a part, so that they stay in the cache between the product and what is done with them; a part has at
    # least ROWS rows, for the product to be worth its while
    TILE = 1 << 16
    ROWS = 8


cdef struct Rows:
    # of scores base_i + column_j + own_i . known_j; arrays of `real`
    Py_ssize_t k, n, t, rows
    const void* own              # (k, t)
    const void* known            # (n, t)
    const double* base           # (k,)
    const double* column         # (n,)
    void* out


cdef void scores_part(void* context, ptrdiff_t part, real* scratch) noexcept nogil:
    cdef Rows* rows = <Rows*> context
    cdef Py_ssize_t first = part * rows.rows, count = min(rows.rows, rows.k - first), t = rows.t, i, j
    cdef real* out = <real*> rows.out + first * rows.n
    # out (count, n) = own[first : first + count] known'
    if t:
        gemm[real](c'T', c'N', rows.n, count, t, 1, <const real*> rows.known, t, <const real*> rows.own + first * t, t,
                   0, out, rows.n)
    for i in range(count):
        for j in range(rows.n):
            out[i * rows.n + j] = <real> (rows.base[first + i] + rows.column[j] + (out[i * rows.n + j] if t else 0))


def scores(const real[:, ::1] own, const real[:, ::1] known, const double[::1] base, const double[::1] column,
           real[:, ::1] out):
    """out (k, n) = base_i + column_j + own_i . known_j for own (k, t), known (n, t)."""
    cdef Rows rows
    if out.shape[0] == 0 or out.shape[1] == 0:
        return
    rows.k, rows.n, rows.t = own.shape[0], known.shape[0], own.shape[1]
    rows.own, rows.known = &own[0, 0] if rows.t else NULL, &known[0, 0] if rows.t else NULL
    rows.base, rows.column, rows.out = &base[0], &column[0], &out[0, 0]
    rows.rows = max(TILE // rows.n, ROWS)
    with nogil:
        fs_blas_alone(1)
        fs_pool_run((rows.k + rows.rows - 1) // rows.rows, <fs_part> scores_part[real], &rows, NULL, 0)
        fs_blas_alone(0)


def gram(const double[:, ::1] factors):
    """F'F (t, t) for F (n, t)."""
    cdef Py_ssize_t n = factors.shape[0], t = factors.shape[1]
    cdef double[:, ::1] out = np.zeros((t, t))
    if n == 0 or t == 0:
        return np.asarray(out)
    with nogil:
        fs_blas_alone(1)
        # out = factors' factors
        gemm[double](c'N', c'T', t, t, n, 1, &factors[0, 0], t, &factors[0, 0], t, 0, &out[0, 0], t)
        fs_blas_alone(0)
    return np.asarray(out)


def eigenvalues(const double[:, ::1] matrix):
    """Eigenvalues of a symmetric matrix (t, t), ascending."""
    cdef Py_ssize_t t = matrix.shape[0]
    cdef double[:, ::1] copy = np.array(matrix)
    cdef double[::1] values = np.zeros(t), work = np.empty(2 * t + 1)
    cdef blas_int iwork = 0
    cdef int info
    if t == 0:
        return np.asarray(values)
    with nogil:
        fs_blas_alone(1)
        info = syevd(c'N', c'U', t, &copy[0, 0], t, &values[0], &work[0], 2 * t + 1, &iwork, 1)
        fs_blas_alone(0)
    converged(info, "syevd")
    return np.asarray(values)
