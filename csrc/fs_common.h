/* Shared by every kernel in this directory: symbol names, restrict, run-time CPU dispatch.
 *
 * Contract of all kernels: sizes and pointers come in, nothing is allocated that is returned, nothing is
 * printed, no globals, no BLAS.  A status is 0 for success, -k for a fault in the k-th argument, +k otherwise.
 */
#ifndef FS_COMMON_H
#define FS_COMMON_H

#include <stddef.h>
#include <stdint.h>

#if defined(_MSC_VER)
#define FS_RESTRICT __restrict
#else
#define FS_RESTRICT restrict
#endif

/* One binary serves every x86-64: the loader picks the clone that the CPU can run.  The sources are compiled
 * without floating-point contraction, so all clones return the same bits.  musl, macOS and MSVC lack ifunc and
 * get the plain function. */
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GLIBC__) && !defined(FS_NO_CLONES)
#define FS_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FS_CLONES
#endif

/* For a loop body that every clone is to have in its own instructions. */
#if defined(__GNUC__)
#define FS_INLINE static inline __attribute__((always_inline))
#else
#define FS_INLINE static inline
#endif

/* Before a loop whose iterations read and write the same element only, or arrays that do not overlap. */
#if defined(__clang__)
#define FS_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define FS_INDEPENDENT _Pragma("GCC ivdep")
#else
#define FS_INDEPENDENT
#endif

/* Sums of squares and dot products run in this many independent double lanes: enough to fill one AVX-512
 * register twice, and fixed, so that the order of additions does not depend on the CPU. */
#define FS_LANES 16

#endif
