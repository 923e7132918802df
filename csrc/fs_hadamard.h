/* Walsh-Hadamard transforms in place, and the subsampled randomized Hadamard transform (SRHT) of a block of rows. */
#ifndef FS_HADAMARD_H
#define FS_HADAMARD_H
#include "fs_common.h"

#define fs_fwht_columns(m, d, ld, x) FS_TYPED(fs_fwht_columns, x)(m, d, ld, x)
#define fs_fwht_rows(n, m, ld, x) FS_TYPED(fs_fwht_rows, x)(n, m, ld, x)
#define fs_srht_block(p, d, ld, x, ...) FS_TYPED(fs_srht_block, x)(p, d, ld, x, __VA_ARGS__)
#define fs_scatter_rows(n, d, ld, x, ...) FS_TYPED(fs_scatter_rows, x)(n, d, ld, x, __VA_ARGS__)

/* Bytes of a row that are processed at a time, in the caches. */
enum { FS_SRHT_STRIP_BYTES = 1024 };

#define FS_FILE "fs_hadamard.h"
#include "fs_each_real.inc.h"

#elif defined(REAL)

/* x = H_m x for an m x d matrix in C order with rows ld apart: butterflies between rows.  m is a power of two,
 * H_m has entries +-1 (not normalised). */
void TYPED(fs_fwht_columns)(ptrdiff_t m, ptrdiff_t d, ptrdiff_t ld, REAL *x);

/* x[i, :] = H_m x[i, :] for n rows of m contiguous elements, ld apart. */
void TYPED(fs_fwht_rows)(ptrdiff_t n, ptrdiff_t m, ptrdiff_t ld, REAL *x);

/* Elements of `work` that fs_srht_block needs. */
ptrdiff_t TYPED(fs_srht_work)(ptrdiff_t p);

/* One step of p rows (a power of two, at least 8) of the transform of a longer block, H_m = H_{m/p} (x) H_p:
 *   z = H_p diag(factor) (x - 1 shift')
 *   out[k, :] += flip[k] z[lo[k], :]          for k < q, flip[k] = +-1
 *   sums      += sum_i root[i] (x[i, :] - shift)   (root NULL: ones; summed in double, eight rows at a time)
 * shift NULL: zero.  sums NULL: not wanted.  out has q rows, ld_out apart.  A column of the result depends on that
 * column alone, and so do its bits: columns may be cut into parts, best of FS_SRHT_STRIP_BYTES. */
void TYPED(fs_srht_block)(ptrdiff_t p, ptrdiff_t d, ptrdiff_t ld, const REAL *x, const REAL *factor, const double *root,
                          const REAL *shift, double *sums, ptrdiff_t q, const int32_t *lo, const REAL *flip, REAL *work,
                          REAL *out, ptrdiff_t ld_out);

/* The sparse counterpart: row i of n goes to rows target[i, 0 .. s) of out, times value[i, 0 .. s).
 *   y = x[i, :] - shift;  out[target[i, t], :] += value[i, t] y;  sums += root[i] y
 * Columns may be cut as above. */
void TYPED(fs_scatter_rows)(ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, const REAL *x, const double *root,
                            const REAL *shift, double *sums, ptrdiff_t s, const int32_t *target, const REAL *value,
                            REAL *out, ptrdiff_t ld_out);

#endif
