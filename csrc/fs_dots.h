/* Inner products of rows with rows. Each is summed in the same order, however many are computed in one call. A stream
 * that is split into other batches therefore has bitwise identical results, which BLAS does not guarantee. */
#ifndef FS_DOTS_H
#define FS_DOTS_H
#include "fs_common.h"

/* out[i * ld_out + j] = x_i . b_j for n rows x_i, ld_x apart, and m rows b_j, ld_b apart, of d doubles. With `lower`
 * only products with j <= i are needed; some others are computed as well. */
void fs_dots_d(ptrdiff_t n, ptrdiff_t m, ptrdiff_t d, const double *x, ptrdiff_t ld_x, const double *b, ptrdiff_t ld_b,
               double *out, ptrdiff_t ld_out, int lower);

#endif
