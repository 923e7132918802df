/* The threads behind fs_pool.h; used by the extension module `pool` only. */
#ifndef FS_THREADS_H
#define FS_THREADS_H
#include "fs_pool.h"

const fs_pool_service *fs_threads_service(void);

/* Get or set the number of threads of a job, including the calling one, at least 1. Workers are started when a job
 * first needs them, and are not stopped. */
int fs_threads_get(void);
void fs_threads_set(int n);

/* Set the number of cores that the process may use: with at most as many threads a worker spins for a moment before it
 * sleeps. */
void fs_threads_set_cores(int n);

/* Return the number of worker threads that are alive in this process. */
int fs_threads_started(void);

/* Set the functions that get and set the number of threads of BLAS. */
void fs_threads_adopt_blas(int (*get)(void), void (*set)(int));

/* Get that number, as it is outside of fs_blas_alone; 0 if no BLAS was adopted. fs_threads_blas_set sets it, at once or
 * after fs_blas_alone(0). */
int fs_threads_blas_get(void);
/* In a child of fork: restore the threads of BLAS that a call in the parent had reduced. */
void fs_threads_settle(void);
void fs_threads_blas_set(int n);

#endif
