"""A stream of CSR rows: the buffer keeps new rows sparse, and the kept rows feature-major (z = K', d x ldz).

Exact Frequent Directions without densifying: the Gram matrix of [K; N] comes from N K' and N N', and the new K is
W1' K + W2' N. Centring is folded in by linearity, so N is never shifted.
"""
from libc.math cimport sqrt
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy, memset

from fastsketch._kernels.blas cimport real, blas_int, gemm, syrk
from fastsketch._kernels.shrink cimport arena_size, top_eigenpairs, rotation, shorten
from fastsketch._kernels.state cimport (
    SHRINKAGE, SQUARED_NORM, WEIGHT, SETTLED_WEIGHT, ROUNDING, FILL, KEPT, AGE, N_ROWS, REFRESH,
    ROUNDING_PER_SHRINK)

import numpy as np


cdef extern from "fs_sparse.h" nogil:
    ptrdiff_t fs_scan_csr_s(ptrdiff_t n, const int64_t *indptr, const float *data, double *largest)
    ptrdiff_t fs_scan_csr_d(ptrdiff_t n, const int64_t *indptr, const double *data, double *largest)
    double fs_load_csr_s(ptrdiff_t nnz, const float *data, double factor, float *out)
    double fs_load_csr_d(ptrdiff_t nnz, const double *data, double factor, double *out)
    void fs_csr_times_z_s(ptrdiff_t n, ptrdiff_t k, ptrdiff_t ldz, const int64_t *indptr, const int32_t *indices,
                          const float *data, const float *z, float *out)
    void fs_csr_times_z_d(ptrdiff_t n, ptrdiff_t k, ptrdiff_t ldz, const int64_t *indptr, const int32_t *indices,
                          const double *data, const double *z, double *out)
    void fs_csr_gram_s(ptrdiff_t n, const int64_t *indptr, const int32_t *indices, const float *data,
                       int32_t *head, int32_t *next, int32_t *owner, double *gram)
    void fs_csr_gram_d(ptrdiff_t n, const int64_t *indptr, const int32_t *indices, const double *data,
                       int32_t *head, int32_t *next, int32_t *owner, double *gram)
    void fs_csr_add_to_z_s(ptrdiff_t n, ptrdiff_t r, ptrdiff_t ldz, const int64_t *indptr, const int32_t *indices,
                           const float *data, const float *w, float *z)
    void fs_csr_add_to_z_d(ptrdiff_t n, ptrdiff_t r, ptrdiff_t ldz, const int64_t *indptr, const int32_t *indices,
                           const double *data, const double *w, double *z)
    void fs_csr_weighted_sum_s(ptrdiff_t n, const int64_t *indptr, const int32_t *indices, const float *data,
                               const double *coefficient, double *mean)
    void fs_csr_weighted_sum_d(ptrdiff_t n, const int64_t *indptr, const int32_t *indices, const double *data,
                               const double *coefficient, double *mean)
    void fs_csr_dot_s(ptrdiff_t n, const int64_t *indptr, const int32_t *indices, const float *data,
                      const double *v, double *out)
    void fs_csr_dot_d(ptrdiff_t n, const int64_t *indptr, const int32_t *indices, const double *data,
                      const double *v, double *out)
    void fs_z_dot_s(ptrdiff_t d, ptrdiff_t k, ptrdiff_t ldz, const float *z, const double *v, double *out)
    void fs_z_dot_d(ptrdiff_t d, ptrdiff_t k, ptrdiff_t ldz, const double *z, const double *v, double *out)
    void fs_z_square_s(ptrdiff_t d, ptrdiff_t k, ptrdiff_t ldz, const float *z, double *out)
    void fs_z_square_d(ptrdiff_t d, ptrdiff_t k, ptrdiff_t ldz, const double *z, double *out)
    void fs_z_rank_one_s(ptrdiff_t d, ptrdiff_t r, ptrdiff_t ldz, const double *v, const double *w, float *z)
    void fs_z_rank_one_d(ptrdiff_t d, ptrdiff_t r, ptrdiff_t ldz, const double *v, const double *w, double *z)


cdef struct Plan:
    # What a sketch never changes, and where its arrays lie.
    Py_ssize_t capacity, d, ldz, n_keep, n_spare, lwork
    bint centre
    double decay
    double* lam
    double* gain
    double* small
    double* mean
    double* shift
    double* root
    double* gram       # capacity^2: N N' in double
    double* vectors    # 4 * (capacity + 2): small vectors of one flush
    double* book
    int64_t* count
    int64_t* indptr
    int32_t* indices
    int32_t* head
    int32_t* next
    int32_t* owner
    blas_int* iwork


def scan(const int64_t[::1] indptr, const real[::1] data):
    """(index of the first row with a NaN or an infinity or -1, max |value| before it)."""
    cdef double largest = 0.0
    cdef Py_ssize_t n = indptr.shape[0] - 1, bad
    if data.shape[0] == 0:
        return -1, 0.0
    with nogil:
        if real is float:
            bad = fs_scan_csr_s(n, &indptr[0], &data[0], &largest)
        else:
            bad = fs_scan_csr_d(n, &indptr[0], &data[0], &largest)
    return bad, largest


def largest_block(const int64_t[::1] indptr, Py_ssize_t first, Py_ssize_t later):
    """Nonzeros of the fullest block when rows are cut after `first` rows and then every `later` rows."""
    cdef Py_ssize_t n = indptr.shape[0] - 1, start = 0, stop = first
    cdef int64_t most = 0
    while start < n:
        if stop > n:
            stop = n
        if indptr[stop] - indptr[start] > most:
            most = indptr[stop] - indptr[start]
        start = stop
        stop += later
    return most


cdef void decay_block(Plan* p, Py_ssize_t h, real* data) noexcept nogil:
    """Row j of h is followed by h - 1 - j rows: its square shrinks by decay^(h-1-j), all before by decay^h."""
    cdef double factor = 1.0, power
    cdef Py_ssize_t i, j, kept = p.count[KEPT]
    cdef int64_t e
    for j in range(h - 1, -1, -1):
        for e in range(p.indptr[j], p.indptr[j + 1]):
            data[e] = <real> (data[e] * factor)
        p.root[j] *= factor
        factor *= sqrt(p.decay)
    power = factor * factor
    for i in range(kept):
        p.gain[i] *= factor
        p.lam[i] *= power
    p.book[SHRINKAGE] *= power
    p.book[ROUNDING] *= power * power
    p.book[SETTLED_WEIGHT] *= power
    if p.centre:
        p.book[SQUARED_NORM] *= power


cdef void block_mean(Plan* p, Py_ssize_t h, const real* data, real* z, double* spread) noexcept nogil:
    """shift = mean of the block; z[:, kept] = the correction row; mean moves on (FROSH Algorithm 1, step 7)."""
    cdef double weight = 0.0, total, lever, step, move
    cdef double old = p.book[SETTLED_WEIGHT]
    cdef Py_ssize_t j, kept = p.count[KEPT]
    for j in range(h):
        weight += p.root[j] * p.root[j]
    memset(p.shift, 0, p.d * sizeof(double))
    spread[0] = 0.0
    if weight > 0.0:
        for j in range(h):
            p.vectors[j] = p.root[j] / weight
        if real is float:
            fs_csr_weighted_sum_s(h, p.indptr, p.indices, data, p.vectors, p.shift)
        else:
            fs_csr_weighted_sum_d(h, p.indptr, p.indices, data, p.vectors, p.shift)
    total = old + weight
    lever = sqrt(old / total) * sqrt(weight) if weight > 0.0 else 0.0
    step = weight / total if weight > 0.0 else 0.0
    for j in range(p.d):
        move = p.shift[j] - p.mean[j]
        z[j * p.ldz + kept] = <real> (lever * move)
        spread[0] += (lever * move) * (lever * move)
        if weight > 0.0:
            p.mean[j] = p.mean[j] + step * move if old > 0.0 else p.shift[j]
    p.book[SETTLED_WEIGHT] = total


cdef int flush(Plan* p, real* z, real* data, real* arena) noexcept nogil:
    """Settle the block (decay, centring) and shrink [K; N] to n_keep rows."""
    cdef Py_ssize_t kept = p.count[KEPT], h = p.count[FILL] - p.count[KEPT]
    cdef Py_ssize_t k = kept + p.centre, m = kept + p.centre + h, r, i, c, start, width, panel
    cdef real* g = arena
    cdef real* vec = g + m * m
    cdef real* w = vec + m * m
    cdef real* work = w + m
    cdef Py_ssize_t lwork = arena_size(m) - 2 * m * m - m
    cdef double* n_mu = p.vectors
    cdef double* k_mu = p.vectors + p.capacity + 2
    cdef double* w_mu = p.vectors + 2 * (p.capacity + 2)
    cdef double* square = p.small
    cdef double* vector_square = p.small + p.n_keep + 1
    cdef double mu2 = 0.0, spread = 0.0, delta, value, top
    cdef double eps = 1.1920928955078125e-07 if real is float else 2.220446049250313e-16
    cdef bint diagonal = 0 <= p.count[AGE] < REFRESH
    cdef int info
    if p.decay != 1.0:
        decay_block(p, h, data)
    p.gain[kept] = 1.0  # of the correction row, if there is one
    if p.centre:
        block_mean(p, h, data, z, &spread)
        for i in range(p.d):
            mu2 += p.shift[i] * p.shift[i]
        if real is float:
            fs_csr_dot_s(h, p.indptr, p.indices, data, p.shift, n_mu)
            fs_z_dot_s(p.d, k, p.ldz, z, p.shift, k_mu)
        else:
            fs_csr_dot_d(h, p.indptr, p.indices, data, p.shift, n_mu)
            fs_z_dot_d(p.d, k, p.ldz, z, p.shift, k_mu)
    r = p.n_keep + 1 if p.n_keep + 1 < m else m

    # G[:k, :k] = K @ K.T
    if diagonal and not p.centre:
        for i in range(k):
            memset(g + i * m, 0, k * sizeof(real))
            g[i * m + i] = <real> p.lam[i]
    elif k > 0:
        syrk(c'L', c'N', k, p.d, <real> 1.0, z, p.ldz, <real> 0.0, g, m)
        for i in range(k):
            for c in range(i, k):
                g[i * m + c] = <real> (p.gain[i] * p.gain[c] * <double> g[i * m + c])
    # G[k:, :k] = N @ K.T  (work space: the eigenvectors' place)
    if real is float:
        fs_csr_times_z_s(h, k, p.ldz, p.indptr, p.indices, data, z, vec)
        fs_csr_gram_s(h, p.indptr, p.indices, data, p.head, p.next, p.owner, p.gram)
    else:
        fs_csr_times_z_d(h, k, p.ldz, p.indptr, p.indices, data, z, vec)
        fs_csr_gram_d(h, p.indptr, p.indices, data, p.head, p.next, p.owner, p.gram)
    for i in range(h):
        for c in range(k):
            value = <double> vec[i * k + c]
            if p.centre:
                value -= p.root[i] * k_mu[c]
            g[c * m + k + i] = <real> (p.gain[c] * value)
    # G[k:, k:] = N @ N.T, centred by linearity
    for i in range(h):
        for c in range(i + 1):
            value = p.gram[i * h + c]
            if p.centre:
                value -= p.root[i] * n_mu[c] + p.root[c] * n_mu[i] - p.root[i] * p.root[c] * mu2
                if c == i:
                    p.book[SQUARED_NORM] += value
            g[(k + c) * m + k + i] = <real> value
    p.book[SQUARED_NORM] += spread

    info = top_eigenpairs(m, r, g, w, vec, work, lwork, p.small + 2 * (p.n_keep + 1), p.iwork)
    if info:
        return info
    top = <double> w[m - 1]
    rotation(m, 0, k, r, vec, p.gain, 1, g, vector_square)

    # K = W1.T @ K, in place: a panel of features at a time through the space that the eigenvectors leave
    panel = (m * m) // r
    start = 0
    while start < p.d:
        width = panel if panel < p.d - start else p.d - start
        gemm(c'T', c'N', r, width, k, <real> 1.0, g, m, z + start * p.ldz, p.ldz, <real> 0.0, vec, r)
        for i in range(width):
            memcpy(z + (start + i) * p.ldz, vec + i * r, r * sizeof(real))
        start += width
    # K += W2.T @ N
    for i in range(h):
        for c in range(r):
            vec[i * r + c] = g[c * m + k + i]
    if real is float:
        fs_csr_add_to_z_s(h, r, p.ldz, p.indptr, p.indices, data, vec, z)
    else:
        fs_csr_add_to_z_d(h, r, p.ldz, p.indptr, p.indices, data, vec, z)
    if p.centre:
        # K -= (W2.T @ root) mu'
        for c in range(r):
            w_mu[c] = 0.0
            for i in range(h):
                w_mu[c] += p.root[i] * <double> vec[i * r + c]
        if real is float:
            fs_z_rank_one_s(p.d, r, p.ldz, p.shift, w_mu, z)
        else:
            fs_z_rank_one_d(p.d, r, p.ldz, p.shift, w_mu, z)
    for i in range(p.d):
        for c in range(r, p.n_keep):
            z[i * p.ldz + c] = 0
    if real is float:
        fs_z_square_s(p.d, r, p.ldz, z, square)
    else:
        fs_z_square_d(p.d, r, p.ldz, z, square)
    delta = shorten(m, p.n_keep, p.n_spare, square, vector_square, p.lam, p.gain)
    p.book[SHRINKAGE] += delta
    # Sparse rows are added after the kept ones: their rounding may have the same sign from shrink to shrink.
    value = sqrt(p.book[ROUNDING]) + ROUNDING_PER_SHRINK * eps * top
    p.book[ROUNDING] = value * value
    p.count[AGE] = p.count[AGE] + 1 if diagonal and not p.centre else 0
    p.count[FILL] = p.count[KEPT] = p.n_keep
    p.indptr[0] = 0
    return 0


cdef int take(Plan* p, Py_ssize_t n, const int64_t* indptr, const int32_t* indices, const real* data,
              const double* weight, double scale, real* z, real* stored, real* arena) noexcept nogil:
    """All n rows, flushing whenever the buffer is full."""
    cdef Py_ssize_t i, j, nnz
    cdef Py_ssize_t limit = p.capacity - p.centre
    cdef int64_t start
    cdef double square, w
    cdef int info
    for i in range(n):
        j = p.count[FILL] - p.count[KEPT]
        start = p.indptr[j]
        nnz = indptr[i + 1] - indptr[i]
        w = weight[i] if weight is not NULL else 1.0
        p.root[j] = sqrt(w)
        if real is float:
            square = fs_load_csr_s(nnz, data + indptr[i], scale * p.root[j], stored + start)
        else:
            square = fs_load_csr_d(nnz, data + indptr[i], scale * p.root[j], stored + start)
        memcpy(p.indices + start, indices + indptr[i], nnz * sizeof(int32_t))
        p.indptr[j + 1] = start + nnz
        p.book[WEIGHT] = p.decay * p.book[WEIGHT] + w
        if not p.centre:
            p.book[SQUARED_NORM] = p.decay * p.book[SQUARED_NORM] + square
        p.count[FILL] += 1
        p.count[N_ROWS] += 1
        if p.count[FILL] == limit:
            info = flush(p, z, stored, arena)
            if info:
                return info
    return 0


cdef Plan make_plan(dict a, Py_ssize_t d, Py_ssize_t ldz):
    cdef Plan p
    cdef double[::1] v
    cdef int64_t[::1] i64
    cdef int32_t[::1] i32
    cdef blas_int[::1] iwork
    p.capacity, p.d, p.ldz = a["capacity"], d, ldz
    p.n_keep, p.n_spare, p.centre, p.decay = a["n_keep"], a["n_spare"], a["centre"], a["decay"]
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
    v = a["gram"]
    p.gram = &v[0]
    v = a["vectors"]
    p.vectors = &v[0]
    v = a["book"]
    p.book = &v[0]
    i64 = a["count"]
    p.count = &i64[0]
    i64 = a["indptr"]
    p.indptr = &i64[0]
    i32 = a["indices"]
    p.indices = &i32[0]
    i32 = a["head"]
    p.head = &i32[0]
    i32 = a["next"]
    p.next = &i32[0]
    i32 = a["owner"]
    p.owner = &i32[0]
    iwork = a["iwork"]
    p.iwork = &iwork[0]
    return p


def absorb(const int64_t[::1] indptr, const int32_t[::1] indices, const real[::1] data, weights, double scale,
           real[:, ::1] z, dict arrays):
    """Put finite CSR rows (no duplicates) through the buffer; all in place.

    `arrays` are the engine's own: see sketching/_sparse.py; room for the fullest block is there already.
    """
    cdef Plan p = make_plan(arrays, z.shape[0], z.shape[1])
    cdef real[::1] stored = arrays["data"]
    cdef real[::1] arena = arrays["work"]
    cdef const double[::1] w
    cdef const double* wp = NULL
    cdef const int32_t* ip = &indices[0] if indices.shape[0] else NULL
    cdef const real* dp = &data[0] if data.shape[0] else NULL
    cdef Py_ssize_t n = indptr.shape[0] - 1
    cdef int info
    if n == 0:
        return
    if weights is not None:
        w = weights
        wp = &w[0]
    with nogil:
        info = take(&p, n, &indptr[0], ip, dp, wp, scale, &z[0, 0], &stored[0], &arena[0])
    if info:
        raise np.linalg.LinAlgError(f"the eigensolver of the shrink did not converge (LAPACK info {info})")


def flush_now(real[:, ::1] z, dict arrays):
    """Settle and shrink whatever the buffer holds."""
    cdef Plan p = make_plan(arrays, z.shape[0], z.shape[1])
    cdef real[::1] stored = arrays["data"]
    cdef real[::1] arena = arrays["work"]
    cdef int info
    with nogil:
        info = flush(&p, &z[0, 0], &stored[0], &arena[0])
    if info:
        raise np.linalg.LinAlgError(f"the eigensolver of the shrink did not converge (LAPACK info {info})")
