# csrc/fs_hamming.h, where each function is explained.

from libc.stddef cimport ptrdiff_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t


cdef extern from "fs_hamming.h" nogil:
    enum:
        FS_HAMMING_TILE
    ctypedef struct fs_hamming_rule:
        const uint8_t *allow
        const int64_t *ids
    ptrdiff_t fs_hamming_words(ptrdiff_t n_bytes)
    void fs_hamming_pad(ptrdiff_t n, ptrdiff_t n_bytes, const uint8_t *codes, uint64_t *words)
    void fs_hamming_distances(ptrdiff_t n_queries, const uint64_t *queries, ptrdiff_t n, ptrdiff_t n_bytes,
                              const uint8_t *codes, uint64_t *tile, int32_t *out, ptrdiff_t ld)
    void fs_hamming_begin(ptrdiff_t n_queries, ptrdiff_t k, const int32_t *bound, int32_t *distance, int64_t *index)
    void fs_hamming_look(ptrdiff_t n_queries, const uint64_t *queries, ptrdiff_t n, ptrdiff_t n_bytes,
                         const uint8_t *codes, ptrdiff_t n_after, int64_t first, const fs_hamming_rule *rule,
                         ptrdiff_t k, uint64_t *tile, int32_t *distance, int64_t *index)
    void fs_hamming_tiles(ptrdiff_t n, ptrdiff_t n_bytes, const uint8_t *codes, ptrdiff_t n_after, uint64_t *tiles)
    int fs_hamming_is_tiles(ptrdiff_t n_bytes, const uint8_t *codes)
    void fs_hamming_scan(ptrdiff_t n_queries, const uint64_t *queries, ptrdiff_t n, ptrdiff_t words,
                         const uint64_t *tiles, int64_t first, const fs_hamming_rule *rule, ptrdiff_t k,
                         int32_t *distance, int64_t *index)
    void fs_hamming_join(ptrdiff_t n_queries, ptrdiff_t k, const int32_t *from_distance, const int64_t *from_index,
                         const int64_t *ids, int32_t *distance, int64_t *index)
    void fs_hamming_sort(ptrdiff_t n_queries, ptrdiff_t k, const int64_t *ids, int32_t *distance, int64_t *index)
