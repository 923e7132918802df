"""The products of a shrink, on the threads of the pool: Gram matrix, rotation, and the d x d sum of an exact sketch.

How the work is split depends on shapes only (csrc/fs_pool.h), so the bits do not depend on the number of threads. A
row-major m x d buffer F is the column-major d x m matrix F'; every BLAS call below sees it so.
"""
from libc.stdint cimport uint64_t
from libc.string cimport memset

from fastsketch._kernels.level cimport follow
from fastsketch._kernels.linalg.blas cimport real, gemm, syrk
from fastsketch._kernels.linalg.panel cimport fs_panel_pays, panel_gram, panel_rotate
from fastsketch._kernels.linalg.rows cimport load_rows, square_rows
from fastsketch._kernels.linalg.subnormal cimport fs_subnormal_back, fs_subnormal_off
from fastsketch._kernels.pool cimport (
    FS_PARTS, fs_blas_alone, fs_part, fs_pool_from, fs_pool_parts, fs_pool_run, join)


follow()
join()


cdef enum:
    STEP = 64           # columns are split at multiples of it: whole cache lines, and whole panels of packed rows
    GRAM_PARTS = 8      # parts of the columns: each has its own matrix, which are added up afterwards
    BLOCK = 128         # rows of a block, where the Gram matrix is split instead of the columns
    BLOCKS_FROM = 1024  # rows of a Gram matrix from which on it is split: enough blocks for many threads

# Smallest number of products of a part (50 to 100 us), and of additions.
cdef double LEAST = 3e6
cdef double LEAST_SUM = 131072.0


cdef struct Gram:
    Py_ssize_t m, kept, d, n_parts, n_sums, n_pack
    bint diagonal, panels
    const void* f
    void* g
    void* partials


cdef struct Rotation:
    Py_ssize_t m, r, d, n_parts, n_pack
    bint panels
    void* f
    const void* w
    double* square  # n_parts rows of r


cdef struct Outer:
    Py_ssize_t m, d, width
    double beta
    const void* f
    void* total


cdef Py_ssize_t even_parts(double work, Py_ssize_t most) noexcept nogil:
    """Return the number of parts of a product, a power of two, at most `most`."""
    cdef Py_ssize_t parts = fs_pool_parts(work, LEAST)
    while parts > most:
        parts //= 2
    return parts


cdef Py_ssize_t column_parts(Py_ssize_t m, Py_ssize_t d) noexcept nogil:
    """Return the number of parts of the columns of an m x d buffer; their matrices take at most half of its memory."""
    return even_parts(0.5 * m * m * d, min(GRAM_PARTS, 1 + d // (2 * m)))


cdef Py_ssize_t partials_size(Py_ssize_t m, Py_ssize_t d) noexcept nogil:
    """Return the number of reals of workspace that gram_products needs for m rows or fewer."""
    m = min(m, BLOCKS_FROM - 1)
    return min(m * d // 2, (GRAM_PARTS - 1) * m * m)


cdef inline Py_ssize_t panel_pack(Py_ssize_t m, const real* kind) noexcept nogil:
    """Return the largest number of reals that packed panels use; `kind` only selects the type."""
    return max((512 << 10) // <Py_ssize_t> sizeof(real), 32 * (m + 32))


cdef void gram_columns(Gram* job, ptrdiff_t part, real* pack) noexcept nogil:
    """Compute the Gram matrix of some columns."""
    cdef uint64_t mode = fs_subnormal_off()
    multiply_columns(job, part, pack)
    fs_subnormal_back(mode)


cdef void multiply_columns(Gram* job, ptrdiff_t part, real* pack) noexcept nogil:
    cdef Py_ssize_t m = job.m, h = m - job.kept, d = job.d
    cdef Py_ssize_t first = fs_pool_from(d, job.n_parts, part, STEP)
    cdef Py_ssize_t width = fs_pool_from(d, job.n_parts, part + 1, STEP) - first
    cdef const real* f = <const real*> job.f + first
    cdef const real* k = f + h * d
    cdef real* g = <real*> job.partials + (part - 1) * m * m if part else <real*> job.g
    # G[:h, :h] = N @ N.T, G[h:, :h] = K @ N.T, and unless it is diagonal G[h:, h:] = K @ K.T
    if job.panels:
        panel_gram(m, h if job.diagonal else m, width, d, f, g, pack, job.n_pack)
        return
    syrk(c'L', c'T', h, width, <real> 1.0, f, d, <real> 0.0, g, m)
    gemm(c'T', c'N', job.kept, h, width, <real> 1.0, k, d, f, d, <real> 0.0, g + h, m)
    if not job.diagonal:
        syrk(c'L', c'T', job.kept, width, <real> 1.0, k, d, <real> 0.0, g + h * m + h, m)


cdef void gram_block(Gram* job, ptrdiff_t part, real* unused) noexcept nogil:
    """Compute a block of the lower triangle, numbered row by row; with `diagonal` none of retained rows only."""
    cdef Py_ssize_t i = 0, j, m = job.m, d = job.d, rows, columns
    cdef const real* f = <const real*> job.f
    cdef real* g = <real*> job.g
    cdef uint64_t mode
    while part > i:
        i += 1
        part -= i
    i, j = i * BLOCK, part * BLOCK
    rows, columns = min(BLOCK, m - i), min(BLOCK, m - j)
    if job.diagonal:
        columns = min(columns, m - job.kept - j)
    if columns <= 0:
        return
    mode = fs_subnormal_off()
    # G[i, j] = F[i] @ F[j].T
    if i == j:
        syrk(c'L', c'T', columns, d, <real> 1.0, f + i * d, d, <real> 0.0, g + j * m + i, m)
        rows, i = rows - columns, i + columns
    gemm(c'T', c'N', rows, columns, d, <real> 1.0, f + i * d, d, f + j * d, d, <real> 0.0, g + j * m + i, m)
    fs_subnormal_back(mode)


cdef void add_partials(Gram* job, ptrdiff_t part, real* unused) noexcept nogil:
    """Add up some columns of the matrices of all parts, in their order."""
    cdef Py_ssize_t m = job.m, n = m - job.kept if job.diagonal else m, p, j, i
    cdef real* to
    cdef const real* more
    for j in range(fs_pool_from(n, job.n_sums, part, 1), fs_pool_from(n, job.n_sums, part + 1, 1)):
        to = <real*> job.g + j * m
        for p in range(job.n_parts - 1):
            more = <const real*> job.partials + (p * m + j) * m
            for i in range(j, m):
                to[i] += more[i]


cdef void gram_products(Py_ssize_t m, Py_ssize_t kept, Py_ssize_t d, bint diagonal, const real* f, real* g,
                        real* partials, real* pack, Py_ssize_t n_pack) noexcept nogil:
    """Set g to the lower triangle of F F' for a buffer of m rows; with `diagonal` without that of the last `kept` rows.

    partials holds partials_size(m, d) reals.
    """
    cdef Gram job
    cdef Py_ssize_t blocks = (m + BLOCK - 1) // BLOCK
    job.m, job.kept, job.d, job.diagonal, job.f, job.g = m, kept, d, diagonal, f, g
    job.partials, job.n_pack = partials, min(n_pack, panel_pack[real](m, NULL))
    job.panels = fs_panel_pays(m, sizeof(real))
    if not job.panels:
        fs_blas_alone(1)
        job.n_pack = 0
    if m >= BLOCKS_FROM:
        fs_pool_run(blocks * (blocks + 1) // 2, <fs_part> gram_block[real], &job, NULL, 0)
    else:
        job.n_parts = column_parts(m, d)
        fs_pool_run(job.n_parts, <fs_part> gram_columns[real], &job, pack, job.n_pack * sizeof(real))
        if job.n_parts > 1:
            job.n_sums = fs_pool_parts(0.5 * m * m * job.n_parts, LEAST_SUM)
            fs_pool_run(job.n_sums, <fs_part> add_partials[real], &job, NULL, 0)
    if not job.panels:
        fs_blas_alone(0)


cdef void rotate_columns(Rotation* job, ptrdiff_t part, real* pack) noexcept nogil:
    """Compute some columns of the rows that replace those of the buffer, and their squares."""
    cdef uint64_t mode = fs_subnormal_off()
    turn_columns(job, part, pack)
    fs_subnormal_back(mode)


cdef void turn_columns(Rotation* job, ptrdiff_t part, real* pack) noexcept nogil:
    cdef Py_ssize_t m = job.m, r = job.r, d = job.d, i, width
    cdef Py_ssize_t first = fs_pool_from(d, job.n_parts, part, STEP)
    cdef Py_ssize_t last = fs_pool_from(d, job.n_parts, part + 1, STEP)
    cdef real* f = <real*> job.f
    cdef const real* w = <const real*> job.w
    cdef double* square = job.square + part * r
    cdef double more = 0.0
    if job.panels:
        panel_rotate(m, r, last - first, d, f + first, w, square, pack, job.n_pack)
        return
    memset(square, 0, r * sizeof(double))
    while first < last:
        width = min(job.n_pack // r, last - first)
        gemm(c'N', c'N', width, r, m, <real> 1.0, f + first, d, w, m, <real> 0.0, pack, width)
        for i in range(r - 1):
            load_rows(1, width, width, pack + i * width, <double*> NULL, 1, 1.0, f + (m - 1 - i) * d + first, width,
                      &more)
            square[i] += more
        square_rows(1, width, width, pack + (r - 1) * width, &more)
        square[r - 1] += more
        first += width


cdef void rotate_rows(Py_ssize_t m, Py_ssize_t r, Py_ssize_t d, real* f, const real* w, double* square, real* pack,
                      Py_ssize_t n_pack) noexcept nogil:
    """Set F[-1-i] = w[:, i].T @ F for i < r - 1, in place, and square to the squared norms, also of result r - 1.

    square holds FS_PARTS * r doubles, pack at least 32 m reals.
    """
    cdef Rotation job
    cdef Py_ssize_t part, i
    job.m, job.r, job.d, job.f, job.w, job.square = m, r, d, f, w, square
    job.panels = fs_panel_pays(m, sizeof(real))
    job.n_parts = even_parts(<double> m * r * d, (d + STEP - 1) // STEP)
    if job.panels:
        job.n_pack = min(n_pack, panel_pack[real](m, NULL))
    else:
        fs_blas_alone(1)
        job.n_pack = min(n_pack, r * fs_pool_from(d, job.n_parts, 1, STEP))
    fs_pool_run(job.n_parts, <fs_part> rotate_columns[real], &job, pack, job.n_pack * sizeof(real))
    if not job.panels:
        fs_blas_alone(0)
    for part in range(1, job.n_parts):
        for i in range(r):
            square[i] += square[part * r + i]


cdef void outer_columns(Outer* job, ptrdiff_t part, real* unused) noexcept nogil:
    """Compute some columns of the lower triangle, from the diagonal down."""
    cdef Py_ssize_t d = job.d, first = part * job.width, columns = min(job.width, d - first)
    cdef Py_ssize_t below = first + columns
    cdef const real* f = <const real*> job.f + first
    cdef real* c = <real*> job.total + first * d
    syrk(c'L', c'N', columns, job.m, <real> 1.0, f, d, <real> job.beta, c + first, d)
    gemm(c'N', c'T', d - below, columns, job.m, <real> 1.0, f + columns, d, f, d, <real> job.beta, c + below, d)


cdef void outer_product(Py_ssize_t m, Py_ssize_t d, const real* f, double beta, real* total) noexcept nogil:
    """Set total (d x d, lower triangle, column-major) = F'F + beta total."""
    cdef Outer job
    job.m, job.d, job.f, job.beta, job.total = m, d, f, beta, total
    # strips from the largest to the smallest, for threads that take the next one when they are done
    job.width = max(BLOCK, (d // FS_PARTS + 31) // 32 * 32)
    if <double> m * d * d < 4 * LEAST:
        job.width = d
    fs_blas_alone(1)
    fs_pool_run((d + job.width - 1) // job.width, <fs_part> outer_columns[real], &job, NULL, 0)
    fs_blas_alone(0)
