/* Projection of rows on a basis, z = scale (x - mean) W, and back.
 *
 * A panel has FS_PROJECT_ROWS rows, transposed: z[j * FS_PROJECT_ROWS + i] is coordinate j of row i, so that a register
 * holds several rows. The z of a row depends on that row only and is bitwise identical at every level: products and
 * sums are rounded separately, in the order of the columns. This matters as codes are decided by comparisons, which the
 * last bit may change: codes do not depend on the machine or on batches.
 *
 * W comes in tiles, w[(t * d + k) * FS_PROJECT_TILE + j] = W[k, t * FS_PROJECT_TILE + j], zeros beyond its columns.
 * z has n_tiles * FS_PROJECT_TILE directions. panel: FS_PROJECT_PANEL floats of scratch.
 */
#ifndef FS_PROJECT_H
#define FS_PROJECT_H
#include "fs_common.h"

#define FS_PROJECT_ROWS 32
#define FS_PROJECT_TILE 8
/* Number of columns that are processed at a time: those of a panel and of a tile stay in the L1 cache. */
#define FS_PROJECT_DEPTH 128
#define FS_PROJECT_PANEL (2 * FS_PROJECT_ROWS * FS_PROJECT_DEPTH)
/* scale (x - mean) is clipped to +-this, far above the range of codes, so that squares are finite. */
#define FS_PROJECT_BOUND 0x1p50

/* Project n <= FS_PROJECT_ROWS rows of finite x, ld apart; other rows of the panel are 0. x - mean is computed in
 * double and rounded to float. square[i] = the sum of the squares of that, in double, in the order of the columns. */
void fs_project_rows_s(ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, const float *x, const double *mean, double scale,
                       ptrdiff_t n_tiles, const float *w, float *panel, float *z, double *square);
void fs_project_rows_d(ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, const double *x, const double *mean, double scale,
                       ptrdiff_t n_tiles, const float *w, float *panel, float *z, double *square);

/* The same for CSR rows, in double and rounded once: scale x W - base, base = scale mean W (n_tiles * FS_PROJECT_TILE
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
