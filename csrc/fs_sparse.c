#include "fs_sparse.h"

#include <math.h>

#define REAL float
#define NAME(verb) fs_##verb##_s
#include "fs_sparse.inc.h"
#undef REAL
#undef NAME

#define REAL double
#define NAME(verb) fs_##verb##_d
#include "fs_sparse.inc.h"
