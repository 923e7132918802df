# csrc/fs_secular.h, where each function is explained: one name for float and double.

from libc.stddef cimport ptrdiff_t
from libc.stdint cimport int32_t

cdef extern from "fs_secular.h" nogil:
    enum:
        FS_ROOTS  # d and z of fs_secular_roots must be readable up to the next multiple of it
    ptrdiff_t fs_secular_deflate(ptrdiff_t n, ptrdiff_t n1, double rho, double eps, double *d, double *z,
                                 const int32_t *order, int32_t *keep, int32_t *type, int32_t *pair, double *turn,
                                 ptrdiff_t *n_turns)
    void fs_secular_roots(ptrdiff_t k, ptrdiff_t first, ptrdiff_t stop, const double *d, const double *z, double rho,
                          int32_t *origin, double *tau)
    void fs_secular_weights(ptrdiff_t k, ptrdiff_t first, ptrdiff_t stop, const double *d, const int32_t *origin,
                            const double *tau, double *z)
    void secular_vectors "fs_secular_vectors"(ptrdiff_t k, ptrdiff_t first, ptrdiff_t count, const double* d,
                                              const int32_t* origin, const double* tau, const double* z,
                                              const int32_t* place, double* v, void* s)
