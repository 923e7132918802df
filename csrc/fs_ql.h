/* Eigenpairs of a small symmetric tridiagonal matrix by the implicit QL iteration: the leaves of divide and conquer. */
#ifndef FS_QL_H
#define FS_QL_H
#include "fs_common.h"

/* Largest order. */
#define FS_QL_MOST 16

/* Of float or double, by the type of a pointer. */
#define fs_ql(n, d, e, values, z, ld) FS_TYPED(fs_ql, d)(n, d, e, values, z, ld)

/* Eigenvalues, ascending, and eigenvectors (columns of z) of the n x n matrix with diagonal d and subdiagonal e, whose
 * entries are at most about 1. Like LAPACK's stedc for n <= 25, but faster: rotations are computed
 * in double with one root and one division each, and applied to whole registers. Returns 0, or the number of an
 * eigenvalue that was not found. */
int fs_ql_s(ptrdiff_t n, const float *d, const float *e, double *values, float *z, ptrdiff_t ld);
int fs_ql_d(ptrdiff_t n, const double *d, const double *e, double *values, double *z, ptrdiff_t ld);

#endif
