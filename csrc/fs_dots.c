#include "fs_dots.h"

#include "fs_vec.h"

#define TYPED(verb) verb##_d
#define FS_LOOPS "fs_dots.inc.h"
#include "fs_each_level.inc.h"
