"""Nearest codes of queries: scans of nibbles by lookup tables (csrc/fs_scan.h), and the driver of any scan.

Scores are defined bitwise and ties are broken by ids, so that results do not depend on the split into tasks.
"""

from cpython.exc cimport PyErr_CheckSignals
from libc.stddef cimport ptrdiff_t
from libc.stdint cimport int64_t, uint8_t, uint32_t

from fastsketch._kernels.level cimport follow
from fastsketch._kernels.pool cimport FS_PARTS, fs_pool_from, fs_pool_parts, fs_pool_run, join

import numpy as np


follow()
join()

BLOCK_ROWS = FS_SCAN_ROWS

cdef enum:
    LEAST_LOOKUPS = 1 << 22    # nibbles looked up by a task, at least: some tens of microseconds
    LEAST_SUMS = 1 << 17       # nibbles summed exactly by a task, at least: as long
    MOST_TABLES = 1 << 19      # bytes of the tables of queries that are scanned together: they stay in the L2 cache
    MOST_QUERIES = 256         # the largest number of these queries
    SLICE_BYTES = 1 << 19      # bytes of codes that are scanned for many queries at a time: they stay in the L2 cache
    SLICE_LOOKUPS = 1 << 29    # lookups of a slice of the codes, for few queries
    BETWEEN_SIGNALS = 1 << 31  # lookups between two checks for signals: a fraction of a second
    FEW_QUERIES = 12           # queries of a task, at least: they share the preparation of a strip of codes
    MOST_KEPT = 1 << 13        # offers of a query in all ranges of codes together: most of them are found in vain
    FIRST_SHARE = 32           # 1 / FIRST_SHARE of the codes is scanned before the others, to bound their offers;
    OFTEN = 4096               # with a large k it is k / OFTEN instead, at most a quarter


cdef fs_scan_layout layout_of(layout):
    cdef fs_scan_layout out
    out.n_tables, out.width = layout.n_tables, layout.width
    out.offset_bytes, out.scale_bytes = layout.offset.n_bytes, layout.scale.n_bytes
    out.offset_shift, out.scale_shift = 23 - layout.offset.mantissa_bits, 23 - layout.scale.mantissa_bits
    out.offset_unit, out.scale_unit = layout.offset.unit, layout.scale.unit
    return out


def blocks_shape(Py_ssize_t n, layout):
    """Return the shape of the uint8 array in which `pack` stores n codes: (blocks, bytes of a block)."""
    cdef fs_scan_layout own = layout_of(layout)
    return (n + FS_SCAN_ROWS - 1) // FS_SCAN_ROWS, fs_scan_block(&own)


def pack(const uint8_t[:, ::1] codes, layout, blocks=None, Py_ssize_t start=0):
    """Store codes (n, width) in blocks, from row `start` on, and return the blocks: `blocks` if given, else new ones.

    Rows of `blocks` before `start` are unchanged; the rest of the last block is filled with zeros.
    """
    cdef fs_scan_layout own = layout_of(layout)
    cdef Py_ssize_t n = codes.shape[0]
    if blocks is None:
        blocks = np.empty(blocks_shape(start + n, layout), np.uint8)
    cdef uint8_t[:, ::1] out = blocks
    if n:
        with nogil:
            fs_scan_pack(&own, start, n, &codes[0, 0], &out[0, 0])
    return blocks


def unpack(const uint8_t[:, ::1] blocks, layout, Py_ssize_t start, Py_ssize_t stop):
    """Return the codes (stop - start, width) at positions [start, stop) of blocks."""
    cdef fs_scan_layout own = layout_of(layout)
    codes = np.empty((stop - start, own.width), np.uint8)
    cdef uint8_t[:, ::1] out = codes
    if stop > start:
        with nogil:
            fs_scan_unpack(&own, start, stop - start, &blocks[0, 0], &out[0, 0])
    return codes


def topk(const float[:, :, ::1] tables, const uint8_t[:, ::1] codes, layout, Py_ssize_t k, *, float alpha, float beta,
         const float[::1] constant=None, const float[::1] divisor=None, const uint8_t[::1] allow=None,
         const int64_t[::1] ids=None, Py_ssize_t in_blocks_of=-1):
    """Return the k codes of smallest score for each of m queries: scores float32 (m, k), ascending, positions int64.

    tables (m, n_tables, 16); codes (n, width), or with in_blocks_of = n the blocks of n codes, as `pack` returns them.
    The score is ((beta * scale) * t + alpha * offset + constant) / divisor in float32, t summed in the order of the
    tables, constant (m,), and divisor (n,), positive. allow: a mask of the codes that may be found as bits, uint8
    (ceil(n / 8)), the lowest first. Ties are broken by ids (n,), or by positions. Where fewer than k codes may be
    found, the scores are infinite and the positions -1.
    """
    cdef Job c
    cdef fs_scan_set codes_set
    cdef Py_ssize_t m = tables.shape[0], n = codes.shape[0] if in_blocks_of < 0 else in_blocks_of, start, count, chunk, i
    scores, places = np.full((m, k), np.inf, np.float32), np.full((m, k), -1, np.int64)
    if m == 0 or k == 0 or n == 0:
        return scores, places
    cdef float[:, ::1] s = scores
    cdef int64_t[:, ::1] p = places
    fill(&codes_set, codes, layout, n, in_blocks_of >= 0, alpha, beta, divisor)
    if allow is not None:
        codes_set.allow = &allow[0]
    if ids is not None:
        codes_set.ids = &ids[0]
    c.codes, c.k, c.room = &codes_set, k, fs_least_room(k, n)
    cdef ptrdiff_t n_steps = fs_scan_steps(&codes_set.layout), n_weights = fs_scan_weights(&codes_set.layout)
    chunk = MOST_TABLES // n_steps // 4 * 4
    chunk = min(m, 4 if chunk < 4 else chunk if chunk < MOST_QUERIES else MOST_QUERIES)
    cdef uint8_t[:, ::1] steps = aligned(chunk * n_steps).reshape(chunk, n_steps)
    cdef uint32_t[:, ::1] weights = np.empty((chunk, n_weights), np.uint32)
    cdef uint8_t[:, ::1] held = np.empty((chunk, c.room * sizeof(fs_offer)), np.uint8)
    cdef uint8_t[::1] own = np.empty(chunk * sizeof(fs_scan_query), np.uint8)
    cdef uint8_t[::1] scratch = aligned(fs_scan_scratch(&codes_set.layout, chunk))
    c.queries, c.scratch = <fs_scan_query*> &own[0], &scratch[0]
    for start in range(0, m, chunk):
        count = min(chunk, m - start)
        c.m, c.score, c.place = count, &s[start, 0], &p[start, 0]
        for i in range(count):
            c.queries[i].table = &tables[start + i, 0, 0]
            c.queries[i].steps, c.queries[i].weights = &steps[i, 0], &weights[i, 0]
            c.queries[i].constant = 0 if constant is None else constant[start + i]
            fs_least_begin(k, c.room, NULL, <fs_offer*> &held[i, 0], &c.queries[i].least)
        find(&c)
    return scores, places


cdef int fill(fs_scan_set* out, const uint8_t[:, ::1] codes, layout, Py_ssize_t n, bint in_blocks, float alpha,
              float beta, const float[::1] divisor) except -1:
    """Set the fields of `out` to a set of n codes, all of which may be found."""
    out.layout = layout_of(layout)
    out.n, out.first, out.codes, out.in_blocks = n, 0, &codes[0, 0], in_blocks
    out.alpha, out.beta = alpha, beta
    out.divisor, out.allow, out.ids = NULL, NULL, NULL
    if divisor is not None:
        out.divisor = &divisor[0]
    return 0


def scores(const float[:, ::1] table, const uint8_t[:, ::1] codes, layout, *, float alpha, float beta,
           float constant=0, Py_ssize_t in_blocks_of=-1):
    """Compute the scores float32 (n,) of all codes for one query, whose lookup table is (n_tables, 16). Other arguments
    are those of `topk`.
    """
    cdef Py_ssize_t n = codes.shape[0] if in_blocks_of < 0 else in_blocks_of
    cdef fs_scan_set codes_set
    cdef fs_scan_query query
    cdef Job c
    out = np.empty(n, np.float32)
    if n == 0:
        return out
    cdef float[::1] score = out
    fill(&codes_set, codes, layout, n, in_blocks_of >= 0, alpha, beta, None)
    query.table, query.constant = &table[0, 0], constant
    c.codes, c.queries, c.score, c.stop = &codes_set, &query, &score[0], n
    c.n_parts = fs_pool_parts(<double> n * codes_set.layout.n_tables, LEAST_SUMS)
    cdef size_t bytes = fs_scan_scratch(&codes_set.layout, 1)
    cdef uint8_t[::1] scratch = aligned(bytes)
    with nogil:
        fs_pool_run(c.n_parts, score_some, &c, &scratch[0], bytes)
    return out


cdef aligned(size_t n_bytes):
    """Allocate an array uint8 (n_bytes,) whose address is a multiple of 64."""
    space = np.empty(n_bytes + 63, np.uint8)
    cdef Py_ssize_t skip = -space.ctypes.data % 64
    return space[skip : skip + n_bytes]


cdef struct Job:
    const fs_scan_set* codes
    Py_ssize_t m, k, room, n_parts, start, stop
    fs_scan_query* queries
    float* score
    int64_t* place
    void* scratch
    # of ranges: queries of each, which hold what is found there
    fs_scan_query* copies
    # of slices: their own set, and where they are packed
    fs_scan_set slice
    uint8_t* packed


cdef void score_some(void* context, ptrdiff_t part, void* scratch) noexcept nogil:
    cdef Job* c = <Job*> context
    cdef Py_ssize_t start = fs_pool_from(c.stop, c.n_parts, part, FS_SCAN_STRIP)
    fs_scan_scores(c.codes, start, fs_pool_from(c.stop, c.n_parts, part + 1, FS_SCAN_STRIP), c.queries, c.score + start,
                   scratch)


cdef void prepare_some(void* context, ptrdiff_t part, void* scratch) noexcept nogil:
    cdef Job* c = <Job*> context
    cdef Py_ssize_t i
    for i in range(fs_pool_from(c.m, c.n_parts, part, 1), fs_pool_from(c.m, c.n_parts, part + 1, 1)):
        fs_scan_prepare(c.codes, c.queries + i)


cdef void sort_some(void* context, ptrdiff_t part, void* scratch) noexcept nogil:
    cdef Job* c = <Job*> context
    cdef Py_ssize_t i
    for i in range(fs_pool_from(c.m, c.n_parts, part, 1), fs_pool_from(c.m, c.n_parts, part + 1, 1)):
        fs_least_sort(c.codes.ids, &c.queries[i].least, c.score + i * c.k, c.place + i * c.k)


cdef int find(Job* c) except -1:
    cdef double lookups = <double> c.m * c.codes.layout.n_tables
    cdef Py_ssize_t parts = fs_pool_parts(lookups * c.codes.n, LEAST_LOOKUPS)
    c.n_parts = fs_pool_parts(lookups * 16, 1 << 15)
    with nogil:
        fs_pool_run(c.n_parts, prepare_some, c, NULL, 0)
    if parts >= 4 and c.m >= 2 * FEW_QUERIES:
        by_queries(c)
    else:
        by_ranges(c, parts if parts >= 4 else 1)
    c.n_parts = fs_pool_parts(<double> c.m * c.k, 1 << 12)
    with nogil:
        fs_pool_run(c.n_parts, sort_some, c, NULL, 0)
    return 0


cdef Py_ssize_t strips(double rows) noexcept nogil:
    """Return a number of rows rounded down to whole strips, at least one."""
    return max(<Py_ssize_t> (rows / FS_SCAN_STRIP), 1) * FS_SCAN_STRIP


cdef void look_at_range(void* context, ptrdiff_t part, void* scratch) noexcept nogil:
    cdef Job* c = <Job*> context
    cdef Py_ssize_t rows = c.stop - c.start
    fs_scan_rows(c.codes, c.start + fs_pool_from(rows, c.n_parts, part, FS_SCAN_STRIP),
                 c.start + fs_pool_from(rows, c.n_parts, part + 1, FS_SCAN_STRIP), c.m, c.copies + part * c.m, scratch)


cdef int by_ranges(Job* c, Py_ssize_t parts) except -1:
    """Search for few queries: split the codes among tasks, after a first part whose k-th score bounds later offers."""
    cdef Py_ssize_t n = c.codes.n, step, i, j
    cdef double lookups = <double> c.m * c.codes.layout.n_tables, looked = 0
    if parts * c.room > MOST_KEPT:
        parts = max(MOST_KEPT // c.room, 1)
    cdef Py_ssize_t total = parts * c.m if parts > 1 else 1
    cdef uint8_t[:, ::1] held = np.empty((total, c.room * sizeof(fs_offer)), np.uint8)
    cdef uint8_t[::1] copies = np.empty(total * sizeof(fs_scan_query), np.uint8)
    c.copies, c.n_parts = <fs_scan_query*> &copies[0], parts
    step = strips(<double> n / min(FIRST_SHARE, max(OFTEN // c.k, 4))) if parts > 1 else strips(SLICE_LOOKUPS / lookups)
    c.start = 0
    while c.start < n:
        c.stop = c.start + step if step < n - c.start else n
        with nogil:
            if c.start == 0 or parts == 1:
                fs_scan_rows(c.codes, c.start, c.stop, c.m, c.queries, c.scratch)
            else:
                for i in range(parts):
                    for j in range(c.m):
                        c.copies[i * c.m + j] = c.queries[j]
                        fs_least_begin(c.k, c.room, &c.queries[j].least.worst, <fs_offer*> &held[i * c.m + j, 0],
                                       &c.copies[i * c.m + j].least)
                fs_pool_run(parts, look_at_range, c, c.scratch, fs_scan_scratch(&c.codes.layout, c.m))
                for i in range(parts):
                    for j in range(c.m):
                        fs_least_join(&c.copies[i * c.m + j].least, c.codes.ids, &c.queries[j].least)
        looked += lookups * (c.stop - c.start)
        c.start, step = c.stop, strips(SLICE_LOOKUPS / lookups)
        if looked > BETWEEN_SIGNALS:
            looked = 0
            PyErr_CheckSignals()
    return 0


cdef void pack_some(void* context, ptrdiff_t part, void* scratch) noexcept nogil:
    cdef Job* c = <Job*> context
    cdef Py_ssize_t rows = c.stop - c.start
    cdef Py_ssize_t start = fs_pool_from(rows, c.n_parts, part, FS_SCAN_ROWS)
    fs_scan_pack(&c.codes.layout, start, fs_pool_from(rows, c.n_parts, part + 1, FS_SCAN_ROWS) - start,
                 c.codes.codes + (c.start + start) * c.codes.layout.width, c.packed)


cdef void look_for_some(void* context, ptrdiff_t part, void* scratch) noexcept nogil:
    cdef Job* c = <Job*> context
    cdef Py_ssize_t start = fs_pool_from(c.m, c.n_parts, part, 4)
    fs_scan_rows(&c.slice, c.start, c.stop, fs_pool_from(c.m, c.n_parts, part + 1, 4) - start, c.queries + start, scratch)


cdef int by_queries(Job* c) except -1:
    """Search for many queries: split the queries among tasks, which scan the codes slice by slice."""
    cdef Py_ssize_t n = c.codes.n, block = fs_scan_block(&c.codes.layout), step, groups
    cdef double looked = 0
    step = strips(<double> SLICE_BYTES * FS_SCAN_ROWS / block)
    cdef uint8_t[::1] packed = np.empty(0 if c.codes.in_blocks else min(step, n + FS_SCAN_ROWS) // FS_SCAN_ROWS * block,
                                        np.uint8)
    groups = min(c.m // FEW_QUERIES, <Py_ssize_t> FS_PARTS)
    c.slice = c.codes[0]
    c.start = 0
    while c.start < n:
        c.stop = c.start + step if step < n - c.start else n
        with nogil:
            if not c.codes.in_blocks:
                c.packed = &packed[0]
                c.n_parts = fs_pool_parts((c.stop - c.start) * block / FS_SCAN_ROWS, 1 << 16)
                fs_pool_run(c.n_parts, pack_some, c, NULL, 0)
                c.slice.codes, c.slice.first, c.slice.in_blocks = c.packed, c.start, 1
            c.n_parts = groups
            fs_pool_run(groups, look_for_some, c, c.scratch, fs_scan_scratch(&c.codes.layout, c.m))
        looked += <double> c.m * (c.stop - c.start) * c.codes.layout.n_tables
        c.start = c.stop
        if looked > BETWEEN_SIGNALS:
            looked = 0
            PyErr_CheckSignals()
    return 0
