/* Shared by every kernel in this directory: symbol names, restrict, hints to compilers.
 *
 * Contract of all kernels: they receive sizes and pointers. They return no memory that they have allocated, print
 * nothing, have no globals but the level (fs_level.h), and call no BLAS. A status is 0 for success, -k for a fault in
 * the k-th argument, +k otherwise.
 */
#ifndef FS_COMMON_H
#define FS_COMMON_H

#include <stddef.h>
#include <stdint.h>

#if defined __FAST_MATH__ || defined _M_FP_FAST || defined __FINITE_MATH_ONLY__ && __FINITE_MATH_ONLY__
#error "fastsketch must see NaN and infinities: leave -ffast-math, -Ofast, -ffinite-math-only, /fp:fast out of CFLAGS"
#endif

#if defined(_MSC_VER)
#define FS_RESTRICT __restrict
#else
#define FS_RESTRICT restrict
#endif

/* The function of a loop for float or double, by the type of a pointer among its arguments. */
#define FS_TYPED(loop, pointer) \
    _Generic((pointer), float *: loop##_s, const float *: loop##_s, double *: loop##_d, const double *: loop##_d)

/* For a loop body that is compiled for every level in the instructions of that level. */
#if defined(__GNUC__) || defined(__clang__)
#define FS_INLINE static inline __attribute__((always_inline))
#else
#define FS_INLINE static inline
#endif

/* Before a loop whose iterations read and write the same element only, or arrays that do not overlap. */
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed" /* a hint for which clang has no use */
#define FS_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define FS_INDEPENDENT _Pragma("GCC ivdep")
#else
#define FS_INDEPENDENT
#endif

/* Before a loop of few iterations that is to be unrolled, so that its arrays become registers. */
#if defined(__clang__)
#define FS_UNROLL _Pragma("unroll")
#elif defined(__GNUC__)
#define FS_UNROLL _Pragma("GCC unroll 16")
#else
#define FS_UNROLL
#endif

/* Bring the line of *p into the second cache. */
#if defined(__GNUC__) || defined(__clang__)
#define FS_FETCH(p) __builtin_prefetch((p), 0, 2)
#else
#define FS_FETCH(p) (void)(p)
#endif

/* Sums of squares and dot products run in this many independent double lanes: enough to fill one AVX-512
 * register twice, and fixed, so that the order of additions does not depend on the CPU. */
#define FS_LANES 16

#endif
