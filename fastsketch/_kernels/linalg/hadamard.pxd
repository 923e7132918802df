# csrc/fs_hadamard.h, where each function is explained.

from libc.stddef cimport ptrdiff_t
from libc.stdint cimport int32_t

cdef extern from "fs_hadamard.h" nogil:
    enum:
        FS_SRHT_STRIP_BYTES
    void transform_columns "fs_fwht_columns"(ptrdiff_t m, ptrdiff_t d, ptrdiff_t ld, void* x)
    void transform_rows "fs_fwht_rows"(ptrdiff_t n, ptrdiff_t m, ptrdiff_t ld, void* x)
    ptrdiff_t fs_srht_work_s(ptrdiff_t p)
    ptrdiff_t fs_srht_work_d(ptrdiff_t p)
    void srht_block "fs_srht_block"(ptrdiff_t p, ptrdiff_t d, ptrdiff_t ld, const void* x, const void* factor,
                                    const double* root, const void* shift, double* sums, ptrdiff_t q, const int32_t* lo,
                                    const void* flip, void* work, void* out, ptrdiff_t ld_out)
    void scatter_rows "fs_scatter_rows"(ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, const void* x, const double* root,
                                        const void* shift, double* sums, ptrdiff_t s, const int32_t* target,
                                        const void* value, void* out, ptrdiff_t ld_out)
