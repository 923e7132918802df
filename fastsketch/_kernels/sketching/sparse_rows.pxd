# csrc/fs_sparse.h, and one name for float and double of each of its loops.

from libc.stddef cimport ptrdiff_t
from libc.stdint cimport int32_t, int64_t

cdef extern from "fs_sparse.h" nogil:
    ptrdiff_t scan_csr "fs_scan_csr"(ptrdiff_t n, const int64_t* indptr, const void* data, double* largest)
    double load_csr "fs_load_csr"(ptrdiff_t nnz, const void* data, double factor, void* out)
    ptrdiff_t fs_csr_common(ptrdiff_t n, ptrdiff_t d, const int64_t *indptr, const int32_t *indices,
                            const double *root_weight, double total, double *present, int32_t *chosen, int32_t *slot)
    int64_t csr_pivots "fs_csr_pivots"(ptrdiff_t n, ptrdiff_t n_chosen, const int64_t* indptr, const int32_t* indices,
                                       const void* data, const double* root_weight, const int32_t* chosen,
                                       const int32_t* slot, double* present, double* pivot)
    void csr_fill "fs_csr_fill"(ptrdiff_t n, ptrdiff_t n_chosen, int64_t n_fill, int64_t* indptr, int32_t* indices,
                                void* data, const int32_t* chosen, const int32_t* slot, int32_t* stamp)
    void csr_weigh "fs_csr_weigh"(ptrdiff_t n, const int64_t* indptr, const int32_t* indices, void* data,
                                  const double* root_weight, const double* pivot)
    void csr_times_z "fs_csr_times_z"(ptrdiff_t n, ptrdiff_t k, ptrdiff_t ldz, const int64_t* indptr,
                                      const int32_t* indices, const void* data, const void* z, void* out)
    void csr_turn "fs_csr_turn"(ptrdiff_t n, ptrdiff_t d, const int64_t* indptr, const int32_t* indices,
                                const void* data, int32_t* stop, int32_t* row, void* value, int32_t* place)
    void csr_gram_row "fs_csr_gram_row"(ptrdiff_t n, ptrdiff_t i, const int64_t* indptr, const int32_t* indices,
                                        const void* data, const int32_t* stop, const int32_t* row, const void* value,
                                        const int32_t* place, double* gram)
    void csr_gram_before "fs_csr_gram_before"(ptrdiff_t i, const int64_t* indptr, const int32_t* indices,
                                              const void* data, const int32_t* stop, const int32_t* row,
                                              const void* value, const int32_t* place, double* gram)
    void csr_column_sums "fs_csr_column_sums"(ptrdiff_t first, ptrdiff_t beyond, const int32_t* stop,
                                              const int32_t* row, const void* value, const double* coefficient,
                                              double* out)
    void csr_settle "fs_csr_settle"(ptrdiff_t first, ptrdiff_t beyond, ptrdiff_t r, ptrdiff_t width, ptrdiff_t ldz,
                                    const int32_t* stop, const int32_t* row, const void* value, const void* w,
                                    const double* shift, const double* along, double least, void* turned, void* sum,
                                    void* z, double* square)
    void csr_dot "fs_csr_dot"(ptrdiff_t n, const int64_t* indptr, const int32_t* indices, const void* data,
                              const double* v, double* out)
    void z_dot "fs_z_dot"(ptrdiff_t d, ptrdiff_t k, ptrdiff_t ldz, const void* z, const double* v, double* out)
    void z_rank_one "fs_z_rank_one"(ptrdiff_t d, ptrdiff_t r, ptrdiff_t ldz, const double* v, const double* w, void* z)
