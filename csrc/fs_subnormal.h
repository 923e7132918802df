/* Flush subnormal numbers to zero, which a core multiplies a hundred times as slowly as others.
 *
 * Between the two calls the thread reads and writes subnormal numbers as 0. In float32 they are below 1.2e-38, and the
 * rows of a sketch whose spectrum decays quickly have many. Rows are scaled such that the largest number is near 1, so
 * that subnormal numbers are far below a unit of rounding. The mode belongs to the thread, and is restored.
 */
#ifndef FS_SUBNORMAL_H
#define FS_SUBNORMAL_H
#include <stdint.h>

#include "fs_intrinsics.h"

#if FS_X86
#define FS_ZEROED UINT64_C(0x8040) /* MXCSR: results, operands */

static inline uint64_t fs_subnormal_off(void)
{
    const uint64_t was = _mm_getcsr();
    _mm_setcsr((unsigned)(was | FS_ZEROED));
    return was;
}

static inline void fs_subnormal_back(uint64_t was) { _mm_setcsr((unsigned)was); }
#elif FS_ARM
#define FS_ZEROED (UINT64_C(1) << 24) /* FPCR.FZ: both */

static inline uint64_t fs_subnormal_off(void)
{
    uint64_t was;
    __asm__ volatile("mrs %0, fpcr" : "=r"(was));
    __asm__ volatile("msr fpcr, %0" : : "r"(was | FS_ZEROED));
    return was;
}

static inline void fs_subnormal_back(uint64_t was) { __asm__ volatile("msr fpcr, %0" : : "r"(was)); }
#else
static inline uint64_t fs_subnormal_off(void) { return 0; }

static inline void fs_subnormal_back(uint64_t was) { (void)was; }
#endif

#endif
