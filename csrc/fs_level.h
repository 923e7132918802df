/* The instruction levels of the loops in this directory: one of a few levels is chosen once for the whole process.
 *
 * A family of loops is one file NAME.inc.h, which fs_each_level.inc.h includes once per level. NAME.h declares its
 * entry points, the functions that callers see. An entry point uses a table with one entry per level: the entry is the
 * fastest version at this level, its own or that of a lower level. No ifunc and no feature of a linker or loader is
 * used, so this works in the same way with glibc, musl, on macOS and on Windows.
 *
 * Bitwise identical results. A loop returns the same bits at all levels that have FMA (neon, avx2, avx512,
 * avx512vpopcntdq), and the same bits at those without (plain, sse2): sums run in logical lanes whose number does not
 * depend on the width of a register, and nothing is contracted unless the code says so. No more is promised: a product
 * and its sum are rounded once with FMA, twice without. Levels may also differ in which of two algorithms a caller uses
 * (fs_panel_pays, fs_tridiagonal_pays): there BLAS or LAPACK does the work, with other rounding errors.
 */
#ifndef FS_LEVEL_H
#define FS_LEVEL_H
#include "fs_common.h"

/* clang-cl supports all that gcc supports. cl itself compiles the plain level only, and so does, with
 * CFLAGS=-DFS_NO_LEVELS, a compiler that does not know the instructions. */
#if defined(FS_NO_LEVELS)
#define FS_X86 0
#define FS_ARM 0
#elif (defined(__GNUC__) || defined(__clang__)) && defined(__x86_64__)
#define FS_X86 1
#define FS_ARM 0
#elif (defined(__GNUC__) || defined(__clang__)) && defined(__aarch64__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define FS_X86 0
#define FS_ARM 1
#else
#define FS_X86 0
#define FS_ARM 0
#endif

enum {
    FS_PLAIN, /* C for any machine */
#if FS_X86
    FS_SSE2,             /* SSE2 and popcnt: every x86-64 of the last fifteen years */
    FS_AVX2,             /* AVX2, FMA, BMI: since 2013 */
    FS_AVX512,           /* AVX-512 F, VL, DQ, BW: since 2017 */
    FS_AVX512_VPOPCNTDQ, /* and VPOPCNTDQ, VBMI and VNNI, which came together: since 2019 */
#elif FS_ARM
    FS_NEON, /* part of every 64-bit ARM */
#endif
    FS_LEVELS
};

/* The level in use: a number that all extension modules of a process share through a pointer. It points to FS_PLAIN
 * until fs_level_share is called. */
extern const int *fs_level;

/* Use *level, below FS_LEVELS, as the level from now on: it may change at any time except during a call. */
void fs_level_share(const int *level);

/* Return whether this CPU, and the system that saves its registers, can run a level; and the highest such level. */
int fs_level_supported(int level);
int fs_level_best(void);

/* Return the name of a level, as the environment variable FASTSKETCH_LEVEL has it. */
const char *fs_level_name(int level);

/* The entries of a table, by name of the loop: FS_TABLE for a loop that is written with vectors (fs_vec.h);
 * FS_TABLE_FROM_AVX2 for one that the compiler vectorises, whose plain version has the vectors of every x86-64 or ARM;
 * FS_TABLE_AVX2_ALONE for one of these that gains nothing from wider registers. */
#if FS_X86
#define FS_TABLE(loop) {loop##_plain, loop##_sse2, loop##_avx2, loop##_avx512, loop##_avx512}
#define FS_TABLE_FROM_AVX2(loop) {loop##_plain, loop##_plain, loop##_avx2, loop##_avx512, loop##_avx512}
#define FS_TABLE_AVX2_ALONE(loop) {loop##_plain, loop##_plain, loop##_avx2, loop##_avx2, loop##_avx2}
#elif FS_ARM
#define FS_TABLE(loop) {loop##_plain, loop##_neon}
#define FS_TABLE_FROM_AVX2(loop) {loop##_plain, loop##_plain}
#define FS_TABLE_AVX2_ALONE(loop) FS_TABLE_FROM_AVX2(loop)
#else
#define FS_TABLE(loop) {loop##_plain}
#define FS_TABLE_FROM_AVX2(loop) FS_TABLE(loop)
#define FS_TABLE_AVX2_ALONE(loop) FS_TABLE(loop)
#endif

/* Before a loop whose version for a level is missing in some tables, and which must not be compiled again within
 * another level. */
#if defined(__GNUC__) || defined(__clang__)
#define FS_LOOP __attribute__((unused, noinline)) static
#else
#define FS_LOOP static
#endif

/* An entry point: TYPE fs_NAME PARAMETERS calls the table's entry with ARGUMENTS. */
#define FS_DOOR(TABLE, TYPE, NAME, PARAMETERS, ARGUMENTS)              \
    TYPE FS_JOIN(fs, NAME) PARAMETERS                                  \
    {                                                                  \
        static TYPE(*const table[FS_LEVELS]) PARAMETERS = TABLE(NAME); \
        FS_JOIN(FS_RETURN, TYPE) table[*fs_level] ARGUMENTS;           \
    }
/* C allows no `return` of what is void. */
#define FS_RETURN_void
#define FS_RETURN_int return
#define FS_RETURN_double return
#define FS_RETURN_ptrdiff_t return
#define FS_JOIN(a, b) FS_JOINED(a, b)
#define FS_JOINED(a, b) a##_##b

#endif
