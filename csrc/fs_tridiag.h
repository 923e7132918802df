/* Householder reduction of a symmetric matrix to tridiagonal form, for matrices that fit in the L2 cache, on CPUs with
 * AVX-512 (see fs_panel_usable); elsewhere LAPACK's sytrd does the same job. */
#ifndef FS_TRIDIAG_H
#define FS_TRIDIAG_H
#include "fs_common.h"

/* Q' A Q = tridiagonal(d, e).  a (column-major, leading dimension n, lower triangle) is overwritten as by LAPACK's
 * sytrd with uplo = 'L': reflector i lies below a[i + 1, i], tau[i] is its factor; ormtr applies Q.
 * work: 4 n reals.
 *
 * Each reflection passes over the matrix once: the rank-two update of the last one and the product with the vector of
 * the next are done on the same entries while they are in registers. */
void fs_tridiagonalise_s(ptrdiff_t n, float *a, float *d, float *e, float *tau, float *work);
void fs_tridiagonalise_d(ptrdiff_t n, double *a, double *d, double *e, double *tau, double *work);

#endif
