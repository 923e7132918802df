/* Work in parts, on the cores that the process may use.
 *
 * Who has work cuts it into parts by its size alone, never by the number of threads: so the result has the same bits
 * whatever that number is, and whichever thread takes a part. The calling thread takes parts too. There is one pool of
 * threads in a process; a caller that finds it at work for another one, or is itself a part, does all its parts alone.
 */
#ifndef FS_POOL_H
#define FS_POOL_H
#include <stddef.h>

/* One part, 0 <= part < n_parts. scratch is the thread's own for the length of the part, aligned to 64 bytes if the
 * caller's is. No part may call into Python. */
typedef void (*fs_part)(void *context, ptrdiff_t part, void *scratch);

/* All parts of a job; returns when they are done. `scratch` is that of the calling thread (NULL for 0 bytes): other
 * threads have `bytes` each of the pool's. */
void fs_pool_run(ptrdiff_t n_parts, fs_part part, void *context, void *scratch, size_t bytes);

/* How many parts for a job of so much work, each of about `least` or more, at most FS_PARTS: a number that depends on
 * nothing else, and a power of two: two, four or eight threads are then done with even parts at the same time. */
enum { FS_PARTS = 16 };
ptrdiff_t fs_pool_parts(double work, double least);

/* Part number `part` of n things cut into n_parts, in multiples of `step`: [fs_pool_from(part), fs_pool_from(part +
 * 1)). */
ptrdiff_t fs_pool_from(ptrdiff_t n, ptrdiff_t n_parts, ptrdiff_t part, ptrdiff_t step);

/* Between fs_blas_alone(1) and fs_blas_alone(0) the BLAS of scipy uses one thread, in the whole process: around the
 * parts of a job that call it, and around small LAPACK work; not longer. Pairs may overlap. */
void fs_blas_alone(int enter);

/* What module `pool` has for all others. */
typedef struct {
    void (*run)(ptrdiff_t n_parts, fs_part part, void *context, void *scratch, size_t bytes);
    void (*blas_alone)(int enter);
} fs_pool_service;
void fs_pool_share(const fs_pool_service *service);

#endif
