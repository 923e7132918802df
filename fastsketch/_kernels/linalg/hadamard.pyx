"""Compute Walsh-Hadamard transforms in place."""

from fastsketch._kernels.linalg.blas cimport real
from fastsketch._kernels.level cimport follow
from fastsketch._kernels.pool cimport fs_part, fs_pool_from, fs_pool_parts, fs_pool_run, join


follow()
join()

cdef enum:
    LEAST_ENTRIES = 1 << 15  # smallest number of entries of a part: some tens of microseconds
    STRIP = 512              # bytes of neighbouring columns that stay in one part;
    LINE = 64                # a cache line, if there are few columns
    UPPER = 64               # blocks between which a long transform begins
    LONG = 1 << 18           # entries of a long transform


cdef struct Transform:
    Py_ssize_t n, m, ld, n_parts, cut
    void* x


cdef Py_ssize_t parts_of(double entries, Py_ssize_t n, Py_ssize_t cut) noexcept nogil:
    """Return the number of parts of n rows or columns that can be split at multiples of `cut`."""
    cdef Py_ssize_t parts = fs_pool_parts(entries, LEAST_ENTRIES), most = (n + cut - 1) // cut
    return 1 if parts < 4 else parts if parts < most else most


cdef void some_columns(void* context, ptrdiff_t part, real* unused) noexcept nogil:
    cdef Transform* c = <Transform*> context
    cdef Py_ssize_t j = fs_pool_from(c.n, c.n_parts, part, c.cut)
    transform_columns(c.m, fs_pool_from(c.n, c.n_parts, part + 1, c.cut) - j, c.ld, <real*> c.x + j)


cdef void some_rows(void* context, ptrdiff_t part, real* unused) noexcept nogil:
    cdef Transform* c = <Transform*> context
    cdef Py_ssize_t i = fs_pool_from(c.n, c.n_parts, part, 1)
    transform_rows(fs_pool_from(c.n, c.n_parts, part + 1, 1) - i, c.m, c.ld, <real*> c.x + i * c.ld)


cdef void some_blocks(void* context, ptrdiff_t part, real* unused) noexcept nogil:
    # some of the n = UPPER blocks of m rows of ld columns
    cdef Transform* c = <Transform*> context
    cdef Py_ssize_t i
    for i in range(fs_pool_from(c.n, c.n_parts, part, 1), fs_pool_from(c.n, c.n_parts, part + 1, 1)):
        transform_columns(c.m, c.ld, c.ld, <real*> c.x + i * c.m * c.ld)


cdef void all_columns(Py_ssize_t m, Py_ssize_t d, Py_ssize_t ld, real* x) noexcept nogil:
    """Set x = H_m x, along columns; a large x between UPPER blocks, then within each, to touch fewer pages."""
    cdef Transform c
    c.m, c.n, c.ld, c.x, c.cut = m, d, ld, x, STRIP // sizeof(real)
    if d < 8 * c.cut:
        c.cut = LINE // sizeof(real)
    c.n_parts = parts_of(<double> m * d, d, c.cut)
    if ld == d and m >= UPPER * 8 and <double> m * d >= LONG:
        # H_m = (H_UPPER (x) I)(I (x) H_{m / UPPER})
        all_columns(UPPER, m // UPPER * d, m // UPPER * d, x)
        c.m, c.n, c.ld = m // UPPER, UPPER, d
        c.n_parts = parts_of(<double> m * d, UPPER, 1)
        fs_pool_run(c.n_parts, <fs_part> some_blocks[real], &c, NULL, 0)
        return
    fs_pool_run(c.n_parts, <fs_part> some_columns[real], &c, NULL, 0)


def fwht_columns(real[:, :] x):
    """Set x = H @ x for 2^k rows with contiguous columns; H has entries +-1."""
    cdef Py_ssize_t m = x.shape[0], d = x.shape[1], ld = x.strides[0] // <Py_ssize_t> sizeof(real)
    if m == 0 or d == 0:
        return
    with nogil:
        all_columns(m, d, ld, &x[0, 0])


def fwht_rows(real[:, :] x):
    """Set x = x @ H for rows of 2^k contiguous elements."""
    cdef Py_ssize_t n = x.shape[0], m = x.shape[1], ld = x.strides[0] // <Py_ssize_t> sizeof(real), i
    cdef Transform c
    if n == 0 or m == 0:
        return
    with nogil:
        c.n, c.m, c.ld, c.x = n, m, ld, &x[0, 0]
        if n < 16 and m >= LONG:
            # H_m = (H_UPPER (x) I)(I (x) H_{m / UPPER}): row after row, each in parts
            for i in range(n):
                all_columns(UPPER, m // UPPER, m // UPPER, &x[i, 0])
                c.n, c.m, c.ld, c.x = UPPER, m // UPPER, m // UPPER, &x[i, 0]
                c.n_parts = parts_of(<double> m, UPPER, 1)
                fs_pool_run(c.n_parts, <fs_part> some_rows[real], &c, NULL, 0)
        else:
            c.n_parts = parts_of(<double> n * m, n, 1)
            fs_pool_run(c.n_parts, <fs_part> some_rows[real], &c, NULL, 0)
