/* Loops over CSR rows (int64 indptr, int32 indices, no duplicates within a row).
 *
 * The kept rows K of a sparse sketch are stored feature-major, z = K' (d x ldz), so that one nonzero touches one
 * contiguous run of z. */
#ifndef FS_SPARSE_H
#define FS_SPARSE_H
#include "fs_common.h"

/* First row with a NaN or an infinity, or -1; *largest gets max |value| over the rows before it. */
ptrdiff_t fs_scan_csr_s(ptrdiff_t n, const int64_t *indptr, const float *data, double *largest);
ptrdiff_t fs_scan_csr_d(ptrdiff_t n, const int64_t *indptr, const double *data, double *largest);

/* out[i] = factor * data[i] for nnz entries of one row; returns the squared norm of out. */
double fs_load_csr_s(ptrdiff_t nnz, const float *data, double factor, float *out);
double fs_load_csr_d(ptrdiff_t nnz, const double *data, double factor, double *out);

/* out (n x k, leading dimension k) = N z[:, :k]. */
void fs_csr_times_z_s(ptrdiff_t n, ptrdiff_t k, ptrdiff_t ldz, const int64_t *indptr, const int32_t *indices,
                      const float *data, const float *z, float *out);
void fs_csr_times_z_d(ptrdiff_t n, ptrdiff_t k, ptrdiff_t ldz, const int64_t *indptr, const int32_t *indices,
                      const double *data, const double *z, double *out);

/* Lower triangle of gram (n x n, row i column k at gram[i * n + k], k <= i) = N N', summed in double.
 * head: d entries, all 0 on entry and on return; next and owner: nnz entries of scratch. */
void fs_csr_gram_s(ptrdiff_t n, const int64_t *indptr, const int32_t *indices, const float *data, int32_t *head,
                   int32_t *next, int32_t *owner, double *gram);
void fs_csr_gram_d(ptrdiff_t n, const int64_t *indptr, const int32_t *indices, const double *data, int32_t *head,
                   int32_t *next, int32_t *owner, double *gram);

/* z[:, :r] += N' w, with w (n x r, row-major). */
void fs_csr_add_to_z_s(ptrdiff_t n, ptrdiff_t r, ptrdiff_t ldz, const int64_t *indptr, const int32_t *indices,
                       const float *data, const float *w, float *z);
void fs_csr_add_to_z_d(ptrdiff_t n, ptrdiff_t r, ptrdiff_t ldz, const int64_t *indptr, const int32_t *indices,
                       const double *data, const double *w, double *z);

/* mean[:] += sum_i coefficient[i] * N[i, :]   and   out[i] = N[i, :] . v */
void fs_csr_weighted_sum_s(ptrdiff_t n, const int64_t *indptr, const int32_t *indices, const float *data,
                           const double *coefficient, double *mean);
void fs_csr_weighted_sum_d(ptrdiff_t n, const int64_t *indptr, const int32_t *indices, const double *data,
                           const double *coefficient, double *mean);
void fs_csr_dot_s(ptrdiff_t n, const int64_t *indptr, const int32_t *indices, const float *data, const double *v,
                  double *out);
void fs_csr_dot_d(ptrdiff_t n, const int64_t *indptr, const int32_t *indices, const double *data, const double *v,
                  double *out);

/* out[c] = sum_j v[j] * z[j, c] for c < k, in double. */
void fs_z_dot_s(ptrdiff_t d, ptrdiff_t k, ptrdiff_t ldz, const float *z, const double *v, double *out);
void fs_z_dot_d(ptrdiff_t d, ptrdiff_t k, ptrdiff_t ldz, const double *z, const double *v, double *out);

/* out[c] = sum_j z[j, c]^2 for c < k, in double. */
void fs_z_square_s(ptrdiff_t d, ptrdiff_t k, ptrdiff_t ldz, const float *z, double *out);
void fs_z_square_d(ptrdiff_t d, ptrdiff_t k, ptrdiff_t ldz, const double *z, double *out);

/* z[j, :r] -= v[j] * w[:r] */
void fs_z_rank_one_s(ptrdiff_t d, ptrdiff_t r, ptrdiff_t ldz, const double *v, const double *w, float *z);
void fs_z_rank_one_d(ptrdiff_t d, ptrdiff_t r, ptrdiff_t ldz, const double *v, const double *w, double *z);

#endif
