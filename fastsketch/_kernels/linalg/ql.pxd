# csrc/fs_ql.h, where it is explained: one name for float and double.

from libc.stddef cimport ptrdiff_t

cdef extern from "fs_ql.h" nogil:
    enum:
        FS_QL_MOST
    int fs_ql(ptrdiff_t n, const void* d, const void* e, double* values, void* z, ptrdiff_t ld)
