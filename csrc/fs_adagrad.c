#include "fs_adagrad.h"

#include <math.h>

#include "fs_vec.h"

#define TYPED(verb) verb##_d
#define FS_LOOPS "fs_adagrad.inc.h"
#include "fs_each_level.inc.h"
