#include "fs_level.h"

static const int fs_level_before = FS_PLAIN;
const int *fs_level = &fs_level_before;

void fs_level_share(const int *level) { fs_level = level; }

#if FS_X86

#include <cpuid.h>

/* The registers that the system saves when it switches threads: others must not be used, even if the CPU has them. */
static unsigned saved_registers(void)
{
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

/* From cpuid itself, not from __builtin_cpu_supports, which needs a library that clang-cl does not link. */
int fs_level_best(void)
{
    unsigned eax, ebx, ecx, edx;
    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & bit_POPCNT))
        return FS_PLAIN;
#if defined(_WIN32) && !defined(__clang__)
    return FS_SSE2; /* gcc stores wide registers on the stack as if it were aligned to them, which is not the case on
                     * Windows */
#endif
    const unsigned avx = bit_OSXSAVE | bit_AVX | bit_FMA;
    if ((ecx & avx) != avx)
        return FS_SSE2;
    const unsigned saved = saved_registers();
    const unsigned avx2 = bit_AVX2 | bit_BMI | bit_BMI2;
    if ((saved & 0x6) != 0x6 || !__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) || (ebx & avx2) != avx2)
        return FS_SSE2;
    const unsigned avx512 = bit_AVX512F | bit_AVX512DQ | bit_AVX512BW | bit_AVX512VL;
    if ((saved & 0xe6) != 0xe6 || (ebx & avx512) != avx512)
        return FS_AVX2;
    const unsigned late = bit_AVX512VPOPCNTDQ | bit_AVX512VBMI | bit_AVX512VNNI;
    return (ecx & late) == late ? FS_AVX512_VPOPCNTDQ : FS_AVX512;
}

#else

int fs_level_best(void) { return FS_LEVELS - 1; }

#endif

int fs_level_supported(int level) { return level >= 0 && level <= fs_level_best(); }

const char *fs_level_name(int level)
{
#if FS_X86
    static const char *const names[FS_LEVELS] = {"plain", "sse2", "avx2", "avx512", "avx512vpopcntdq"};
#elif FS_ARM
    static const char *const names[FS_LEVELS] = {"plain", "neon"};
#else
    static const char *const names[FS_LEVELS] = {"plain"};
#endif
    return names[level];
}
