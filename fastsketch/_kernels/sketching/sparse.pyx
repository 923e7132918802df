"""Pass CSR rows through the buffer of a sparse sketch: new rows N stay sparse, retained rows K are z = K' (slots, ldz).

Frequent Directions without making rows dense: the Gram matrix of [K; N] comes from N K' and N N', and the new K is
W1' K + W2' N. For sums over columns the new rows are also stored feature by feature. Both loops are split into parts,
of rows or of features, for the threads of the pool (sparse_parts.pxd). Centring uses linearity, so that N stays sparse;
features that most of a block's weight has are moved by a pivot first, so that both sides of the difference are as small
as the spread (sparse_rows.pxd).

A column gets a slot with its first nonzero entry (_kernels/features/columns.pyx), so that the cost of a shrink depends
on the number of columns seen. With many of them the product W1' K is nearly all of a shrink. Then the buffer has
capacity for the rows of several shrinks, and all but the last are computed among coefficients (sparse_cascade.pxd).
"""

from libc.math cimport sqrt
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy, memset

from fastsketch._kernels.brief cimport is_brief
from fastsketch._kernels.linalg.blas cimport NOT_FINITE, converged, real
from fastsketch._kernels.level cimport follow
from fastsketch._kernels.pool cimport fs_blas_alone, fs_part, fs_pool_parts, fs_pool_run, join
from fastsketch._kernels.sketching.ledger cimport post
from fastsketch._kernels.sketching.shrink cimport arena_size, rotation, top_eigenpairs
from fastsketch._kernels.sketching.sparse_cascade cimport cascade
from fastsketch._kernels.sketching.sparse_parts cimport (
    Block, LEAST_DENSE, LEAST_SPARSE, decay_block, dot_part, kept_part, rotate_features, rows_part, sums_of_kept)
from fastsketch._kernels.sketching.sparse_rows cimport (
    fill_csr, find_pivots, transpose_csr, weigh_csr, common_features, load_csr, scan_csr)
from fastsketch._kernels.sketching.sparse_state cimport SparseState, enough_values
from fastsketch._kernels.sketching.state cimport REFRESH, ROUNDING_PER_SHRINK


follow()
join()


def scan(const int64_t[::1] indptr, const real[::1] data):
    """Return (index of the first row with a NaN or an infinity, or -1; largest absolute value before it)."""
    cdef double largest = 0.0
    cdef Py_ssize_t n = indptr.shape[0] - 1, bad
    if data.shape[0] == 0:
        return -1, 0.0
    if is_brief(1, data.shape[0] + n):
        bad = scan_csr(n, &indptr[0], &data[0], &largest)
    else:
        with nogil:
            bad = scan_csr(n, &indptr[0], &data[0], &largest)
    return bad, largest


def largest_weighted(const int64_t[::1] indptr, const real[::1] data, const double[::1] root):
    """Return the largest absolute value of CSR rows after row i is multiplied by root[i], the square root of its
    weight.
    """
    cdef double value, largest = 0.0
    cdef Py_ssize_t i
    if data.shape[0]:
        with nogil:
            for i in range(root.shape[0]):
                scan_csr(1, &indptr[i], &data[0], &value)
                largest = max(largest, value * root[i])
    return largest


def largest_block(const int64_t[::1] indptr, Py_ssize_t first, Py_ssize_t later):
    """Return the largest number of nonzeros in a block of consecutive rows, if a batch is split after `first` rows and
    then after every `later` rows. Callers reserve memory for it.
    """
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


cdef int make_room_now(SparseState s, Py_ssize_t nnz) except -1 with gil:
    s.make_room(nnz)
    return 0


cdef int weigh(SparseState s, Py_ssize_t h, double total, real* kind) except -1 nogil:
    """Subtract pivots from the block's rows, store them in `base`, and multiply the rows by their root weights.

    MemoryError, with nothing changed, if there is no memory for the entries that pivots make nonzero.
    """
    cdef Py_ssize_t d = s.seen, i, n_chosen
    cdef int64_t n_fill
    cdef bint plain = True
    cdef real* data = <real*> s.values
    memset(&s.base[0], 0, d * sizeof(double))
    n_chosen = common_features(h, d, &s.indptr[0], &s.indices[0], &s.root[0], total, &s.shift[0], &s.chosen[0],
                               &s.slot[0])
    if n_chosen > 0:
        n_fill = find_pivots(h, n_chosen, &s.indptr[0], &s.indices[0], data, &s.root[0], &s.chosen[0], &s.slot[0],
                             &s.shift[0], &s.base[0])
        n_fill = h * n_chosen - n_fill
        try:
            if n_fill > 0:
                make_room_now(s, s.indptr[h] + n_fill)
                data = <real*> s.values
                fill_csr(h, n_chosen, n_fill, &s.indptr[0], &s.indices[0], data, &s.chosen[0], &s.slot[0], &s.place[0])
        finally:
            for i in range(n_chosen):
                s.slot[s.chosen[i]] = 0
    for i in range(h):
        plain = plain and s.root[i] == 1.0
    if n_chosen > 0 or not plain:
        weigh_csr(h, &s.indptr[0], &s.indices[0], data, &s.root[0], &s.base[0])
    return 0


cdef int flush(SparseState s, real* z, real* arena) except? -1 nogil:
    """Settle the new rows (decay, centring) and shrink [K; N] to n_keep rows."""
    cdef int info
    fs_blas_alone(1)
    try:
        info = cascade(s, z, arena) if s.block and s.fill - s.kept > s.block else shrink(s, z, arena)
    finally:
        fs_blas_alone(0)
    return info


cdef int shrink(SparseState s, real* z, real* arena) except? -1 nogil:
    cdef Py_ssize_t kept = s.kept, h = s.fill - s.kept, k = kept + s.center, m = k + h, i, c, p, size
    cdef Py_ssize_t r = s.n_keep + 1 if s.n_keep + 1 < m else m
    cdef real* g = arena
    cdef real* vec = g + m * m
    cdef real* w = vec + m * m
    cdef real* work = w + m
    cdef Py_ssize_t lwork = arena_size(m) - 2 * m * m - m
    cdef double* square = &s.small[0]
    cdef double* vector_square = square + s.n_keep + 1
    cdef double* sums
    cdef double spread = 0.0, value, top, nnz
    cdef double eps = 1.1920928955078125e-07 if real is float else 2.220446049250313e-16
    cdef bint diagonal = 0 <= s.age < REFRESH and not s.center
    cdef Block b
    cdef int info
    if s.decay != 1.0:
        decay_block(s, h, <real*> s.values)
    s.gain[kept] = 1.0  # of the correction row, if any
    b.old_weight, b.weight = s.settled_weight, 0.0
    if s.center:
        for i in range(h):
            b.weight += s.root[i] * s.root[i]
        weigh(s, h, b.weight, z)
        s.settled_weight += b.weight
    b.h, b.k, b.r, b.d, b.m, b.kept, b.ldz, b.n_keep = h, k, r, s.seen, m, kept, s.ldz, s.n_keep
    b.center, b.whole = s.center, not diagonal and k > 0
    b.indptr, b.indices, b.data, b.turned = &s.indptr[0], &s.indices[0], s.values, s.turned_values
    b.stop, b.row, b.place = &s.stop[0], &s.row[0], &s.place[0]
    b.root, b.gain = &s.root[0], &s.gain[0]
    b.n_mu, b.k_mu = &s.vectors[0], &s.vectors[s.capacity + 2]
    b.w_mu, b.coefficient = &s.vectors[2 * (s.capacity + 2)], &s.vectors[3 * (s.capacity + 2)]
    b.z, b.g, b.w, b.mu2 = z, g, vec, 0.0
    nnz = <double> s.indptr[h]
    transpose_csr(h, b.d, b.indptr, b.indices, <real*> s.values, b.stop, b.row, <real*> s.turned_values, b.place)

    # the mean, the correction row, G[:k, :k] = K @ K.T, a sum over features
    for i in range(k):
        memset(g + i * m, 0, k * sizeof(real))
    if b.center or b.whole:
        if b.center:
            b.mean, b.low, b.base, b.shift = &s.mean[0], &s.mean_low[0], &s.base[0], &s.shift[0]
            for i in range(h):
                b.coefficient[i] = s.root[i] / b.weight if b.weight > 0.0 else 0.0
            if b.weight == 0.0:
                memset(b.shift, 0, b.d * sizeof(double))
        # at most as many parts as fit into the eigensolver's workspace
        size = sums_of_kept(&b, z)
        b.sums = vec + (<size_t> vec // sizeof(real)) % (sizeof(double) // sizeof(real))
        b.n_parts = fs_pool_parts(b.d * (0.5 * k * k * b.whole + (k + 16) * b.center), LEAST_DENSE)
        if b.n_parts > (2 * m * m + 8 * m) // size:
            b.n_parts = (2 * m * m + 8 * m) // size
        fs_pool_run(b.n_parts, <fs_part> kept_part[real], &b, NULL, 0)
        memset(b.k_mu, 0, k * sizeof(double))
        for p in range(b.n_parts):
            sums = <double*> (<real*> b.sums + p * size)
            spread += sums[0]
            b.mu2 += sums[1]
            for c in range(k):
                b.k_mu[c] += sums[2 + c]
            if b.whole:
                for i in range(k):
                    for c in range(i, k):
                        g[i * m + c] += (<real*> (sums + 2 + k))[i * k + c]
        for i in range(k):
            for c in range(i, k):
                g[i * m + c] = <real> (s.gain[i] * s.gain[c] * <double> g[i * m + c])
    if diagonal:
        for i in range(k):
            g[i * m + i] = <real> s.lam[i]
    if b.center:
        b.n_parts = fs_pool_parts(nnz, LEAST_SPARSE)
        fs_pool_run(b.n_parts, <fs_part> dot_part[real], &b, NULL, 0)

    # G[k:, :k] = N @ K.T, G[k:, k:] = N @ N.T
    b.n_parts = fs_pool_parts(nnz * (k + h / 16.0), LEAST_SPARSE)
    size = h * sizeof(double) if h * sizeof(double) > k * sizeof(real) else k * sizeof(real)
    fs_pool_run(b.n_parts, <fs_part> rows_part[real], &b,
                vec + (<size_t> vec // sizeof(real)) % (sizeof(double) // sizeof(real)), size)
    if s.center:
        for i in range(h):
            s.squared_norm += b.coefficient[i]
        s.squared_norm += spread

    info = top_eigenpairs(m, r, g, w, vec, work, lwork, square + 2 * (s.n_keep + 1), &s.iwork[0])
    if info:
        return info
    top = <double> w[m - 1]
    rotation(m, 0, k, r, vec, &s.gain[0], 1, g, vector_square)
    if s.ledger is not None and post(s.ledger, m, kept, s.n_features, s.n_keep, vec + (m - 1) * m, -m, 1, 0, 1,
                                     w + m - 1, -1, m, False, &s.lam[0]):
        return NOT_FINITE

    # K = W1.T @ K + W2.T @ N - (W2.T @ root) mu'
    for i in range(h):
        for c in range(r):
            vec[i * r + c] = g[c * m + k + i]
    if s.center:
        for c in range(r):
            b.w_mu[c] = 0.0
            for i in range(h):
                b.w_mu[c] += s.root[i] * <double> vec[i * r + c]
    rotate_features(s, &b, m, nnz, top, work, lwork)
    # Sparse rows are added after the retained ones: their rounding may have the same sign in every shrink.
    value = sqrt(s.rounding) + ROUNDING_PER_SHRINK * eps * top
    s.rounding = value * value
    s.age = s.age + 1 if diagonal else 0
    return 0


cdef int take(SparseState s, Py_ssize_t n, const int64_t* indptr, const int32_t* indices, const real* data,
              const double* weight, double scale, real* z, real* arena) except? -1 nogil:
    """Load all n rows into the buffer, and flush it whenever it is full."""
    cdef real* stored = <real*> s.values
    cdef Py_ssize_t i, j, nnz
    cdef Py_ssize_t limit = s.capacity - s.center, block = s.block if s.block else limit
    cdef int64_t start, e
    cdef int32_t last
    cdef double square, w, factor
    cdef int info
    for i in range(n):
        j = s.fill - s.kept
        if s.fill >= limit or (j >= block and s.indptr[j] >= enough_values(s)):  # an earlier call failed here
            info = flush(s, z, arena)
            if info:
                return info
            stored = <real*> s.values
        j = s.fill - s.kept
        start = s.indptr[j]
        nnz = indptr[i + 1] - indptr[i]
        if s.indices.shape[0] < start + nnz:
            make_room_now(s, start + nnz)
            stored = <real*> s.values
        w = weight[i] if weight is not NULL else 1.0
        s.root[j] = sqrt(w)
        factor = scale if s.center else scale * s.root[j]
        square = load_csr(nnz, data + indptr[i], factor, stored + start)
        if nnz:  # an empty batch has no array to copy from
            memcpy(&s.indices[start], indices + indptr[i], nnz * sizeof(int32_t))
            last = 0
            for e in range(indptr[i], indptr[i + 1]):
                last = max(last, indices[e])
            s.seen = max(s.seen, <Py_ssize_t> last + 1)
        s.indptr[j + 1] = start + nnz
        s.weight = s.decay * s.weight + w
        if not s.center:
            s.squared_norm = s.decay * s.squared_norm + square
        s.fill += 1
        s.n_rows += 1
        if s.fill == limit or (j + 1 >= block and s.indptr[j + 1] >= enough_values(s)):
            info = flush(s, z, arena)
            if info:
                return info
            stored = <real*> s.values
    return 0


def absorb(const int64_t[::1] indptr, const int32_t[::1] indices, const real[::1] data, weights, double scale,
           SparseState state):
    """Add finite CSR rows to the buffer of `state`, in place. The buffer is shrunk whenever it is full. The column
    indices are slots, without duplicates.

    Raises LinAlgError if an eigensolver does not converge, MemoryError if centring needs more room than there is.
    """
    cdef real[:, ::1] z = state.z
    cdef real[::1] arena = state.work
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
    if state.fill + n < state.capacity - state.center and is_brief(1, data.shape[0] + n) and not state.block:
        info = take(state, n, &indptr[0], ip, dp, wp, scale, &z[0, 0], &arena[0])
    else:
        with nogil:
            info = take(state, n, &indptr[0], ip, dp, wp, scale, &z[0, 0], &arena[0])
    converged(info, "the eigensolver of the shrink")


def flush_now(real[:, ::1] z, SparseState state):
    """Apply weights, decay and centring to the new rows of the buffer, then shrink the buffer, in place."""
    cdef real[::1] arena = state.work
    cdef int info
    with nogil:
        info = flush(state, &z[0, 0], &arena[0])
    converged(info, "the eigensolver of the shrink")
