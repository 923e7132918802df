#include "fs_hamming.h"

#include <string.h>

#include "fs_intrinsics.h"

/* Distances are compared with the limit in groups of this size before single ones are. */
#define GROUP 32

ptrdiff_t fs_hamming_words(ptrdiff_t n_bytes) { return (n_bytes + 7) / 8; }

void fs_hamming_pad(ptrdiff_t n, ptrdiff_t n_bytes, const uint8_t *codes, uint64_t *words)
{
    const ptrdiff_t n_words = fs_hamming_words(n_bytes);
    for (ptrdiff_t i = 0; i < n; i++) {
        words[(i + 1) * n_words - 1] = 0;
        memcpy(words + i * n_words, codes + i * n_bytes, (size_t)n_bytes);
    }
}

/* tile[w * FS_HAMMING_TILE + j] = word w of code j of n. n_after: number of bytes after the n codes that may be read.
 */
static void load_tile(ptrdiff_t n, ptrdiff_t n_bytes, const uint8_t *codes, ptrdiff_t n_after, uint64_t *tile)
{
    const ptrdiff_t whole = n_bytes / 8, rest = n_bytes % 8;
    for (ptrdiff_t w = 0; w < whole; w++)
        for (ptrdiff_t j = 0; j < n; j++)
            memcpy(tile + w * FS_HAMMING_TILE + j, codes + j * n_bytes + 8 * w, 8);
    if (!rest)
        return;
    uint64_t *last = tile + whole * FS_HAMMING_TILE;
    /* whole words are read where they do not end beyond the array, and masked to `rest` bytes */
    uint64_t mask = 0;
    memset(&mask, 0xff, (size_t)rest);
    ptrdiff_t safe = (n * n_bytes + n_after - 8 * whole - 8) / n_bytes + 1;
    safe = n * n_bytes + n_after < 8 * whole + 8 ? 0 : safe < n ? safe : n;
    for (ptrdiff_t j = 0; j < safe; j++) {
        uint64_t word;
        memcpy(&word, codes + j * n_bytes + 8 * whole, 8);
        last[j] = word & mask;
    }
    for (ptrdiff_t j = safe; j < n; j++) {
        last[j] = 0;
        memcpy(last + j, codes + j * n_bytes + 8 * whole, (size_t)rest);
    }
}

/* Return whether (d, i) comes after (e, j) in the order of results: by distance, then by ids, or by indices without
 * ids. */
static int after(const int64_t *ids, int32_t d, int64_t i, int32_t e, int64_t j)
{
    if (d != e || i == j)
        return d > e;
    return ids && i != INT64_MAX && j != INT64_MAX ? ids[i] > ids[j] : i > j;
}

/* Replace the root of a heap, which is the worst result, by (d, i), and restore the heap. */
static void sink(const int64_t *ids, ptrdiff_t k, int32_t *distance, int64_t *index, int32_t d, int64_t i)
{
    ptrdiff_t at = 0;
    for (;;) {
        ptrdiff_t child = 2 * at + 1;
        if (child >= k)
            break;
        if (child + 1 < k && after(ids, distance[child + 1], index[child + 1], distance[child], index[child]))
            child++;
        if (!after(ids, distance[child], index[child], d, i))
            break;
        distance[at] = distance[child];
        index[at] = index[child];
        at = child;
    }
    distance[at] = d;
    index[at] = i;
}

void fs_hamming_begin(ptrdiff_t n_queries, ptrdiff_t k, const int32_t *bound, int32_t *distance, int64_t *index)
{
    for (ptrdiff_t i = 0; i < n_queries; i++)
        for (ptrdiff_t j = 0; j < k; j++) {
            distance[i * k + j] = bound ? bound[i] : INT32_MAX;
            index[i * k + j] = INT64_MAX;
        }
}

void fs_hamming_join(ptrdiff_t n_queries, ptrdiff_t k, const int32_t *from_distance, const int64_t *from_index,
                     const int64_t *ids, int32_t *distance, int64_t *index)
{
    for (ptrdiff_t i = 0; i < n_queries * k; i++) {
        int32_t *heap = distance + i / k * k;
        int64_t *who = index + i / k * k;
        if (after(ids, heap[0], who[0], from_distance[i], from_index[i]))
            sink(ids, k, heap, who, from_distance[i], from_index[i]);
    }
}

void fs_hamming_sort(ptrdiff_t n_queries, ptrdiff_t k, const int64_t *ids, int32_t *distance, int64_t *index)
{
    for (ptrdiff_t i = 0; i < n_queries; i++) {
        int32_t *heap = distance + i * k;
        int64_t *who = index + i * k;
        for (ptrdiff_t left = k - 1; left > 0; left--) { /* heap sort */
            const int32_t d = heap[left];
            const int64_t j = who[left];
            heap[left] = heap[0];
            who[left] = who[0];
            sink(ids, left, heap, who, d, j);
        }
    }
}

void fs_hamming_tiles(ptrdiff_t n, ptrdiff_t n_bytes, const uint8_t *codes, ptrdiff_t n_after, uint64_t *tiles)
{
    const ptrdiff_t words = fs_hamming_words(n_bytes);
    for (ptrdiff_t start = 0; start < n; start += FS_HAMMING_TILE) {
        const ptrdiff_t count = n - start < FS_HAMMING_TILE ? n - start : FS_HAMMING_TILE;
        load_tile(count, n_bytes, codes + start * n_bytes, (n - start - count) * n_bytes + n_after,
                  tiles + start * words);
    }
}

int fs_hamming_is_tiles(ptrdiff_t n_bytes, const uint8_t *codes)
{
    return n_bytes == 8 && (uintptr_t)codes % sizeof(uint64_t) == 0;
}

/* Return whether any of `count` codes is allowed. */
static int any_bit(const uint8_t *allow, ptrdiff_t count)
{
    for (ptrdiff_t b = 0; b < count / 8; b++)
        if (allow[b])
            return 1;
    return count % 8 && (allow[count / 8] & ((1 << count % 8) - 1));
}

#define FS_WITH_VPOPCNTDQ
#define TYPED(verb) verb
#define FS_LOOPS "fs_hamming.inc.h"
#include "fs_each_level.inc.h"
