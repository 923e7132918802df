#include "fs_hadamard.h"

#include <string.h>

#include "fs_level.h"

/* Bytes of a strip of columns. A pass works on strips of 64 rows, 32 KB, which stay in the L1 cache between its two
 * steps, and accesses memory in pieces of at least this length. */
#define STRIP_BYTES 512
/* The fused transform reads its rows from memory in longer pieces (FS_SRHT_STRIP_BYTES), which stay in the L2 cache. */

#if defined(__clang__) || (defined(__GNUC__) && __GNUC__ >= 12)
#define FS_SHUFFLES 1
#define FS_SHUFFLE(v, ...) __builtin_shufflevector(v, v, __VA_ARGS__)
/* f(i) for the number i of each lane */
#define LANES_2(f) f(0), f(1)
#define LANES_4(f) LANES_2(f), f(2), f(3)
#define LANES_8(f) LANES_4(f), f(4), f(5), f(6), f(7)
#define LANES_16(f) LANES_8(f), f(8), f(9), f(10), f(11), f(12), f(13), f(14), f(15)
/* the lane at distance 1, 2, 4 or 8, and the sign of the lane itself */
#define FLIP_1(i) (i) ^ 1
#define FLIP_2(i) (i) ^ 2
#define FLIP_4(i) (i) ^ 4
#define FLIP_8(i) (i) ^ 8
#define SIGN_1(i) (i) & 1 ? -1 : 1
#define SIGN_2(i) (i) & 2 ? -1 : 1
#define SIGN_4(i) (i) & 4 ? -1 : 1
#define SIGN_8(i) (i) & 8 ? -1 : 1
#else
#define FS_SHUFFLES 0
#endif

#define FS_FROM_AVX2
#define FS_LOOPS "fs_hadamard.inc.h"

#define REAL float
#define BITS 32
#define TYPED(verb) verb##_s
#include "fs_each_level.inc.h"
#undef REAL
#undef BITS
#undef TYPED

#define REAL double
#define BITS 64
#define TYPED(verb) verb##_d
#include "fs_each_level.inc.h"
