#include "fs_tridiag.h"

#include <math.h>

#include "fs_vec.h"

int fs_tridiagonal_pays(ptrdiff_t n, size_t real)
{
#if FS_X86
    if (*fs_level >= FS_AVX2)
        return n >= 16 && n * n * (ptrdiff_t)real <= 1 << 20;
#endif
    (void)n, (void)real;
    return 0;
}

#define FS_LOOPS "fs_tridiag.inc.h"

#define FS_FILE "fs_each_level.inc.h"
#include "fs_each_real.inc.h"
