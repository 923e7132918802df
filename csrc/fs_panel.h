/* The two products of a shrink on a wide row buffer.
 *
 * A general gemm packs both of its operands; here they are the same rows (Gram matrix), or the result overwrites
 * one of them (rotation), so one packing serves, and nothing is copied back.
 */
#ifndef FS_PANEL_H
#define FS_PANEL_H
#include "fs_common.h"

/* Of float or double, by the type of a pointer. */
#define fs_panel_gram(m, n_columns, d, ld, f, ...) FS_TYPED(fs_panel_gram, f)(m, n_columns, d, ld, f, __VA_ARGS__)
#define fs_panel_rotate(m, r, d, ld, f, ...) FS_TYPED(fs_panel_rotate, f)(m, r, d, ld, f, __VA_ARGS__)

/* Return whether the functions below are faster than BLAS for a buffer of m rows of reals of this many bytes, at the
 * current level (fs_level.h). They may be called at any level. */
int fs_panel_pays(ptrdiff_t m, size_t real);

/* The number of packed rows is padded to a multiple of this number. */
#define FS_PANEL_ROWS_S 32
#define FS_PANEL_ROWS_D 16

/* Lower triangle (column-major, leading dimension m) of gram = F F' in columns [0, n_columns), F m x d, its rows ld
 * apart. Entries above the diagonal within those columns are overwritten too.
 * pack: space for n_pack >= 32 * (m rounded up to a panel) reals. */
void fs_panel_gram_s(ptrdiff_t m, ptrdiff_t n_columns, ptrdiff_t d, ptrdiff_t ld, const float *f, float *gram,
                     float *pack, ptrdiff_t n_pack);
void fs_panel_gram_d(ptrdiff_t m, ptrdiff_t n_columns, ptrdiff_t d, ptrdiff_t ld, const double *f, double *gram,
                     double *pack, ptrdiff_t n_pack);

/* F[m-1-i, :] = sum_k w[i * m + k] F[k, :] for i < r - 1, in place; the sum runs over k in order.
 * square[i] gets the squared norm of result i in double, also for i = r - 1, which is not stored.
 * pack: space for n_pack >= 32 * m reals. */
void fs_panel_rotate_s(ptrdiff_t m, ptrdiff_t r, ptrdiff_t d, ptrdiff_t ld, float *f, const float *w, double *square,
                       float *pack, ptrdiff_t n_pack);
void fs_panel_rotate_d(ptrdiff_t m, ptrdiff_t r, ptrdiff_t d, ptrdiff_t ld, double *f, const double *w, double *square,
                       double *pack, ptrdiff_t n_pack);

#endif
