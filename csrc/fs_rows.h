/* Loops over dense rows (C order) that need no BLAS: check, copy with scaling, centre. */
#ifndef FS_ROWS_H
#define FS_ROWS_H
#include "fs_common.h"

/* Index of the first row that holds a NaN or an infinity, or -1; *largest gets max |x| over the rows before it. */
ptrdiff_t fs_scan_rows_s(ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, const float *x, double *largest);
ptrdiff_t fs_scan_rows_d(ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, const double *x, double *largest);

/* out[i, :] = scale * root_weight[i] * x[i, :] (root_weight may be NULL: ones), rows of out ld_out apart (negative:
 * downward); square[i] gets the squared norm of out[i, :], summed in double. root_step is +1 or -1. */
void fs_load_rows_s(ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, const float *x, const double *root_weight,
                    ptrdiff_t root_step, double scale, float *out, ptrdiff_t ld_out, double *square);
void fs_load_rows_d(ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, const double *x, const double *root_weight,
                    ptrdiff_t root_step, double scale, double *out, ptrdiff_t ld_out, double *square);

/* Squared norm of every row, summed in double. */
void fs_square_rows_s(ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, const float *x, double *square);
void fs_square_rows_d(ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, const double *x, double *square);

/* out = x; returns the squared norm, summed in double. */
double fs_copy_square_s(ptrdiff_t n, const float *x, float *out);
double fs_copy_square_d(ptrdiff_t n, const double *x, double *out);

/* x[i, :] *= factor for n rows. */
void fs_scale_rows_s(ptrdiff_t n, ptrdiff_t d, float *x, const double *factor);
void fs_scale_rows_d(ptrdiff_t n, ptrdiff_t d, double *x, const double *factor);

/* Online centring of one block of n rows x[i, :] = root_weight[i] a_i (FROSH Algorithm 1, step 7).
 *   shift        = block mean - old mean            (d doubles, scratch)
 *   x[i, :]     -= root_weight[i] * block mean
 *   correction   = sqrt(W h / (W + h)) shift        (a row; W = old_weight, h = block weight)
 *   mean        += h / (W + h) * shift
 * A block of total weight zero leaves mean alone and gives a row of zeros. */
void fs_centre_rows_s(ptrdiff_t n, ptrdiff_t d, float *x, float *correction, const double *root_weight,
                      double old_weight, double block_weight, double *mean, double *shift);
void fs_centre_rows_d(ptrdiff_t n, ptrdiff_t d, double *x, double *correction, const double *root_weight,
                      double old_weight, double block_weight, double *mean, double *shift);

/* total (lower triangle, column-major, double) += part (lower triangle, column-major). */
void fs_add_lower_s(ptrdiff_t d, const float *part, double *total);
void fs_add_lower_d(ptrdiff_t d, const double *part, double *total);

#endif
