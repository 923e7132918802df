/* Products of CSR rows N (int64 indptr, int32 indices, no duplicates within a row) with the kept rows K of a sparse
 * sketch, which are stored feature by feature: z = K' (d x ldz), so that one nonzero touches one contiguous run of z.
 * Loops over the nonzeros alone are in fastsketch/_kernels/sketching/sparse_rows.pxd. */
#ifndef FS_SPARSE_H
#define FS_SPARSE_H
#include "fs_common.h"

#define fs_csr_times_z(n, k, ldz, indptr, indices, data, ...) \
    FS_TYPED(fs_csr_times_z, data)(n, k, ldz, indptr, indices, data, __VA_ARGS__)
#define fs_csr_settle(first, beyond, r, width, ldz, stop, row, value, ...) \
    FS_TYPED(fs_csr_settle, value)(first, beyond, r, width, ldz, stop, row, value, __VA_ARGS__)
#define fs_csr_gram_panel(n, d, width, indptr, indices, data, ...) \
    FS_TYPED(fs_csr_gram_panel, data)(n, d, width, indptr, indices, data, __VA_ARGS__)
#define fs_z_dot(d, k, ldz, z, ...) FS_TYPED(fs_z_dot, z)(d, k, ldz, z, __VA_ARGS__)
#define fs_z_rank_one(d, r, ldz, v, w, z) FS_TYPED(fs_z_rank_one, z)(d, r, ldz, v, w, z)

enum { FS_PANEL_COLUMNS = 16 }; /* of q and out of fs_csr_gram_panel: two lines of the cache for each feature */

#define FS_FILE "fs_sparse.h"
#include "fs_each_real.inc.h"

#elif defined(REAL)

/* out (n x k, leading dimension k) = N z[:, :k]. */
void TYPED(fs_csr_times_z)(ptrdiff_t n, ptrdiff_t k, ptrdiff_t ldz, const int64_t *indptr, const int32_t *indices,
                           const REAL *data, const REAL *z, REAL *out);

/* Features first .. beyond - 1 of new kept rows. N is given feature by feature: the entries of feature j end before
 * stop[j], and entry t is value[t] of row[t] (transpose_csr). Sets
 *   z[j, :r]     = turned[j - first, :] + (N' w)[j, :] - shift[j] along, or 0 where that is below `least`
 *   z[j, r:width] = 0
 * and adds z[j, c]^2 to square[c], in double. shift may be NULL. w (n x r) and turned are row-major, turned is
 * overwritten; sum: r entries of scratch. */
void TYPED(fs_csr_settle)(ptrdiff_t first, ptrdiff_t beyond, ptrdiff_t r, ptrdiff_t width, ptrdiff_t ldz,
                          const int32_t *stop, const int32_t *row, const REAL *value, const REAL *w,
                          const double *shift, const double *along, REAL least, REAL *turned, REAL *sum, REAL *z,
                          double *square);

/* out += N' z with z = diag(weight) (N q - 1 shift'), and sum += z' 1. q and out are (d x FS_PANEL_COLUMNS), shift and
 * sum have FS_PANEL_COLUMNS entries, and weight has n, or is NULL. Sums are in double, row after row. The entries of
 * `width` features at a time are multiplied, so that what they touch of q and out stays in the second cache. The
 * features of each row ascend, or width is d. at (n) and z (n x FS_PANEL_COLUMNS) are scratch. */
void TYPED(fs_csr_gram_panel)(ptrdiff_t n, ptrdiff_t d, ptrdiff_t width, const int64_t *indptr, const int32_t *indices,
                              const REAL *data, const double *weight, const double *shift, const double *q, int64_t *at,
                              double *z, double *sum, double *out);

/* out[c] = sum_j v[j] * z[j, c] for c < k, in double. */
void TYPED(fs_z_dot)(ptrdiff_t d, ptrdiff_t k, ptrdiff_t ldz, const REAL *z, const double *v, double *out);

/* z[j, :r] -= v[j] * w[:r] */
void TYPED(fs_z_rank_one)(ptrdiff_t d, ptrdiff_t r, ptrdiff_t ldz, const double *v, const double *w, REAL *z);

#endif
