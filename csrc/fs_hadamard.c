#include "fs_hadamard.h"

#include <string.h>

/* Bytes of a strip of columns: a pass works on strips of 64 rows, 32 KB, which stay in the first caches between
 * their two steps, and every memory access is to pieces of at least this length. */
#define STRIP_BYTES 512
/* The same for the fused transform, which reads its rows from memory: longer pieces, still in the second cache. */
#define SRHT_STRIP_BYTES 1024

/* Vectors of 64 bytes: one AVX-512 register, or two or four narrower ones. */
#if defined(__GNUC__) && !defined(__clang__)
#define FS_SHUFFLES 1
typedef float fs_vec_s __attribute__((vector_size(64)));
typedef double fs_vec_d __attribute__((vector_size(64)));
typedef int32_t fs_mask_s __attribute__((vector_size(64)));
typedef int64_t fs_mask_d __attribute__((vector_size(64)));
#else
#define FS_SHUFFLES 0
#endif

#define REAL float
#define NAME(verb) fs_##verb##_s
/* v = shuffled(v) + signed(v) for distances 1, 2, 4, 8 */
#define IN_REGISTER(v)                                                                            \
    v = __builtin_shuffle(v, (fs_mask_s){1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14}) + \
        v * (fs_vec_s){1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1};                   \
    v = __builtin_shuffle(v, (fs_mask_s){2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13}) + \
        v * (fs_vec_s){1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1};                   \
    v = __builtin_shuffle(v, (fs_mask_s){4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11}) + \
        v * (fs_vec_s){1, 1, 1, 1, -1, -1, -1, -1, 1, 1, 1, 1, -1, -1, -1, -1};                   \
    v = __builtin_shuffle(v, (fs_mask_s){8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7}) + \
        v * (fs_vec_s){1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1, -1};
#include "fs_hadamard.inc.h"
#undef REAL
#undef NAME
#undef IN_REGISTER

#define REAL double
#define NAME(verb) fs_##verb##_d
#define IN_REGISTER(v)                                                                                          \
    v = __builtin_shuffle(v, (fs_mask_d){1, 0, 3, 2, 5, 4, 7, 6}) + v * (fs_vec_d){1, -1, 1, -1, 1, -1, 1, -1}; \
    v = __builtin_shuffle(v, (fs_mask_d){2, 3, 0, 1, 6, 7, 4, 5}) + v * (fs_vec_d){1, 1, -1, -1, 1, 1, -1, -1}; \
    v = __builtin_shuffle(v, (fs_mask_d){4, 5, 6, 7, 0, 1, 2, 3}) + v * (fs_vec_d){1, 1, 1, 1, -1, -1, -1, -1};
#include "fs_hadamard.inc.h"
