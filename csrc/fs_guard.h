/* A readers-writer lock that never waits: one thread may change an object, or any number of threads may read it; others
 * are refused.
 *
 * The state is one word: bits 0 to 19 are the number of readers, bit 20 is set while a thread changes the object, bits
 * 21 to 31 are the number of forks between the first process and this one. In a child of fork, which has one thread,
 * readers of the parent are forgotten. A change that was going on during the fork is not: the object may be
 * inconsistent in the child.
 */
#ifndef FS_GUARD_H
#define FS_GUARD_H

#include <stdint.h>

#if defined(_MSC_VER)
#include <intrin.h>
typedef volatile long fs_guard;
#else
typedef uint32_t fs_guard;
#endif

enum {
    FS_GUARD_IN = 0,       /* entered: leave by fs_guard_leave */
    FS_GUARD_CHANGING = 1, /* refused: a thread changes the object */
    FS_GUARD_READING = 2,  /* refused: a thread reads it */
    FS_GUARD_TORN = 3      /* refused: it was being changed when the process was forked */
};

#define FS_GUARD_CHANGER ((uint32_t)1 << 20)
#define FS_GUARD_PROCESS_SHIFT 21
#define FS_GUARD_WHO (((uint32_t)1 << FS_GUARD_PROCESS_SHIFT) - 1)

static inline uint32_t fs_guard_load(const fs_guard *word)
{
#if defined(_MSC_VER)
    return (uint32_t)*word;
#else
    return __atomic_load_n(word, __ATOMIC_RELAXED);
#endif
}

/* If *word equals *seen, set it to `wanted` and return 1; else set *seen to *word and return 0. Orders memory as a lock
 * does. */
static inline int fs_guard_swap(fs_guard *word, uint32_t *seen, uint32_t wanted)
{
#if defined(_MSC_VER)
    const uint32_t found = (uint32_t)_InterlockedCompareExchange(word, (long)wanted, (long)*seen);
    const int done = found == *seen;
    *seen = found;
    return done;
#else
    return __atomic_compare_exchange_n(word, seen, wanted, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
#endif
}

/* Enter to change (share = 0) or to read (share = 1); `process` is the number of forks so far. */
static inline int fs_guard_enter(fs_guard *word, int share, uint32_t process)
{
    uint32_t seen = fs_guard_load(word), who, after;
    process <<= FS_GUARD_PROCESS_SHIFT;
    do {
        who = seen & FS_GUARD_WHO;
        if (who & FS_GUARD_CHANGER) {
            return (seen & ~FS_GUARD_WHO) == process ? FS_GUARD_CHANGING : FS_GUARD_TORN;
        }
        if ((seen & ~FS_GUARD_WHO) != process) {
            who = 0;
        }
        if (who && !share) {
            return FS_GUARD_READING;
        }
        after = process | (share ? who + 1 : FS_GUARD_CHANGER);
    } while (!fs_guard_swap(word, &seen, after));
    return FS_GUARD_IN;
}

/* Leave a guard that was entered in this process, or before a fork by the thread that called it. */
static inline void fs_guard_leave(fs_guard *word, int share, uint32_t process)
{
    uint32_t seen = fs_guard_load(word);
    process <<= FS_GUARD_PROCESS_SHIFT;
    do {
        if ((seen & ~FS_GUARD_WHO) != process) {
            return; /* the reader was forgotten by a fork: see above */
        }
    } while (!fs_guard_swap(word, &seen, share ? seen - 1 : seen & ~FS_GUARD_CHANGER));
}

#endif
