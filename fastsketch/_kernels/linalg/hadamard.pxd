# csrc/fs_hadamard.h, where each function is explained.

from libc.stddef cimport ptrdiff_t
from libc.stdint cimport int32_t

from fastsketch._kernels.linalg.blas cimport real


cdef extern from "fs_hadamard.h" nogil:
    enum:
        FS_SRHT_STRIP_BYTES
    void fs_fwht_columns_s(ptrdiff_t m, ptrdiff_t d, ptrdiff_t ld, float *x)
    void fs_fwht_columns_d(ptrdiff_t m, ptrdiff_t d, ptrdiff_t ld, double *x)
    void fs_fwht_rows_s(ptrdiff_t n, ptrdiff_t m, ptrdiff_t ld, float *x)
    void fs_fwht_rows_d(ptrdiff_t n, ptrdiff_t m, ptrdiff_t ld, double *x)
    ptrdiff_t fs_srht_work_s(ptrdiff_t p)
    ptrdiff_t fs_srht_work_d(ptrdiff_t p)
    void fs_srht_block_s(ptrdiff_t p, ptrdiff_t d, ptrdiff_t ld, const float *x, const float *factor,
                         const double *root, const float *shift, double *sums, ptrdiff_t q, const int32_t *lo,
                         const float *flip, float *work, float *out, ptrdiff_t ld_out)
    void fs_srht_block_d(ptrdiff_t p, ptrdiff_t d, ptrdiff_t ld, const double *x, const double *factor,
                         const double *root, const double *shift, double *sums, ptrdiff_t q, const int32_t *lo,
                         const double *flip, double *work, double *out, ptrdiff_t ld_out)
    void fs_scatter_rows_s(ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, const float *x, const double *root,
                           const float *shift, double *sums, ptrdiff_t s, const int32_t *target, const float *value,
                           float *out, ptrdiff_t ld_out)
    void fs_scatter_rows_d(ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, const double *x, const double *root,
                           const double *shift, double *sums, ptrdiff_t s, const int32_t *target,
                           const double *value, double *out, ptrdiff_t ld_out)


cdef inline void transform_columns(ptrdiff_t m, ptrdiff_t d, ptrdiff_t ld, real* x) noexcept nogil:
    if real is float:
        fs_fwht_columns_s(m, d, ld, x)
    else:
        fs_fwht_columns_d(m, d, ld, x)


cdef inline void transform_rows(ptrdiff_t n, ptrdiff_t m, ptrdiff_t ld, real* x) noexcept nogil:
    if real is float:
        fs_fwht_rows_s(n, m, ld, x)
    else:
        fs_fwht_rows_d(n, m, ld, x)


cdef inline void srht_block(ptrdiff_t p, ptrdiff_t d, ptrdiff_t ld, const real* x, const real* factor,
                            const double* root, const real* shift, double* sums, ptrdiff_t q, const int32_t* lo,
                            const real* flip, real* work, real* out, ptrdiff_t ld_out) noexcept nogil:
    if real is float:
        fs_srht_block_s(p, d, ld, x, factor, root, shift, sums, q, lo, flip, work, out, ld_out)
    else:
        fs_srht_block_d(p, d, ld, x, factor, root, shift, sums, q, lo, flip, work, out, ld_out)


cdef inline void scatter_rows(ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, const real* x, const double* root,
                              const real* shift, double* sums, ptrdiff_t s, const int32_t* target, const real* value,
                              real* out, ptrdiff_t ld_out) noexcept nogil:
    if real is float:
        fs_scatter_rows_s(n, d, ld, x, root, shift, sums, s, target, value, out, ld_out)
    else:
        fs_scatter_rows_d(n, d, ld, x, root, shift, sums, s, target, value, out, ld_out)
