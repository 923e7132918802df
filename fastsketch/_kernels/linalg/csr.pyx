"""Check that CSR arrays can be read without bounds checks (csrc/fs_csr)."""

from libc.stddef cimport ptrdiff_t
from libc.stdint cimport int32_t, int64_t

from fastsketch._kernels.brief cimport is_brief
from fastsketch._kernels.level cimport follow


follow()


ORDERED, LOOSE = FS_CSR_ORDERED, FS_CSR_LOOSE
START, BACKWARD, END, INDEX = FS_CSR_START, FS_CSR_BACKWARD, FS_CSR_END, FS_CSR_INDEX


cdef tuple checked(const index[::1] indptr, const index[::1] indices, int64_t width):
    cdef Py_ssize_t n = indptr.shape[0] - 1, stored = indices.shape[0]
    cdef const index* places = &indices[0] if stored else NULL
    cdef ptrdiff_t where = 0
    cdef int status
    if n < 0:
        return FS_CSR_START, 0
    if is_brief(1, n + stored):
        status = check_csr(n, width, stored, &indptr[0], places, &where)
    else:
        with nogil:
            status = check_csr(n, width, stored, &indptr[0], places, &where)
    return status, where


def check_32(const int32_t[::1] indptr, const int32_t[::1] indices, int64_t width):
    """Return (status, where) of indptr (n + 1,) and indices below `width`.

    The status is ORDERED, LOOSE (valid, not ascending in each row), or a fault: START, END, BACKWARD in row `where`,
    INDEX in entry `where`.
    """
    return checked(indptr, indices, width)


def check_64(const int64_t[::1] indptr, const int64_t[::1] indices, int64_t width):
    """Return the same as ``check_32`` for 64-bit indices."""
    return checked(indptr, indices, width)
