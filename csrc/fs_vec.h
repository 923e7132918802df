/* Vectors of floats and doubles at every level, for loops that are written once for all levels: see fs_vec.inc.h. */
#ifndef FS_VEC_H
#define FS_VEC_H
#include "fs_intrinsics.h"

#define FS_LOOPS "fs_vec.inc.h"
#include "fs_each_level.inc.h"
#undef FS_LOOPS

#endif
