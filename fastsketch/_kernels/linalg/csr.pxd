# csrc/fs_csr.h, and one name for both widths of an index.

from libc.stddef cimport ptrdiff_t
from libc.stdint cimport int32_t, int64_t


cdef extern from "fs_csr.h" nogil:
    int FS_CSR_ORDERED, FS_CSR_LOOSE, FS_CSR_START, FS_CSR_BACKWARD, FS_CSR_END, FS_CSR_INDEX
    int fs_check_csr_32(ptrdiff_t n, int64_t width, ptrdiff_t stored, const int32_t *indptr, const int32_t *indices,
                        ptrdiff_t *where)
    int fs_check_csr_64(ptrdiff_t n, int64_t width, ptrdiff_t stored, const int64_t *indptr, const int64_t *indices,
                        ptrdiff_t *where)

ctypedef fused index:
    int32_t
    int64_t


cdef inline int check_csr(ptrdiff_t n, int64_t width, ptrdiff_t stored, const index* indptr, const index* indices,
                          ptrdiff_t* where) noexcept nogil:
    if index is int32_t:
        return fs_check_csr_32(n, width, stored, indptr, indices, where)
    else:
        return fs_check_csr_64(n, width, stored, indptr, indices, where)
