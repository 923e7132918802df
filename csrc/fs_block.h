/* Products of a sparse matrix with eight vectors side by side: the time of little more than one. */
#ifndef FS_BLOCK_H
#define FS_BLOCK_H
#include "fs_common.h"

/* Of float or double, by the type of a pointer. */
#define fs_gram_block(m, indptr, indices, a, ...) FS_TYPED(fs_gram_block, a)(m, indptr, indices, a, __VA_ARGS__)
#define fs_turn_block(n, x, ...) FS_TYPED(fs_turn_block, x)(n, x, __VA_ARGS__)
#define fs_square_block(n, x, gram) FS_TYPED(fs_square_block, x)(n, x, gram)

enum { FS_BLOCK = 8 };

/* CSR matrix a (m, n), no column twice in a row.  u (m, 8) = a v for v (n, 8), and w (n, 8) += a'u in the same pass. */
void fs_gram_block_s(ptrdiff_t m, const uint32_t *indptr, const uint32_t *indices, const float *a, const float *v,
                     float *u, float *w);
void fs_gram_block_d(ptrdiff_t m, const uint32_t *indptr, const uint32_t *indices, const double *a, const double *v,
                     double *u, double *w);

/* out (n, 8) = x t for x (n, 8) and t (8, 8); out is not x. */
void fs_turn_block_s(ptrdiff_t n, const float *x, const float *t, float *out);
void fs_turn_block_d(ptrdiff_t n, const double *x, const double *t, double *out);

/* gram (8, 8) += x'x for x (n, 8); of floats, rows are summed in double 32 at a time. */
void fs_square_block_s(ptrdiff_t n, const float *x, double *gram);
void fs_square_block_d(ptrdiff_t n, const double *x, double *gram);

#endif
