"""Products of large double matrices on the threads of the pool; the bits do not depend on the number of threads.

All matrices are C-ordered; BLAS sees their transposes. A small product is one part, and starts no thread.
"""

from libc.math cimport sqrt
from libc.string cimport memset

from fastsketch._kernels.linalg.blas cimport gemm, gemv, real, symv, syrk
from fastsketch._kernels.pool cimport FS_PARTS, fs_blas_alone, fs_part, fs_pool_from, fs_pool_parts, fs_pool_run, join

import numpy as np


join()


cdef enum:
    LEAST = 1 << 20       # smallest number of multiply-adds of a part
    LEAST_READ = 1 << 17  # the same where each multiply-add reads a number from memory
    COLUMNS_IN_CACHE = 1 << 10  # columns whose sums stay in the first cache
    NARROW = 96           # smallest number of rows or columns of a part: BLAS packs the other factor once a part
    STRIP = 1 << 15       # entries of a matrix that are multiplied from both sides while they are in the cache


cdef struct Work:
    Py_ssize_t n_parts, m, n, k
    const double* a
    const double* b
    double* c
    double beta
    bint turned, by_rows
    double* sums


cdef Py_ssize_t narrowed(Py_ssize_t parts, Py_ssize_t length) noexcept nogil:
    return max(1, min(parts, length // NARROW))


# -- general ---------------------------------------------------------------------------------------------------------
cdef void product_part(void* context, ptrdiff_t part, void* scratch) noexcept nogil:
    cdef Work* w = <Work*> context
    cdef Py_ssize_t length = w.m if w.by_rows else w.n
    cdef Py_ssize_t start = fs_pool_from(length, w.n_parts, part, 8), stop = fs_pool_from(length, w.n_parts, part + 1, 8)
    cdef Py_ssize_t lda = w.m if w.turned else w.k
    if w.by_rows:
        gemm(c'N', c'T' if w.turned else c'N', w.n, stop - start, w.k, 1.0, w.b, w.n,
             w.a + (start if w.turned else start * w.k), lda, w.beta, w.c + start * w.n, w.n)
    else:
        gemm(c'N', c'T' if w.turned else c'N', stop - start, w.m, w.k, 1.0, w.b + start, w.n, w.a, lda, w.beta,
             w.c + start, w.n)


def product(const double[:, ::1] a, const double[:, ::1] b, double[:, ::1] out=None, *, bint turned=False):
    """Return a @ b, or with `turned` a.T @ b, as a new array or added to `out`."""
    cdef Work w
    w.m, w.n, w.k = a.shape[1] if turned else a.shape[0], b.shape[1], b.shape[0]
    if (a.shape[0] if turned else a.shape[1]) != w.k:
        raise ValueError("a and b do not belong together")
    w.beta = 0.0 if out is None else 1.0
    if out is None:
        out = np.empty((w.m, w.n))
    if out.shape[0] != w.m or out.shape[1] != w.n:
        raise ValueError("out does not belong to a and b")
    if w.m and w.n and w.k == 0 and w.beta == 0.0:
        out[:, :] = 0.0
    if w.m and w.n and w.k:
        w.a, w.b, w.c, w.turned, w.by_rows = &a[0, 0], &b[0, 0], &out[0, 0], turned, w.m >= w.n
        w.n_parts = narrowed(fs_pool_parts(<double> w.m * w.n * w.k, LEAST), max(w.m, w.n))
        with nogil:
            fs_blas_alone(1)
            fs_pool_run(w.n_parts, product_part, &w, NULL, 0)
            fs_blas_alone(0)
    return np.asarray(out)


# -- symmetric -------------------------------------------------------------------------------------------------------
cdef Py_ssize_t strip(Py_ssize_t n, Py_ssize_t n_parts, Py_ssize_t part) noexcept nogil:
    # the first column of a part of a lower triangle, for parts of about the same area
    return <Py_ssize_t> (n * (1.0 - sqrt(1.0 - part / <double> n_parts))) // 8 * 8 if part < n_parts else n


cdef void gram_part(void* context, ptrdiff_t part, void* scratch) noexcept nogil:
    cdef Work* w = <Work*> context
    cdef Py_ssize_t n = w.n, k = w.k, start = strip(n, w.n_parts, part), stop = strip(n, w.n_parts, part + 1)
    cdef double* c = w.c + start * n
    if w.turned:  # of columns
        syrk(c'L', c'N', stop - start, k, 1.0, w.a + start, n, 1.0, c + start, n)
        gemm(c'N', c'T', n - stop, stop - start, k, 1.0, w.a + stop, n, w.a + start, n, 1.0, c + stop, n)
    else:
        syrk(c'L', c'T', stop - start, k, 1.0, w.a + start * k, k, 1.0, c + start, n)
        gemm(c'T', c'N', n - stop, stop - start, k, 1.0, w.a + stop * k, k, w.a + start * k, k, 1.0, c + stop, n)


def add_gram(const double[:, ::1] z, double[:, ::1] lower, *, bint turned=False):
    """Add z @ z.T, or with `turned` z.T @ z, to `lower`: only the lower triangle, stored column by column."""
    cdef Work w
    w.n, w.k = z.shape[1] if turned else z.shape[0], z.shape[0] if turned else z.shape[1]
    if lower.shape[0] != w.n or lower.shape[1] != w.n:
        raise ValueError("lower does not belong to z")
    if w.n == 0 or w.k == 0:
        return
    w.a, w.c, w.turned = &z[0, 0], &lower[0, 0], turned
    w.n_parts = narrowed(fs_pool_parts(0.5 * w.n * w.n * w.k, LEAST), w.n)
    with nogil:
        fs_blas_alone(1)
        fs_pool_run(w.n_parts, gram_part, &w, NULL, 0)
        fs_blas_alone(0)


cdef void symmetric_part(void* context, ptrdiff_t part, void* scratch) noexcept nogil:
    cdef Work* w = <Work*> context
    cdef Py_ssize_t n = w.n, start = strip(n, w.n_parts, part), end = strip(n, w.n_parts, part + 1), stop
    cdef Py_ssize_t step = max(8, STRIP // n)
    cdef const double* c
    cdef double* y = w.sums + part * n
    memset(y, 0, n * sizeof(double))
    while start < end:
        stop = min(start + step, end)
        c = w.a + start * n
        symv(c'L', stop - start, <double> 1.0, c + start, n, w.b + start, <double> 1.0, y + start)
        gemv(c'N', n - stop, stop - start, <double> 1.0, c + stop, n, w.b + start, <double> 1.0, y + stop)
        gemv(c'T', n - stop, stop - start, <double> 1.0, c + stop, n, w.b + stop, <double> 1.0, y + start)
        start = stop


def symmetric_product(const double[:, ::1] lower, const double[::1] v):
    """Return A v for a symmetric matrix A, given its lower triangle column by column."""
    cdef Work w
    cdef Py_ssize_t p, i
    w.n = lower.shape[0]
    if lower.shape[1] != w.n or v.shape[0] != w.n:
        raise ValueError("lower and v do not belong together")
    w.n_parts = fs_pool_parts(0.5 * w.n * w.n, LEAST_READ)
    out = np.zeros(w.n)
    if w.n == 0:
        return out
    cdef double[::1] y = out
    cdef double[:, ::1] sums = np.empty((w.n_parts, w.n))
    w.a, w.b, w.sums = &lower[0, 0], &v[0], &sums[0, 0]
    with nogil:
        fs_blas_alone(1)
        fs_pool_run(w.n_parts, symmetric_part, &w, NULL, 0)
        fs_blas_alone(0)
        for p in range(w.n_parts):
            for i in range(w.n):
                y[i] += sums[p, i]
    return out


# -- entries ---------------------------------------------------------------------------------------------------------
cdef struct Entries:
    Py_ssize_t n_parts, n, d, ld
    const void* x
    const double* mean
    const double* weight
    double scale
    double* out
    double* squares
    double* sums


cdef void settle_part(Entries* e, Py_ssize_t part, real* scratch) noexcept nogil:
    cdef Py_ssize_t i, j, d = e.d
    cdef const real* x
    cdef double* out
    cdef double root, sum = 0.0
    cdef double lane[8]
    for i in range(fs_pool_from(e.n, e.n_parts, part, 1), fs_pool_from(e.n, e.n_parts, part + 1, 1)):
        x = <const real*> e.x + i * e.ld
        out = e.out + i * d
        root = e.weight[i] if e.weight is not NULL else 1.0
        for j in range(d):
            out[j] = (<double> x[j] * e.scale - e.mean[j]) * root
        memset(lane, 0, sizeof(lane))
        for j in range(0, d - 7, 8):
            lane[0] += out[j] * out[j]
            lane[1] += out[j + 1] * out[j + 1]
            lane[2] += out[j + 2] * out[j + 2]
            lane[3] += out[j + 3] * out[j + 3]
            lane[4] += out[j + 4] * out[j + 4]
            lane[5] += out[j + 5] * out[j + 5]
            lane[6] += out[j + 6] * out[j + 6]
            lane[7] += out[j + 7] * out[j + 7]
        for j in range(d - d % 8, d):
            lane[0] += out[j] * out[j]
        for j in range(8):
            sum += lane[j]
    e.sums[part] = sum


def settled(const real[:, :] rows, const double[::1] mean, root, double scale):
    """Return the rows (x scale - mean) root, a new float64 array, and the sum of its squares.

    Columns must be contiguous. root: None, or a factor for each row.
    """
    cdef Entries e
    cdef double sums[FS_PARTS]
    cdef double squared = 0.0
    cdef const double[::1] factors
    cdef Py_ssize_t p
    e.n, e.d, e.ld = rows.shape[0], rows.shape[1], rows.strides[0] // <Py_ssize_t> sizeof(real)
    if rows.strides[1] != sizeof(real) and e.d > 1 or mean.shape[0] != e.d:
        raise ValueError("rows and mean do not belong together")
    out = np.empty((e.n, e.d))
    cdef double[:, ::1] to = out
    e.weight = NULL
    if root is not None:
        factors = root
        if factors.shape[0] != e.n:
            raise ValueError("rows and root do not belong together")
    if e.n == 0 or e.d == 0:
        return out, 0.0
    if root is not None:
        e.weight = &factors[0]
    e.x, e.mean, e.scale, e.out, e.sums = &rows[0, 0], &mean[0], scale, &to[0, 0], sums
    e.n_parts = min(fs_pool_parts(<double> e.n * e.d, LEAST_READ), e.n)
    with nogil:
        fs_pool_run(e.n_parts, <fs_part> settle_part[real], &e, NULL, 0)
    for p in range(e.n_parts):
        squared += sums[p]
    return out, squared


cdef void sums_part(Entries* e, Py_ssize_t part, real* scratch) noexcept nogil:
    cdef Py_ssize_t i, j, start = fs_pool_from(e.d, e.n_parts, part, 8), stop = fs_pool_from(e.d, e.n_parts, part + 1, 8)
    cdef const real* x
    cdef double weight
    for i in range(e.n):
        x = <const real*> e.x + i * e.ld
        weight = e.weight[i] if e.weight is not NULL else 1.0
        for j in range(start, stop):
            e.out[j] += weight * <double> x[j]


def column_sums(const real[:, :] rows, weights):
    """Return weights @ rows in double; without weights the sums of the columns, which must be contiguous."""
    cdef Entries e
    cdef const double[::1] factors
    e.n, e.d, e.ld = rows.shape[0], rows.shape[1], rows.strides[0] // <Py_ssize_t> sizeof(real)
    if rows.strides[1] != sizeof(real) and e.d > 1:
        raise ValueError("the columns of rows are not contiguous")
    out = np.zeros(e.d)
    cdef double[::1] to = out
    e.weight = NULL
    if weights is not None:
        factors = weights
        if factors.shape[0] != e.n:
            raise ValueError("rows and weights do not belong together")
    if e.n == 0 or e.d == 0:
        return out
    if weights is not None:
        e.weight = &factors[0]
    e.x, e.out = &rows[0, 0], &to[0]
    e.n_parts = max(1, min(fs_pool_parts(<double> e.n * e.d, LEAST_READ), e.d // 64))
    with nogil:
        fs_pool_run(e.n_parts, <fs_part> sums_part[real], &e, NULL, 0)
    return out


cdef void spread_part(Entries* e, Py_ssize_t part, real* scratch) noexcept nogil:
    cdef Py_ssize_t i, j, beyond, end = fs_pool_from(e.d, e.n_parts, part + 1, 8)
    cdef Py_ssize_t start = fs_pool_from(e.d, e.n_parts, part, 8)
    cdef const real* x
    cdef const real* y
    cdef const double* mean = e.mean
    cdef double* out = e.out
    cdef double* squares = e.squares
    cdef double weight, other, moved, further
    while start < end:
        beyond = min(start + <Py_ssize_t> COLUMNS_IN_CACHE, end)
        for i in range(0, e.n, 2):  # two rows at a time halve the traffic of the sums
            x = <const real*> e.x + i * e.ld
            y = x + e.ld if i + 1 < e.n else x
            weight = e.weight[i] if e.weight is not NULL else 1.0
            other = 0.0 if i + 1 == e.n else e.weight[i + 1] if e.weight is not NULL else 1.0
            for j in range(start, beyond):
                moved = <double> x[j] - mean[j]
                further = <double> y[j] - mean[j]
                out[j] += weight * moved + other * further
                squares[j] += weight * (moved * moved) + other * (further * further)
        start = beyond


def add_spread(const real[:, :] rows, const double[::1] shift, weights, double[::1] total, double[::1] squares):
    """Add weights @ (rows - shift) to `total`, and weights @ (rows - shift)**2 to `squares`.

    Columns must be contiguous. weights: None, or one for each row.
    """
    cdef Entries e
    cdef const double[::1] factors
    e.n, e.d, e.ld = rows.shape[0], rows.shape[1], rows.strides[0] // <Py_ssize_t> sizeof(real)
    if rows.strides[1] != sizeof(real) and e.d > 1:
        raise ValueError("the columns of rows are not contiguous")
    if shift.shape[0] != e.d or total.shape[0] != e.d or squares.shape[0] != e.d:
        raise ValueError("rows, shift and sums do not belong together")
    e.weight = NULL
    if weights is not None:
        factors = weights
        if factors.shape[0] != e.n:
            raise ValueError("rows and weights do not belong together")
    if e.n == 0 or e.d == 0:
        return
    if weights is not None:
        e.weight = &factors[0]
    e.x, e.mean, e.out, e.squares = &rows[0, 0], &shift[0], &total[0], &squares[0]
    e.n_parts = max(1, min(fs_pool_parts(<double> e.n * e.d, LEAST_READ), e.d // 64))
    with nogil:
        fs_pool_run(e.n_parts, <fs_part> spread_part[real], &e, NULL, 0)
