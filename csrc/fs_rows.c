#include "fs_rows.h"

#include <math.h>
#include <string.h>

#include "fs_level.h"

/* sum + *error = a + b exactly (Knuth): needs a compiler that neither reassociates nor contracts. */
FS_INLINE double two_sum(double a, double b, double *error)
{
    const double sum = a + b, part = sum - a;
    *error = (a - (sum - part)) + (b - part);
    return sum;
}

#define FS_FROM_AVX2
#define TYPED(verb) verb
#define FS_LOOPS "fs_mean.inc.h"
#include "fs_each_level.inc.h"
#undef TYPED
#undef FS_LOOPS
#define FS_LOOPS "fs_rows.inc.h"

#define REAL float
#define LOADS FS_TABLE_FROM_AVX2
#define BITS uint32_t
#define INF_BITS 0x7f800000u
#define TYPED(verb) verb##_s
#include "fs_each_level.inc.h"
#undef REAL
#undef LOADS
#undef BITS
#undef INF_BITS
#undef TYPED

#define REAL double
#define LOADS FS_TABLE_AVX2_ALONE
#define BITS uint64_t
#define INF_BITS 0x7ff0000000000000u
#define TYPED(verb) verb##_d
#include "fs_each_level.inc.h"
