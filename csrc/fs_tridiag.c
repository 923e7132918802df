#include "fs_tridiag.h"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__)) && !defined(FS_NO_CLONES)

#include <immintrin.h>
#include <math.h>

#define FS_AVX512 __attribute__((target("avx512f")))

#define REAL float
#define VEC __m512
#define MASK __mmask16
#define WIDTH 16
#define OP(verb) _mm512_##verb##_ps
#define NAME(verb) fs_##verb##_s
#define LOCAL(verb) verb##_float
#include "fs_tridiag.inc.h"
#undef REAL
#undef VEC
#undef MASK
#undef WIDTH
#undef OP
#undef NAME
#undef LOCAL

#define REAL double
#define VEC __m512d
#define MASK __mmask8
#define WIDTH 8
#define OP(verb) _mm512_##verb##_pd
#define NAME(verb) fs_##verb##_d
#define LOCAL(verb) verb##_double
#include "fs_tridiag.inc.h"

#else /* no AVX-512 at compile time: never called */

void fs_tridiagonalise_s(ptrdiff_t n, float *a, float *d, float *e, float *tau, float *work)
{
    (void)n, (void)a, (void)d, (void)e, (void)tau, (void)work;
}
void fs_tridiagonalise_d(ptrdiff_t n, double *a, double *d, double *e, double *tau, double *work)
{
    (void)n, (void)a, (void)d, (void)e, (void)tau, (void)work;
}

#endif
