"""Loops over dense rows (csrc/fs_rows.h) on the threads of the pool: each part has some rows, or some columns.

No sum extends over several parts, so the bits are those of a single loop.
"""
from fastsketch._kernels.level cimport follow
from fastsketch._kernels.linalg.blas cimport real
from fastsketch._kernels.linalg.rows cimport centre_rows, load_rows, scan_rows, square_rows
from fastsketch._kernels.pool cimport FS_PARTS, fs_part, fs_pool_from, fs_pool_parts, fs_pool_run, join


follow()
join()


# Smallest number of bytes of a part: 40 us at the speed of memory.
cdef double LEAST = 524288.0


cdef struct Rows:
    Py_ssize_t n, d, ld, n_parts, root_step, ld_out
    const void* x
    void* out
    const double* root
    double scale
    double* square
    # of a scan
    Py_ssize_t bad[FS_PARTS]
    double largest[FS_PARTS]
    # of centring
    double old_weight, block_weight
    double* mean
    double* low
    double* base
    double* shift


cdef inline Py_ssize_t first_row(const Rows* job, Py_ssize_t part) noexcept nogil:
    return fs_pool_from(job.n, job.n_parts, part, 1)


cdef void scan_part(Rows* job, ptrdiff_t part, real* unused) noexcept nogil:
    cdef Py_ssize_t first = first_row(job, part), n = first_row(job, part + 1) - first
    job.bad[part] = scan_rows(n, job.d, job.ld, <const real*> job.x + first * job.ld, &job.largest[part])
    if job.bad[part] >= 0:
        job.bad[part] += first


cdef Py_ssize_t scan_parts(Py_ssize_t n, Py_ssize_t d, Py_ssize_t ld, const real* x, double* largest) noexcept nogil:
    cdef Rows job
    cdef Py_ssize_t part
    job.n_parts = min(n, fs_pool_parts(<double> n * d * sizeof(real), LEAST))
    if job.n_parts <= 1:
        return scan_rows(n, d, ld, x, largest)
    job.n, job.d, job.ld, job.x = n, d, ld, x
    fs_pool_run(job.n_parts, <fs_part> scan_part[real], &job, NULL, 0)
    largest[0] = 0.0
    for part in range(job.n_parts):
        largest[0] = max(largest[0], job.largest[part])
        if job.bad[part] >= 0:
            return job.bad[part]
    return -1


cdef void load_part(Rows* job, ptrdiff_t part, real* unused) noexcept nogil:
    cdef Py_ssize_t first = first_row(job, part), n = first_row(job, part + 1) - first
    load_rows(n, job.d, job.ld, <const real*> job.x + first * job.ld,
              <double*> job.root + first * job.root_step if job.root is not NULL else <double*> NULL, job.root_step,
              job.scale, <real*> job.out + first * job.ld_out, job.ld_out, job.square + first)


cdef void load_parts(Py_ssize_t n, Py_ssize_t d, Py_ssize_t ld, const real* x, const double* root_weight,
                     Py_ssize_t root_step, double scale, real* out, Py_ssize_t ld_out, double* square) noexcept nogil:
    cdef Rows job
    job.n_parts = min(n, fs_pool_parts(<double> n * d * sizeof(real), LEAST))
    if job.n_parts <= 1:
        load_rows(n, d, ld, x, root_weight, root_step, scale, out, ld_out, square)
        return
    job.n, job.d, job.ld, job.x, job.root, job.root_step = n, d, ld, x, root_weight, root_step
    job.scale, job.out, job.ld_out, job.square = scale, out, ld_out, square
    fs_pool_run(job.n_parts, <fs_part> load_part[real], &job, NULL, 0)


cdef void square_part(Rows* job, ptrdiff_t part, real* unused) noexcept nogil:
    cdef Py_ssize_t first = first_row(job, part), n = first_row(job, part + 1) - first
    square_rows(n, job.d, job.ld, <const real*> job.x + first * job.ld, job.square + first)


cdef void square_parts(Py_ssize_t n, Py_ssize_t d, Py_ssize_t ld, const real* x, double* square) noexcept nogil:
    cdef Rows job
    job.n_parts = min(n, fs_pool_parts(<double> n * d * sizeof(real), LEAST))
    job.n, job.d, job.ld, job.x, job.square = n, d, ld, x, square
    fs_pool_run(job.n_parts, <fs_part> square_part[real], &job, NULL, 0)


cdef void scale_part(Rows* job, ptrdiff_t part, real* unused) noexcept nogil:
    cdef Py_ssize_t i, j, d = job.d
    cdef real* row
    cdef real factor
    for i in range(first_row(job, part), first_row(job, part + 1)):
        row, factor = <real*> job.out + i * d, <real> job.root[i]
        for j in range(d):
            row[j] *= factor


cdef void scale_parts(Py_ssize_t n, Py_ssize_t d, real* x, const double* factor) noexcept nogil:
    cdef Rows job
    job.n_parts = min(n, fs_pool_parts(<double> n * d * sizeof(real), LEAST))
    job.n, job.d, job.out, job.root = n, d, x, factor
    fs_pool_run(job.n_parts, <fs_part> scale_part[real], &job, NULL, 0)


cdef void centre_part(Rows* job, ptrdiff_t part, real* correction) noexcept nogil:
    cdef Py_ssize_t first = fs_pool_from(job.d, job.n_parts, part, 64)
    cdef Py_ssize_t d = fs_pool_from(job.d, job.n_parts, part + 1, 64) - first
    centre_rows(job.n, d, job.d, <real*> job.out + first, <real*> job.x + first, job.root, job.old_weight,
                job.block_weight, job.mean + first, job.low + first, job.base + first, job.shift + first)


cdef void centre_parts(Py_ssize_t n, Py_ssize_t d, real* x, real* correction, const double* root_weight,
                       double old_weight, double block_weight, double* mean, double* low, double* base,
                       double* shift) noexcept nogil:
    cdef Rows job
    job.n_parts = min(1 + d // 64, fs_pool_parts(<double> n * d * sizeof(real), LEAST))
    job.n, job.d, job.out, job.x, job.root = n, d, x, correction, root_weight
    job.old_weight, job.block_weight = old_weight, block_weight
    job.mean, job.low, job.base, job.shift = mean, low, base, shift
    fs_pool_run(job.n_parts, <fs_part> centre_part[real], &job, NULL, 0)


# Strips of a lower triangle, from the largest to the smallest, for threads that take the next one when they are done.
cdef void add_part(Rows* job, ptrdiff_t part, real* unused) noexcept nogil:
    cdef Py_ssize_t d = job.d, i, j
    cdef const real* column
    cdef double* to
    for j in range(first_row(job, part), first_row(job, part + 1)):
        column, to = <const real*> job.x + j * d, job.square + j * d
        for i in range(j, d):
            to[i] += <double> column[i]


cdef void add_lower_parts(Py_ssize_t d, const real* part, double* total) noexcept nogil:
    cdef Rows job
    job.n_parts = min(d, fs_pool_parts(0.5 * d * d * sizeof(double), LEAST))
    job.n, job.d, job.x, job.square = d, d, part, total
    fs_pool_run(job.n_parts, <fs_part> add_part[real], &job, NULL, 0)


cdef void scale_lower_part(void* context, ptrdiff_t part, void* unused) noexcept nogil:
    cdef Rows* job = <Rows*> context
    cdef Py_ssize_t d = job.d, i, j
    cdef double* column
    for j in range(first_row(job, part), first_row(job, part + 1)):
        column = job.square + j * d
        for i in range(j, d):
            column[i] *= job.scale


cdef void scale_lower(Py_ssize_t d, double* total, double factor) noexcept nogil:
    """Multiply a lower triangle (column-major, d x d) by a factor."""
    cdef Rows job
    job.n_parts = min(d, fs_pool_parts(0.5 * d * d * sizeof(double), LEAST))
    job.n, job.d, job.square, job.scale = d, d, total, factor
    fs_pool_run(job.n_parts, scale_lower_part, &job, NULL, 0)
