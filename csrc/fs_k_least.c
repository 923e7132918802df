#include "fs_k_least.h"

#include <math.h>

/* Fewer offers are sorted by insertion. */
#define FEW 12

ptrdiff_t fs_least_room(ptrdiff_t k, ptrdiff_t n)
{
    const ptrdiff_t room = k + (k < 16 ? 16 : k); /* not many more: the bound is that of the last cut */
    return room < n ? room : n;
}

void fs_least_begin(ptrdiff_t k, ptrdiff_t room, const fs_offer *worst, fs_offer *held, fs_least *least)
{
    const fs_offer none = {INFINITY, -1};
    least->k = k, least->count = 0, least->room = room, least->held = held;
    least->worst = worst ? *worst : none;
}

static void insert(ptrdiff_t n, fs_offer *x, const int64_t *ids)
{
    for (ptrdiff_t i = 1; i < n; i++) {
        const fs_offer one = x[i];
        ptrdiff_t j = i;
        for (; j > 0 && fs_before(one, x[j - 1], ids); j--)
            x[j] = x[j - 1];
        x[j] = one;
    }
}

/* Sift x[at] down in a heap of n offers, with the last of them at its root. */
static void sink(ptrdiff_t n, ptrdiff_t at, fs_offer *x, const int64_t *ids)
{
    const fs_offer one = x[at];
    for (;;) {
        ptrdiff_t child = 2 * at + 1;
        if (child >= n)
            break;
        if (child + 1 < n && fs_before(x[child], x[child + 1], ids))
            child++;
        if (!fs_before(one, x[child], ids))
            break;
        x[at] = x[child];
        at = child;
    }
    x[at] = one;
}

static void heap_sort(ptrdiff_t n, fs_offer *x, const int64_t *ids)
{
    for (ptrdiff_t i = n / 2; i-- > 0;)
        sink(n, i, x, ids);
    for (ptrdiff_t last = n - 1; last > 0; last--) {
        const fs_offer one = x[last];
        x[last] = x[0];
        x[0] = one;
        sink(last, 0, x, ids);
    }
}

static void swap(fs_offer *a, fs_offer *b)
{
    const fs_offer one = *a;
    *a = *b;
    *b = one;
}

/* Partition x about a pivot, the median of three, and return the index of the pivot; n > FEW. */
static ptrdiff_t split(ptrdiff_t n, fs_offer *x, const int64_t *ids)
{
    fs_offer *a = x, *b = x + n / 2, *c = x + n - 1;
    if (fs_before(*b, *a, ids))
        swap(a, b);
    if (fs_before(*c, *b, ids)) {
        swap(b, c);
        if (fs_before(*b, *a, ids))
            swap(a, b);
    }
    const fs_offer pivot = *b;
    swap(b, c - 1);
    ptrdiff_t i = 0, j = n - 2;
    for (;;) {
        while (fs_before(x[++i], pivot, ids))
            ;
        while (fs_before(pivot, x[--j], ids))
            ;
        if (i >= j)
            break;
        swap(x + i, x + j);
    }
    swap(x + i, x + n - 2);
    return i;
}

/* Move the k smallest of n to the front, in any order, by quickselect; after too many bad splits a heap sort is used.
 */
static void select_least(ptrdiff_t k, ptrdiff_t n, fs_offer *x, const int64_t *ids)
{
    int bad = 0;
    while (n > FEW && k > 0 && k < n) {
        if (bad > 12) {
            heap_sort(n, x, ids);
            return;
        }
        const ptrdiff_t i = split(n, x, ids), left = i < n - i ? i : n - i;
        bad += left < n / 8;
        if (k <= i)
            n = i;
        else
            x += i + 1, n -= i + 1, k -= i + 1;
    }
    if (k > 0 && k < n)
        insert(n, x, ids);
}

static void sort(ptrdiff_t n, fs_offer *x, const int64_t *ids, int depth)
{
    while (n > FEW) {
        if (depth-- == 0) {
            heap_sort(n, x, ids);
            return;
        }
        const ptrdiff_t i = split(n, x, ids);
        sort(n - i - 1, x + i + 1, ids, depth);
        n = i;
    }
    insert(n, x, ids);
}

/* Reduce the buffer to the k smallest, and set `worst` to the last of them. */
static void cut(const int64_t *ids, fs_least *least)
{
    if (least->count > least->k) {
        select_least(least->k, least->count, least->held, ids);
        least->count = least->k;
    }
    if (least->count < least->k)
        return;
    fs_offer worst = least->held[0];
    for (ptrdiff_t i = 1; i < least->k; i++)
        if (fs_before(worst, least->held[i], ids))
            worst = least->held[i];
    if (fs_before(worst, least->worst, ids))
        least->worst = worst;
}

void fs_least_offer(fs_offer offer, const int64_t *ids, fs_least *least)
{
    if (!fs_before(offer, least->worst, ids))
        return;
    least->held[least->count++] = offer;
    if (least->count == least->room)
        cut(ids, least);
}

void fs_least_join(const fs_least *from, const int64_t *ids, fs_least *least)
{
    for (ptrdiff_t i = 0; i < from->count; i++)
        fs_least_offer(from->held[i], ids, least);
}

void fs_least_sort(const int64_t *ids, fs_least *least, float *score, int64_t *place)
{
    cut(ids, least);
    sort(least->count, least->held, ids, 64);
    for (ptrdiff_t i = 0; i < least->k; i++) {
        score[i] = i < least->count ? least->held[i].score : INFINITY;
        place[i] = i < least->count ? least->held[i].place : -1;
    }
}
