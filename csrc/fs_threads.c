/* One pool of threads for a process: see fs_pool.h and fs_threads.h.
 *
 * A job is a counter of parts under one lock: parts are large (tens of microseconds and more), so that a lock per part
 * costs nothing measurable, and needs no atomics of a compiler. Our own pool instead of OpenMP, because it survives a
 * fork (GNU's hangs in a child), needs no runtime in addition to those of NumPy and torch, and is the same with every
 * compiler. */
#if !defined(_WIN32)
#define _POSIX_C_SOURCE 200809L /* -std=c11 declares no more than C */
#endif
#include "fs_threads.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
typedef SRWLOCK mutex;
typedef CONDITION_VARIABLE condition;
#define MUTEX SRWLOCK_INIT
#define CONDITION CONDITION_VARIABLE_INIT
static void lock(mutex *m) { AcquireSRWLockExclusive(m); }
static void unlock(mutex *m) { ReleaseSRWLockExclusive(m); }
static void wait_for(condition *c, mutex *m) { SleepConditionVariableSRW(c, m, INFINITE, 0); }
static void wake_all(condition *c) { WakeAllConditionVariable(c); }
static double seconds(void)
{
    LARGE_INTEGER now, frequency;
    QueryPerformanceCounter(&now);
    QueryPerformanceFrequency(&frequency);
    return (double)now.QuadPart / (double)frequency.QuadPart;
}
#else
#include <pthread.h>
#include <signal.h>
#include <time.h>
typedef pthread_mutex_t mutex;
typedef pthread_cond_t condition;
#define MUTEX PTHREAD_MUTEX_INITIALIZER
#define CONDITION PTHREAD_COND_INITIALIZER
static void lock(mutex *m) { pthread_mutex_lock(m); }
static void unlock(mutex *m) { pthread_mutex_unlock(m); }
static void wait_for(condition *c, mutex *m) { pthread_cond_wait(c, m); }
static void wake_all(condition *c) { pthread_cond_broadcast(c); }
static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
#endif

#if defined(_MSC_VER)
#include <intrin.h>
#define PEEK(word) (*(volatile int *)&(word))
#define PAUSE() YieldProcessor()
#else
#define PEEK(word) __atomic_load_n(&(word), __ATOMIC_ACQUIRE)
#if defined(__x86_64__) || defined(__i386__)
#define PAUSE() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define PAUSE() __asm__ __volatile__("yield")
#else
#define PAUSE() ((void)0)
#endif
#endif

/* Seconds that a thread spins before it sleeps: about the time between two jobs of a shrink. */
static const double LOOK = 5e-4;

/* A job is late if it takes this many seconds longer than on one thread; the next FIRST_REST to MOST_REST jobs are then
 * run by the caller alone. A worker that has lost its core gets it back after some milliseconds, ten jobs and more. */
static const double LATE = 2e-4;
enum { FIRST_REST = 8, MOST_REST = 512 };

static struct {
    mutex lock;
    condition wake, done, spare; /* spare: workers beyond the requested number wait for it */
    int wanted, cores, started;
    int taken;                /* whether a caller uses the pool */
    int alone_for, last_rest; /* jobs that callers still run alone, and their last number */
    /* the job, `number` of it; seats: workers that may still join; inside: those that have */
    int number, seats, inside;
    ptrdiff_t n_parts, next;
    fs_part part;
    void *context;
    size_t bytes;
    /* BLAS: how many are alone, and its number of threads before the first of them */
    mutex blas_lock;
    int alone, blas_threads, left_alone;
    int (*blas_get)(void);
    void (*blas_set)(int);
} pool = {.lock = MUTEX,
          .wake = CONDITION,
          .done = CONDITION,
          .spare = CONDITION,
          .wanted = 1,
          .cores = 1,
          .blas_lock = MUTEX};

/* Whether this thread is a worker, or a caller that runs parts. */
#if defined(_MSC_VER)
static __declspec(thread) int busy;
#else
static __thread int busy;
#endif

static int write_word(int *word, int value)
{
#if defined(_MSC_VER)
    *(volatile int *)word = value;
#else
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
#endif
    return value;
}

/* Run parts until there are none left; return how many. The lock is held at the beginning and at the end. */
static ptrdiff_t take_parts(void *scratch)
{
    ptrdiff_t taken = 0;
    for (; pool.next < pool.n_parts; taken++) {
        const ptrdiff_t i = pool.next++;
        unlock(&pool.lock);
        pool.part(pool.context, i, scratch);
        lock(&pool.lock);
    }
    return taken;
}

/* Spin, without the lock, until a word is no longer `as_is`, but for `moment` seconds at most. */
static void look(int *word, int as_is, double moment)
{
    double until;
    if (pool.wanted > pool.cores)
        return;
    until = seconds() + moment;
    do
        for (int i = 0; i < 32; i++) {
            if (PEEK(*word) != as_is)
                return;
            PAUSE();
        }
    while (seconds() < until);
}

static void *grown(void *scratch, size_t *have, size_t bytes)
{
    if (bytes <= *have)
        return scratch;
#if defined(_WIN32)
    _aligned_free(scratch);
    scratch = _aligned_malloc(bytes, 64);
#else
    free(scratch);
    if (posix_memalign(&scratch, 64, bytes))
        scratch = NULL;
#endif
    *have = scratch ? bytes : 0;
    return scratch;
}

static void serve(int index)
{
    void *scratch = NULL;
    size_t have = 0;
    int seen = 0;
    busy = 1;
    lock(&pool.lock);
    for (;;) {
        if (pool.seats > 0 && pool.number != seen) {
            pool.seats--;
            seen = pool.number;
            scratch = grown(scratch, &have, pool.bytes);
            if (scratch || pool.bytes == 0) { /* without memory for this worker, the other threads run the parts */
                pool.inside++;
                take_parts(scratch);
                if (write_word(&pool.inside, pool.inside - 1) == 0)
                    wake_all(&pool.done);
            }
        } else {
            seen = pool.number;
            if (index >= pool.wanted - 1) {
                wait_for(&pool.spare, &pool.lock);
                continue;
            }
            unlock(&pool.lock);
            look(&pool.number, seen, LOOK);
            lock(&pool.lock);
            if (pool.number == seen)
                wait_for(&pool.wake, &pool.lock);
        }
    }
}

#if defined(_WIN32)
static DWORD WINAPI worker(void *index)
{
    serve((int)(intptr_t)index);
    return 0;
}

static int start(void)
{
    HANDLE thread = CreateThread(NULL, 0, worker, (void *)(intptr_t)pool.started, 0, NULL);
    if (thread)
        CloseHandle(thread);
    return thread != NULL;
}
#else
static void *worker(void *index)
{
    serve((int)(intptr_t)index);
    return NULL;
}

static int start(void)
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    int failed;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 8 << 20); /* musl's is too small for LAPACK */
    sigfillset(&all);                                /* signals are for Python's threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&thread, &attributes, worker, (void *)(intptr_t)pool.started);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return !failed;
}

/* No thread may set BLAS's threads during a fork: OpenBLAS's lock would stay locked in the child for ever. */
static void before_fork(void) { lock(&pool.blas_lock); }

static void after_fork(void) { unlock(&pool.blas_lock); }

/* A child of fork has only the forking thread: reset the pool. */
static void forked(void)
{
    static const mutex fresh_mutex = MUTEX;
    static const condition fresh_condition = CONDITION;
    pool.lock = pool.blas_lock = fresh_mutex;
    pool.wake = pool.done = pool.spare = fresh_condition;
    pool.started = pool.taken = pool.seats = pool.inside = 0;
    pool.n_parts = pool.next = 0;
    pool.alone_for = pool.last_rest = 0;
    if (pool.alone)
        pool.left_alone = 1; /* BLAS must not be called here: fs_threads_settle restores it */
    pool.alone = 0;
}
#endif

/* After a job of which this thread ran `taken` parts in `mine` seconds of `whole`: if running all parts alone would
 * have been faster, other processes use the cores, and the next jobs are run alone, twice as many each time. */
static void rest_if_late(ptrdiff_t taken, double mine, double whole)
{
    if (!taken)
        return;
    if (whole < LATE + 1.1 * mine * (double)pool.n_parts / (double)taken)
        pool.last_rest = 0;
    else
        pool.last_rest = pool.last_rest ? (pool.last_rest < MOST_REST ? 2 * pool.last_rest : MOST_REST) : FIRST_REST;
    pool.alone_for = pool.last_rest;
}

static void run(ptrdiff_t n_parts, fs_part part, void *context, void *scratch, size_t bytes)
{
    int helpers = 0;
    double begun, mine;
    ptrdiff_t taken;
    if (!busy && n_parts > 1) {
        lock(&pool.lock);
        if (!pool.taken && pool.wanted > 1 && pool.alone_for > 0)
            pool.alone_for--;
        else if (!pool.taken && pool.wanted > 1) {
            helpers = (ptrdiff_t)pool.wanted < n_parts ? pool.wanted - 1 : (int)n_parts - 1;
            while (pool.started < helpers && start())
                pool.started++;
            if (helpers > pool.started)
                helpers = pool.started;
            pool.taken = helpers > 0;
        }
        if (!helpers)
            unlock(&pool.lock);
    }
    if (!helpers) {
        for (ptrdiff_t i = 0; i < n_parts; i++)
            part(context, i, scratch);
        return;
    }
    pool.part = part;
    pool.context = context;
    pool.n_parts = n_parts;
    pool.next = 0;
    pool.bytes = bytes;
    pool.seats = helpers;
    write_word(&pool.number, (int)((unsigned)pool.number + 1));
    wake_all(&pool.wake);
    busy = 1;
    begun = seconds();
    taken = take_parts(scratch);
    mine = seconds() - begun;
    busy = 0;
    pool.seats = 0; /* no worker may join any more */
    while (pool.inside > 0) {
        const int seen = pool.inside;
        unlock(&pool.lock);
        /* Parts are equal: a running worker ends within the time of one. A worker without a core gets this one as soon
         * as this thread sleeps. */
        look(&pool.inside, seen, taken && 2 * mine < LOOK * (double)taken ? 2 * mine / (double)taken : LOOK);
        lock(&pool.lock);
        if (pool.inside == seen)
            wait_for(&pool.done, &pool.lock);
    }
    rest_if_late(taken, mine, seconds() - begun);
    pool.taken = 0;
    unlock(&pool.lock);
}

/* After a fork during another thread's job. */
static void restore(void)
{
    if (pool.left_alone) {
        pool.left_alone = 0;
        if (pool.blas_threads > 1)
            pool.blas_set(pool.blas_threads);
    }
}

static void blas_alone(int enter)
{
    if (!pool.blas_get)
        return;
    lock(&pool.blas_lock);
    restore();
    if (enter) {
        if (pool.alone++ == 0) {
            pool.blas_threads = pool.blas_get();
            if (pool.blas_threads > 1)
                pool.blas_set(1);
        }
    } else if (--pool.alone == 0 && pool.blas_threads > 1)
        pool.blas_set(pool.blas_threads);
    unlock(&pool.blas_lock);
}

const fs_pool_service *fs_threads_service(void)
{
    static const fs_pool_service service = {run, blas_alone};
#if !defined(_WIN32)
    static int registered;
    if (!registered) {
        registered = 1;
        pthread_atfork(before_fork, after_fork, forked);
    }
#endif
    return &service;
}

int fs_threads_get(void) { return pool.wanted; }

void fs_threads_set(int n)
{
    lock(&pool.lock);
    pool.wanted = n < 1 ? 1 : n;
    pool.alone_for = pool.last_rest = 0;
    wake_all(&pool.spare);
    unlock(&pool.lock);
}

void fs_threads_set_cores(int n) { pool.cores = n; }

int fs_threads_started(void) { return pool.started; }

void fs_threads_adopt_blas(int (*get)(void), void (*set)(int))
{
    lock(&pool.blas_lock);
    if (!pool.alone) {
        pool.blas_get = get;
        pool.blas_set = set;
    }
    unlock(&pool.blas_lock);
}

void fs_threads_settle(void)
{
    if (!pool.blas_get)
        return;
    lock(&pool.blas_lock);
    restore();
    unlock(&pool.blas_lock);
}

int fs_threads_blas_get(void)
{
    int n = 0;
    if (pool.blas_get) {
        lock(&pool.blas_lock);
        restore();
        n = pool.alone ? pool.blas_threads : pool.blas_get();
        unlock(&pool.blas_lock);
    }
    return n;
}

void fs_threads_blas_set(int n)
{
    if (!pool.blas_get)
        return;
    lock(&pool.blas_lock);
    restore();
    if (pool.alone)
        pool.blas_threads = n;
    else
        pool.blas_set(n);
    unlock(&pool.blas_lock);
}

/* For threadpoolctl, which finds them by name. */
#if defined(_WIN32)
#define VISIBLE __declspec(dllexport)
#else
#define VISIBLE __attribute__((visibility("default")))
#endif
VISIBLE int fastsketch_get_num_threads(void);
VISIBLE void fastsketch_set_num_threads(int n);

int fastsketch_get_num_threads(void) { return fs_threads_get(); }

void fastsketch_set_num_threads(int n) { fs_threads_set(n); }
