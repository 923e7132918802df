/* Loops over dense rows (C order) without BLAS: check, copy with scaling, centre. */
#ifndef FS_ROWS_H
#define FS_ROWS_H
#include "fs_common.h"

#define fs_check_rows(n, d, ld, x, largest) FS_TYPED(fs_check_rows, x)(n, d, ld, x, largest)
#define fs_load_rows(n, d, ld, x, ...) FS_TYPED(fs_load_rows, x)(n, d, ld, x, __VA_ARGS__)
#define fs_square_rows(n, d, ld, x, square) FS_TYPED(fs_square_rows, x)(n, d, ld, x, square)
#define fs_centre_rows(n, d, ld, x, ...) FS_TYPED(fs_centre_rows, x)(n, d, ld, x, __VA_ARGS__)

/* Include a block of rows with mean base + shift in a mean: see fs_centre_rows. `base` becomes the correction. The mean
 * is a sum of two doubles, mean + low, with low at most half a unit of rounding of mean: in one double, small
 * differences between the means of blocks would be lost by rounding. */
void fs_move_mean(ptrdiff_t d, double old_weight, double block_weight, double *mean, double *low, double *base,
                  const double *shift);

#define FS_FILE "fs_rows.h"
#include "fs_each_real.inc.h"

#elif defined(REAL)

/* Return the index of the first row that holds a NaN or an infinity, or -1; set *largest to max |x| over the rows
 * before it. */
ptrdiff_t TYPED(fs_check_rows)(ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, const REAL *x, double *largest);

/* out[i, :] = scale * root_weight[i] * x[i, :] (root_weight may be NULL: ones), rows of out ld_out apart (negative:
 * downward); square[i] gets the squared norm of out[i, :], summed in double. root_step is +1 or -1. */
void TYPED(fs_load_rows)(ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, const REAL *x, const double *root_weight,
                         ptrdiff_t root_step, double scale, REAL *out, ptrdiff_t ld_out, double *square);

/* Squared norm of every row, summed in double. */
void TYPED(fs_square_rows)(ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, const REAL *x, double *square);

/* Online centring of one block of n rows, which come as they are, not yet weighted, ld apart (FROSH Algorithm 1, step
 * 7). Columns are independent: the function may be called for some of them after others.
 *   base         = the heaviest row
 *   shift        = block mean - base
 *   x[i, :]      = root_weight[i] * (x[i, :] - base - shift), rounded once
 *   correction   = sqrt(W h / (W + h)) (block mean - old mean)  (a row; W = old_weight, h = block weight)
 *   mean + low  += h / (W + h) (block mean - old mean)
 * Every difference is taken before anything is rounded to the size of the mean, so that the error is relative to the
 * spread of the rows. Differences from the heaviest row are safe wherever the old mean lies: times the root of a
 * row's weight they are at most the block's spread. A block of total weight zero becomes rows of zeros and leaves the
 * mean alone. base and shift: d doubles of scratch. */
void TYPED(fs_centre_rows)(ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, REAL *x, REAL *correction, const double *root_weight,
                           double old_weight, double block_weight, double *mean, double *low, double *base,
                           double *shift);

#endif
