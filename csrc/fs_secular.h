/* The scalar part of divide and conquer for the symmetric tridiagonal eigenproblem: one merge of two solved halves.
 *
 * D + rho z z' = S diag(lambda) S', D diagonal, rho > 0.  Follows Cuppen's method as stabilised by Gu and Eisenstat
 * (SIAM J. Matrix Anal. Appl. 15, 1994), with deflation as in LAPACK's laed2; eight roots of the secular equation are
 * found at a time, one in each lane.
 */
#ifndef FS_SECULAR_H
#define FS_SECULAR_H
#include "fs_common.h"

/* Of float or double, by the type of a pointer. */
#define fs_secular_vectors(k, first, count, d, origin, tau, z, place, v, s) \
    FS_TYPED(fs_secular_vectors, s)(k, first, count, d, origin, tau, z, place, v, s)

/* Number of roots found at a time. */
#define FS_ROOTS 8

/* Deflate: find the values that need no equation.  d, z: n values, order: columns by ascending d, the first n1 columns
 * belong to the upper half.  Columns in `keep` (returned count k, ascending d) stay; the others are eigenvectors
 * already, after the Givens rotations of columns pair[2 t], pair[2 t + 1] with turn[2 t] = c, turn[2 t + 1] = s, in
 * order. type[j]: 1 upper rows only, 2 both, 3 lower rows only. */
ptrdiff_t fs_secular_deflate(ptrdiff_t n, ptrdiff_t n1, double rho, double eps, double *d, double *z,
                             const int32_t *order, int32_t *keep, int32_t *type, int32_t *pair, double *turn,
                             ptrdiff_t *n_turns);

/* Roots [first, stop) of 1 + rho sum_j z_j^2 / (d_j - x), as d[origin[i]] + tau[i], for ascending distinct d and
 * nonzero z. Cut at multiples of FS_ROOTS; d and z must be readable (any value) up to the next multiple of it. */
void fs_secular_roots(ptrdiff_t k, ptrdiff_t first, ptrdiff_t stop, const double *d, const double *z, double rho,
                      int32_t *origin, double *tau);

/* Set z[first .. stop) to the weights for which the computed roots are exact: then eigenvectors are orthogonal without
 * more precision. No other entry of z is read. */
void fs_secular_weights(ptrdiff_t k, ptrdiff_t first, ptrdiff_t stop, const double *d, const int32_t *origin,
                        const double *tau, double *z);

/* Column c of s (leading dimension k): eigenvector of root first + c, component j in row place[j]. v: k doubles. */
void fs_secular_vectors_s(ptrdiff_t k, ptrdiff_t first, ptrdiff_t count, const double *d, const int32_t *origin,
                          const double *tau, const double *z, const int32_t *place, double *v, float *s);
void fs_secular_vectors_d(ptrdiff_t k, ptrdiff_t first, ptrdiff_t count, const double *d, const int32_t *origin,
                          const double *tau, const double *z, const int32_t *place, double *v, double *s);

#endif
