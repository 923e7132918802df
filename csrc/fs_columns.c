#include "fs_columns.h"

#include "fs_vec.h"

#define FS_LOOPS "fs_transpose.inc.h"
#include "fs_each_level.inc.h"
#undef FS_LOOPS

/* Bytes of a column that are read at a time: enough for the CPU to look ahead, and so few that those of sixteen
 * columns, and the lines of as many rows of the result, stay in the first cache. */
#define STRIP_BYTES 512

#define FS_LOOPS "fs_columns.inc.h"

#define FS_FILE "fs_each_level.inc.h"
#include "fs_each_real.inc.h"
