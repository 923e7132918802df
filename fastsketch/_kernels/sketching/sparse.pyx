"""A stream of CSR rows: the buffer keeps new rows sparse, and the kept rows feature-major (z = K', d x ldz).

Exact Frequent Directions without densifying: the Gram matrix of [K; N] comes from N K' and N N', and the new K is
W1' K + W2' N. For sums over columns the new rows also lie feature by feature. Both loops are cut into parts, of rows or
of features, for the threads of the pool. Centring is folded in by linearity, so N stays sparse; features that most of a block's weight has are
moved by a pivot first, which keeps the two sides of that difference as small as the spread (csrc/fs_sparse.h).

With many features the product W1' K is nearly all of a shrink. There the buffer holds the rows of several, and all but
the last of them happen among coefficients: K is C'[K0; N] until the buffer is through.
"""

cimport cython
from libc.math cimport sqrt
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy, memset

from fastsketch._kernels.brief cimport is_brief
from fastsketch._kernels.linalg.blas cimport NOT_FINITE, real, blas_int, converged, gemm, syrk
from fastsketch._kernels.linalg.rows cimport fs_move_mean
from fastsketch._kernels.sketching.ledger cimport post, weaken
from fastsketch._kernels.level cimport follow
from fastsketch._kernels.pool cimport FS_PARTS, fs_blas_alone, fs_part, fs_pool_from, fs_pool_parts, fs_pool_run, join
from fastsketch._kernels.sketching.shrink cimport arena_size, top_eigenpairs, rotation, shorten
from fastsketch._kernels.sketching.sparse_rows cimport (
    csr_column_sums, csr_dot, csr_fill, csr_gram_before, csr_gram_row, csr_pivots, csr_settle, csr_times_z, csr_turn, csr_weigh,
    fs_csr_common, load_csr, scan_csr, z_dot)
from fastsketch._kernels.sketching.state cimport GRAM, REFRESH, ROUNDING_PER_SHRINK, SketchState

import numpy as np

from fastsketch._kernels.sketching.dense import work_sizes


follow()
join()


cdef enum:
    # Multiply-adds of a part at least, 50 to 100 us: of dense products, and of products with rows anywhere in memory.
    LEAST_DENSE = 1 << 20
    LEAST_SPARSE = 1 << 18
    TOGETHER = 16  # rows whose products with all before them are turned at a time
    VALUES = 16  # numbers of kept rows for each value of new ones that waits: a value takes five times as much memory
    PANEL = 256  # features that are rotated at a time: with their sums they stay in the second cache


@cython.auto_pickle(False)
cdef class SparseState(SketchState):
    """State of a sketch whose new rows are sparse."""

    cdef readonly object z                 # (d, ldz): kept rows as columns, one column to spare for centring
    cdef readonly int64_t[::1] indptr      # the new rows: CSR arrays that grow
    cdef readonly int32_t[::1] indices
    cdef readonly object data
    cdef void* values                      # where data lies
    cdef Py_ssize_t ldz
    cdef int32_t[::1] slot                 # (d,) of a sketch that centres: 0 between two uses
    cdef int32_t[::1] chosen               # (d,) of a sketch that centres: features that are moved by a pivot
    cdef int32_t[::1] stop                 # (d,): the new rows feature by feature, see csrc/fs_sparse.h
    cdef int32_t[::1] row
    cdef int32_t[::1] place
    cdef object turned
    cdef void* turned_values               # where turned lies
    cdef object work
    cdef double[::1] small
    cdef double[::1] vectors               # 4 * (capacity + 2): small vectors of one flush
    cdef double[::1] squares               # FS_PARTS * sketch_size: of the kept rows, part by part
    cdef blas_int[::1] iwork
    # of a buffer for several shrinks of `block` new rows, else empty:
    cdef readonly Py_ssize_t block
    cdef readonly int64_t enough           # values of the new rows with which no further shrink is waited for
    cdef double[::1] combined              # C (rows of the buffer, sketch_size): the kept rows by those of the buffer
    cdef double[::1] gram                  # the Gram matrix of a shrink
    cdef double[::1] turn                  # its eigenvectors, and the products of both
    cdef double[::1] room                  # of the calling thread's part
    cdef object last                       # [C; I] times the last ones
    cdef void* last_values

    def __init__(self, Py_ssize_t sketch_size, Py_ssize_t capacity, Py_ssize_t n_features, *, Py_ssize_t n_spare,
                 bint center, double decay, dtype, Py_ssize_t block=0):
        cdef Py_ssize_t most = sketch_size + block if block else capacity
        # one row more than the buffer holds: the correction row of centring
        reals, integers, doubles = work_sizes(most + 1, n_features, sketch_size - 1, GRAM, dtype)
        super().__init__(sketch_size, capacity, n_features, n_spare=n_spare, center=center, decay=decay)
        self.ldz = sketch_size + 1
        self.z = np.zeros((n_features, self.ldz), dtype)
        self.indptr = np.zeros(capacity + 2, np.int64)
        self.indices = np.zeros(0, np.int32)
        self.data = np.zeros(0, dtype)
        self.slot = np.zeros(n_features if center else 0, np.int32)
        self.chosen = np.empty(n_features if center else 0, np.int32)
        self.stop = np.empty(n_features, np.int32)
        self.work = np.empty(reals, dtype)
        self.small = np.empty(doubles)
        self.vectors = np.zeros(4 * (capacity + 2))
        self.squares = np.empty(FS_PARTS * sketch_size)
        self.iwork = np.empty(integers, np.intc)
        self.block, self.enough = block, 2**31 - 1
        if block:
            self.enough = min(self.enough, n_features * sketch_size // VALUES)
        self.combined = np.empty(capacity * sketch_size if block else 0)
        self.gram = np.empty(most * most if block else 0)
        self.turn = np.empty(2 * sketch_size * most if block else 0)
        self.room = np.empty(TOGETHER * (capacity + 2 * sketch_size) + sketch_size + 1 if block else 0)
        self.last = np.empty(capacity * sketch_size if block else 0, dtype)
        self.last_values = <void*> <size_t> self.last.ctypes.data
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
        self.row = np.empty(nnz, np.int32)
        self.place = np.empty(nnz, np.int32)
        self.turned = np.empty(nnz, self.data.dtype)
        self.turned_values = <void*> <size_t> self.turned.ctypes.data


def scan(const int64_t[::1] indptr, const real[::1] data):
    """(index of the first row with a NaN or an infinity or -1, max |value| before it)."""
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
                             &s.slot[0])
    if n_chosen > 0:
        n_fill = csr_pivots(h, n_chosen, &s.indptr[0], &s.indices[0], data, &s.root[0], &s.chosen[0], &s.slot[0],
                            &s.shift[0], &s.base[0])
        n_fill = h * n_chosen - n_fill
        try:
            if n_fill > 0:
                make_room_now(s, s.indptr[h] + n_fill)
                data = <real*> s.values
                csr_fill(h, n_chosen, n_fill, &s.indptr[0], &s.indices[0], data, &s.chosen[0], &s.slot[0], &s.place[0])
        finally:
            for i in range(n_chosen):
                s.slot[s.chosen[i]] = 0
    for i in range(h):
        plain = plain and s.root[i] == 1.0
    if n_chosen > 0 or not plain:
        csr_weigh(h, &s.indptr[0], &s.indices[0], data, &s.root[0], &s.base[0])
    return 0


cdef struct Block:
    # what the parts of a flush share
    Py_ssize_t n_parts, h, k, r, d, m, ldz, kept, n_keep, width
    bint center, whole
    double old_weight, weight
    const int64_t* indptr
    const int32_t* indices
    const void* data
    int32_t* stop                          # the same rows by features
    int32_t* row
    int32_t* place
    void* turned
    const double* root
    const double* gain
    double* mean
    double* low
    double* base
    double* shift
    double* coefficient                    # (h,) root / weight; then the diagonal of N N', centred
    double* n_mu
    double* k_mu
    double* w_mu
    double mu2
    void* z
    void* g
    void* sums                             # of the parts, side by side
    void* w                                # (h, r)


cdef Py_ssize_t sums_of_kept(const Block* b, real* kind) noexcept nogil:
    """Reals of the partial sums of `kept_part`: two doubles, K mu, K K'."""
    return (2 + b.k) * (sizeof(double) // sizeof(real)) + (b.k * b.k if b.whole else 0)


cdef void kept_part(Block* b, Py_ssize_t part, real* scratch) noexcept nogil:
    """Some features: the mean moves on (FROSH Algorithm 1, step 7), the correction row, and their share of K K'."""
    cdef Py_ssize_t start = fs_pool_from(b.d, b.n_parts, part, 8), stop = fs_pool_from(b.d, b.n_parts, part + 1, 8), j
    cdef real* z = <real*> b.z
    cdef double* sums = <double*> (<real*> b.sums + part * sums_of_kept(b, z))
    memset(sums, 0, (2 + b.k) * sizeof(double))
    if b.center:
        if b.weight > 0.0:
            csr_column_sums(start, stop, b.stop, b.row, <real*> b.turned, b.coefficient, b.shift)
            fs_move_mean(stop - start, b.old_weight, b.weight, b.mean + start, b.low + start, b.base + start,
                         b.shift + start)
        for j in range(start, stop):
            z[j * b.ldz + b.kept] = <real> b.base[j]
            sums[0] += b.base[j] * b.base[j]
            sums[1] += b.shift[j] * b.shift[j]
        z_dot(stop - start, b.k, b.ldz, z + start * b.ldz, b.shift + start, sums + 2)
    if b.whole:
        syrk(c'L', c'N', b.k, stop - start, <real> 1.0, z + start * b.ldz, b.ldz, <real> 0.0,
             <real*> (sums + 2 + b.k), b.k)


cdef void gram_of_kept(Block* b, Py_ssize_t m, const double* gain, double* gram, real* kind) noexcept nogil:
    """G[:k, :k] = K @ K.T from the sums of the parts."""
    cdef Py_ssize_t i, c, p, k = b.k
    cdef double sum
    cdef const real* square
    for i in range(k):
        for c in range(i, k):
            sum = 0.0
            for p in range(b.n_parts):
                square = <real*> (<double*> (<real*> b.sums + p * sums_of_kept(b, kind)) + 2 + k)
                sum += <double> square[i * k + c]
            gram[i * m + c] = gram[c * m + i] = gain[i] * gain[c] * sum


cdef void dot_part(Block* b, Py_ssize_t part, real* scratch) noexcept nogil:
    """N mu of some rows."""
    cdef Py_ssize_t start = fs_pool_from(b.h, b.n_parts, part, 1), stop = fs_pool_from(b.h, b.n_parts, part + 1, 1)
    csr_dot(stop - start, b.indptr + start, b.indices, <const real*> b.data, b.shift, b.n_mu + start)


cdef void rows_part(Block* b, Py_ssize_t part, real* scratch) noexcept nogil:
    """Some rows of N K' and, from the diagonal on, of N N', centred by linearity: below K K' in g.

    Every n_parts-th row: those of N N' become shorter.
    """
    cdef real* g = <real*> b.g
    cdef double* line = <double*> scratch
    cdef real* to
    cdef double value
    cdef Py_ssize_t i = part, c
    while i < b.h:
        # G[k + i, :k] = N[i] @ K.T
        csr_times_z(1, b.k, b.ldz, b.indptr + i, b.indices, <const real*> b.data, <const real*> b.z, scratch)
        for c in range(b.k):
            value = <double> scratch[c]
            if b.center:
                value -= b.root[i] * b.k_mu[c]
            g[c * b.m + b.k + i] = <real> (b.gain[c] * value)
        # G[k + i:, k + i] = N[i:] @ N[i]
        csr_gram_row(b.h, i, b.indptr, b.indices, <const real*> b.data, b.stop, b.row, <const real*> b.turned, b.place,
                     line)
        to = g + (b.k + i) * b.m + b.k
        if b.center:
            for c in range(i, b.h):
                line[c] -= b.root[i] * b.n_mu[c] + b.root[c] * b.n_mu[i] - b.root[i] * b.root[c] * b.mu2
            b.coefficient[i] = line[i]
        for c in range(i, b.h):
            to[c] = <real> line[c]
        i += b.n_parts


cdef void settle_part(Block* b, Py_ssize_t part, real* scratch) noexcept nogil:
    """Some features of K = W1.T @ K + W2.T @ N - (W2.T @ root) mu', in place, a panel at a time."""
    cdef Py_ssize_t start = fs_pool_from(b.d, b.n_parts, part, 8), stop = fs_pool_from(b.d, b.n_parts, part + 1, 8)
    cdef Py_ssize_t width
    cdef real* z = <real*> b.z
    cdef double* square = <double*> b.sums + part * b.r
    memset(square, 0, b.r * sizeof(double))
    while start < stop:
        width = b.width if b.width < stop - start else stop - start
        gemm(c'T', c'N', b.r, width, b.k, <real> 1.0, <real*> b.g, b.m, z + start * b.ldz, b.ldz, <real> 0.0, scratch,
             b.r)
        csr_settle(start, start + width, b.r, b.n_keep, b.ldz, b.stop, b.row, <const real*> b.turned, <real*> b.w,
                   b.shift if b.center else NULL, b.w_mu, scratch, scratch + b.width * b.r, z, square)
        start += width


cdef int flush(SparseState s, real* z, real* arena) except? -1 nogil:
    """Settle the block (decay, centring) and shrink [K; N] to n_keep rows."""
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
    cdef double spread = 0.0, delta, value, top, nnz
    cdef double eps = 1.1920928955078125e-07 if real is float else 2.220446049250313e-16
    cdef bint diagonal = 0 <= s.age < REFRESH and not s.center
    cdef Block b
    cdef int info
    if s.decay != 1.0:
        decay_block(s, h, <real*> s.values)
    s.gain[kept] = 1.0  # of the correction row, if there is one
    b.old_weight, b.weight = s.settled_weight, 0.0
    if s.center:
        for i in range(h):
            b.weight += s.root[i] * s.root[i]
        weigh(s, h, b.weight, z)
        s.settled_weight += b.weight
    b.h, b.k, b.r, b.d, b.m, b.kept, b.ldz, b.n_keep = h, k, r, s.n_features, m, kept, s.ldz, s.n_keep
    b.center, b.whole = s.center, not diagonal and k > 0
    b.indptr, b.indices, b.data, b.turned = &s.indptr[0], &s.indices[0], s.values, s.turned_values
    b.stop, b.row, b.place = &s.stop[0], &s.row[0], &s.place[0]
    b.root, b.gain = &s.root[0], &s.gain[0]
    b.n_mu, b.k_mu = &s.vectors[0], &s.vectors[s.capacity + 2]
    b.w_mu, b.coefficient = &s.vectors[2 * (s.capacity + 2)], &s.vectors[3 * (s.capacity + 2)]
    b.z, b.g, b.w, b.mu2 = z, g, vec, 0.0
    nnz = <double> s.indptr[h]
    csr_turn(h, b.d, b.indptr, b.indices, <real*> s.values, b.stop, b.row, <real*> s.turned_values, b.place)

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
        # as many parts as have room in the eigensolver's place
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
    if s.ledger is not None and post(s.ledger, m, kept, b.d, s.n_keep, vec + (m - 1) * m, -m, 1, 0, 1, w + m - 1, -1,
                                     m, False, &s.lam[0]):
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
    b.width = lwork // r - 1 if lwork // r - 1 < PANEL else PANEL
    b.sums = &s.squares[0]
    b.n_parts = fs_pool_parts((<double> b.d * k + nnz) * r, LEAST_DENSE)
    fs_pool_run(b.n_parts, <fs_part> settle_part[real], &b, work, (b.width + 1) * r * sizeof(real))
    memset(square, 0, r * sizeof(double))
    for p in range(b.n_parts):
        for c in range(r):
            square[c] += s.squares[p * r + c]
    delta = shorten(m, s.n_keep, s.n_spare, s.ledger, square, vector_square, &s.lam[0], &s.gain[0])
    s.shrinkage += delta
    # Sparse rows are added after the kept ones: their rounding may have the same sign from shrink to shrink.
    value = sqrt(s.rounding) + ROUNDING_PER_SHRINK * eps * top
    s.rounding = value * value
    s.age = s.age + 1 if diagonal else 0
    s.fill = s.kept = s.n_keep
    s.indptr[0] = 0
    return 0


cdef struct Inner:
    # what the parts of one of several shrinks share
    Py_ssize_t first, rows, kept, m, before, n_parts, r, n_keep, ld
    double* gram
    const double* turn                     # (r, m) eigenvectors, the largest first
    const double* gain                     # of the new kept rows; or NULL
    double* combined                       # (k + h, ld)
    Block* b


cdef void inner_part(Inner* job, Py_ssize_t part, double* scratch, real* kind) noexcept nogil:
    """Some new rows of this shrink: their products with the kept rows, which are C'[K0; N], and with one another."""
    cdef Block* b = job.b
    cdef Py_ssize_t i = fs_pool_from(job.rows, job.n_parts, part, TOGETHER)
    cdef Py_ssize_t stop = fs_pool_from(job.rows, job.n_parts, part + 1, TOGETHER), count, e, c, at, ld = b.k + b.h
    cdef double* out = scratch + TOGETHER * ld
    cdef real* line = <real*> (out + TOGETHER * job.ld)
    cdef double* to
    while i < stop:
        count = min(stop - i, <Py_ssize_t> TOGETHER)
        for e in range(count):
            # Y = N[i] @ [K0; N].T
            to = scratch + e * ld
            csr_times_z(1, b.k, b.ldz, b.indptr + job.first + i + e, b.indices, <const real*> b.data,
                        <const real*> b.z, line)
            for c in range(b.k):
                to[c] = <double> line[c]
            csr_gram_before(job.first + i + e, b.indptr, b.indices, <const real*> b.data, b.stop, b.row,
                            <const real*> b.turned, b.place, to + b.k)
            at = job.kept + i + e
            for c in range(i + e + 1):
                job.gram[at * job.m + job.kept + c] = job.gram[(job.kept + c) * job.m + at] = to[b.k + job.first + c]
        # N K' = Y C
        gemm(c'N', c'N', job.kept, count, job.before, <double> 1.0, job.combined, job.ld, scratch, ld, <double> 0.0, out,
             job.ld)
        for e in range(count):
            at = job.kept + i + e
            for c in range(job.kept):
                job.gram[at * job.m + c] = job.gram[c * job.m + at] = out[e * job.ld + c]
        i += count


cdef void inner_part_s(void* context, ptrdiff_t part, void* scratch) noexcept nogil:
    inner_part(<Inner*> context, part, <double*> scratch, <float*> NULL)


cdef void inner_part_d(void* context, ptrdiff_t part, void* scratch) noexcept nogil:
    inner_part(<Inner*> context, part, <double*> scratch, <double*> NULL)


cdef void combine_part(Inner* job, Py_ssize_t part, double* scratch, real* last) noexcept nogil:
    """Some rows of C W1 and, from those of this shrink on, of W2: in place times the gains, or to `last`."""
    cdef Block* b = job.b
    cdef Py_ssize_t length = job.before + job.rows, i = fs_pool_from(length, job.n_parts, part, TOGETHER), e, c, count
    cdef Py_ssize_t stop = fs_pool_from(length, job.n_parts, part + 1, TOGETHER)
    cdef double* to
    while i < stop:
        count = min(stop - i, <Py_ssize_t> TOGETHER)
        if i < job.before:
            count = min(count, job.before - i)
            gemm(c'T', c'N', job.r, count, job.kept, <double> 1.0, job.turn, job.m, job.combined + i * job.ld,
                 job.ld, <double> 0.0, scratch, job.r)
        else:
            for e in range(count):
                for c in range(job.r):
                    scratch[e * job.r + c] = job.turn[c * job.m + job.kept + i + e - job.before]
        for e in range(count):
            to = scratch + e * job.r
            if job.gain:
                for c in range(job.n_keep):
                    job.combined[(i + e) * job.ld + c] = to[c] * job.gain[c]
            elif i + e < b.k:
                # column by column, as settle_part has them of a single shrink
                for c in range(job.r):
                    last[c * b.k + i + e] = <real> to[c]
            else:
                for c in range(job.r):
                    last[b.k * job.r + (i + e - b.k) * job.r + c] = <real> to[c]
        i += count


cdef void combine_part_s(void* context, ptrdiff_t part, void* scratch) noexcept nogil:
    combine_part(<Inner*> context, part, <double*> scratch, <float*> (<Inner*> context).b.g)


cdef void combine_part_d(void* context, ptrdiff_t part, void* scratch) noexcept nogil:
    combine_part(<Inner*> context, part, <double*> scratch, <double*> (<Inner*> context).b.g)


cdef int cascade(SparseState s, real* z, real* arena) except? -1 nogil:
    """A shrink after every `block` new rows of a sketch that does not centre; the features are visited for the last."""
    cdef Py_ssize_t k = s.kept, h = s.fill - s.kept, n_keep = s.n_keep, i, c, m = 0, r = 0, lwork = 0, p
    cdef Py_ssize_t size, bytes
    cdef real* g = arena
    cdef real* vec
    cdef real* w
    cdef real* work = arena
    cdef double* square = &s.small[0]
    cdef double* vector_square = square + n_keep + 1
    cdef double* gram = &s.gram[0]
    cdef double* turn = &s.turn[0]
    cdef double* product
    cdef double value, delta, nnz
    cdef double eps = 1.1920928955078125e-07 if real is float else 2.220446049250313e-16
    cdef bint diagonal = 0 <= s.age < REFRESH, last
    cdef Block b
    cdef Inner job
    cdef int info
    if s.decay != 1.0:
        decay_block(s, h, <real*> s.values)
    b.h, b.k, b.d, b.kept, b.ldz, b.n_keep, b.center, b.whole = h, k, s.n_features, k, s.ldz, n_keep, False, True
    b.indptr, b.indices, b.data, b.turned = &s.indptr[0], &s.indices[0], s.values, s.turned_values
    b.stop, b.row, b.place, b.z, b.g = &s.stop[0], &s.row[0], &s.place[0], z, s.last_values
    nnz = <double> s.indptr[h]
    csr_turn(h, b.d, b.indptr, b.indices, <real*> s.values, b.stop, b.row, <real*> s.turned_values, b.place)
    job.b, job.gram, job.turn, job.combined, job.n_keep = &b, gram, turn, &s.combined[0], n_keep
    job.first, job.kept, job.before, job.ld = 0, k, k, s.ldz - 1
    while job.first < h:
        job.rows = min(s.block, h - job.first)
        last = job.first + job.rows == h
        m = job.m = job.kept + job.rows
        r = job.r = n_keep + 1 if n_keep + 1 < m else m
        vec, w = g + m * m, g + 2 * m * m
        work, lwork = w + m, arena_size(m) - 2 * m * m - m
        # G[:k, :k] = K @ K.T, of the rows in the buffer now and then as it is, else as it is by construction
        for i in range(job.kept):
            for c in range(job.kept):
                gram[i * m + c] = 0.0
            gram[i * m + i] = s.lam[i]
        if job.first == 0:
            if not diagonal and k:
                size = sums_of_kept(&b, z)
                b.sums = vec + (<size_t> vec // sizeof(real)) % (sizeof(double) // sizeof(real))
                b.n_parts = fs_pool_parts(b.d * 0.5 * k * k, LEAST_DENSE)
                b.n_parts = min(b.n_parts, (2 * m * m + 8 * m) // size)
                fs_pool_run(b.n_parts, <fs_part> kept_part[real], &b, NULL, 0)
                gram_of_kept(&b, m, &s.gain[0], gram, z)
            for i in range(k):
                for c in range(k):  # C = diag(gain)
                    job.combined[i * job.ld + c] = s.gain[i] if i == c else 0.0
        job.n_parts = fs_pool_parts(nnz * job.rows / h * (k + h / 16.0) + <double> job.rows * job.before * job.kept / 8,
                                    LEAST_SPARSE)
        bytes = (TOGETHER * (k + h + job.ld) + k + 1) * sizeof(double)
        fs_pool_run(job.n_parts, inner_part_s if real is float else inner_part_d, &job, &s.room[0], bytes)
        for c in range(m):
            for i in range(c, m):
                g[c * m + i] = <real> gram[c * m + i]
        info = top_eigenpairs(m, r, g, w, vec, work, lwork, square + 2 * (n_keep + 1), &s.iwork[0])
        if info:
            return info
        value = sqrt(s.rounding) + ROUNDING_PER_SHRINK * eps * <double> w[m - 1]
        s.rounding = value * value
        rotation(m, 0, 0, r, vec, &s.gain[0], 1, g, vector_square)
        if s.ledger is not None and post(s.ledger, m, job.kept, b.d, n_keep, vec + (m - 1) * m, -m, 1, 0, 1, w + m - 1,
                                         -1, m, False, &s.lam[0]):
            return NOT_FINITE
        for c in range(r * m):
            turn[c] = <double> g[c]
        job.gain = NULL
        if not last:
            # the squares of the new kept rows: v'G v
            product = turn + r * m
            gemm(c'N', c'N', m, r, m, <double> 1.0, gram, m, turn, m, <double> 0.0, product, m)
            for c in range(r):
                square[c] = 0.0
                for i in range(m):
                    square[c] += turn[c * m + i] * product[c * m + i]
            s.shrinkage += shorten(m, n_keep, s.n_spare, s.ledger, square, vector_square, &s.lam[0], &s.gain[0])
            job.gain = &s.gain[0]
        job.n_parts = fs_pool_parts(<double> (job.before + job.rows) * job.kept * r, LEAST_DENSE)
        fs_pool_run(job.n_parts, combine_part_s if real is float else combine_part_d, &job, &s.room[0],
                    TOGETHER * (n_keep + 1) * sizeof(double))
        job.before += job.rows
        job.first += job.rows
        job.kept = n_keep
        s.age = s.age + 1 if diagonal or job.first > s.block else 0
    s.age = min(s.age, <Py_ssize_t> REFRESH)
    b.r, b.m, b.w = r, max(k, 1), <real*> s.last_values + k * r
    b.width = min(<Py_ssize_t> PANEL, lwork // r - 1)
    b.sums = &s.squares[0]
    b.n_parts = fs_pool_parts((<double> b.d * k + nnz) * r, LEAST_DENSE)
    fs_pool_run(b.n_parts, <fs_part> settle_part[real], &b, work, (b.width + 1) * r * sizeof(real))
    memset(square, 0, r * sizeof(double))
    for p in range(b.n_parts):
        for c in range(r):
            square[c] += s.squares[p * r + c]
    delta = shorten(m, n_keep, s.n_spare, s.ledger, square, vector_square, &s.lam[0], &s.gain[0])
    s.shrinkage += delta
    s.fill = s.kept = n_keep
    s.indptr[0] = 0
    return 0


cdef int take(SparseState s, Py_ssize_t n, const int64_t* indptr, const int32_t* indices, const real* data,
              const double* weight, double scale, real* z, real* arena) except? -1 nogil:
    """All n rows, flushing whenever the buffer is full."""
    cdef real* stored = <real*> s.values
    cdef Py_ssize_t i, j, nnz
    cdef Py_ssize_t limit = s.capacity - s.center, block = s.block if s.block else limit
    cdef int64_t start
    cdef double square, w, factor
    cdef int info
    for i in range(n):
        j = s.fill - s.kept
        if s.fill >= limit or (j >= block and s.indptr[j] >= s.enough):  # an earlier call failed here
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
        if nnz:  # of an empty batch there is no array to copy from
            memcpy(&s.indices[start], indices + indptr[i], nnz * sizeof(int32_t))
        s.indptr[j + 1] = start + nnz
        s.weight = s.decay * s.weight + w
        if not s.center:
            s.squared_norm = s.decay * s.squared_norm + square
        s.fill += 1
        s.n_rows += 1
        if s.fill == limit or (j + 1 >= block and s.indptr[j + 1] >= s.enough):
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
    if state.fill + n < state.capacity - state.center and is_brief(1, data.shape[0] + n) and not state.block:
        info = take(state, n, &indptr[0], ip, dp, wp, scale, &z[0, 0], &arena[0])
    else:
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
