/* Walsh-Hadamard transforms in place, and the subsampled randomized one (SRHT) of a block of rows. */
#ifndef FS_HADAMARD_H
#define FS_HADAMARD_H
#include "fs_common.h"

/* x = H_m x for an m x d matrix in C order with rows ld apart: butterflies between rows.  m is a power of two,
 * H_m has entries +-1 (not normalised). */
void fs_fwht_columns_s(ptrdiff_t m, ptrdiff_t d, ptrdiff_t ld, float *x);
void fs_fwht_columns_d(ptrdiff_t m, ptrdiff_t d, ptrdiff_t ld, double *x);

/* x[i, :] = H_m x[i, :] for n rows of m contiguous elements, ld apart. */
void fs_fwht_rows_s(ptrdiff_t n, ptrdiff_t m, ptrdiff_t ld, float *x);
void fs_fwht_rows_d(ptrdiff_t n, ptrdiff_t m, ptrdiff_t ld, double *x);

/* Bytes of a row that are in the caches at a time. */
enum { FS_SRHT_STRIP_BYTES = 1024 };

/* Elements of `work` that fs_srht_block needs. */
ptrdiff_t fs_srht_work_s(ptrdiff_t p);
ptrdiff_t fs_srht_work_d(ptrdiff_t p);

/* One step of p rows (a power of two, at least 8) of the transform of a longer block, H_m = H_{m/p} (x) H_p:
 *   z = H_p diag(factor) (x - 1 shift')
 *   out[k, :] += flip[k] z[lo[k], :]          for k < q, flip[k] = +-1
 *   sums      += sum_i root[i] (x[i, :] - shift)   (root NULL: ones; summed in double, eight rows at a time)
 * shift NULL: zero.  sums NULL: not wanted.  out has q rows, ld_out apart.  A column of the result depends on that
 * column alone, and so do its bits: columns may be cut into parts, best of FS_SRHT_STRIP_BYTES. */
void fs_srht_block_s(ptrdiff_t p, ptrdiff_t d, ptrdiff_t ld, const float *x, const float *factor, const double *root,
                     const float *shift, double *sums, ptrdiff_t q, const int32_t *lo, const float *flip, float *work,
                     float *out, ptrdiff_t ld_out);
void fs_srht_block_d(ptrdiff_t p, ptrdiff_t d, ptrdiff_t ld, const double *x, const double *factor, const double *root,
                     const double *shift, double *sums, ptrdiff_t q, const int32_t *lo, const double *flip,
                     double *work, double *out, ptrdiff_t ld_out);

/* The sparse counterpart: row i of n goes to rows target[i, 0 .. s) of out, times value[i, 0 .. s).
 *   y = x[i, :] - shift;  out[target[i, t], :] += value[i, t] y;  sums += root[i] y
 * Columns may be cut as above. */
void fs_scatter_rows_s(ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, const float *x, const double *root, const float *shift,
                       double *sums, ptrdiff_t s, const int32_t *target, const float *value, float *out,
                       ptrdiff_t ld_out);
void fs_scatter_rows_d(ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, const double *x, const double *root, const double *shift,
                       double *sums, ptrdiff_t s, const int32_t *target, const double *value, double *out,
                       ptrdiff_t ld_out);

#endif
