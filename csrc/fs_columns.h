/* Columns that lie anywhere, as rows. */
#ifndef FS_COLUMNS_H
#define FS_COLUMNS_H
#include "fs_common.h"

/* out[i * ld + j] = column[j][i] for n rows of d columns; whether one of them is NaN. */
int fs_columns_s(ptrdiff_t n, ptrdiff_t d, const float *const *column, float *out, ptrdiff_t ld);
int fs_columns_d(ptrdiff_t n, ptrdiff_t d, const double *const *column, double *out, ptrdiff_t ld);

#endif
