"""Top columns of many rows by scores that are products of two thin matrices, without an array rows x columns.

Scores are computed for a block of rows and a tile of columns at a time, which fit the cache. If there are few blocks of
rows, the columns are split into ranges as well, whose top columns are merged. The split depends on sizes only, so that
the bits do not depend on the number of threads.
"""

from libc.float cimport DBL_MAX
from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy

from fastsketch._kernels.linalg.blas cimport gemm, gemv, real
from fastsketch._kernels.linalg.parts cimport lower_bound
from fastsketch._kernels.pool cimport FS_PARTS, fs_blas_alone, fs_part, fs_pool_from, fs_pool_parts, fs_pool_run, join

import numpy as np

join()

cdef enum:
    TILE = 1 << 16       # scores of a tile: they fit the second cache
    GATHERED = 1 << 17   # numbers of the columns that are gathered from a list for a tile
    WIDEST = 4096        # largest number of columns of a tile
    ROWS = 64            # rows of a block, which share a tile of columns
    MOST_ROWS = 1024     # largest number of rows of a block, if there are few columns
    LEAST = 1 << 20      # smallest number of multiply-adds of a part
    AT_ONCE = 16         # scores that are compared with the smallest of the top ones at a time
    LISTS = 2


cdef struct LeftOut:
    # excluded columns, as CSR rows with ascending columns: for row i those of row line[i], or i without line; -1: none
    const int64_t* indptr
    const int32_t* indices
    const int64_t* line


cdef struct Job:
    # scores scale_j own_i . known_j + (base_i + column_j); arrays of `real` are void pointers
    Py_ssize_t k, t, n, users, blocks, ranges, tile, most
    const void* own              # (k, t)
    const void* known            # (n, t)
    const void* scale            # (n,) or NULL
    const double* base           # (k,) or NULL
    const double* column         # (n,), as base
    const int32_t* allowed       # n columns, ascending; NULL for the first n
    int lists
    LeftOut left_out[LISTS]
    int64_t* found               # (ranges, k, most)
    double* values


cdef inline bint worse(double value, int64_t at, double than, int64_t than_at) noexcept nogil:
    # of equal scores the later column is worse
    return value < than or (value == than and at > than_at)


cdef inline void sift(Py_ssize_t count, double* values, int64_t* at, double value, int64_t place) noexcept nogil:
    # in a heap with the worst on top replace that by (value, place)
    cdef Py_ssize_t k = 0, child
    while True:
        child = 2 * k + 1
        if child >= count:
            break
        if child + 1 < count and worse(values[child + 1], at[child + 1], values[child], at[child]):
            child += 1
        if not worse(values[child], at[child], value, place):
            break
        values[k], at[k] = values[child], at[child]
        k = child
    values[k], at[k] = value, place


cdef inline bint any_above(const real* z, real floor) noexcept nogil:
    cdef int some = 0, e
    for e in range(AT_ONCE):
        some |= z[e] > floor
    return some


cdef inline bint any_sum_above(const real* z, const double* column, double base, double floor) noexcept nogil:
    cdef int some = 0, e
    for e in range(AT_ONCE):
        some |= base + column[e] + <double> z[e] > floor
    return some


cdef void choose(const Job* job, Py_ssize_t width, const real* z, double base, const double* column, Py_ssize_t first,
                 double* values, int64_t* found) noexcept nogil:
    # update the top columns by the scores z of a tile, whose first column is candidate `first`
    cdef Py_ssize_t c = 0, e
    cdef double floor = values[0], score
    while c < width:
        if width - c >= AT_ONCE:
            if column is NULL:
                if not any_above(z + c, <real> floor):
                    c += AT_ONCE
                    continue
            elif not any_sum_above(z + c, column + c, base, floor):
                c += AT_ONCE
                continue
        for e in range(c, c + AT_ONCE if c + AT_ONCE < width else width):
            score = <double> z[e] if column is NULL else base + column[e] + <double> z[e]
            # columns are in order: one that equals the worst is not better
            if score > floor and score <= DBL_MAX:
                sift(job.most, values, found, score, job.allowed[first + e] if job.allowed else first + e)
                floor = values[0]
        c += AT_ONCE


cdef void leave_out(const Job* job, const LeftOut* out, Py_ssize_t i, Py_ssize_t first, Py_ssize_t width,
                    real* z) noexcept nogil:
    cdef int64_t line = out.line[i] if out.line else i, low, high
    cdef Py_ssize_t e, c
    if line < 0:
        return
    low = job.allowed[first] if job.allowed else first
    high = job.allowed[first + width - 1] if job.allowed else first + width - 1
    for e in range(lower_bound(out.indices, out.indptr[line], out.indptr[line + 1], low), out.indptr[line + 1]):
        if out.indices[e] > high:
            break
        c = out.indices[e] - first
        if job.allowed:
            c = lower_bound(job.allowed, first, first + width, out.indices[e])
            if c == first + width or job.allowed[c] != out.indices[e]:
                continue
            c -= first
        z[c] = -<real> INFINITY


cdef inline void products(const real* own, const real* known, Py_ssize_t count, Py_ssize_t width, Py_ssize_t t,
                          real* z) noexcept nogil:
    # z (count, width) = own known'
    cdef Py_ssize_t e
    if t == 0:
        for e in range(count * width):
            z[e] = 0
    elif count == 1:
        gemv[real](c'T', t, width, 1, known, t, own, 0, z)
    else:
        gemm[real](c'T', c'N', width, count, t, 1, known, t, own, t, 0, z, width)


cdef void best_part(void* context, ptrdiff_t part, real* scratch) noexcept nogil:
    cdef Job* job = <Job*> context
    cdef Py_ssize_t t = job.t, number = part % job.ranges
    cdef Py_ssize_t from_row = fs_pool_from(job.k, job.blocks, part // job.ranges, 1)
    cdef Py_ssize_t rows = fs_pool_from(job.k, job.blocks, part // job.ranges + 1, 1) - from_row
    cdef Py_ssize_t start = fs_pool_from(job.n, job.ranges, number, AT_ONCE)
    cdef Py_ssize_t stop = fs_pool_from(job.n, job.ranges, number + 1, AT_ONCE), width, at, i, e
    cdef double* sums = <double*> scratch
    cdef real* z = <real*> (sums + job.tile)
    cdef real* gathered = z + job.users * job.tile
    cdef real* factors = gathered + job.tile * t
    cdef const real* known
    cdef const real* scale
    cdef const double* column
    cdef real* row
    cdef int64_t* found = job.found + (number * job.k + from_row) * job.most
    cdef double* values = job.values + (number * job.k + from_row) * job.most
    cdef double value
    for e in range(rows * job.most):
        values[e], found[e] = -INFINITY, -1
    while start < stop:
        width = job.tile if job.tile < stop - start else stop - start
        at = job.allowed[start] if job.allowed else start
        known, scale, column = <const real*> job.known + at * t, <const real*> job.scale, job.column
        if scale:
            scale += at
        if column:
            column += at
        if job.allowed and job.allowed[start + width - 1] - at != width - 1:
            # a list with gaps: gather its columns
            for e in range(width):
                at = job.allowed[start + e]
                memcpy(gathered + e * t, <const real*> job.known + at * t, t * sizeof(real))
                if scale:
                    factors[e] = (<const real*> job.scale)[at]
                if column:
                    sums[e] = job.column[at]
            known = gathered
            scale = factors if scale else NULL
            column = sums if column else NULL
        products(<const real*> job.own + from_row * t, known, rows, width, t, z)
        for i in range(rows):
            row = z + i * width
            if scale:
                for e in range(width):
                    row[e] *= scale[e]
            for e in range(job.lists):
                leave_out(job, &job.left_out[e], from_row + i, start, width, row)
            choose(job, width, row, job.base[from_row + i] if column else 0.0, column, start, values + i * job.most,
                   found + i * job.most)
        start += width
    for i in range(rows):  # sort the heaps, best first
        for e in range(job.most - 1, 0, -1):
            value, at = values[i * job.most], found[i * job.most]
            sift(e, values + i * job.most, found + i * job.most, values[i * job.most + e], found[i * job.most + e])
            values[i * job.most + e], found[i * job.most + e] = value, at


cdef void merge(const Job* job, int64_t[:, ::1] found, double[:, ::1] values) noexcept nogil:
    # merge the top columns of the ranges
    cdef Py_ssize_t i, e, p, best, stride = job.k * job.most
    cdef Py_ssize_t next[FS_PARTS]
    cdef const int64_t* at
    cdef const double* of
    for i in range(job.k):
        at, of = job.found + i * job.most, job.values + i * job.most
        for p in range(job.ranges):
            next[p] = 0
        for e in range(job.most):
            best = 0
            for p in range(1, job.ranges):
                # ranges are in order: of equal scores the first wins; no list ends before `most` are found
                if of[p * stride + next[p]] > of[best * stride + next[best]]:
                    best = p
            found[i, e], values[i, e] = at[best * stride + next[best]], of[best * stride + next[best]]
            next[best] += 1


def best_columns(const real[:, ::1] own, const real[:, ::1] known, int64_t[:, ::1] found, double[:, ::1] values, *,
                 scale=None, base=None, column=None, left_out=(), allowed=None):
    """Write the columns of the highest finite scores, best first, to `found` (k, most), and these scores to `values`.
    Where there are fewer, -1 and -inf are written.

    The score of row i and column j is own_i . known_j, times scale_j, plus base_i + column_j (both or neither) in
    double. Of equal scores the first column wins. left_out: at most two of (indptr, indices, line), CSR rows of
    excluded columns, ascending in each. Excluded for row i are those of row line[i], none if that is -1; of row i if
    line is None. allowed: the columns that may be found, ascending; None for all.
    """
    cdef Job job
    cdef const real[::1] scales
    cdef const double[::1] bases, columns
    cdef const int32_t[::1] list_of_allowed, indices
    cdef const int64_t[::1] indptr, line
    cdef int64_t[::1] part_found
    cdef double[::1] part_values
    cdef size_t size = sizeof(real)
    job.k, job.t, job.most = own.shape[0], own.shape[1], found.shape[1]
    job.n = known.shape[0]
    job.scale, job.base, job.column, job.allowed = NULL, NULL, NULL, NULL
    if allowed is not None:
        list_of_allowed = allowed
        job.n = list_of_allowed.shape[0]
    np.asarray(found)[:], np.asarray(values)[:] = -1, -np.inf
    if job.k == 0 or job.n == 0 or job.most == 0:
        return
    if job.t:
        job.own, job.known = &own[0, 0], &known[0, 0]
    if scale is not None:
        scales = scale
        job.scale = &scales[0]
    if column is not None:
        bases, columns = base, column
        job.base, job.column = &bases[0], &columns[0]
    if allowed is not None:
        job.allowed = &list_of_allowed[0]
    job.lists = 0
    held = []  # the views that pointers refer to
    for indptr, indices, line in left_out:
        if indices.shape[0] == 0:
            continue
        if job.lists == LISTS:
            raise ValueError("at most two lists of columns are left out")
        held.append((indptr, indices, line))
        job.left_out[job.lists].indptr, job.left_out[job.lists].indices = &indptr[0], &indices[0]
        job.left_out[job.lists].line = NULL
        if line is not None:
            job.left_out[job.lists].line = &line[0]
        job.lists += 1
    job.users = min(max(ROWS, TILE // job.n), MOST_ROWS, job.k)
    job.blocks = (job.k + job.users - 1) // job.users
    job.ranges = fs_pool_parts(<double> job.k * job.n * (job.t + 1), LEAST)
    job.ranges = (job.ranges + job.blocks - 1) // job.blocks
    job.tile = min(max(TILE // job.users, AT_ONCE), WIDEST)
    if job.allowed and job.t:
        job.tile = min(job.tile, max(GATHERED // job.t, AT_ONCE))
    if job.ranges == 1:
        job.found, job.values = &found[0, 0], &values[0, 0]
    else:
        part_found = np.empty(job.ranges * job.k * job.most, np.int64)
        part_values = np.empty(job.ranges * job.k * job.most)
        job.found, job.values = &part_found[0], &part_values[0]
    size = job.tile * sizeof(double) + (job.users + 1 + (job.t if job.allowed else 0)) * job.tile * size
    cdef double[::1] scratch = np.empty(size // sizeof(double) + 1)
    with nogil:
        fs_blas_alone(1)
        fs_pool_run(job.blocks * job.ranges, <fs_part> best_part[real], &job, &scratch[0], size)
        fs_blas_alone(0)
        if job.ranges > 1:
            merge(&job, found, values)
