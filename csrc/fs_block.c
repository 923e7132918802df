#include "fs_block.h"

#include "fs_vec.h"

#define FS_LOOPS "fs_block.inc.h"

/* In registers of SSE2 alone the plain version, which the compiler vectorises, is the faster one. */
#if FS_X86
#define FLOATS FS_TABLE_AVX2_ALONE
#define DOUBLES FS_TABLE_FROM_AVX2
#else
#define FLOATS FS_TABLE
#define DOUBLES FS_TABLE
#endif

/* eight floats are one register of AVX2 */
#define REAL float
#define TYPED(verb) verb##_s
#define TABLE FLOATS
#define NOT_WIDER
#include "fs_each_level.inc.h"
#undef REAL
#undef TYPED
#undef TABLE
#undef NOT_WIDER

#define REAL double
#define TYPED(verb) verb##_d
#define TABLE DOUBLES
#include "fs_each_level.inc.h"
