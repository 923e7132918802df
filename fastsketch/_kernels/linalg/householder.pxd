# csrc/fs_tridiag.h, where each loop is explained: one name for float and double.

from libc.stddef cimport ptrdiff_t

cdef extern from "fs_tridiag.h" nogil:
    int fs_tridiagonal_pays(ptrdiff_t n, size_t real)
    void tridiagonalise "fs_tridiagonalise"(ptrdiff_t n, void* a, void* d, void* e, void* tau, void* work)
