/* Loaded before everything else: once armed, the n-th request for memory of at least `from` bytes is refused. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

static atomic_long left; /* requests until one is refused; 0: not armed */
static size_t from;
static atomic_long seen;

void failing_arm(long n, size_t at_least) {
    from = at_least;
    atomic_store(&seen, 0);
    atomic_store(&left, n);
}

/* Requests of that size since it was armed; it is not armed any more. */
long failing_end(void) {
    atomic_store(&left, 0);
    return atomic_load(&seen);
}

static int refused(size_t size) {
    if (size < from || atomic_load(&left) == 0) {
        return 0;
    }
    atomic_fetch_add(&seen, 1);
    if (atomic_fetch_sub(&left, 1) == 1) {
        errno = ENOMEM;
        return 1;
    }
    return 0;
}

/* glibc's own names: to look them up by dlsym would ask for memory */
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

void *malloc(size_t size) { return refused(size) ? NULL : __libc_malloc(size); }
void *calloc(size_t n, size_t size) { return refused(n * size) ? NULL : __libc_calloc(n, size); }
void *realloc(void *p, size_t size) { return refused(size) ? NULL : __libc_realloc(p, size); }
void *memalign(size_t align, size_t size) { return refused(size) ? NULL : __libc_memalign(align, size); }
void *aligned_alloc(size_t align, size_t size) { return refused(size) ? NULL : __libc_memalign(align, size); }
int posix_memalign(void **out, size_t align, size_t size) {
    *out = refused(size) ? NULL : __libc_memalign(align, size);
    return *out == NULL ? ENOMEM : 0;
}
