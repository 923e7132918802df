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

/* Before a block of CSR rows, which come as they are, is centred by linearity: a feature that most of the block's
 * weight has is moved by a pivot, its value in the heaviest row that has it. What remains of it is about as large as
 * its spread; and the square of a feature that at least half of the weight lacks is at most twice its spread. Without
 * it, the difference of two sums would lose what the mean is larger than the spread.
 *
 * fs_csr_common: present[j] = weight of the rows that have feature j (given as root weights); chosen gets the features
 * whose is above half of total, and slot[j] (all 0 on entry) 1 + the place of j in it. Returns how many there are.
 * fs_csr_pivots: pivot[j] of the chosen ones (the others stay); present is used up. Returns how many entries they have.
 * fs_csr_fill: rows get zeros in the chosen features that they lack, n_fill together, at the end; the arrays have room
 * for them. stamp: n_chosen entries of scratch.
 * fs_csr_weigh: data = root_weight[i] (data - pivot[j]), rounded once. */
ptrdiff_t fs_csr_common(ptrdiff_t n, ptrdiff_t d, const int64_t *indptr, const int32_t *indices,
                        const double *root_weight, double total, double *present, int32_t *chosen, int32_t *slot);
int64_t fs_csr_pivots_s(ptrdiff_t n, ptrdiff_t n_chosen, const int64_t *indptr, const int32_t *indices,
                        const float *data, const double *root_weight, const int32_t *chosen, const int32_t *slot,
                        double *present, double *pivot);
int64_t fs_csr_pivots_d(ptrdiff_t n, ptrdiff_t n_chosen, const int64_t *indptr, const int32_t *indices,
                        const double *data, const double *root_weight, const int32_t *chosen, const int32_t *slot,
                        double *present, double *pivot);
void fs_csr_fill_s(ptrdiff_t n, ptrdiff_t n_chosen, int64_t n_fill, int64_t *indptr, int32_t *indices, float *data,
                   const int32_t *chosen, const int32_t *slot, int32_t *stamp);
void fs_csr_fill_d(ptrdiff_t n, ptrdiff_t n_chosen, int64_t n_fill, int64_t *indptr, int32_t *indices, double *data,
                   const int32_t *chosen, const int32_t *slot, int32_t *stamp);
void fs_csr_weigh_s(ptrdiff_t n, const int64_t *indptr, const int32_t *indices, float *data, const double *root_weight,
                    const double *pivot);
void fs_csr_weigh_d(ptrdiff_t n, const int64_t *indptr, const int32_t *indices, double *data, const double *root_weight,
                    const double *pivot);

/* out (n x k, leading dimension k) = N z[:, :k]. */
void fs_csr_times_z_s(ptrdiff_t n, ptrdiff_t k, ptrdiff_t ldz, const int64_t *indptr, const int32_t *indices,
                      const float *data, const float *z, float *out);
void fs_csr_times_z_d(ptrdiff_t n, ptrdiff_t k, ptrdiff_t ldz, const int64_t *indptr, const int32_t *indices,
                      const double *data, const double *z, double *out);

/* The same entries feature by feature, rows ascending in each: entry t of the feature that ends before stop[j] is
 * value[t] of row[t]; entry e of the rows is entry place[e] there. Fewer than 2^31 entries. */
void fs_csr_turn_s(ptrdiff_t n, ptrdiff_t d, const int64_t *indptr, const int32_t *indices, const float *data,
                   int32_t *stop, int32_t *row, float *value, int32_t *place);
void fs_csr_turn_d(ptrdiff_t n, ptrdiff_t d, const int64_t *indptr, const int32_t *indices, const double *data,
                   int32_t *stop, int32_t *row, double *value, int32_t *place);

/* gram[k] = N[i, :] . N[k, :] for i <= k < n, in double: every pair of entries of a feature is visited once. */
void fs_csr_gram_row_s(ptrdiff_t n, ptrdiff_t i, const int64_t *indptr, const int32_t *indices, const float *data,
                       const int32_t *stop, const int32_t *row, const float *value, const int32_t *place, double *gram);
void fs_csr_gram_row_d(ptrdiff_t n, ptrdiff_t i, const int64_t *indptr, const int32_t *indices, const double *data,
                       const int32_t *stop, const int32_t *row, const double *value, const int32_t *place,
                       double *gram);

/* gram[k] = N[i, :] . N[k, :] for 0 <= k <= i, in double. */
void fs_csr_gram_before_s(ptrdiff_t i, const int64_t *indptr, const int32_t *indices, const float *data,
                          const int32_t *stop, const int32_t *row, const float *value, const int32_t *place,
                          double *gram);
void fs_csr_gram_before_d(ptrdiff_t i, const int64_t *indptr, const int32_t *indices, const double *data,
                          const int32_t *stop, const int32_t *row, const double *value, const int32_t *place,
                          double *gram);

/* out[j] = sum_i coefficient[i] * N[i, j] for first <= j < beyond. */
void fs_csr_column_sums_s(ptrdiff_t first, ptrdiff_t beyond, const int32_t *stop, const int32_t *row,
                          const float *value, const double *coefficient, double *out);
void fs_csr_column_sums_d(ptrdiff_t first, ptrdiff_t beyond, const int32_t *stop, const int32_t *row,
                          const double *value, const double *coefficient, double *out);

/* Features first .. beyond - 1 of new kept rows: z[j, :r] = turned[j - first, :] + (N' w)[j, :] - shift[j] * along (no
 * shift: NULL), z[j, r:width] = 0 and square[c] += z[j, c]^2, in double. w (n x r) and turned are row-major, turned is
 * used up; sum: r entries of scratch. */
void fs_csr_settle_s(ptrdiff_t first, ptrdiff_t beyond, ptrdiff_t r, ptrdiff_t width, ptrdiff_t ldz,
                     const int32_t *stop, const int32_t *row, const float *value, const float *w, const double *shift,
                     const double *along, float *turned, float *sum, float *z, double *square);
void fs_csr_settle_d(ptrdiff_t first, ptrdiff_t beyond, ptrdiff_t r, ptrdiff_t width, ptrdiff_t ldz,
                     const int32_t *stop, const int32_t *row, const double *value, const double *w, const double *shift,
                     const double *along, double *turned, double *sum, double *z, double *square);

/* out[i] = N[i, :] . v */
void fs_csr_dot_s(ptrdiff_t n, const int64_t *indptr, const int32_t *indices, const float *data, const double *v,
                  double *out);
void fs_csr_dot_d(ptrdiff_t n, const int64_t *indptr, const int32_t *indices, const double *data, const double *v,
                  double *out);

/* out[c] = sum_j v[j] * z[j, c] for c < k, in double. */
void fs_z_dot_s(ptrdiff_t d, ptrdiff_t k, ptrdiff_t ldz, const float *z, const double *v, double *out);
void fs_z_dot_d(ptrdiff_t d, ptrdiff_t k, ptrdiff_t ldz, const double *z, const double *v, double *out);

/* z[j, :r] -= v[j] * w[:r] */
void fs_z_rank_one_s(ptrdiff_t d, ptrdiff_t r, ptrdiff_t ldz, const double *v, const double *w, float *z);
void fs_z_rank_one_d(ptrdiff_t d, ptrdiff_t r, ptrdiff_t ldz, const double *v, const double *w, double *z);

#endif
