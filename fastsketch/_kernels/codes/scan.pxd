# csrc/fs_scan.h and csrc/fs_k_least.h, where each function is explained.

from libc.stddef cimport ptrdiff_t
from libc.stdint cimport int64_t, uint8_t, uint32_t


cdef extern from "fs_k_least.h" nogil:
    ctypedef struct fs_offer:
        float score
        int64_t place
    ctypedef struct fs_least:
        fs_offer worst
    ptrdiff_t fs_least_room(ptrdiff_t k, ptrdiff_t n)
    void fs_least_begin(ptrdiff_t k, ptrdiff_t room, const fs_offer *worst, fs_offer *held, fs_least *least)
    void fs_least_join(const fs_least *source, const int64_t *ids, fs_least *least)
    void fs_least_sort(const int64_t *ids, fs_least *least, float *score, int64_t *place)


cdef extern from "fs_scan.h" nogil:
    enum:
        FS_SCAN_ROWS
        FS_SCAN_STRIP
    ctypedef struct fs_scan_layout:
        ptrdiff_t n_tables, width, offset_bytes, scale_bytes
        int offset_shift, scale_shift
        float offset_unit, scale_unit
    ctypedef struct fs_scan_set:
        fs_scan_layout layout
        ptrdiff_t n, first
        const uint8_t *codes
        int in_blocks
        float alpha, beta
        const float *divisor
        const uint8_t *allow
        const int64_t *ids
    ctypedef struct fs_scan_query:
        const float *table
        uint8_t *steps
        uint32_t *weights
        float constant
        fs_least least
    ptrdiff_t fs_scan_block(const fs_scan_layout *layout)
    void fs_scan_pack(const fs_scan_layout *layout, ptrdiff_t start, ptrdiff_t n, const uint8_t *codes, uint8_t *blocks)
    void fs_scan_unpack(const fs_scan_layout *layout, ptrdiff_t start, ptrdiff_t n, const uint8_t *blocks,
                        uint8_t *codes)
    ptrdiff_t fs_scan_steps(const fs_scan_layout *layout)
    ptrdiff_t fs_scan_weights(const fs_scan_layout *layout)
    void fs_scan_prepare(const fs_scan_set *set, fs_scan_query *query)
    size_t fs_scan_scratch(const fs_scan_layout *layout, ptrdiff_t n_queries)
    void fs_scan_rows(const fs_scan_set *set, ptrdiff_t start, ptrdiff_t stop, ptrdiff_t n_queries,
                      fs_scan_query *queries, void *scratch)
    void fs_scan_scores(const fs_scan_set *set, ptrdiff_t start, ptrdiff_t stop, const fs_scan_query *query,
                        float *score, void *scratch)
