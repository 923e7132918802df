# The parts of a shrink of sparse rows, of rows or of features, for the threads of the pool: see sparse.pyx.

from libc.math cimport ldexp, sqrt
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

from fastsketch._kernels.linalg.blas cimport gemm, real, syrk
from fastsketch._kernels.linalg.rows cimport fs_move_mean
from fastsketch._kernels.pool cimport fs_part, fs_pool_from, fs_pool_parts, fs_pool_run
from fastsketch._kernels.sketching.shrink cimport shorten
from fastsketch._kernels.sketching.sparse_rows cimport (
    column_sums, csr_dot, gram_row_after, csr_settle, csr_times_z, z_dot)
from fastsketch._kernels.sketching.sparse_state cimport SparseState
from fastsketch._kernels.sketching.state cimport decay_kept

cdef enum:
    # Smallest number of multiply-adds of a part, 50 to 100 us: of dense products, and of products with scattered rows.
    LEAST_DENSE = 1 << 20
    LEAST_SPARSE = 1 << 18
    PANEL = 256  # features that are rotated at a time: with their sums they fit the second cache
    # Entries below this power of two, as a share of the largest singular value, become 0. A column without new entries
    # decreases in every shrink until it is subnormal; products are then so slow that a float32 sketch took twice as
    # long. Together these entries change B'B by 2 sqrt(n_columns sketch_size) such shares of its largest eigenvalue,
    # far below a unit of rounding.
    FLUSH_S = -64
    FLUSH_D = -600


cdef inline void decay_block(SparseState s, Py_ssize_t h, real* data) noexcept nogil:
    """Apply decay: row j of h is followed by h - 1 - j rows, by which it decays; all earlier rows decay by decay^h.

    With centring new rows are stored unweighted, and only their root weights decay.
    """
    cdef double factor = 1.0, power = 1.0
    cdef Py_ssize_t j
    cdef int64_t e
    for j in range(h - 1, -1, -1):
        if not s.center:
            for e in range(s.indptr[j], s.indptr[j + 1]):
                data[e] = <real> (data[e] * factor)
        s.root[j] *= factor
        power *= s.decay  # not powers of the root of decay, whose rounding would have the same sign each time
        factor = sqrt(power)
    decay_kept(s, power, factor)


cdef struct Block:
    # shared by the parts of a flush
    Py_ssize_t n_parts, h, k, r, d, m, ldz, kept, n_keep, width
    bint center, whole
    double old_weight, weight, least
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


cdef inline Py_ssize_t sums_of_kept(const Block* b, real* kind) noexcept nogil:
    """Return the reals of the partial sums of `kept_part`: two doubles, K mu, K K'."""
    return (2 + b.k) * (sizeof(double) // sizeof(real)) + (b.k * b.k if b.whole else 0)


cdef inline void kept_part(Block* b, Py_ssize_t part, real* scratch) noexcept nogil:
    """Update the mean of some features (FROSH Algorithm 1, step 7), set the correction row, add to K K'."""
    cdef Py_ssize_t start = fs_pool_from(b.d, b.n_parts, part, 8), stop = fs_pool_from(b.d, b.n_parts, part + 1, 8), j
    cdef real* z = <real*> b.z
    cdef double* sums = <double*> (<real*> b.sums + part * sums_of_kept(b, z))
    memset(sums, 0, (2 + b.k) * sizeof(double))
    if b.center:
        if b.weight > 0.0:
            column_sums(start, stop, b.stop, b.row, <real*> b.turned, b.coefficient, b.shift)
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


cdef inline void gram_of_kept(Block* b, Py_ssize_t m, const double* gain, double* gram, real* kind) noexcept nogil:
    """Set G[:k, :k] = K @ K.T, given the sums of the parts."""
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


cdef inline void dot_part(Block* b, Py_ssize_t part, real* scratch) noexcept nogil:
    """Compute N mu for some rows."""
    cdef Py_ssize_t start = fs_pool_from(b.h, b.n_parts, part, 1), stop = fs_pool_from(b.h, b.n_parts, part + 1, 1)
    csr_dot(stop - start, b.indptr + start, b.indices, <const real*> b.data, b.shift, b.n_mu + start)


cdef inline void rows_part(Block* b, Py_ssize_t part, real* scratch) noexcept nogil:
    """Compute some rows of N K' and, from the diagonal on, of N N', centred by linearity; in g below K K'.

    A part has every n_parts-th row, as the rows of N N' become shorter.
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
        gram_row_after(b.h, i, b.indptr, b.indices, <const real*> b.data, b.stop, b.row, <const real*> b.turned,
                       b.place, line)
        to = g + (b.k + i) * b.m + b.k
        if b.center:
            for c in range(i, b.h):
                line[c] -= b.root[i] * b.n_mu[c] + b.root[c] * b.n_mu[i] - b.root[i] * b.root[c] * b.mu2
            b.coefficient[i] = line[i]
        for c in range(i, b.h):
            to[c] = <real> line[c]
        i += b.n_parts


cdef inline void settle_part(Block* b, Py_ssize_t part, real* scratch) noexcept nogil:
    """Compute some features of K = W1.T @ K + W2.T @ N - (W2.T @ root) mu', in place, a panel at a time."""
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
                   b.shift if b.center else NULL, b.w_mu, b.least, scratch, scratch + b.width * b.r, z, square)
        start += width


cdef inline void rotate_features(SparseState s, Block* b, Py_ssize_t m, double nnz, double top, real* work,
                                 Py_ssize_t lwork) noexcept nogil:
    """End a shrink of m rows: rotate all features, and set lengths, gains and Delta. top: the largest eigenvalue."""
    cdef double* square = &s.small[0]
    cdef double* part_square = &s.squares[0]
    cdef Py_ssize_t p, c
    b.least = ldexp(sqrt(max(top, 0.0)), FLUSH_S if real is float else FLUSH_D)
    b.width = min(<Py_ssize_t> PANEL, lwork // b.r - 1)
    b.sums = part_square
    b.n_parts = fs_pool_parts((<double> b.d * b.k + nnz) * b.r, LEAST_DENSE)
    fs_pool_run(b.n_parts, <fs_part> settle_part[real], b, work, (b.width + 1) * b.r * sizeof(real))
    memset(square, 0, b.r * sizeof(double))
    for p in range(b.n_parts):
        for c in range(b.r):
            square[c] += part_square[p * b.r + c]
    s.shrinkage += shorten(m, s.n_keep, s.n_spare, s.ledger, square, square + s.n_keep + 1, &s.lam[0], &s.gain[0])
    s.fill = s.kept = s.n_keep
    s.indptr[0] = 0
