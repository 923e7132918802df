#include "fs_rows.h"

#include <math.h>
#include <string.h>

#include "fs_level.h"

/* sum + *error = a + b exactly (Knuth): needs a compiler that neither reassociates nor contracts. */
static inline double two_sum(double a, double b, double *error)
{
    const double sum = a + b, part = sum - a;
    *error = (a - (sum - part)) + (b - part);
    return sum;
}

void fs_move_mean(ptrdiff_t d, double old_weight, double block_weight, double *mean, double *low, double *base,
                  const double *shift)
{
    const double total = old_weight + block_weight;
    const double lever = sqrt(old_weight / total) * sqrt(block_weight);
    /* From the mean of the heavier side: what is rounded is then small on its scale. The first block sets the mean
     * exactly, for any old value. */
    const int heavier = block_weight > old_weight;
    const double step = heavier ? -(old_weight / total) : block_weight / total;
    FS_INDEPENDENT
    for (ptrdiff_t j = 0; j < d; j++) {
        double rest, error;
        const double block = two_sum(base[j], shift[j], &rest);
        const double move = (block - mean[j]) + (rest - low[j]);
        const double sum = two_sum(heavier ? block : mean[j], step * move, &error);
        error += heavier ? rest : low[j];
        base[j] = lever * move;
        mean[j] = sum + error;
        low[j] = error - (mean[j] - sum);
    }
}

#define FS_FROM_AVX2
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
