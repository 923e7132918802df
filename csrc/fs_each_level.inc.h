/* Includes FS_LOOPS once per level, then once with FS_DOORS defined: see fs_level.h.  In a level
 *   FS_WIDTH   is the number of bits of a register, 0 in plain C;
 *   FS_FUSED   tells whether a product and its sum are rounded once;
 *   NAME(verb) is the name of a loop or vector function there: TYPED(verb), which the caller defines, and the level's;
 *   NAME_D(verb) that of a function of doubles.
 * With FS_FROM_AVX2 only levels are included whose vectors a compiler does not use anyway; with FS_WITH_VPOPCNTDQ also
 * the highest of all, where FS_VPOPCNTDQ is defined. */
#define NAME(verb) FS_JOIN(TYPED(verb), FS_SUFFIX)
#define NAME_D(verb) FS_JOIN(verb##_d, FS_SUFFIX)

#define FS_SUFFIX plain
#define FS_WIDTH 0
#define FS_FUSED 0
#include "fs_one_level.inc.h"

#if FS_X86

#if defined(__clang__) /* a level that has no function of its own in a file */
#pragma clang diagnostic ignored "-Wpragma-clang-attribute"
#endif

#ifndef FS_FROM_AVX2
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("popcnt"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("popcnt")
#endif
#define FS_SUFFIX sse2
#define FS_WIDTH 128
#define FS_FUSED 0
#include "fs_one_level.inc.h"
#endif

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("popcnt,avx,avx2,fma,bmi,bmi2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("popcnt,avx,avx2,fma,bmi,bmi2")
#endif
#define FS_SUFFIX avx2
#define FS_WIDTH 256
#define FS_FUSED 1
#include "fs_one_level.inc.h"

#if defined(__clang__)
#pragma clang attribute push( \
    __attribute__((target("popcnt,avx,avx2,fma,bmi,bmi2,avx512f,avx512vl,avx512dq,avx512bw"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("popcnt,avx,avx2,fma,bmi,bmi2,avx512f,avx512vl,avx512dq,avx512bw")
#endif
#define FS_SUFFIX avx512
#define FS_WIDTH 512
#define FS_FUSED 1
#include "fs_one_level.inc.h"

#ifdef FS_WITH_VPOPCNTDQ
#define FS_VPOPCNTDQ
#if defined(__clang__)
#pragma clang attribute push(                                                                                       \
    __attribute__((target(                                                                                          \
        "popcnt,avx,avx2,fma,bmi,bmi2,avx512f,avx512vl,avx512dq,avx512bw,avx512vpopcntdq,avx512vbmi,avx512vnni"))), \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target( \
    "popcnt,avx,avx2,fma,bmi,bmi2,avx512f,avx512vl,avx512dq,avx512bw,avx512vpopcntdq,avx512vbmi,avx512vnni")
#endif
#define FS_SUFFIX avx512vpopcntdq
#define FS_WIDTH 512
#define FS_FUSED 1
#include "fs_one_level.inc.h"
#undef FS_VPOPCNTDQ
#endif

#elif FS_ARM && !defined(FS_FROM_AVX2)

#define FS_SUFFIX neon
#define FS_WIDTH 128
#define FS_FUSED 1
#include "fs_one_level.inc.h"

#endif

#define FS_DOORS
#include FS_LOOPS
#undef FS_DOORS
#undef NAME
#undef NAME_D
