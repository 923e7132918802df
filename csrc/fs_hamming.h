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

/* The k codes nearest to every query, by distance and then by index, ascending.  k <= n.
 *   distance, index: n_queries x k, filled in */
void fs_hamming_topk(ptrdiff_t n_queries, const uint64_t *queries, ptrdiff_t n, ptrdiff_t n_bytes, const uint8_t *codes,
                     ptrdiff_t k, uint64_t *tile, int32_t *distance, int64_t *index);

/* words[i] of queries (n x fs_hamming_words) = the bytes of code i, zero-padded. */
void fs_hamming_pad(ptrdiff_t n, ptrdiff_t n_bytes, const uint8_t *codes, uint64_t *words);

#endif
