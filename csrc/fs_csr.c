#include "fs_csr.h"

#include "fs_level.h"

#define FS_FROM_AVX2
#define FS_LOOPS "fs_csr.inc.h"

#define INDEX int32_t
#define UNSIGNED uint32_t
#define LIMIT ((int64_t)1 << 31)
#define TYPED(verb) verb##_32
#include "fs_each_level.inc.h"
#undef INDEX
#undef UNSIGNED
#undef LIMIT
#undef TYPED

#define INDEX int64_t
#define UNSIGNED uint64_t
#define LIMIT INT64_MAX
#define TYPED(verb) verb##_64
#include "fs_each_level.inc.h"
