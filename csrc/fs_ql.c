#include "fs_ql.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "fs_level.h"

#define FS_FROM_AVX2
#define FS_LOOPS "fs_ql.inc.h"

#define FS_FILE "fs_each_level.inc.h"
#include "fs_each_real.inc.h"
