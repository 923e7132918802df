# csrc/fs_sparse.h, and one name for float and double of each of its loops.

from libc.stddef cimport ptrdiff_t
from libc.stdint cimport int32_t, int64_t

from fastsketch._kernels.linalg.blas cimport real


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
    void fs_csr_fill_d(ptrdiff_t n, ptrdiff_t n_chosen, int64_t n_fill, int64_t *indptr, int32_t *indices,
                       double *data, const int32_t *chosen, const int32_t *slot, int32_t *stamp)
    void fs_csr_weigh_s(ptrdiff_t n, const int64_t *indptr, const int32_t *indices, float *data,
                        const double *root_weight, const double *pivot)
    void fs_csr_weigh_d(ptrdiff_t n, const int64_t *indptr, const int32_t *indices, double *data,
                        const double *root_weight, const double *pivot)
    void fs_csr_times_z_s(ptrdiff_t n, ptrdiff_t k, ptrdiff_t ldz, const int64_t *indptr, const int32_t *indices,
                          const float *data, const float *z, float *out)
    void fs_csr_times_z_d(ptrdiff_t n, ptrdiff_t k, ptrdiff_t ldz, const int64_t *indptr, const int32_t *indices,
                          const double *data, const double *z, double *out)
    void fs_csr_turn_s(ptrdiff_t n, ptrdiff_t d, const int64_t *indptr, const int32_t *indices, const float *data,
                       int32_t *stop, int32_t *row, float *value, int32_t *place)
    void fs_csr_turn_d(ptrdiff_t n, ptrdiff_t d, const int64_t *indptr, const int32_t *indices, const double *data,
                       int32_t *stop, int32_t *row, double *value, int32_t *place)
    void fs_csr_gram_row_s(ptrdiff_t n, ptrdiff_t i, const int64_t *indptr, const int32_t *indices, const float *data,
                           const int32_t *stop, const int32_t *row, const float *value, const int32_t *place,
                           double *gram)
    void fs_csr_gram_row_d(ptrdiff_t n, ptrdiff_t i, const int64_t *indptr, const int32_t *indices, const double *data,
                           const int32_t *stop, const int32_t *row, const double *value, const int32_t *place,
                           double *gram)
    void fs_csr_gram_before_s(ptrdiff_t i, const int64_t *indptr, const int32_t *indices, const float *data,
                              const int32_t *stop, const int32_t *row, const float *value, const int32_t *place,
                              double *gram)
    void fs_csr_gram_before_d(ptrdiff_t i, const int64_t *indptr, const int32_t *indices, const double *data,
                              const int32_t *stop, const int32_t *row, const double *value, const int32_t *place,
                              double *gram)
    void fs_csr_column_sums_s(ptrdiff_t first, ptrdiff_t beyond, const int32_t *stop, const int32_t *row,
                              const float *value, const double *coefficient, double *out)
    void fs_csr_column_sums_d(ptrdiff_t first, ptrdiff_t beyond, const int32_t *stop, const int32_t *row,
                              const double *value, const double *coefficient, double *out)
    void fs_csr_settle_s(ptrdiff_t first, ptrdiff_t beyond, ptrdiff_t r, ptrdiff_t width, ptrdiff_t ldz,
                         const int32_t *stop, const int32_t *row, const float *value, const float *w,
                         const double *shift, const double *along, float *turned, float *sum, float *z, double *square)
    void fs_csr_settle_d(ptrdiff_t first, ptrdiff_t beyond, ptrdiff_t r, ptrdiff_t width, ptrdiff_t ldz,
                         const int32_t *stop, const int32_t *row, const double *value, const double *w,
                         const double *shift, const double *along, double *turned, double *sum, double *z,
                         double *square)
    void fs_csr_dot_s(ptrdiff_t n, const int64_t *indptr, const int32_t *indices, const float *data, const double *v,
                      double *out)
    void fs_csr_dot_d(ptrdiff_t n, const int64_t *indptr, const int32_t *indices, const double *data, const double *v,
                      double *out)
    void fs_z_dot_s(ptrdiff_t d, ptrdiff_t k, ptrdiff_t ldz, const float *z, const double *v, double *out)
    void fs_z_dot_d(ptrdiff_t d, ptrdiff_t k, ptrdiff_t ldz, const double *z, const double *v, double *out)
    void fs_z_rank_one_s(ptrdiff_t d, ptrdiff_t r, ptrdiff_t ldz, const double *v, const double *w, float *z)
    void fs_z_rank_one_d(ptrdiff_t d, ptrdiff_t r, ptrdiff_t ldz, const double *v, const double *w, double *z)


cdef inline ptrdiff_t scan_csr(ptrdiff_t n, const int64_t* indptr, const real* data, double* largest) noexcept nogil:
    if real is float:
        return fs_scan_csr_s(n, indptr, data, largest)
    else:
        return fs_scan_csr_d(n, indptr, data, largest)


cdef inline double load_csr(ptrdiff_t nnz, const real* data, double factor, real* out) noexcept nogil:
    if real is float:
        return fs_load_csr_s(nnz, data, factor, out)
    else:
        return fs_load_csr_d(nnz, data, factor, out)


cdef inline int64_t csr_pivots(ptrdiff_t n, ptrdiff_t n_chosen, const int64_t* indptr, const int32_t* indices,
                               const real* data, const double* root_weight, const int32_t* chosen, const int32_t* slot,
                               double* present, double* pivot) noexcept nogil:
    if real is float:
        return fs_csr_pivots_s(n, n_chosen, indptr, indices, data, root_weight, chosen, slot, present, pivot)
    else:
        return fs_csr_pivots_d(n, n_chosen, indptr, indices, data, root_weight, chosen, slot, present, pivot)


cdef inline void csr_fill(ptrdiff_t n, ptrdiff_t n_chosen, int64_t n_fill, int64_t* indptr, int32_t* indices,
                          real* data, const int32_t* chosen, const int32_t* slot, int32_t* stamp) noexcept nogil:
    if real is float:
        fs_csr_fill_s(n, n_chosen, n_fill, indptr, indices, data, chosen, slot, stamp)
    else:
        fs_csr_fill_d(n, n_chosen, n_fill, indptr, indices, data, chosen, slot, stamp)


cdef inline void csr_weigh(ptrdiff_t n, const int64_t* indptr, const int32_t* indices, real* data,
                           const double* root_weight, const double* pivot) noexcept nogil:
    if real is float:
        fs_csr_weigh_s(n, indptr, indices, data, root_weight, pivot)
    else:
        fs_csr_weigh_d(n, indptr, indices, data, root_weight, pivot)


cdef inline void csr_times_z(ptrdiff_t n, ptrdiff_t k, ptrdiff_t ldz, const int64_t* indptr, const int32_t* indices,
                             const real* data, const real* z, real* out) noexcept nogil:
    if real is float:
        fs_csr_times_z_s(n, k, ldz, indptr, indices, data, z, out)
    else:
        fs_csr_times_z_d(n, k, ldz, indptr, indices, data, z, out)


cdef inline void csr_turn(ptrdiff_t n, ptrdiff_t d, const int64_t* indptr, const int32_t* indices, const real* data,
                          int32_t* stop, int32_t* row, real* value, int32_t* place) noexcept nogil:
    if real is float:
        fs_csr_turn_s(n, d, indptr, indices, data, stop, row, value, place)
    else:
        fs_csr_turn_d(n, d, indptr, indices, data, stop, row, value, place)


cdef inline void csr_gram_row(ptrdiff_t n, ptrdiff_t i, const int64_t* indptr, const int32_t* indices,
                              const real* data, const int32_t* stop, const int32_t* row, const real* value,
                              const int32_t* place, double* gram) noexcept nogil:
    if real is float:
        fs_csr_gram_row_s(n, i, indptr, indices, data, stop, row, value, place, gram)
    else:
        fs_csr_gram_row_d(n, i, indptr, indices, data, stop, row, value, place, gram)


cdef inline void csr_gram_before(ptrdiff_t i, const int64_t* indptr, const int32_t* indices, const real* data,
                                 const int32_t* stop, const int32_t* row, const real* value, const int32_t* place,
                                 double* gram) noexcept nogil:
    if real is float:
        fs_csr_gram_before_s(i, indptr, indices, data, stop, row, value, place, gram)
    else:
        fs_csr_gram_before_d(i, indptr, indices, data, stop, row, value, place, gram)


cdef inline void csr_column_sums(ptrdiff_t first, ptrdiff_t beyond, const int32_t* stop, const int32_t* row,
                                 const real* value, const double* coefficient, double* out) noexcept nogil:
    if real is float:
        fs_csr_column_sums_s(first, beyond, stop, row, value, coefficient, out)
    else:
        fs_csr_column_sums_d(first, beyond, stop, row, value, coefficient, out)


cdef inline void csr_settle(ptrdiff_t first, ptrdiff_t beyond, ptrdiff_t r, ptrdiff_t width, ptrdiff_t ldz,
                            const int32_t* stop, const int32_t* row, const real* value, const real* w,
                            const double* shift, const double* along, real* turned, real* sum, real* z,
                            double* square) noexcept nogil:
    if real is float:
        fs_csr_settle_s(first, beyond, r, width, ldz, stop, row, value, w, shift, along, turned, sum, z, square)
    else:
        fs_csr_settle_d(first, beyond, r, width, ldz, stop, row, value, w, shift, along, turned, sum, z, square)


cdef inline void csr_dot(ptrdiff_t n, const int64_t* indptr, const int32_t* indices, const real* data, const double* v,
                         double* out) noexcept nogil:
    if real is float:
        fs_csr_dot_s(n, indptr, indices, data, v, out)
    else:
        fs_csr_dot_d(n, indptr, indices, data, v, out)


cdef inline void z_dot(ptrdiff_t d, ptrdiff_t k, ptrdiff_t ldz, const real* z, const double* v,
                       double* out) noexcept nogil:
    if real is float:
        fs_z_dot_s(d, k, ldz, z, v, out)
    else:
        fs_z_dot_d(d, k, ldz, z, v, out)


cdef inline void z_rank_one(ptrdiff_t d, ptrdiff_t r, ptrdiff_t ldz, const double* v, const double* w,
                            real* z) noexcept nogil:
    if real is float:
        fs_z_rank_one_s(d, r, ldz, v, w, z)
    else:
        fs_z_rank_one_d(d, r, ldz, v, w, z)
