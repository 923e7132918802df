# csrc/fs_sparse.h.

from libc.stddef cimport ptrdiff_t
from libc.stdint cimport int32_t, int64_t


cdef extern from "fs_sparse.h" nogil:
    ptrdiff_t fs_scan_csr_s(ptrdiff_t n, const int64_t *indptr, const float *data, double *largest)
    ptrdiff_t fs_scan_csr_d(ptrdiff_t n, const int64_t *indptr, const double *data, double *largest)
    double fs_load_csr_s(ptrdiff_t nnz, const float *data, double factor, float *out)
    double fs_load_csr_d(ptrdiff_t nnz, const double *data, double factor, double *out)
    ptrdiff_t fs_csr_common(ptrdiff_t n, ptrdiff_t d, const int64_t *indptr, const int32_t *indices,
                            const double *root_weight, double total, double *present, int32_t *chosen, int32_t *slot)
    int64_t fs_csr_pivots_s(ptrdiff_t n, ptrdiff_t n_chosen, const int64_t *indptr, const int32_t *indices,
                            const float *data, const double *root_weight, const int32_t *chosen, const int32_t *slot,
                            double *present, double *pivot)
    int64_t fs_csr_pivots_d(ptrdiff_t n, ptrdiff_t n_chosen, const int64_t *indptr, const int32_t *indices,
                            const double *data, const double *root_weight, const int32_t *chosen, const int32_t *slot,
                            double *present, double *pivot)
    void fs_csr_fill_s(ptrdiff_t n, ptrdiff_t n_chosen, int64_t n_fill, int64_t *indptr, int32_t *indices, float *data,
                       const int32_t *chosen, const int32_t *slot, int32_t *stamp)
    void fs_csr_fill_d(ptrdiff_t n, ptrdiff_t n_chosen, int64_t n_fill, int64_t *indptr, int32_t *indices, double *data,
                       const int32_t *chosen, const int32_t *slot, int32_t *stamp)
    void fs_csr_weigh_s(ptrdiff_t n, const int64_t *indptr, const int32_t *indices, float *data,
                        const double *root_weight, const double *pivot)
    void fs_csr_weigh_d(ptrdiff_t n, const int64_t *indptr, const int32_t *indices, double *data,
                        const double *root_weight, const double *pivot)
    void fs_csr_times_z_s(ptrdiff_t n, ptrdiff_t k, ptrdiff_t ldz, const int64_t *indptr, const int32_t *indices,
                          const float *data, const float *z, float *out)
    void fs_csr_times_z_d(ptrdiff_t n, ptrdiff_t k, ptrdiff_t ldz, const int64_t *indptr, const int32_t *indices,
                          const double *data, const double *z, double *out)
    void fs_csr_gram_s(ptrdiff_t n, const int64_t *indptr, const int32_t *indices, const float *data,
                       int32_t *head, int32_t *next, int32_t *owner, double *gram)
    void fs_csr_gram_d(ptrdiff_t n, const int64_t *indptr, const int32_t *indices, const double *data,
                       int32_t *head, int32_t *next, int32_t *owner, double *gram)
    void fs_csr_add_to_z_s(ptrdiff_t n, ptrdiff_t r, ptrdiff_t ldz, const int64_t *indptr, const int32_t *indices,
                           const float *data, const float *w, float *z)
    void fs_csr_add_to_z_d(ptrdiff_t n, ptrdiff_t r, ptrdiff_t ldz, const int64_t *indptr, const int32_t *indices,
                           const double *data, const double *w, double *z)
    void fs_csr_weighted_sum_s(ptrdiff_t n, const int64_t *indptr, const int32_t *indices, const float *data,
                               const double *coefficient, double *mean)
    void fs_csr_weighted_sum_d(ptrdiff_t n, const int64_t *indptr, const int32_t *indices, const double *data,
                               const double *coefficient, double *mean)
    void fs_csr_dot_s(ptrdiff_t n, const int64_t *indptr, const int32_t *indices, const float *data,
                      const double *v, double *out)
    void fs_csr_dot_d(ptrdiff_t n, const int64_t *indptr, const int32_t *indices, const double *data,
                      const double *v, double *out)
    void fs_z_dot_s(ptrdiff_t d, ptrdiff_t k, ptrdiff_t ldz, const float *z, const double *v, double *out)
    void fs_z_dot_d(ptrdiff_t d, ptrdiff_t k, ptrdiff_t ldz, const double *z, const double *v, double *out)
    void fs_z_square_s(ptrdiff_t d, ptrdiff_t k, ptrdiff_t ldz, const float *z, double *out)
    void fs_z_square_d(ptrdiff_t d, ptrdiff_t k, ptrdiff_t ldz, const double *z, double *out)
    void fs_z_rank_one_s(ptrdiff_t d, ptrdiff_t r, ptrdiff_t ldz, const double *v, const double *w, float *z)
    void fs_z_rank_one_d(ptrdiff_t d, ptrdiff_t r, ptrdiff_t ldz, const double *v, const double *w, double *z)
