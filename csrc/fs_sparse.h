/* Loops over CSR rows (int64 indptr, int32 indices, no duplicates within a row).
 *
 * The kept rows K of a sparse sketch are stored feature-major, z = K' (d x ldz), so that one nonzero touches one
 * contiguous run of z. */
#ifndef FS_SPARSE_H
#define FS_SPARSE_H
#include "fs_common.h"

#define fs_scan_csr(n, indptr, data, largest) FS_TYPED(fs_scan_csr, data)(n, indptr, data, largest)
#define fs_load_csr(nnz, data, ...) FS_TYPED(fs_load_csr, data)(nnz, data, __VA_ARGS__)
#define fs_csr_pivots(n, n_chosen, indptr, indices, data, ...) \
    FS_TYPED(fs_csr_pivots, data)(n, n_chosen, indptr, indices, data, __VA_ARGS__)
#define fs_csr_fill(n, n_chosen, n_fill, indptr, indices, data, ...) \
    FS_TYPED(fs_csr_fill, data)(n, n_chosen, n_fill, indptr, indices, data, __VA_ARGS__)
#define fs_csr_weigh(n, indptr, indices, data, ...) FS_TYPED(fs_csr_weigh, data)(n, indptr, indices, data, __VA_ARGS__)
#define fs_csr_times_z(n, k, ldz, indptr, indices, data, ...) \
    FS_TYPED(fs_csr_times_z, data)(n, k, ldz, indptr, indices, data, __VA_ARGS__)
#define fs_csr_turn(n, d, indptr, indices, data, ...) \
    FS_TYPED(fs_csr_turn, data)(n, d, indptr, indices, data, __VA_ARGS__)
#define fs_csr_gram_row(n, i, indptr, indices, data, ...) \
    FS_TYPED(fs_csr_gram_row, data)(n, i, indptr, indices, data, __VA_ARGS__)
#define fs_csr_gram_before(i, indptr, indices, data, ...) \
    FS_TYPED(fs_csr_gram_before, data)(i, indptr, indices, data, __VA_ARGS__)
#define fs_csr_column_sums(first, beyond, stop, row, value, ...) \
    FS_TYPED(fs_csr_column_sums, value)(first, beyond, stop, row, value, __VA_ARGS__)
#define fs_csr_settle(first, beyond, r, width, ldz, stop, row, value, ...) \
    FS_TYPED(fs_csr_settle, value)(first, beyond, r, width, ldz, stop, row, value, __VA_ARGS__)
#define fs_csr_dot(n, indptr, indices, data, ...) FS_TYPED(fs_csr_dot, data)(n, indptr, indices, data, __VA_ARGS__)
#define fs_z_dot(d, k, ldz, z, ...) FS_TYPED(fs_z_dot, z)(d, k, ldz, z, __VA_ARGS__)
#define fs_z_rank_one(d, r, ldz, v, w, z) FS_TYPED(fs_z_rank_one, z)(d, r, ldz, v, w, z)

#define FS_FILE "fs_sparse.h"
#include "fs_each_real.inc.h"

#elif defined(REAL)

/* First row with a NaN or an infinity, or -1; *largest gets max |value| over the rows before it. */
ptrdiff_t TYPED(fs_scan_csr)(ptrdiff_t n, const int64_t *indptr, const REAL *data, double *largest);

/* out[i] = factor * data[i] for nnz entries of one row; returns the squared norm of out. */
double TYPED(fs_load_csr)(ptrdiff_t nnz, const REAL *data, double factor, REAL *out);

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
int64_t TYPED(fs_csr_pivots)(ptrdiff_t n, ptrdiff_t n_chosen, const int64_t *indptr, const int32_t *indices,
                             const REAL *data, const double *root_weight, const int32_t *chosen, const int32_t *slot,
                             double *present, double *pivot);
void TYPED(fs_csr_fill)(ptrdiff_t n, ptrdiff_t n_chosen, int64_t n_fill, int64_t *indptr, int32_t *indices, REAL *data,
                        const int32_t *chosen, const int32_t *slot, int32_t *stamp);
void TYPED(fs_csr_weigh)(ptrdiff_t n, const int64_t *indptr, const int32_t *indices, REAL *data,
                         const double *root_weight, const double *pivot);

/* out (n x k, leading dimension k) = N z[:, :k]. */
void TYPED(fs_csr_times_z)(ptrdiff_t n, ptrdiff_t k, ptrdiff_t ldz, const int64_t *indptr, const int32_t *indices,
                           const REAL *data, const REAL *z, REAL *out);

/* The same entries feature by feature, rows ascending in each: entry t of the feature that ends before stop[j] is
 * value[t] of row[t]; entry e of the rows is entry place[e] there. Fewer than 2^31 entries. */
void TYPED(fs_csr_turn)(ptrdiff_t n, ptrdiff_t d, const int64_t *indptr, const int32_t *indices, const REAL *data,
                        int32_t *stop, int32_t *row, REAL *value, int32_t *place);

/* gram[k] = N[i, :] . N[k, :] for i <= k < n, in double: every pair of entries of a feature is visited once. */
void TYPED(fs_csr_gram_row)(ptrdiff_t n, ptrdiff_t i, const int64_t *indptr, const int32_t *indices, const REAL *data,
                            const int32_t *stop, const int32_t *row, const REAL *value, const int32_t *place,
                            double *gram);

/* gram[k] = N[i, :] . N[k, :] for 0 <= k <= i, in double. */
void TYPED(fs_csr_gram_before)(ptrdiff_t i, const int64_t *indptr, const int32_t *indices, const REAL *data,
                               const int32_t *stop, const int32_t *row, const REAL *value, const int32_t *place,
                               double *gram);

/* out[j] = sum_i coefficient[i] * N[i, j] for first <= j < beyond. */
void TYPED(fs_csr_column_sums)(ptrdiff_t first, ptrdiff_t beyond, const int32_t *stop, const int32_t *row,
                               const REAL *value, const double *coefficient, double *out);

/* Features first .. beyond - 1 of new kept rows: z[j, :r] = turned[j - first, :] + (N' w)[j, :] - shift[j] * along (no
 * shift: NULL), or 0 where that is below `least`, z[j, r:width] = 0 and square[c] += z[j, c]^2, in double. w (n x r)
 * and turned are row-major, turned is used up; sum: r entries of scratch. */
void TYPED(fs_csr_settle)(ptrdiff_t first, ptrdiff_t beyond, ptrdiff_t r, ptrdiff_t width, ptrdiff_t ldz,
                          const int32_t *stop, const int32_t *row, const REAL *value, const REAL *w,
                          const double *shift, const double *along, REAL least, REAL *turned, REAL *sum, REAL *z,
                          double *square);

/* out[i] = N[i, :] . v */
void TYPED(fs_csr_dot)(ptrdiff_t n, const int64_t *indptr, const int32_t *indices, const REAL *data, const double *v,
                       double *out);

/* out[c] = sum_j v[j] * z[j, c] for c < k, in double. */
void TYPED(fs_z_dot)(ptrdiff_t d, ptrdiff_t k, ptrdiff_t ldz, const REAL *z, const double *v, double *out);

/* z[j, :r] -= v[j] * w[:r] */
void TYPED(fs_z_rank_one)(ptrdiff_t d, ptrdiff_t r, ptrdiff_t ldz, const double *v, const double *w, REAL *z);

#endif
