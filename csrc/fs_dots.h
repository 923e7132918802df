/* Inner products of rows with rows, of which every one is summed in the same order however many are asked for: so a
 * stream cut into other batches gives the same bits, as BLAS would not. */
#ifndef FS_DOTS_H
#define FS_DOTS_H
#include "fs_common.h"

/* out[i * ld_out + j] = x_i . b_j for n rows x_i and m rows b_j of d doubles, ld_x and ld_b apart; lower: those with
 * j <= i are wanted, some others come along. */
void fs_dots_d(ptrdiff_t n, ptrdiff_t m, ptrdiff_t d, const double *x, ptrdiff_t ld_x, const double *b, ptrdiff_t ld_b,
               double *out, ptrdiff_t ld_out, int lower);

#endif
