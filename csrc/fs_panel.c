#include "fs_panel.h"

#include <string.h>

#include "fs_vec.h"

#define FS_LOOPS "fs_transpose.inc.h"
#include "fs_each_level.inc.h"
#undef FS_LOOPS

/* Below 32 rows the padding costs more than is saved. From 1024 rows on a Gram matrix is split into blocks, which BLAS
 * computes as fast (_kernels/sketching/products.pyx). With the small tiles of AVX2 only narrow products are faster than
 * with BLAS. Without FMA BLAS has faster kernels. */
int fs_panel_pays(ptrdiff_t m, size_t real)
{
#if FS_X86
    if (*fs_level >= FS_AVX512)
        return 32 <= m && m < 1024;
    if (*fs_level == FS_AVX2)
        return 32 <= m && m < 1024;
#endif
    (void)m, (void)real;
    return 0;
}

#define FS_LOOPS "fs_panel.inc.h"

#define REAL double
#define PADDED FS_PANEL_ROWS_D
#define TYPED(verb) verb##_d
#include "fs_each_level.inc.h"
#undef REAL
#undef PADDED
#undef TYPED

#define REAL float
#define PADDED FS_PANEL_ROWS_S
#define TYPED(verb) verb##_s
#include "fs_each_level.inc.h"
