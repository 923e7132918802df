/* Hamming distances between packed binary codes of any number of bytes, and exact nearest neighbours. */
#ifndef FS_HAMMING_H
#define FS_HAMMING_H
#include "fs_common.h"

/* Codes per tile: a tile of 128-bit codes and its distances fit the first cache. */
#define FS_HAMMING_TILE 512

/* Return the number of 64-bit words of a code of n_bytes. */
ptrdiff_t fs_hamming_words(ptrdiff_t n_bytes);

/* out[i * ld + j] = number of bits that differ between query i of n_queries and code j of n.
 *
 *   queries: fs_hamming_words words a query, zero-padded. tile: words * FS_HAMMING_TILE words of scratch.
 */
void fs_hamming_distances(ptrdiff_t n_queries, const uint64_t *queries, ptrdiff_t n, ptrdiff_t n_bytes,
                          const uint8_t *codes, uint64_t *tile, int32_t *out, ptrdiff_t ld);

/* Bit i of `allow` is set if code i may be found. Ties are broken by `ids` instead of indices. Each may be NULL. */
typedef struct {
    const uint8_t *allow;
    const int64_t *ids;
} fs_hamming_rule;

/* The k nearest codes of every query so far, by distance and then by index or id: a heap of k (distance, index) for
 * each query, n_queries x k, with the worst at its root. begin    initialise; only distances up to `bound` of each
 * query are held, if it is given look     offer n codes, the first of them with index `first`, a multiple of 8; in
 * ascending order of indices tiles    convert n codes to ceil(n / FS_HAMMING_TILE) tiles of words * FS_HAMMING_TILE
 *   scan     offer codes in tiles.  Where fs_hamming_is_tiles, codes are tiles as they are, except an incomplete last
 * one join     offer the codes in other heaps of k sort     ascending; missing codes have the distance INT32_MAX (or
 * the bound) and the index INT64_MAX n_after: bytes that may be read after the n codes; tile: words * FS_HAMMING_TILE,
 * scratch. */
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

/* words[i] of queries (n x fs_hamming_words) = the bytes of code i, padded with zeros. */
void fs_hamming_pad(ptrdiff_t n, ptrdiff_t n_bytes, const uint8_t *codes, uint64_t *words);

#endif
