/* Hamming distances between packed binary codes of any number of bytes, and exact nearest neighbours. */
#ifndef FS_HAMMING_H
#define FS_HAMMING_H
#include "fs_common.h"

/* Codes per tile: a tile of 128-bit codes and its distances fit the first cache. */
#define FS_HAMMING_TILE 512

/* 64-bit words that a code of n_bytes takes. */
ptrdiff_t fs_hamming_words(ptrdiff_t n_bytes);

/* out[i * ld + j] = bits that differ between query i of n_queries and code j of n.
 * queries: words (fs_hamming_words) a query, zero-padded; tile: words * FS_HAMMING_TILE, scratch. */
void fs_hamming_distances(ptrdiff_t n_queries, const uint64_t *queries, ptrdiff_t n, ptrdiff_t n_bytes,
                          const uint8_t *codes, uint64_t *tile, int32_t *out, ptrdiff_t ld);

/* Which codes may come, bit i of whole bytes for code i, and what breaks ties in place of their indices; each NULL
 * where there is none. */
typedef struct {
    const uint8_t *allow;
    const int64_t *ids;
} fs_hamming_rule;

/* The k codes nearest to every query, by distance and then by index or id, among those that have been looked at: a heap
 * of k (distance, index) a query, n_queries x k, with the worst at its root.
 *   begin    nothing seen: all further than any code (or than `bound`, of each query, where none is wanted beyond it)
 *   look     at n codes, the first of them with index `first`, a multiple of 8; in the order of indices
 *   tiles    n codes, first in words (ceil(n / FS_HAMMING_TILE) tiles of words * FS_HAMMING_TILE) ...
 *   scan     ... then looked at.  Where fs_hamming_is_tiles, codes are tiles as they are, but for a last one in part
 *   join     what was found in other heaps of k
 *   sort     ascending; where fewer than k came, the last are of distance INT32_MAX (or the bound) and index INT64_MAX
 * n_after: bytes that may be read after the n codes; tile: words * FS_HAMMING_TILE, scratch. */
void fs_hamming_begin(ptrdiff_t n_queries, ptrdiff_t k, const int32_t *bound, int32_t *distance, int64_t *index);
void fs_hamming_look(ptrdiff_t n_queries, const uint64_t *queries, ptrdiff_t n, ptrdiff_t n_bytes, const uint8_t *codes,
                     ptrdiff_t n_after, int64_t first, const fs_hamming_rule *rule, ptrdiff_t k, uint64_t *tile,
                     int32_t *distance, int64_t *index);
void fs_hamming_tiles(ptrdiff_t n, ptrdiff_t n_bytes, const uint8_t *codes, ptrdiff_t n_after, uint64_t *tiles);
int fs_hamming_is_tiles(ptrdiff_t n_bytes, const uint8_t *codes);
void fs_hamming_scan(ptrdiff_t n_queries, const uint64_t *queries, ptrdiff_t n, ptrdiff_t words, const uint64_t *tiles,
                     int64_t first, const fs_hamming_rule *rule, ptrdiff_t k, int32_t *distance, int64_t *index);
void fs_hamming_join(ptrdiff_t n_queries, ptrdiff_t k, const int32_t *from_distance, const int64_t *from_index,
                     const int64_t *ids, int32_t *distance, int64_t *index);
void fs_hamming_sort(ptrdiff_t n_queries, ptrdiff_t k, const int64_t *ids, int32_t *distance, int64_t *index);

/* words[i] of queries (n x fs_hamming_words) = the bytes of code i, zero-padded. */
void fs_hamming_pad(ptrdiff_t n, ptrdiff_t n_bytes, const uint8_t *codes, uint64_t *words);

#endif
