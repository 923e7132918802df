# csrc/fs_block.h, by one name for float and double.

from libc.stddef cimport ptrdiff_t
from libc.stdint cimport uint32_t

cdef extern from "fs_block.h" nogil:
    enum:
        FS_BLOCK
    void block_of_products "fs_gram_block"(ptrdiff_t m, const uint32_t* indptr, const uint32_t* indices, const void* a,
                                           const void* v, void* u, void* w)
    void turn_block "fs_turn_block"(ptrdiff_t n, const void* x, const void* t, void* out)
    void square_block "fs_square_block"(ptrdiff_t n, const void* x, double* gram)
