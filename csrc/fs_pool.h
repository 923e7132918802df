/* Run jobs in parts on a pool of threads.
 *
 * A caller splits a job into parts by its size only, never by the number of threads. The results are therefore bitwise
 * identical whatever that number is, and whichever thread runs a part. The calling thread runs parts too. There is one
 * pool of threads in a process. A caller that finds it busy, or is itself in a part, runs all its parts alone.
 */
#ifndef FS_POOL_H
#define FS_POOL_H
#include <stddef.h>

/* One part, 0 <= part < n_parts. scratch belongs to the thread during the part, aligned to 64 bytes if the caller's is.
 * A part must not call Python. */
typedef void (*fs_part)(void *context, ptrdiff_t part, void *scratch);

/* Run all parts of a job, and return when they are done. `scratch` is the scratch memory of the calling thread (NULL
 * for 0 bytes); other threads use `bytes` of the pool's memory each. */
void fs_pool_run(ptrdiff_t n_parts, fs_part part, void *context, void *scratch, size_t bytes);

/* Return the number of parts of a job: a power of two, at most FS_PARTS, such that each part has about `least` of the
 * work or more. It depends on nothing else. With a power of two, 2, 4 or 8 threads finish equal parts at the same time.
 */
enum { FS_PARTS = 16 };
ptrdiff_t fs_pool_parts(double work, double least);

/* Return the first item of part `part`, if n items are split into n_parts at multiples of `step`. The part ends where
 * the next one begins. */
ptrdiff_t fs_pool_from(ptrdiff_t n, ptrdiff_t n_parts, ptrdiff_t part, ptrdiff_t step);

/* Between fs_blas_alone(1) and fs_blas_alone(0) the BLAS of SciPy uses one thread, in the whole process. Call them
 * around the parts of a job that call BLAS, and around small LAPACK calls, and not longer. Pairs may overlap. */
void fs_blas_alone(int enter);

/* The functions that the module `pool` offers to all other modules. */
typedef struct {
    void (*run)(ptrdiff_t n_parts, fs_part part, void *context, void *scratch, size_t bytes);
    void (*blas_alone)(int enter);
} fs_pool_service;
void fs_pool_share(const fs_pool_service *service);

#endif
