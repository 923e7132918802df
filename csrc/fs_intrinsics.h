/* The vector types and functions of the machine. */
#ifndef FS_INTRINSICS_H
#define FS_INTRINSICS_H
#include "fs_level.h"

#if FS_X86
#include <immintrin.h>
#if defined(__clang__) && defined(_MSC_VER)
/* clang-cl of older versions leaves out of immintrin.h what its flags do not promise of every CPU; the
 * order is theirs. */
/* clang-format off */
#include <smmintrin.h>
#include <avxintrin.h>
#include <avx2intrin.h>
#include <fmaintrin.h>
#include <avx512fintrin.h>
#include <avx512vlintrin.h>
#include <avx512bwintrin.h>
#include <avx512dqintrin.h>
#include <avx512vldqintrin.h>
#include <avx512vlbwintrin.h>
#include <avx512vpopcntdqintrin.h>
#include <avx512vbmiintrin.h>
#include <avx512vnniintrin.h>
/* clang-format on */
#endif
#elif FS_ARM
#include <arm_neon.h>
#endif

#endif
