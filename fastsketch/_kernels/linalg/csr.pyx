"""Whether CSR arrays can be read without a look at bounds (csrc/fs_csr)."""

from libc.stddef cimport ptrdiff_t
from libc.stdint cimport int32_t, int64_t

from fastsketch._kernels.level cimport follow


follow()


cdef extern from "fs_csr.h" nogil:
    int FS_CSR_ORDERED, FS_CSR_LOOSE, FS_CSR_START, FS_CSR_BACKWARD, FS_CSR_END, FS_CSR_INDEX
    int fs_check_csr_32(ptrdiff_t n, int64_t width, ptrdiff_t stored, const int32_t *indptr, const int32_t *indices,
                        ptrdiff_t *where)
    int fs_check_csr_64(ptrdiff_t n, int64_t width, ptrdiff_t stored, const int64_t *indptr, const int64_t *indices,
                        ptrdiff_t *where)


ORDERED, LOOSE = FS_CSR_ORDERED, FS_CSR_LOOSE
START, BACKWARD, END, INDEX = FS_CSR_START, FS_CSR_BACKWARD, FS_CSR_END, FS_CSR_INDEX


def check_32(const int32_t[::1] indptr, const int32_t[::1] indices, int64_t width):
    """(status, where) of indptr (n + 1,) and indices below `width`: ORDERED, LOOSE, or a fault in a row or an entry."""
    cdef Py_ssize_t n = indptr.shape[0] - 1, stored = indices.shape[0]
    cdef const int32_t* places = &indices[0] if stored else NULL
    cdef ptrdiff_t where = 0
    cdef int status
    if n < 0:
        return FS_CSR_START, 0
    with nogil:
        status = fs_check_csr_32(n, width, stored, &indptr[0], places, &where)
    return status, where


def check_64(const int64_t[::1] indptr, const int64_t[::1] indices, int64_t width):
    """As check_32."""
    cdef Py_ssize_t n = indptr.shape[0] - 1, stored = indices.shape[0]
    cdef const int64_t* places = &indices[0] if stored else NULL
    cdef ptrdiff_t where = 0
    cdef int status
    if n < 0:
        return FS_CSR_START, 0
    with nogil:
        status = fs_check_csr_64(n, width, stored, &indptr[0], places, &where)
    return status, where
