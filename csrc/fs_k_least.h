/* The k least of what is offered, by score and then by id: a reservoir that is cut to k whenever it is full, so that an
 * offer costs the same whatever k is, and one sort at the end. */
#ifndef FS_K_LEAST_H
#define FS_K_LEAST_H
#include "fs_common.h"

typedef struct {
    float score;
    int64_t place;
} fs_offer;

typedef struct {
    ptrdiff_t k, count, room; /* wanted; held; of `held`: fs_least_room(k, n) */
    fs_offer worst;           /* no better one than this is known to be among the k: what is not before it is refused */
    fs_offer *held;
} fs_least;

/* Room for the k least of at most n offers. */
ptrdiff_t fs_least_room(ptrdiff_t k, ptrdiff_t n);

/* Nothing held; what is not before `worst` (NULL: of no score) will be refused. */
void fs_least_begin(ptrdiff_t k, ptrdiff_t room, const fs_offer *worst, fs_offer *held, fs_least *least);

/* Whether a comes before b; ids: that of every place, NULL where it is the place itself. */
static inline int fs_before(fs_offer a, fs_offer b, const int64_t *ids)
{
    if (a.score != b.score)
        return a.score < b.score;
    return ids ? b.place < 0 || (a.place >= 0 && ids[a.place] < ids[b.place]) : (uint64_t)a.place < (uint64_t)b.place;
}

/* A score that is no NaN. `worst` falls when the reservoir is cut. */
void fs_least_offer(fs_offer offer, const int64_t *ids, fs_least *least);

/* All that `from` holds. */
void fs_least_join(const fs_least *from, const int64_t *ids, fs_least *least);

/* The k least in their order; infinity and -1 where fewer were offered. */
void fs_least_sort(const int64_t *ids, fs_least *least, float *score, int64_t *place);

#endif
