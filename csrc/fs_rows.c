#include "fs_rows.h"

#include <math.h>
#include <string.h>

/* sum + *error = a + b exactly (Knuth): needs a compiler that neither reassociates nor contracts. */
FS_INLINE double two_sum(double a, double b, double *error)
{
    const double sum = a + b, part = sum - a;
    *error = (a - (sum - part)) + (b - part);
    return sum;
}

FS_CLONES void fs_move_mean(ptrdiff_t d, double old_weight, double block_weight, double *mean, double *low,
                            double *base, const double *shift)
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

#define REAL float
#define BITS uint32_t
#define INF_BITS 0x7f800000u
#define NAME(verb) fs_##verb##_s
#include "fs_rows.inc.h"
#undef REAL
#undef BITS
#undef INF_BITS
#undef NAME

#define REAL double
#define BITS uint64_t
#define INF_BITS 0x7ff0000000000000u
#define NAME(verb) fs_##verb##_d
#include "fs_rows.inc.h"
