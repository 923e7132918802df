#include "fs_quantize.h"

#include <math.h>
#include <string.h>

#include "fs_vec.h"

#define ROWS FS_PROJECT_ROWS

/* For the current group, the selected words and one direction of their sum; for all groups, the sums and nibbles. */
typedef struct {
    int32_t who[2][ROWS];
    float word[ROWS];
    double sum[FS_SUMS][ROWS];
    uint8_t nibble[];
} scratch_of;

size_t fs_quantize_scratch(ptrdiff_t n_nibbles) { return sizeof(scratch_of) + (size_t)(n_nibbles + 1) * ROWS; }

static uint32_t small_float_of(fs_small_float kind, double value)
{
    const float ratio = (float)value / kind.unit;
    if (!(ratio > 1))
        return 0;
    uint32_t bits;
    memcpy(&bits, &ratio, sizeof bits);
    const int shift = 23 - kind.mantissa;
    bits = (bits - ((uint32_t)127 << 23) + (((uint32_t)1 << shift) >> 1)) >> shift;
    const uint32_t most = ((uint32_t)1 << (8 * kind.bytes)) - 1;
    return bits < most ? bits : most;
}

/* coefficients . sums, in their order */
static double weighed(const double *coefficients, const double *sums)
{
    double total = 0;
    for (int t = 0; t < FS_SUMS; t++)
        if (coefficients[t] != 0) /* a term that is not used may be infinite */
            total += coefficients[t] * sums[t];
    return total;
}

#define TYPED(verb) verb##_s
#define FS_LOOPS "fs_quantize.inc.h"
#include "fs_each_level.inc.h"
