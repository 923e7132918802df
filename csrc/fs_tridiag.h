/* Householder reduction of a symmetric matrix to tridiagonal form, for matrices that fit in the L2 cache. */
#ifndef FS_TRIDIAG_H
#define FS_TRIDIAG_H
#include "fs_common.h"

/* Of float or double, by the type of a pointer. */
#define fs_tridiagonalise(n, a, ...) FS_TYPED(fs_tridiagonalise, a)(n, a, __VA_ARGS__)

/* Return whether the function below is faster than LAPACK's sytrd for n x n reals of this many bytes, at the current
 * level (fs_level.h). It may be called at any level and for any n. */
int fs_tridiagonal_pays(ptrdiff_t n, size_t real);

/* Q' A Q = tridiagonal(d, e).  a (column-major, leading dimension n, lower triangle) is overwritten as by LAPACK's
 * sytrd with uplo = 'L': reflector i lies below a[i + 1, i], tau[i] is its factor; ormtr applies Q.
 * work: 4 n reals.
 *
 * Each reflection passes over the matrix once: the rank-two update of the last reflection and the product with the
 * vector of the next are computed while the entries are in registers. */
void fs_tridiagonalise_s(ptrdiff_t n, float *a, float *d, float *e, float *tau, float *work);
void fs_tridiagonalise_d(ptrdiff_t n, double *a, double *d, double *e, double *tau, double *work);

#endif
