/* The k smallest of the offered scores, ordered by score and then by id. Offers are collected in a buffer, which is
 * reduced to the k smallest whenever it is full, so that the cost of an offer does not depend on k. It is sorted once
 * at the end. */
#ifndef FS_K_LEAST_H
#define FS_K_LEAST_H
#include "fs_common.h"

typedef struct {
    float score;
    int64_t place;
} fs_offer;

typedef struct {
    ptrdiff_t k, count, room; /* requested number; number in `held`; capacity of `held`: fs_least_room(k, n) */
    fs_offer worst;           /* an offer that does not come before this one is refused, as it cannot be among the k
                               * smallest */
    fs_offer *held;
} fs_least;

/* Return the capacity that the k smallest of at most n offers need. */
ptrdiff_t fs_least_room(ptrdiff_t k, ptrdiff_t n);

/* Start with no offers. Offers that do not come before `worst` will be refused; with NULL no offer is refused by its
 * score. */
void fs_least_begin(ptrdiff_t k, ptrdiff_t room, const fs_offer *worst, fs_offer *held, fs_least *least);

/* Return whether a comes before b. ids: the id of every place, or NULL if the id is the place itself. */
static inline int fs_before(fs_offer a, fs_offer b, const int64_t *ids)
{
    if (a.score != b.score)
        return a.score < b.score;
    return ids ? b.place < 0 || (a.place >= 0 && ids[a.place] < ids[b.place]) : (uint64_t)a.place < (uint64_t)b.place;
}

/* Add an offer whose score is not NaN. `worst` decreases when the buffer is reduced. */
void fs_least_offer(fs_offer offer, const int64_t *ids, fs_least *least);

/* Add all offers that `from` holds. */
void fs_least_join(const fs_least *from, const int64_t *ids, fs_least *least);

/* Write the k smallest offers in order; infinity and -1 where there were fewer. */
void fs_least_sort(const int64_t *ids, fs_least *least, float *score, int64_t *place);

#endif
