#include "fs_secular.h"

#include <float.h>
#include <math.h>

#include "fs_level.h"

/* b if a is NaN, like fmax, which compilers call as a function and gcc 12 for ARM miscompiles when nested. */
#define LARGER(a, b) ((a) > (b) ? (a) : (b))

ptrdiff_t fs_secular_deflate(ptrdiff_t n, ptrdiff_t n1, double rho, double eps, double *d, double *z,
                             const int32_t *order, int32_t *keep, int32_t *type, int32_t *pair, double *turn,
                             ptrdiff_t *n_turns)
{
    double largest = 0;
    ptrdiff_t k = 0, turns = 0, last = -1;
    for (ptrdiff_t j = 0; j < n; j++) {
        largest = LARGER(fabs(d[j]), largest);
        largest = LARGER(fabs(z[j]), largest);
        type[j] = j < n1 ? 1 : 3;
    }
    const double small = 8 * eps * largest;
    for (ptrdiff_t p = 0; p < n; p++) {
        const ptrdiff_t j = order[p];
        if (rho * fabs(z[j]) <= small)
            continue; /* d[j] and its column are an eigenpair */
        if (last >= 0) {
            /* two close poles: rotate such that the first has no weight */
            const double tau = hypot(z[last], z[j]), c = z[j] / tau, s = -z[last] / tau, gap = d[j] - d[last];
            if (fabs(gap * c * s) <= small) {
                const double low = d[last], high = d[j];
                z[j] = tau;
                z[last] = 0;
                if (type[last] != type[j])
                    type[last] = type[j] = 2;
                d[last] = low * c * c + high * s * s;
                /* rounding must not move it out of [low, high]: kept poles stay sorted */
                d[j] = LARGER(low, low * s * s + high * c * c);
                d[j] = d[j] < high ? d[j] : high;
                pair[2 * turns] = (int32_t)last;
                pair[2 * turns + 1] = (int32_t)j;
                turn[2 * turns] = c;
                turn[2 * turns + 1] = s;
                turns++;
                last = j;
                continue;
            }
            keep[k++] = (int32_t)last;
        }
        last = j;
    }
    if (last >= 0)
        keep[k++] = (int32_t)last;
    *n_turns = turns;
    return k;
}

#define FS_FROM_AVX2
#define FS_LOOPS "fs_secular.inc.h"
#define TYPED(verb) verb
#include "fs_each_level.inc.h"
#undef TYPED
#undef FS_LOOPS
#define FS_LOOPS "fs_vectors.inc.h"

#define FS_FILE "fs_each_level.inc.h"
#include "fs_each_real.inc.h"
