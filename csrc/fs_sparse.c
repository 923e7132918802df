#include "fs_sparse.h"

#include <math.h>
#include <string.h>

#include "fs_level.h"

ptrdiff_t fs_csr_common(ptrdiff_t n, ptrdiff_t d, const int64_t *indptr, const int32_t *indices,
                        const double *root_weight, double total, double *present, int32_t *chosen, int32_t *slot)
{
    ptrdiff_t n_chosen = 0;
    memset(present, 0, (size_t)d * sizeof *present);
    for (ptrdiff_t i = 0; i < n; i++) {
        const double w = root_weight[i] * root_weight[i];
        for (int64_t e = indptr[i]; e < indptr[i + 1]; e++)
            present[indices[e]] += w;
    }
    for (ptrdiff_t j = 0; j < d; j++)
        if (present[j] > total / 2) {
            chosen[n_chosen++] = (int32_t)j;
            slot[j] = (int32_t)n_chosen;
        }
    return n_chosen;
}

#define FS_FROM_AVX2
#define FS_LOOPS "fs_kept.inc.h"

#define FS_FILE "fs_sparse.inc.h"
#include "fs_each_real.inc.h"
