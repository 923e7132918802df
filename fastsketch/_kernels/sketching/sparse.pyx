"""A stream of CSR rows: the buffer keeps new rows sparse, and the kept rows feature-major (z = K', d x ldz).

Exact Frequent Directions without densifying: the Gram matrix of [K; N] comes from N K' and N N', and the new K is
W1' K + W2' N. Centring is folded in by linearity, so N stays sparse; features that most of a block's weight has are
moved by a pivot first, which keeps the two sides of that difference as small as the spread (csrc/fs_sparse.h).
"""

cimport cython
from libc.math cimport sqrt
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy, memset

from fastsketch._kernels.linalg.blas cimport real, blas_int, converged, gemm, syrk
from fastsketch._kernels.sketching.ledger cimport post, weaken
from fastsketch._kernels.level cimport follow
from fastsketch._kernels.sketching.shrink cimport arena_size, top_eigenpairs, rotation, shorten
from fastsketch._kernels.sketching.sparse_rows cimport (
    csr_add_to_z, csr_dot, csr_fill, csr_gram, csr_pivots, csr_times_z, csr_weigh, csr_weighted_sum, fs_csr_common,
    load_csr, scan_csr, z_dot, z_rank_one, z_square)
from fastsketch._kernels.sketching.state cimport GRAM, REFRESH, ROUNDING_PER_SHRINK, SketchState

import numpy as np

from fastsketch._kernels.sketching.dense import work_sizes


follow()


cdef enum:
    NOT_FINITE = 1 << 20  # as of the shrink of dense rows


cdef extern from "fs_rows.h" nogil:
    void fs_move_mean(ptrdiff_t d, double old_weight, double block_weight, double *mean, double *low, double *base,
                      const double *shift)


@cython.auto_pickle(False)
cdef class SparseState(SketchState):
    """State of a sketch whose new rows are sparse."""

    cdef readonly object z                 # (d, ldz): kept rows as columns, one column to spare for centring
    cdef readonly int64_t[::1] indptr      # the new rows: CSR arrays that grow
    cdef readonly int32_t[::1] indices
    cdef readonly object data
    cdef void* values                      # where data lies
    cdef Py_ssize_t ldz
    cdef int32_t[::1] head                 # (d,): 0 between two uses
    cdef int32_t[::1] chosen               # (d,) of a sketch that centres: features that are moved by a pivot
    cdef int32_t[::1] next
    cdef int32_t[::1] owner
    cdef object work
    cdef double[::1] small
    cdef double[::1] gram                  # capacity^2: N N' in double
    cdef double[::1] vectors               # 3 * (capacity + 2): small vectors of one flush
    cdef blas_int[::1] iwork

    def __init__(self, Py_ssize_t sketch_size, Py_ssize_t capacity, Py_ssize_t n_features, *, Py_ssize_t n_spare,
                 bint center, double decay, dtype):
        # one row more than the buffer holds: the correction row of centring
        reals, integers, doubles = work_sizes(capacity + 1, n_features, sketch_size - 1, GRAM, dtype)
        super().__init__(sketch_size, capacity, n_features, n_spare=n_spare, center=center, decay=decay)
        self.ldz = sketch_size + 1
        self.z = np.zeros((n_features, self.ldz), dtype)
        self.indptr = np.zeros(capacity + 2, np.int64)
        self.indices = np.zeros(0, np.int32)
        self.data = np.zeros(0, dtype)
        self.head = np.zeros(n_features, np.int32)
        self.chosen = np.empty(n_features if center else 0, np.int32)
        self.work = np.empty(reals, dtype)
        self.small = np.empty(doubles)
        self.gram = np.zeros(capacity * capacity)
        self.vectors = np.zeros(3 * (capacity + 2))
        self.iwork = np.empty(integers, np.intc)
        self.make_room(1)

    @property
    def n_stored(self):
        """Values of the new rows."""
        return self.indptr[self.fill - self.kept]

    def make_room(self, Py_ssize_t nnz):
        """Arrays for nnz values of new rows; stored ones are kept."""
        cdef Py_ssize_t used = self.indptr[self.fill - self.kept]
        if nnz <= self.indices.shape[0]:
            return
        if nnz > 2**31 - 1:
            raise OverflowError("one block of sparse rows has 2**31 or more nonzeros: use a smaller buffer_size")
        nnz += nnz // 4  # blocks differ: grow seldom
        data, indices = np.zeros(nnz, self.data.dtype), np.zeros(nnz, np.int32)
        data[:used] = self.data[:used]
        indices[:used] = self.indices[:used]
        self.data, self.indices = data, indices
        self.values = <void*> <size_t> data.ctypes.data
        self.next = np.empty(nnz, np.int32)
        self.owner = np.empty(nnz, np.int32)


def scan(const int64_t[::1] indptr, const real[::1] data):
    """(index of the first row with a NaN or an infinity or -1, max |value| before it)."""
    cdef double largest = 0.0
    cdef Py_ssize_t n = indptr.shape[0] - 1, bad
    if data.shape[0] == 0:
        return -1, 0.0
    with nogil:
        bad = scan_csr(n, &indptr[0], &data[0], &largest)
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


cdef void decay_block(SparseState s, Py_ssize_t h, real* data) noexcept nogil:
    """Row j of h is followed by h - 1 - j rows: its square shrinks by decay^(h-1-j), all before by decay^h.

    New rows of a sketch that centres wait as they came, and their weights in root: the mean is subtracted first.
    """
    cdef double factor = 1.0, power = 1.0
    cdef Py_ssize_t i, j, kept = s.kept
    cdef int64_t e
    for j in range(h - 1, -1, -1):
        if not s.center:
            for e in range(s.indptr[j], s.indptr[j + 1]):
                data[e] = <real> (data[e] * factor)
        s.root[j] *= factor
        power *= s.decay  # not powers of the root of decay, whose rounding would add up with one sign
        factor = sqrt(power)
    for i in range(kept):
        s.gain[i] *= factor
        s.lam[i] *= power
    if s.ledger is not None:
        weaken(s.ledger, power)
    s.shrinkage *= power
    s.rounding *= power * power
    s.settled_weight *= power
    if s.center:
        s.squared_norm *= power


cdef int make_room_now(SparseState s, Py_ssize_t nnz) except -1 with gil:
    s.make_room(nnz)
    return 0


cdef int weigh(SparseState s, Py_ssize_t h, double total, real* kind) except -1 nogil:
    """The block's rows in place, times their root weights; base = the pivots that were subtracted before that.

    MemoryError, and nothing has changed, if there is no room for the entries that pivots make nonzero.
    """
    cdef Py_ssize_t d = s.n_features, i, n_chosen
    cdef int64_t n_fill
    cdef bint plain = True
    cdef real* data = <real*> s.values
    memset(&s.base[0], 0, d * sizeof(double))
    n_chosen = fs_csr_common(h, d, &s.indptr[0], &s.indices[0], &s.root[0], total, &s.shift[0], &s.chosen[0],
                             &s.head[0])
    if n_chosen > 0:
        n_fill = csr_pivots(h, n_chosen, &s.indptr[0], &s.indices[0], data, &s.root[0], &s.chosen[0], &s.head[0],
                            &s.shift[0], &s.base[0])
        n_fill = h * n_chosen - n_fill
        try:
            if n_fill > 0:
                make_room_now(s, s.indptr[h] + n_fill)
                data = <real*> s.values
                csr_fill(h, n_chosen, n_fill, &s.indptr[0], &s.indices[0], data, &s.chosen[0], &s.head[0], &s.next[0])
        finally:
            for i in range(n_chosen):
                s.head[s.chosen[i]] = 0
    for i in range(h):
        plain = plain and s.root[i] == 1.0
    if n_chosen > 0 or not plain:
        csr_weigh(h, &s.indptr[0], &s.indices[0], data, &s.root[0], &s.base[0])
    return 0


cdef int block_mean(SparseState s, Py_ssize_t h, real* z, double* spread) except -1 nogil:
    """Rows less their pivots, weighted; shift = their mean; z[:, kept] = the correction row; mean moves on (FROSH
    Algorithm 1, step 7)."""
    cdef Py_ssize_t d = s.n_features
    cdef double weight = 0.0
    cdef real* data
    cdef Py_ssize_t j, kept = s.kept
    for j in range(h):
        weight += s.root[j] * s.root[j]
    weigh(s, h, weight, z)
    data = <real*> s.values
    memset(&s.shift[0], 0, d * sizeof(double))
    spread[0] = 0.0
    if weight > 0.0:
        for j in range(h):
            s.vectors[j] = s.root[j] / weight
        csr_weighted_sum(h, &s.indptr[0], &s.indices[0], data, &s.vectors[0], &s.shift[0])
        fs_move_mean(d, s.settled_weight, weight, &s.mean[0], &s.mean_low[0], &s.base[0], &s.shift[0])
    for j in range(d):
        z[j * s.ldz + kept] = <real> s.base[j]
        spread[0] += s.base[j] * s.base[j]
    s.settled_weight += weight
    return 0


cdef int flush(SparseState s, real* z, real* arena) except? -1 nogil:
    """Settle the block (decay, centring) and shrink [K; N] to n_keep rows."""
    cdef Py_ssize_t d = s.n_features
    cdef Py_ssize_t kept = s.kept, h = s.fill - s.kept
    cdef Py_ssize_t k = kept + s.center, m = kept + s.center + h, r, i, c, start, width, panel
    cdef real* data = <real*> s.values
    cdef real* g = arena
    cdef real* vec = g + m * m
    cdef real* w = vec + m * m
    cdef real* work = w + m
    cdef Py_ssize_t lwork = arena_size(m) - 2 * m * m - m
    cdef double* n_mu = &s.vectors[0]
    cdef double* k_mu = n_mu + s.capacity + 2
    cdef double* w_mu = n_mu + 2 * (s.capacity + 2)
    cdef double* square = &s.small[0]
    cdef double* vector_square = square + s.n_keep + 1
    cdef double mu2 = 0.0, spread = 0.0, delta, value, top
    cdef double eps = 1.1920928955078125e-07 if real is float else 2.220446049250313e-16
    cdef bint diagonal = 0 <= s.age < REFRESH
    cdef int info
    if s.decay != 1.0:
        decay_block(s, h, data)
    s.gain[kept] = 1.0  # of the correction row, if there is one
    if s.center:
        block_mean(s, h, z, &spread)
        data = <real*> s.values
        for i in range(d):
            mu2 += s.shift[i] * s.shift[i]
        csr_dot(h, &s.indptr[0], &s.indices[0], data, &s.shift[0], n_mu)
        z_dot(d, k, s.ldz, z, &s.shift[0], k_mu)
    r = s.n_keep + 1 if s.n_keep + 1 < m else m

    # G[:k, :k] = K @ K.T
    if diagonal and not s.center:
        for i in range(k):
            memset(g + i * m, 0, k * sizeof(real))
            g[i * m + i] = <real> s.lam[i]
    elif k > 0:
        syrk(c'L', c'N', k, d, <real> 1.0, z, s.ldz, <real> 0.0, g, m)
        for i in range(k):
            for c in range(i, k):
                g[i * m + c] = <real> (s.gain[i] * s.gain[c] * <double> g[i * m + c])
    # G[k:, :k] = N @ K.T  (work space: the eigenvectors' place)
    csr_times_z(h, k, s.ldz, &s.indptr[0], &s.indices[0], data, z, vec)
    csr_gram(h, &s.indptr[0], &s.indices[0], data, &s.head[0], &s.next[0], &s.owner[0], &s.gram[0])
    for i in range(h):
        for c in range(k):
            value = <double> vec[i * k + c]
            if s.center:
                value -= s.root[i] * k_mu[c]
            g[c * m + k + i] = <real> (s.gain[c] * value)
    # G[k:, k:] = N @ N.T, centred by linearity
    for i in range(h):
        for c in range(i + 1):
            value = s.gram[i * h + c]
            if s.center:
                value -= s.root[i] * n_mu[c] + s.root[c] * n_mu[i] - s.root[i] * s.root[c] * mu2
                if c == i:
                    s.squared_norm += value
            g[(k + c) * m + k + i] = <real> value
    s.squared_norm += spread

    info = top_eigenpairs(m, r, g, w, vec, work, lwork, square + 2 * (s.n_keep + 1), &s.iwork[0])
    if info:
        return info
    top = <double> w[m - 1]
    rotation(m, 0, k, r, vec, &s.gain[0], 1, g, vector_square)
    if s.ledger is not None and post(s.ledger, m, kept, d, s.n_keep, vec + (m - 1) * m, -m, 1, 0, 1, w + m - 1, -1, m,
                                     False, &s.lam[0]):
        return NOT_FINITE

    # K = W1.T @ K, in place: a panel of features at a time through the space that the eigenvectors leave
    panel = (m * m) // r
    start = 0
    while start < d:
        width = panel if panel < d - start else d - start
        gemm(c'T', c'N', r, width, k, <real> 1.0, g, m, z + start * s.ldz, s.ldz, <real> 0.0, vec, r)
        for i in range(width):
            memcpy(z + (start + i) * s.ldz, vec + i * r, r * sizeof(real))
        start += width
    # K += W2.T @ N
    for i in range(h):
        for c in range(r):
            vec[i * r + c] = g[c * m + k + i]
    csr_add_to_z(h, r, s.ldz, &s.indptr[0], &s.indices[0], data, vec, z)
    if s.center:
        # K -= (W2.T @ root) mu'
        for c in range(r):
            w_mu[c] = 0.0
            for i in range(h):
                w_mu[c] += s.root[i] * <double> vec[i * r + c]
        z_rank_one(d, r, s.ldz, &s.shift[0], w_mu, z)
    for i in range(d):
        for c in range(r, s.n_keep):
            z[i * s.ldz + c] = 0
    z_square(d, r, s.ldz, z, square)
    delta = shorten(m, s.n_keep, s.n_spare, s.ledger, square, vector_square, &s.lam[0], &s.gain[0])
    s.shrinkage += delta
    # Sparse rows are added after the kept ones: their rounding may have the same sign from shrink to shrink.
    value = sqrt(s.rounding) + ROUNDING_PER_SHRINK * eps * top
    s.rounding = value * value
    s.age = s.age + 1 if diagonal and not s.center else 0
    s.fill = s.kept = s.n_keep
    s.indptr[0] = 0
    return 0


cdef int take(SparseState s, Py_ssize_t n, const int64_t* indptr, const int32_t* indices, const real* data,
              const double* weight, double scale, real* z, real* arena) except? -1 nogil:
    """All n rows, flushing whenever the buffer is full."""
    cdef real* stored = <real*> s.values
    cdef Py_ssize_t i, j, nnz
    cdef Py_ssize_t limit = s.capacity - s.center
    cdef int64_t start
    cdef double square, w, factor
    cdef int info
    for i in range(n):
        if s.fill >= limit:  # an earlier call failed here
            info = flush(s, z, arena)
            if info:
                return info
            stored = <real*> s.values
        j = s.fill - s.kept
        start = s.indptr[j]
        nnz = indptr[i + 1] - indptr[i]
        w = weight[i] if weight is not NULL else 1.0
        s.root[j] = sqrt(w)
        factor = scale if s.center else scale * s.root[j]
        square = load_csr(nnz, data + indptr[i], factor, stored + start)
        if nnz:  # of an empty batch there is no array to copy from
            memcpy(&s.indices[start], indices + indptr[i], nnz * sizeof(int32_t))
        s.indptr[j + 1] = start + nnz
        s.weight = s.decay * s.weight + w
        if not s.center:
            s.squared_norm = s.decay * s.squared_norm + square
        s.fill += 1
        s.n_rows += 1
        if s.fill == limit:
            info = flush(s, z, arena)
            if info:
                return info
            stored = <real*> s.values
    return 0


def absorb(const int64_t[::1] indptr, const int32_t[::1] indices, const real[::1] data, weights, double scale,
           SparseState state):
    """Put finite CSR rows (no duplicates) through the buffer, which has room for the fullest block; all in place.

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
    with nogil:
        info = take(state, n, &indptr[0], ip, dp, wp, scale, &z[0, 0], &arena[0])
    converged(info, "the eigensolver of the shrink")


def flush_now(real[:, ::1] z, SparseState state):
    """Settle and shrink all that the buffer holds."""
    cdef real[::1] arena = state.work
    cdef int info
    with nogil:
        info = flush(state, &z[0, 0], &arena[0])
    converged(info, "the eigensolver of the shrink")
