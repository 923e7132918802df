/* The end of a level of fs_each_level.inc.h: its loops, after which the previous instruction set of the compiler is
 * restored. */
#include FS_LOOPS
#if FS_X86 && FS_WIDTH
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
#undef FS_SUFFIX
#undef FS_WIDTH
#undef FS_FUSED
