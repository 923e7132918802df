# csrc/fs_hamming.h, where each function is explained.

from libc.stddef cimport ptrdiff_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t


cdef extern from "fs_hamming.h" nogil:
    enum:
        FS_HAMMING_TILE
    ptrdiff_t fs_hamming_words(ptrdiff_t n_bytes)
    void fs_hamming_pad(ptrdiff_t n, ptrdiff_t n_bytes, const uint8_t *codes, uint64_t *words)
    void fs_hamming_distances(ptrdiff_t n_queries, const uint64_t *queries, ptrdiff_t n, ptrdiff_t n_bytes,
                              const uint8_t *codes, uint64_t *tile, int32_t *out, ptrdiff_t ld)
    void fs_hamming_topk(ptrdiff_t n_queries, const uint64_t *queries, ptrdiff_t n, ptrdiff_t n_bytes,
                         const uint8_t *codes, ptrdiff_t k, uint64_t *tile, int32_t *distance, int64_t *index)
