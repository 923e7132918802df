"""A stream of dense rows through the buffer: load, settle (decay and centring), shrink or accumulate.

One call takes a whole batch without running Python code, so that neither a signal nor another thread can see
the state between two blocks.
"""
from libc.math cimport sqrt
from libc.stdint cimport int64_t

from fastsketch._kernels.blas cimport real, blas_int, syrk
from fastsketch._kernels.shrink cimport (
    arena_size, iwork_size, small_size, gram_shrink, svd_shrink, svd_work_size)
from fastsketch._kernels.state cimport (
    SHRINKAGE, SQUARED_NORM, WEIGHT, SETTLED_WEIGHT, ROUNDING, FILL, KEPT, AGE, N_ROWS, GRAM, SVD,
    EXACT, REFRESH, ROUNDING_PER_SHRINK)

import numpy as np


cdef extern from "fs_rows.h" nogil:
    ptrdiff_t fs_scan_rows_s(ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, const float *x, double *largest)
    ptrdiff_t fs_scan_rows_d(ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, const double *x, double *largest)
    void fs_load_rows_s(ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, const float *x, const double *root_weight,
                        ptrdiff_t root_step, double scale, float *out, ptrdiff_t ld_out, double *square)
    void fs_load_rows_d(ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, const double *x, const double *root_weight,
                        ptrdiff_t root_step, double scale, double *out, ptrdiff_t ld_out, double *square)
    void fs_square_rows_s(ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, const float *x, double *square)
    void fs_square_rows_d(ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, const double *x, double *square)
    void fs_scale_rows_s(ptrdiff_t n, ptrdiff_t d, float *x, const double *factor)
    void fs_scale_rows_d(ptrdiff_t n, ptrdiff_t d, double *x, const double *factor)
    void fs_centre_rows_s(ptrdiff_t n, ptrdiff_t d, float *x, float *correction, const double *root_weight,
                          double old_weight, double block_weight, double *mean, double *shift)
    void fs_centre_rows_d(ptrdiff_t n, ptrdiff_t d, double *x, double *correction, const double *root_weight,
                          double old_weight, double block_weight, double *mean, double *shift)
    void fs_add_lower_s(ptrdiff_t d, const float *part, double *total)
    void fs_add_lower_d(ptrdiff_t d, const double *part, double *total)


cdef struct Plan:
    # What a sketch never changes, and where its arrays lie.
    Py_ssize_t capacity, d, n_keep, n_spare, lwork
    int solver
    bint centre
    double decay
    double* lam
    double* gain
    double* mean
    double* shift
    double* root
    double* square
    double* small
    double* cov
    double* book
    int64_t* count
    blas_int* iwork


def scan(const real[:, :] rows):
    """(index of the first row with a NaN or an infinity or -1, max |x| before it); columns must be contiguous."""
    cdef double largest = 0.0
    cdef Py_ssize_t n = rows.shape[0], d = rows.shape[1], bad = -1
    cdef Py_ssize_t ld = rows.strides[0] // <Py_ssize_t> sizeof(real)
    if n == 0 or d == 0:
        return -1, 0.0
    with nogil:
        if real is float:
            bad = fs_scan_rows_s(n, d, ld, &rows[0, 0], &largest)
        else:
            bad = fs_scan_rows_d(n, d, ld, &rows[0, 0], &largest)
    return bad, largest


def work_sizes(Py_ssize_t m, Py_ssize_t d, Py_ssize_t n_keep, int solver, dtype):
    """(reals, integers, doubles) of workspace for one buffer of m rows; raises OverflowError beyond LAPACK's integers."""
    cdef Py_ssize_t size
    if m > 46340 or d > 2147483647:
        raise OverflowError(f"a buffer of {m} rows and {d} columns exceeds LAPACK's 32-bit integers: "
                            "use a smaller sketch_size or buffer_size")
    if solver == SVD:
        if dtype == np.float32:
            size = svd_work_size(m, d, <float*> NULL)
        else:
            size = svd_work_size(m, d, <double*> NULL)
        if size < 0:
            raise OverflowError(f"gesdd's workspace for {m} x {d} exceeds LAPACK's 32-bit integers: use solver='gram'")
        return size, iwork_size(m), 1
    return arena_size(m), iwork_size(m), small_size(m, n_keep)


cdef void settle(Plan* p, real* buffer) noexcept nogil:
    """Apply decay and centring to the rows loaded since the last shrink."""
    cdef Py_ssize_t kept = p.count[KEPT], h = p.count[FILL] - p.count[KEPT], i, j
    cdef Py_ssize_t first = p.capacity - p.count[FILL]
    cdef real* fresh = buffer + first * p.d
    cdef double* root = p.root + first
    cdef double factor, power, weight
    if h == 0:
        return
    if p.decay != 1.0:
        # The newest row lies first. Row j is followed in time by j rows: its square shrinks by decay^j, all that came
        # before the block by decay^h.
        factor = 1.0
        for j in range(h):
            p.square[j] = factor
            root[j] *= factor
            factor *= sqrt(p.decay)
        power = factor * factor
        if real is float:
            fs_scale_rows_s(h, p.d, fresh, p.square)
        else:
            fs_scale_rows_d(h, p.d, fresh, p.square)
        for i in range(kept):
            p.gain[i] *= factor
            p.lam[i] *= power
        if p.solver == EXACT:
            for i in range(p.d * p.d):
                p.cov[i] *= power
        p.book[SHRINKAGE] *= power
        p.book[ROUNDING] *= power * power
        p.book[SETTLED_WEIGHT] *= power
        if p.centre:
            p.book[SQUARED_NORM] *= power
    if p.centre:
        weight = 0.0
        for j in range(h):
            weight += root[j] * root[j]
        if real is float:
            fs_centre_rows_s(h, p.d, fresh, fresh - p.d, root, p.book[SETTLED_WEIGHT], weight, p.mean, p.shift)
            fs_square_rows_s(h + 1, p.d, p.d, fresh - p.d, p.square)
        else:
            fs_centre_rows_d(h, p.d, fresh, fresh - p.d, root, p.book[SETTLED_WEIGHT], weight, p.mean, p.shift)
            fs_square_rows_d(h + 1, p.d, p.d, fresh - p.d, p.square)
        for j in range(h + 1):
            p.book[SQUARED_NORM] += p.square[j]
        p.book[SETTLED_WEIGHT] += weight
        p.count[FILL] += 1


cdef int flush(Plan* p, real* buffer, real* part, real* work) noexcept nogil:
    """Settle the buffer, then bring it to n_keep rows (or add it to the covariance and empty it)."""
    cdef double delta = 0.0, top = 0.0, allowance
    cdef double eps = 1.1920928955078125e-07 if real is float else 2.220446049250313e-16
    cdef Py_ssize_t m, i
    cdef real* f
    cdef int info
    cdef bint diagonal
    settle(p, buffer)
    m = p.count[FILL]
    f = buffer + (p.capacity - m) * p.d
    if p.solver == EXACT:
        # C += F.T @ F
        if real is float:
            syrk(c'L', c'N', p.d, m, <real> 1.0, f, p.d, <real> 0.0, part, p.d)
            fs_add_lower_s(p.d, part, p.cov)
            for i in range(p.d):
                top += <double> part[i * p.d + i]  # the block's trace bounds its largest eigenvalue
            p.book[ROUNDING] += (ROUNDING_PER_SHRINK * eps * top) ** 2
        else:
            syrk(c'L', c'N', p.d, m, <real> 1.0, f, p.d, <real> 1.0, p.cov, p.d)
        p.count[FILL] = p.count[KEPT] = 0
        p.count[AGE] = 1  # cov is no longer zero
        return 0
    if p.solver == SVD:
        info = svd_shrink(m, p.count[KEPT], p.d, p.n_keep, p.n_spare, f, p.lam, p.gain, &top, &delta, work, p.lwork,
                          p.iwork)
        if info:
            return info
        p.count[AGE] = 0
    else:
        diagonal = 0 <= p.count[AGE] < REFRESH
        info = gram_shrink(m, p.count[KEPT], p.d, p.n_keep, p.n_spare, diagonal, f, p.lam, p.gain, &top, &delta, work,
                           p.small, p.iwork)
        if info:
            return info
        p.count[AGE] = p.count[AGE] + 1 if diagonal else 0
    allowance = ROUNDING_PER_SHRINK * eps * top
    if p.solver == GRAM and real is float:
        # Norms are summed in double, and what is left has no preferred sign: squares add up.
        p.book[ROUNDING] += allowance * allowance
    else:
        # Errors may have the same sign from shrink to shrink.
        allowance += sqrt(p.book[ROUNDING])
        p.book[ROUNDING] = allowance * allowance
    p.book[SHRINKAGE] += delta
    p.count[FILL] = p.count[KEPT] = p.n_keep
    return 0


cdef int take(Plan* p, Py_ssize_t n, Py_ssize_t ld, const real* rows, const double* weight, double scale,
              real* buffer, real* part, real* work) noexcept nogil:
    """All n rows, flushing whenever the buffer is full. The buffer fills from its end towards its beginning."""
    cdef Py_ssize_t done = 0, count, j, slot
    cdef Py_ssize_t limit = p.capacity - p.centre
    cdef double w
    cdef int info
    while done < n:
        slot = p.capacity - p.count[FILL] - 1
        count = limit - p.count[FILL]
        if count > n - done:
            count = n - done
        for j in range(count):
            p.root[slot - j] = sqrt(weight[done + j]) if weight is not NULL else 1.0
        if real is float:
            fs_load_rows_s(count, p.d, ld, rows + done * ld, p.root + slot if weight is not NULL else NULL, -1, scale,
                           buffer + slot * p.d, -p.d, p.square)
        else:
            fs_load_rows_d(count, p.d, ld, rows + done * ld, p.root + slot if weight is not NULL else NULL, -1, scale,
                           buffer + slot * p.d, -p.d, p.square)
        for j in range(count):
            w = p.root[slot - j]
            p.book[WEIGHT] = p.decay * p.book[WEIGHT] + w * w
            if not p.centre:
                p.book[SQUARED_NORM] = p.decay * p.book[SQUARED_NORM] + p.square[j]
        p.count[FILL] += count
        p.count[N_ROWS] += count
        done += count
        if p.count[FILL] == limit:
            info = flush(p, buffer, part, work)
            if info:
                return info
    return 0


cdef Plan make_plan(dict a, Py_ssize_t capacity, Py_ssize_t d):
    cdef Plan p
    cdef double[::1] v
    cdef double[:, ::1] cov
    cdef int64_t[::1] count
    cdef blas_int[::1] iwork
    p.capacity, p.d, p.n_keep, p.n_spare = capacity, d, a["n_keep"], a["n_spare"]
    p.solver, p.centre, p.decay = a["solver"], a["centre"], a["decay"]
    v = a["lam"]
    p.lam = &v[0]
    v = a["gain"]
    p.gain = &v[0]
    v = a["small"]
    p.small = &v[0]
    v = a["mean"]
    p.mean = &v[0] if v.shape[0] else NULL
    v = a["shift"]
    p.shift = &v[0] if v.shape[0] else NULL
    v = a["root"]
    p.root = &v[0]
    v = a["square"]
    p.square = &v[0]
    v = a["book"]
    p.book = &v[0]
    cov = a["cov"]
    p.cov = &cov[0, 0] if cov.shape[0] else NULL
    count = a["count"]
    p.count = &count[0]
    iwork = a["iwork"]
    p.iwork = &iwork[0]
    p.lwork = a["work"].shape[0]
    return p


def absorb(const real[:, :] rows, weights, double scale, real[:, ::1] buffer, dict arrays):
    """Put finite rows (columns contiguous) with optional weights (float64) through the buffer; all in place.

    `arrays` are the engine's own: see sketching/_dense.py. Raises LinAlgError if an eigensolver does not converge.
    """
    cdef Plan p = make_plan(arrays, buffer.shape[0], buffer.shape[1])
    cdef real[:, ::1] part = arrays["part"]
    cdef real[::1] work = arrays["work"]
    cdef const double[::1] w
    cdef const double* wp = NULL
    cdef real* pp = &part[0, 0] if part.shape[0] else NULL
    cdef Py_ssize_t n = rows.shape[0], ld = rows.strides[0] // <Py_ssize_t> sizeof(real)
    cdef int info
    if n == 0:
        return
    if weights is not None:
        w = weights
        wp = &w[0]
    with nogil:
        info = take(&p, n, ld, &rows[0, 0], wp, scale, &buffer[0, 0], pp, &work[0])
    if info:
        raise np.linalg.LinAlgError(f"the eigensolver of the shrink did not converge (LAPACK info {info})")


def flush_now(real[:, ::1] buffer, dict arrays):
    """Settle and shrink (or accumulate) whatever the buffer holds."""
    cdef Plan p = make_plan(arrays, buffer.shape[0], buffer.shape[1])
    cdef real[:, ::1] part = arrays["part"]
    cdef real[::1] work = arrays["work"]
    cdef real* pp = &part[0, 0] if part.shape[0] else NULL
    cdef int info
    with nogil:
        info = flush(&p, &buffer[0, 0], pp, &work[0])
    if info:
        raise np.linalg.LinAlgError(f"the eigensolver of the shrink did not converge (LAPACK info {info})")


def settle_now(real[:, ::1] buffer, dict arrays):
    """Apply decay and centring to the new rows of the buffer, without a shrink."""
    cdef Plan p = make_plan(arrays, buffer.shape[0], buffer.shape[1])
    with nogil:
        settle(&p, &buffer[0, 0])
