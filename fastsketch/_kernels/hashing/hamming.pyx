"""Hamming distances between packed binary codes, and exact nearest neighbours by them."""

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint64_t

from fastsketch._kernels.level cimport follow
from fastsketch._kernels.pool cimport FS_PARTS, fs_pool_from, fs_pool_parts, fs_pool_run, join

import numpy as np


follow()
join()

cdef enum:
    LEAST_WORDS = 1 << 17    # words of codes times queries of a task, at least: some tens of microseconds
    BLOCK_WORDS = 1 << 16    # words of codes that are scanned for many queries at a time: they stay in the L2 cache
    FEW_QUERIES = 6          # queries of a task, at least: they read a tile from the L1 cache
    MOST_KEPT = 1024         # neighbours of a query in all ranges together: most of them are found in vain
    FIRST_SHARE = 32         # 1 / FIRST_SHARE of the codes is scanned before the others, to bound what they find


cdef padded(const uint8_t[:, ::1] codes):
    """Convert codes (n, bytes) to rows of 64-bit words, padded with zeros."""
    cdef Py_ssize_t n = codes.shape[0], n_bytes = codes.shape[1]
    out = np.zeros((n, fs_hamming_words(n_bytes)), np.uint64)
    cdef uint64_t[:, ::1] words = out
    if n:
        fs_hamming_pad(n, n_bytes, &codes[0, 0], &words[0, 0])
    return out


cdef struct Job:
    Py_ssize_t m, n, n_bytes, words, k, n_parts
    const uint64_t* queries
    const uint8_t* codes
    int32_t* distance
    int64_t* index
    fs_hamming_rule rule
    # of ranges: where they begin, and the heaps of each
    Py_ssize_t first
    int32_t* range_distance
    int64_t* range_index
    # of blocks: the one that queries look at, and the one that is made tiles of meanwhile, in n_tilings parts
    Py_ssize_t start, stop, next_stop, n_tilings
    const uint64_t* tiles
    uint64_t* next_tiles


cdef void distances_of_some(void* context, ptrdiff_t part, void* scratch) noexcept nogil:
    cdef Job* c = <Job*> context
    cdef Py_ssize_t start = fs_pool_from(c.n, c.n_parts, part, FS_HAMMING_TILE)
    cdef Py_ssize_t stop = fs_pool_from(c.n, c.n_parts, part + 1, FS_HAMMING_TILE)
    fs_hamming_distances(c.m, c.queries, stop - start, c.n_bytes, c.codes + start * c.n_bytes, <uint64_t*> scratch,
                         c.distance + start, c.n)


def distances(const uint8_t[:, ::1] queries, const uint8_t[:, ::1] codes):
    """Compute the Hamming distance of every query to every code, int32 (queries, codes)."""
    cdef Py_ssize_t m = queries.shape[0], n = codes.shape[0], n_bytes = codes.shape[1]
    cdef uint64_t[:, ::1] words = padded(queries)
    cdef uint64_t[::1] tile = np.empty(words.shape[1] * FS_HAMMING_TILE, np.uint64)
    cdef Job c
    out = np.empty((m, n), np.int32)
    cdef int32_t[:, ::1] d = out
    if m and n:
        c.m, c.n, c.n_bytes, c.queries, c.codes, c.distance = m, n, n_bytes, &words[0, 0], &codes[0, 0], &d[0, 0]
        c.n_parts = fs_pool_parts(<double> m * n * words.shape[1], LEAST_WORDS)
        with nogil:
            fs_pool_run(c.n_parts, distances_of_some, &c, &tile[0], words.shape[1] * FS_HAMMING_TILE * sizeof(uint64_t))
    return out


def topk(const uint8_t[:, ::1] queries, const uint8_t[:, ::1] codes, Py_ssize_t k, *, const uint8_t[::1] allow=None,
         const int64_t[::1] ids=None):
    """Find the k codes nearest to every query. Return distances int32 (m, k), ascending, and positions int64 (m, k).

    allow: a mask of the codes that may be found as bits, uint8 (ceil(n / 8)), the lowest first. Ties are broken by ids
    (n,), or by positions. Where fewer than k codes may be found: 2^31 - 1 and 2^63 - 1.
    """
    cdef Py_ssize_t m = queries.shape[0], n = codes.shape[0], n_bytes = codes.shape[1], parts
    cdef uint64_t[:, ::1] words = padded(queries)
    cdef uint64_t[::1] tile = np.empty(words.shape[1] * FS_HAMMING_TILE, np.uint64)
    cdef Job c
    found, where = np.empty((m, k), np.int32), np.empty((m, k), np.int64)
    cdef int32_t[:, ::1] d = found
    cdef int64_t[:, ::1] i = where
    if m == 0 or k == 0:
        return found, where
    c.m, c.n, c.n_bytes, c.words, c.k = m, n, n_bytes, words.shape[1], k
    c.queries, c.codes, c.distance, c.index = &words[0, 0], &codes[0, 0], &d[0, 0], &i[0, 0]
    c.rule.allow, c.rule.ids = NULL, NULL
    if allow is not None:
        c.rule.allow = &allow[0]
    if ids is not None:
        c.rule.ids = &ids[0]
    parts = fs_pool_parts(<double> m * n * c.words, LEAST_WORDS)
    fs_hamming_begin(m, k, NULL, c.distance, c.index)
    if parts >= 4 and m >= 2 * FEW_QUERIES:
        by_queries(&c)
    elif parts >= 4 and 4 * k <= MOST_KEPT:
        by_ranges(&c, &tile[0], parts)
    else:
        with nogil:
            fs_hamming_look(m, c.queries, n, n_bytes, c.codes, 0, 0, &c.rule, k, &tile[0], c.distance, c.index)
            fs_hamming_sort(m, k, c.rule.ids, c.distance, c.index)
    return found, where


cdef void look_at_range(void* context, ptrdiff_t part, void* scratch) noexcept nogil:
    cdef Job* c = <Job*> context
    cdef Py_ssize_t rest = c.n - c.first
    cdef Py_ssize_t start = c.first + fs_pool_from(rest, c.n_parts, part, FS_HAMMING_TILE)
    cdef Py_ssize_t stop = c.first + fs_pool_from(rest, c.n_parts, part + 1, FS_HAMMING_TILE)
    fs_hamming_look(c.m, c.queries, stop - start, c.n_bytes, c.codes + start * c.n_bytes, (c.n - stop) * c.n_bytes,
                    start, &c.rule, c.k, <uint64_t*> scratch, c.range_distance + part * c.m * c.k,
                    c.range_index + part * c.m * c.k)


cdef int by_ranges(Job* c, uint64_t* tile, Py_ssize_t parts) except -1:
    """Search for few queries: split the codes among tasks, after a first part whose k-th distance bounds the others."""
    cdef Py_ssize_t i
    if parts > MOST_KEPT // c.k:
        parts = MOST_KEPT // c.k
    cdef int32_t[::1] bound = np.empty(c.m, np.int32)
    cdef int32_t[:, ::1] distance = np.empty((parts, c.m * c.k), np.int32)
    cdef int64_t[:, ::1] index = np.empty((parts, c.m * c.k), np.int64)
    c.n_parts, c.range_distance, c.range_index = parts, &distance[0, 0], &index[0, 0]
    c.first = (c.n // FIRST_SHARE // FS_HAMMING_TILE + 1) * FS_HAMMING_TILE
    if c.first > c.n:
        c.first = c.n
    with nogil:
        fs_hamming_look(c.m, c.queries, c.first, c.n_bytes, c.codes, (c.n - c.first) * c.n_bytes, 0, &c.rule, c.k, tile,
                        c.distance, c.index)
        for i in range(c.m):
            # the worst of k: a later code must be nearer, or as near and of a lower id
            bound[i] = c.distance[i * c.k] + (c.rule.ids != NULL and c.distance[i * c.k] < INT32_MAX)
        for i in range(parts):
            fs_hamming_begin(c.m, c.k, &bound[0], &distance[i, 0], &index[i, 0])
        fs_pool_run(parts, look_at_range, c, tile, c.words * FS_HAMMING_TILE * sizeof(uint64_t))
        for i in range(parts):
            fs_hamming_join(c.m, c.k, &distance[i, 0], &index[i, 0], c.rule.ids, c.distance, c.index)
        fs_hamming_sort(c.m, c.k, c.rule.ids, c.distance, c.index)
    return 0


cdef void look_at_block(void* context, ptrdiff_t part, void* scratch) noexcept nogil:
    cdef Job* c = <Job*> context
    cdef Py_ssize_t start, stop, n, k = c.k
    if part < c.n_tilings:
        n = c.next_stop - c.stop
        start = fs_pool_from(n, c.n_tilings, part, FS_HAMMING_TILE)
        stop = fs_pool_from(n, c.n_tilings, part + 1, FS_HAMMING_TILE)
        fs_hamming_tiles(stop - start, c.n_bytes, c.codes + (c.stop + start) * c.n_bytes,
                         (c.n - c.stop - stop) * c.n_bytes, c.next_tiles + start * c.words)
        return
    start = fs_pool_from(c.m, c.n_parts, part - c.n_tilings, 1)
    stop = fs_pool_from(c.m, c.n_parts, part - c.n_tilings + 1, 1)
    fs_hamming_scan(stop - start, c.queries + start * c.words, c.stop - c.start, c.words, c.tiles, c.start, &c.rule, k,
                    c.distance + start * k, c.index + start * k)
    if c.stop == c.n:
        fs_hamming_sort(stop - start, k, c.rule.ids, c.distance + start * k, c.index + start * k)


cdef int by_queries(Job* c) except -1:
    """Search for many queries: split the queries among tasks, which scan the codes block by block."""
    cdef Py_ssize_t block = BLOCK_WORDS // c.words // FS_HAMMING_TILE * FS_HAMMING_TILE, groups
    if block < FS_HAMMING_TILE:
        block = FS_HAMMING_TILE
    cdef bint as_they_are = fs_hamming_is_tiles(c.n_bytes, c.codes)
    # codes that are tiles already, except the last one, which may not be read to its end
    cdef Py_ssize_t plain = c.n // FS_HAMMING_TILE * FS_HAMMING_TILE if as_they_are else 0
    cdef uint64_t[:, ::1] space = np.empty((2, c.words * (FS_HAMMING_TILE if as_they_are else block)), np.uint64)
    cdef int turn = 0
    groups = c.m // FEW_QUERIES
    groups = 2 if groups < 2 else groups if groups < FS_PARTS else FS_PARTS
    with nogil:
        c.start = c.stop = c.next_stop = c.n_parts = 0
        c.tiles = c.next_tiles = NULL
        while c.stop < c.n:
            # scan the block that is in tiles, and convert the next one at the same time
            c.start, c.stop, c.tiles = c.stop, c.next_stop, c.next_tiles
            c.n_parts = groups if c.stop > c.start else 0
            c.n_tilings = 0
            if c.stop < plain:
                c.next_stop = c.stop + block if c.stop + block < plain else plain
                c.next_tiles = <uint64_t*> (c.codes + c.stop * c.n_bytes)
            elif c.stop < c.n:
                c.next_stop = c.stop + block if c.stop + block < c.n else c.n
                c.next_tiles = &space[turn, 0]
                c.n_tilings = fs_pool_parts(<double> (c.next_stop - c.stop) * c.words, 1 << 14)
                turn = 1 - turn
            if c.n_parts + c.n_tilings:
                fs_pool_run(c.n_tilings + c.n_parts, look_at_block, c, NULL, 0)
    return 0
