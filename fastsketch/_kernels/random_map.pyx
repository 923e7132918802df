"""Random linear maps from m rows to q, a block of rows at a time: out += Phi[:, block] (x - shift), in place.

The Python side (sketching/_compress.py) draws the random numbers of a chunk and owns the arrays:

    out (q, d)        what Phi makes of the rows so far
    pending (p, d)    rows of the block that is not complete, as they came; absent rows are zero
    root (p,)         their root weights, 0 for absent rows
    shift (d,)        subtracted from every row (zeros if the map does not centre)
    sums (d,)         sum of root^2 (x - shift), empty if the map does not centre
    ones (q,)         sum of Phi[:, i] root_i: what the map makes of a column of root weights
    book (2,)         sum of weights; largest |entry|
    count (3,)        rows of the chunk; rows pending; whether shift is set
and for the map itself
    srht:    factor (m,) signs; lo (q,) int32; hi (q,) int64: output k is sampled from row hi[k] p + lo[k]
    scatter: target (m, s) int32; value (m, s)
    gemm:    matrix (m, q)
"""

from libc.math cimport sqrt
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy, memset

from fastsketch._kernels.blas cimport real, gemm

import numpy as np


cdef extern from "fs_hadamard.h" nogil:
    void fs_fwht_rows_s(ptrdiff_t n, ptrdiff_t m, ptrdiff_t ld, float *x)
    void fs_fwht_rows_d(ptrdiff_t n, ptrdiff_t m, ptrdiff_t ld, double *x)
    ptrdiff_t fs_srht_work_s(ptrdiff_t p)
    ptrdiff_t fs_srht_work_d(ptrdiff_t p)
    void fs_srht_block_s(ptrdiff_t p, ptrdiff_t d, ptrdiff_t ld, const float *x, const float *factor,
                         const double *root, const float *shift, double *sums, ptrdiff_t q, const int32_t *lo,
                         const float *flip, float *work, float *out)
    void fs_srht_block_d(ptrdiff_t p, ptrdiff_t d, ptrdiff_t ld, const double *x, const double *factor,
                         const double *root, const double *shift, double *sums, ptrdiff_t q, const int32_t *lo,
                         const double *flip, double *work, double *out)
    void fs_scatter_rows_s(ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, const float *x, const double *root,
                           const float *shift, double *sums, ptrdiff_t s, const int32_t *target, const float *value,
                           float *out)
    void fs_scatter_rows_d(ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, const double *x, const double *root,
                           const double *shift, double *sums, ptrdiff_t s, const int32_t *target,
                           const double *value, double *out)

cdef extern from "fs_rows.h" nogil:
    ptrdiff_t fs_scan_rows_s(ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, const float *x, double *largest)
    ptrdiff_t fs_scan_rows_d(ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, const double *x, double *largest)

cdef enum:
    SRHT = 0
    SCATTER = 1
    GEMM = 2
    # book
    WEIGHT = 0
    LARGEST = 1
    # count
    ROWS = 0
    PENDING = 1
    SHIFTED = 2


def srht_work(p, dtype):
    """Elements of workspace for blocks of p rows."""
    return fs_srht_work_s(p) if dtype == np.float32 else fs_srht_work_d(p)


cdef struct Plan:
    int kind
    Py_ssize_t p, d, q, s
    bint centre
    bint weighted       # whether root holds anything but ones for the block at hand
    double* root
    double* square      # root squared: the weights
    double* sums
    double* ones
    double* book
    int64_t* count
    int32_t* target     # lo of srht
    int64_t* hi


cdef inline bint odd(int64_t x) noexcept nogil:
    x ^= x >> 32
    x ^= x >> 16
    x ^= x >> 8
    x ^= x >> 4
    x ^= x >> 2
    x ^= x >> 1
    return x & 1


cdef void block(Plan* p, Py_ssize_t first, Py_ssize_t ld, const real* x, const real* shift, const real* value,
                real* scratch, real* rows, real* out) noexcept nogil:
    """Rows first .. first + p of the chunk, all present or zero with a root of zero.

    value: factor, value or matrix of the chunk; scratch: the map's workspace; rows: p x d, may be x itself (gemm only).
    """
    cdef Py_ssize_t i, k, t
    cdef double* sums = p.sums if p.centre else NULL
    cdef const double* weight = p.square if p.weighted else NULL
    cdef real* flip
    cdef real* factor
    cdef int32_t* target
    if p.kind == SRHT:
        flip = scratch
        factor = scratch + p.q
        # out[k] += (-1)^<hi_k, block> (H_p diag(factor) (x - shift))[lo_k]
        for k in range(p.q):
            flip[k] = -1 if odd(p.hi[k] & (first // p.p)) else 1
        if p.weighted:
            for i in range(p.p):
                factor[p.p + i] = <real> (value[first + i] * p.root[i])
            value = factor + p.p - first
        if real is float:
            fs_srht_block_s(p.p, p.d, ld, x, value + first, weight, shift, sums, p.q, p.target, flip,
                            factor + 2 * p.p, out)
        else:
            fs_srht_block_d(p.p, p.d, ld, x, value + first, weight, shift, sums, p.q, p.target, flip,
                            factor + 2 * p.p, out)
        if p.centre:
            # ones[k] += flip[k] (H_p factor)[lo_k]
            memcpy(factor, value + first, p.p * sizeof(real))
            if real is float:
                fs_fwht_rows_s(1, p.p, p.p, factor)
            else:
                fs_fwht_rows_d(1, p.p, p.p, factor)
            for k in range(p.q):
                p.ones[k] += flip[k] * factor[p.target[k]]
        return
    if p.kind == SCATTER:
        target = p.target + first * p.s
        for i in range(p.p):
            for t in range(p.s):
                scratch[i * p.s + t] = <real> (value[(first + i) * p.s + t] * (p.root[i] if p.weighted else 1.0))
                p.ones[target[i * p.s + t]] += scratch[i * p.s + t]
        if real is float:
            fs_scatter_rows_s(p.p, p.d, ld, x, weight, shift, sums, p.s, target, scratch, out)
        else:
            fs_scatter_rows_d(p.p, p.d, ld, x, weight, shift, sums, p.s, target, scratch, out)
        return
    # gemm: rows = root (x - shift), out += matrix[block].T @ rows
    if p.centre:
        if real is float:
            fs_scatter_rows_s(p.p, p.d, ld, x, weight, shift, sums, 0, NULL, NULL, out)
        else:
            fs_scatter_rows_d(p.p, p.d, ld, x, weight, shift, sums, 0, NULL, NULL, out)
    cdef real r
    for i in range(p.p):
        r = <real> (p.root[i] if p.weighted else 1.0)
        for k in range(p.d):
            rows[i * p.d + k] = r * (x[i * ld + k] - shift[k])
        for k in range(p.q):
            p.ones[k] += r * value[(first + i) * p.q + k]
    gemm(c'N', c'T', p.d, p.q, p.p, <real> 1.0, rows, p.d, value + first * p.q, p.q, <real> 1.0, out, p.d)


cdef Plan make_plan(int kind, Py_ssize_t n_block, Py_ssize_t d, Py_ssize_t q, dict a):
    cdef Plan p
    cdef double[::1] root = a["root"]
    cdef double[::1] square = a["square"]
    cdef double[::1] sums = a["sums"]
    cdef double[::1] ones = a["ones"]
    cdef double[::1] book = a["book"]
    cdef int64_t[::1] count = a["count"]
    cdef int32_t[::1] target = a["target"]
    cdef int64_t[::1] hi = a["hi"]
    p.kind, p.p, p.d, p.q, p.s = kind, n_block, d, q, a["s"]
    p.centre = sums.shape[0] > 0
    p.weighted = False
    p.root, p.square, p.ones, p.book, p.count = &root[0], &square[0], &ones[0], &book[0], &count[0]
    p.sums = &sums[0] if p.centre else NULL
    p.target = &target[0] if target.shape[0] else NULL
    p.hi = &hi[0] if hi.shape[0] else NULL
    return p


def absorb(const real[:, :] rows, weights, Py_ssize_t limit, int kind, dict a):
    """Take rows until the chunk has `limit` of them; returns (rows taken, index of a row that is not finite or -1).

    Rows before a bad one may have been taken. A batch that neither completes a block nor holds a bad row changes
    nothing but the pending rows.
    """
    cdef Py_ssize_t n = rows.shape[0], ld = rows.strides[0] // <Py_ssize_t> sizeof(real)
    cdef real[:, ::1] out = a["out"]
    cdef real[:, ::1] pending = a["pending"]
    cdef real[::1] shift = a["shift"]
    cdef real[::1] value = a["value"]
    cdef real[::1] scratch = a["scratch"]
    cdef const double[::1] w
    cdef const double* wp = NULL
    cdef Py_ssize_t done = 0, now, i, bad
    cdef double largest
    cdef Plan p = make_plan(kind, pending.shape[0], out.shape[1], out.shape[0], a)
    if n > limit - p.count[ROWS]:
        n = limit - p.count[ROWS]
    if n <= 0:
        return 0, -1
    if weights is not None:
        w = weights
        wp = &w[0]
    with nogil:
        while done < n:
            now = p.p - p.count[PENDING]
            if now > n - done:
                now = n - done
            if real is float:
                bad = fs_scan_rows_s(now, p.d, ld, &rows[done, 0], &largest)
            else:
                bad = fs_scan_rows_d(now, p.d, ld, &rows[done, 0], &largest)
            if bad >= 0:
                with gil:
                    return done, done + bad
            if largest > p.book[LARGEST]:
                p.book[LARGEST] = largest
            if p.centre and not p.count[SHIFTED]:
                # The chunk's first row, near to its mean wherever that lies: what follows is as exact as the spread.
                memcpy(&shift[0], &rows[done, 0], p.d * sizeof(real))
                p.count[SHIFTED] = 1
            if now == p.p and wp is NULL:
                p.weighted = False
                block(&p, p.count[ROWS], ld, &rows[done, 0], &shift[0], &value[0], &scratch[0], &pending[0, 0],
                      &out[0, 0])
                p.book[WEIGHT] += now
                p.count[ROWS] += now
            else:
                for i in range(now):
                    memcpy(&pending[p.count[PENDING], 0], &rows[done + i, 0], p.d * sizeof(real))
                    p.root[p.count[PENDING]] = sqrt(wp[done + i]) if wp is not NULL else 1.0
                    p.book[WEIGHT] += wp[done + i] if wp is not NULL else 1.0
                    p.count[PENDING] += 1
                p.count[ROWS] += now
                if p.count[PENDING] == p.p:
                    flush(&p, &shift[0], &value[0], &scratch[0], &pending[0, 0], &out[0, 0])
            done += now
    return done, -1


cdef void flush(Plan* p, const real* shift, const real* value, real* scratch, real* pending,
                real* out) noexcept nogil:
    """Put the pending block, complete or not, through the map."""
    cdef Py_ssize_t i
    p.weighted = False
    for i in range(p.p):
        p.square[i] = p.root[i] * p.root[i]
        if p.root[i] != 1.0:
            p.weighted = True
    block(p, p.count[ROWS] - p.count[PENDING], p.d, pending, shift, value, scratch, pending, out)
    memset(pending, 0, p.p * p.d * sizeof(real))
    for i in range(p.p):
        p.root[i] = 0.0
    p.count[PENDING] = 0


def finish(real[:, ::1] out, int kind, dict a):
    """Put what is pending through the map: absent rows count as zero."""
    cdef real[:, ::1] pending = a["pending"]
    cdef real[::1] shift = a["shift"]
    cdef real[::1] value = a["value"]
    cdef real[::1] scratch = a["scratch"]
    cdef Plan p = make_plan(kind, pending.shape[0], out.shape[1], out.shape[0], a)
    if p.count[PENDING]:
        with nogil:
            flush(&p, &shift[0], &value[0], &scratch[0], &pending[0, 0], &out[0, 0])
