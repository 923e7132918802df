/* The pool of threads by itself: sums in parts from several threads at once, jobs within jobs, other numbers of threads
 * in between, and children of fork; for the sanitizers, that of threads too. */
#if !defined(_WIN32)
#define _POSIX_C_SOURCE 200809L
#endif
#include "fs_threads.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if !defined(_WIN32)
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#endif

static void check(int good, const char *what)
{
    if (!good) {
        printf("FAILED: %s\n", what);
        fflush(stdout);
        _Exit(1);
    }
}

enum { N = 4000, BYTES = 64 };

struct sums {
    double part[FS_PARTS], x[N];
    int done[FS_PARTS], within;
    ptrdiff_t n_parts;
};

static void innermost(void *context, ptrdiff_t part, void *scratch)
{
    (void)scratch;
    ((double *)context)[part] += 1;
}

static void add(void *context, ptrdiff_t part, void *scratch)
{
    struct sums *s = context;
    double total = 0;
    memset(scratch, (int)part, BYTES); /* the thread's own */
    for (ptrdiff_t i = fs_pool_from(N, s->n_parts, part, 16); i < fs_pool_from(N, s->n_parts, part + 1, 16); i++)
        total += s->x[i];
    if (s->within) { /* a job of a part runs in its thread */
        double count[3] = {0, 0, 0};
        fs_pool_run(3, innermost, count, NULL, 0);
        check(count[0] == 1 && count[1] == 1 && count[2] == 1, "a job within a job");
    }
    for (int i = 0; i < BYTES; i++)
        check(((unsigned char *)scratch)[i] == (unsigned char)part, "scratch is a thread's own");
    s->part[part] = total;
    s->done[part]++;
}

static double one_sum(unsigned seed, int within)
{
    struct sums sums = {.within = within}, *s = &sums; /* no malloc: sanitizers do not bring theirs over a fork */
    double scratch[BYTES / sizeof(double)], total = 0;
    for (int i = 0; i < N; i++) {
        seed = seed * 1664525u + 1013904223u;
        s->x[i] = (double)(seed >> 8) / (1 << 24) - 0.5;
    }
    s->n_parts = fs_pool_parts(N, 300);
    fs_pool_run(s->n_parts, add, s, scratch, sizeof scratch);
    for (ptrdiff_t p = 0; p < s->n_parts; p++) {
        check(s->done[p] == 1, "every part once");
        total += s->part[p];
    }
    return total;
}

static double expected[8];

static void all_sums(int rounds)
{
    for (int round = 0; round < rounds; round++) {
        const unsigned seed = (unsigned)round % 8;
        check(one_sum(seed, round % 3 == 0) == expected[seed], "the same bits for every number of threads");
    }
}

/* BLAS, as far as the pool knows it. */
static int blas_threads = 6;
static int blas_get(void) { return blas_threads; }
static void blas_set(int n) { blas_threads = n; }

#if !defined(_WIN32)
static void *caller(void *unused)
{
    (void)unused;
    all_sums(1500);
    for (int i = 0; i < 200; i++) {
        fs_blas_alone(1);
        fs_blas_alone(0);
    }
    return NULL;
}

/* Parts of half a millisecond, which take any other thread twenty times as long: as if it had lost its core. */
struct lag {
    pthread_t caller;
    pthread_mutex_t lock;
    int elsewhere;
};

static void part_that_lags(void *context, ptrdiff_t part, void *scratch)
{
    struct lag *lag = context;
    const int here = pthread_equal(pthread_self(), lag->caller);
    const struct timespec length = {0, here ? 500000 : 10000000};
    (void)part;
    (void)scratch;
    nanosleep(&length, NULL);
    if (!here) {
        pthread_mutex_lock(&lag->lock);
        lag->elsewhere++;
        pthread_mutex_unlock(&lag->lock);
    }
}

static void late_workers(void)
{
    struct lag lag = {pthread_self(), PTHREAD_MUTEX_INITIALIZER, 0};
    fs_threads_set(2);
    for (int i = 0; i < 100 && !lag.elsewhere; i++)
        fs_pool_run(4, part_that_lags, &lag, NULL, 0);
    check(lag.elsewhere > 0, "a worker takes parts");
    lag.elsewhere = 0;
    for (int i = 0; i < 8; i++)
        fs_pool_run(4, part_that_lags, &lag, NULL, 0);
    check(lag.elsewhere == 0, "jobs after one that was late are done alone");
    for (int i = 0; i < 100 && !lag.elsewhere; i++)
        fs_pool_run(4, part_that_lags, &lag, NULL, 0);
    check(lag.elsewhere > 0, "and then a worker is tried again");
    fs_threads_set(2);
}

static int status_of(pid_t child)
{
    int status = 1;
    check(child > 0 && waitpid(child, &status, 0) == child, "fork");
    return status;
}
#endif

int main(void)
{
    for (unsigned seed = 0; seed < 8; seed++)
        expected[seed] = one_sum(seed, 0); /* no service yet: one thread */
    fs_pool_share(fs_threads_service());
    fs_threads_set_cores(2);
    const int numbers[] = {1, 2, 3, 8, 2};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        fs_threads_set(numbers[i]);
        check(fs_threads_get() == numbers[i], "threads");
        all_sums(500);
    }
    check(fs_threads_started() == 7, "workers start when they are needed, and stay");

    fs_threads_adopt_blas(blas_get, blas_set);
    fs_blas_alone(1);
    fs_blas_alone(1);
    check(blas_threads == 1 && fs_threads_blas_get() == 6, "alone");
    fs_threads_blas_set(5);
    fs_blas_alone(0);
    check(blas_threads == 1, "alone until the last ends");
    fs_blas_alone(0);
    check(blas_threads == 5, "as it was asked to be meanwhile");

#if !defined(_WIN32)
    late_workers();
    pthread_t callers[4];
    for (int i = 0; i < 4; i++)
        check(pthread_create(&callers[i], NULL, caller, NULL) == 0, "thread");
#ifndef WITHOUT_FORK
    for (int i = 0; i < 30; i++) { /* whatever the others are at */
        const pid_t child = fork();
        if (child == 0) {
            alarm(20);
            fs_threads_settle();
            check(blas_threads == 5 && fs_threads_blas_get() == 5, "BLAS in a child");
            check(fs_threads_started() == 0, "no workers in a child");
            all_sums(20);
            check(fs_threads_started() > 0, "workers of a child");
            const pid_t grandchild = fork();
            if (grandchild == 0) {
                all_sums(5);
                _exit(0);
            }
            _exit(status_of(grandchild) != 0);
        }
        check(status_of(child) == 0, "a child of fork");
    }
#endif
    for (int i = 0; i < 4; i++)
        pthread_join(callers[i], NULL);
    check(blas_threads == 5, "BLAS has its threads");
#endif
    puts("pool: clean");
    return 0;
}
