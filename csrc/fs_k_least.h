/* The k least of what is offered, by score and then by id: a buffer that is cut to the k least whenever it is full, so
 * that the cost of an offer does not depend on k, and one sort at the end. */
#ifndef FS_K_LEAST_H
#define FS_K_LEAST_H
#include "fs_common.h"

typedef struct {
    float score;
    int64_t place;
} fs_offer;

typedef struct {
    ptrdiff_t k, count, room; /* wanted; held; capacity of `held`: fs_least_room(k, n) */
    fs_offer worst;           /* an offer that is not before this one cannot be among the k least: it is refused */
    fs_offer *held;
} fs_least;

/* Capacity for the k least of at most n offers. */
ptrdiff_t fs_least_room(ptrdiff_t k, ptrdiff_t n);

/* Nothing held.  Offers that are not before `worst` will be refused; NULL: none by its score. */
void fs_least_begin(ptrdiff_t k, ptrdiff_t room, const fs_offer *worst, fs_offer *held, fs_least *least);

/* Whether a comes before b; ids: that of every place, NULL where it is the place itself. */
static inline int fs_before(fs_offer a, fs_offer b, const int64_t *ids)
{
    if (a.score != b.score)
        return a.score < b.score;
    return ids ? b.place < 0 || (a.place >= 0 && ids[a.place] < ids[b.place]) : (uint64_t)a.place < (uint64_t)b.place;
}

/* Offer a score that is not NaN. `worst` decreases when the buffer is cut. */
void fs_least_offer(fs_offer offer, const int64_t *ids, fs_least *least);

/* Offer all that `from` holds. */
void fs_least_join(const fs_least *from, const int64_t *ids, fs_least *least);

/* Write the k least in order; infinity and -1 where fewer were offered. */
void fs_least_sort(const int64_t *ids, fs_least *least, float *score, int64_t *place);

#endif
