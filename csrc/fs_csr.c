#include "fs_csr.h"

#define INDEX int32_t
#define UNSIGNED uint32_t
#define LIMIT ((int64_t)1 << 31)
#define NAME(verb) fs_##verb##_32
#include "fs_csr.inc.h"
#undef INDEX
#undef UNSIGNED
#undef LIMIT
#undef NAME

#define INDEX int64_t
#define UNSIGNED uint64_t
#define LIMIT INT64_MAX
#define NAME(verb) fs_##verb##_64
#include "fs_csr.inc.h"
