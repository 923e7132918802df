/* Access to the pool, a copy in every extension module: see fs_pool.h. Without fs_pool_share there are no threads. */
#include "fs_pool.h"

static const fs_pool_service *shared;

void fs_pool_share(const fs_pool_service *service) { shared = service; }

void fs_pool_run(ptrdiff_t n_parts, fs_part part, void *context, void *scratch, size_t bytes)
{
    if (shared && n_parts > 1) {
        shared->run(n_parts, part, context, scratch, bytes);
        return;
    }
    for (ptrdiff_t i = 0; i < n_parts; i++)
        part(context, i, scratch);
}

void fs_blas_alone(int enter)
{
    if (shared)
        shared->blas_alone(enter);
}

ptrdiff_t fs_pool_parts(double work, double least)
{
    ptrdiff_t parts = work < 2 * least ? 1 : 2;
    while (parts > 1 && parts < FS_PARTS && work >= 1.5 * (double)parts * least)
        parts *= 2;
    return parts;
}

ptrdiff_t fs_pool_from(ptrdiff_t n, ptrdiff_t n_parts, ptrdiff_t part, ptrdiff_t step)
{
    const ptrdiff_t steps = (n + step - 1) / step;
    const ptrdiff_t from = (steps / n_parts * part + (part < steps % n_parts ? part : steps % n_parts)) * step;
    return from < n ? from : n;
}
