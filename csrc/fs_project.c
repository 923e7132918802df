#include "fs_project.h"

#include <float.h>
#include <string.h>

#include "fs_vec.h"

#define ROWS FS_PROJECT_ROWS
#define TILE FS_PROJECT_TILE
#define DEPTH FS_PROJECT_DEPTH
#define BOUND FS_PROJECT_BOUND

#define FS_LOOPS "fs_transpose.inc.h"
#include "fs_each_level.inc.h"
#undef FS_LOOPS

#define FS_LOOPS "fs_project_tile.inc.h"
#define TYPED(verb) verb##_s
#include "fs_each_level.inc.h"
#undef FS_LOOPS
#undef TYPED

#define FS_LOOPS "fs_project.inc.h"

#define FS_FILE "fs_each_level.inc.h"
#include "fs_each_real.inc.h"
