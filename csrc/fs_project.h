/* Rows to the directions of a basis, z = scale (x - mean) W, and back.
 *
 * A panel is FS_PROJECT_ROWS rows side by side, z[j * FS_PROJECT_ROWS + i] = direction j of row i: what follows takes a
 * register of rows at a time. A row's z depends on that row alone, not on those beside it, and has the same bits at
 * every level: products and sums are rounded apart also where they could be fused, in the order of the columns. Codes
 * are decided by comparisons, which a last bit can turn: so they are the same wherever rows are encoded and however
 * they are cut into batches.
 *
 * W comes in tiles, w[(t * d + k) * FS_PROJECT_TILE + j] = W[k, t * FS_PROJECT_TILE + j], zeros beyond its columns.
 * z has n_tiles * FS_PROJECT_TILE directions. panel: FS_PROJECT_PANEL floats of scratch.
 */
#ifndef FS_PROJECT_H
#define FS_PROJECT_H
#include "fs_common.h"

#define FS_PROJECT_ROWS 32
#define FS_PROJECT_TILE 8
/* Columns at a time: those of a panel and of a tile stay in the first cache. */
#define FS_PROJECT_DEPTH 128
#define FS_PROJECT_PANEL (2 * FS_PROJECT_ROWS * FS_PROJECT_DEPTH)
/* scale (x - mean) is cut to +-this, far beyond any row that codes are good for: squares of it are finite. */
#define FS_PROJECT_BOUND 0x1p50

/* n <= FS_PROJECT_ROWS rows of finite x, ld apart; the others of the panel get zeros. x - mean is taken in double and
 * rounded to float. square[i] = the sum of the squares of that, in double, in the order of the columns. */
void fs_project_rows_s(ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, const float *x, const double *mean, double scale,
                       ptrdiff_t n_tiles, const float *w, float *panel, float *z, double *square);
void fs_project_rows_d(ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, const double *x, const double *mean, double scale,
                       ptrdiff_t n_tiles, const float *w, float *panel, float *z, double *square);

/* The same of CSR rows, in double and rounded once: scale x W - base, base = scale mean W (n_tiles * FS_PROJECT_TILE
 * doubles). square[i] = mean_square + the sum over entries of (scale (x - mean))^2 - (scale mean)^2, mean_square that
 * of scale mean. sum: as many doubles of scratch as base has. */
void fs_project_csr_s(ptrdiff_t n, ptrdiff_t d, const int64_t *indptr, const int32_t *indices, const float *data,
                      const double *mean, double scale, double mean_square, ptrdiff_t n_tiles, const float *w,
                      const double *base, double *sum, float *z, double *square);
void fs_project_csr_d(ptrdiff_t n, ptrdiff_t d, const int64_t *indptr, const int32_t *indices, const double *data,
                      const double *mean, double scale, double mean_square, ptrdiff_t n_tiles, const float *w,
                      const double *base, double *sum, float *z, double *square);

/* out[i, :] = mean + factor (z W')_i for n rows of a panel of r directions; w: W' (r, d) in tiles, d of them in all. */
void fs_project_back_s(ptrdiff_t n, ptrdiff_t r, ptrdiff_t d, const float *z, const double *mean, double factor,
                       const float *w, float *out);

#endif
