/* The threads behind fs_pool.h: part of one extension module, `pool`, alone. */
#ifndef FS_THREADS_H
#define FS_THREADS_H
#include "fs_pool.h"

const fs_pool_service *fs_threads_service(void);

/* Threads of a job, the calling one included: at least 1. Workers are started when a job first needs them; they stay.
 */
int fs_threads_get(void);
void fs_threads_set(int n);

/* Cores that the process may use: with no more threads than that a worker looks for the next job for a moment before it
 * sleeps. */
void fs_threads_set_cores(int n);

/* Worker threads that are alive in this process. */
int fs_threads_started(void);

/* The functions by which BLAS tells and takes its number of threads. */
void fs_threads_adopt_blas(int (*get)(void), void (*set)(int));

/* That number, whatever fs_blas_alone has made of it for the moment; 0 if no BLAS was adopted. The second sets it, now
 * or once nobody is alone. */
int fs_threads_blas_get(void);
/* In a child of fork: give BLAS back the threads that somebody in the parent had taken for the moment. */
void fs_threads_settle(void);
void fs_threads_blas_set(int n);

#endif
