#include "fs_rows.h"

#include <math.h>
#include <string.h>

#define REAL float
#define BITS uint32_t
#define INF_BITS 0x7f800000u
#define NAME(verb) fs_##verb##_s
#include "fs_rows.inc.h"
#undef REAL
#undef BITS
#undef INF_BITS
#undef NAME

#define REAL double
#define BITS uint64_t
#define INF_BITS 0x7ff0000000000000u
#define NAME(verb) fs_##verb##_d
#include "fs_rows.inc.h"
