# csrc/fs_block.h, by one name for float and double.

from libc.stddef cimport ptrdiff_t
from libc.stdint cimport uint32_t

from fastsketch._kernels.linalg.blas cimport real


cdef extern from "fs_block.h" nogil:
    enum:
        FS_BLOCK
    void fs_gram_block_s(ptrdiff_t m, const uint32_t *indptr, const uint32_t *indices, const float *a, const float *v,
                         float *u, float *w)
    void fs_gram_block_d(ptrdiff_t m, const uint32_t *indptr, const uint32_t *indices, const double *a,
                         const double *v, double *u, double *w)
    void fs_turn_block_s(ptrdiff_t n, const float *x, const float *t, float *out)
    void fs_turn_block_d(ptrdiff_t n, const double *x, const double *t, double *out)
    void fs_square_block_s(ptrdiff_t n, const float *x, double *gram)
    void fs_square_block_d(ptrdiff_t n, const double *x, double *gram)


cdef inline void block_of_products(ptrdiff_t m, const uint32_t* indptr, const uint32_t* indices, const real* a,
                                   const real* v, real* u, real* w) noexcept nogil:
    # u (m, 8) = a v;  w (n, 8) += a'u
    if real is float:
        fs_gram_block_s(m, indptr, indices, a, v, u, w)
    else:
        fs_gram_block_d(m, indptr, indices, a, v, u, w)


cdef inline void turn_block(ptrdiff_t n, const real* x, const real* t, real* out) noexcept nogil:
    # out = x t, (n, 8)
    if real is float:
        fs_turn_block_s(n, x, t, out)
    else:
        fs_turn_block_d(n, x, t, out)


cdef inline void square_block(ptrdiff_t n, const real* x, double* gram) noexcept nogil:
    # gram (8, 8) += x'x
    if real is float:
        fs_square_block_s(n, x, gram)
    else:
        fs_square_block_d(n, x, gram)
