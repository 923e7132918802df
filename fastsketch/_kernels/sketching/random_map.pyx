"""Random linear maps from m rows to q, a few rows at a time: out += Phi[:, step] (x - shift), in place.

The random numbers of a block come from sketching/_sized_map.py, the state from sketching/_mapped_block.py:

    srht:    value (m,) signs; target (q,), hi (q,): output k is sampled from row hi[k] p + target[k]
    scatter: target (m, s), value (m, s)
    gemm:    value (m, q)
"""

cimport cython

from libc.math cimport sqrt
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy, memset

from fastsketch._kernels.linalg.blas cimport real, gemm
from fastsketch._kernels.linalg.hadamard cimport (
    fs_srht_work_d, fs_srht_work_s, scatter_rows, srht_block, transform_rows,
)
from fastsketch._kernels.level cimport follow

import numpy as np


follow()


cdef extern from "fs_rows.h" nogil:
    ptrdiff_t fs_scan_rows_s(ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, const float *x, double *largest)
    ptrdiff_t fs_scan_rows_d(ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, const double *x, double *largest)

# The loop that serves a kind of map.
SRHT_LOOP, SCATTER_LOOP, GEMM_LOOP = SRHT, SCATTER, GEMM

cdef enum:
    SRHT = 0
    SCATTER = 1
    GEMM = 2


def srht_work(p, dtype):
    """Elements of workspace for blocks of p rows."""
    return fs_srht_work_s(p) if dtype == np.float32 else fs_srht_work_d(p)


@cython.auto_pickle(False)
cdef class BlockState:
    """State of one block of a stream on its way through a map, and the map's random numbers for it."""

    # in the order in which state files hold them
    SUMS = ("weight", "largest")
    COUNTS = ("n_rows", "pending_rows", "shifted")

    cdef readonly int loop
    cdef readonly Py_ssize_t p, d, q, s    # rows of a step; columns; rows of out; entries of a row of `target`
    cdef readonly bint center
    cdef bint weighted                     # whether root holds anything but ones for the step at hand

    cdef public double weight              # sum of the weights
    cdef public double largest             # largest |entry|
    cdef public Py_ssize_t n_rows          # rows taken
    cdef public Py_ssize_t pending_rows    # of these, rows of the step that is not complete
    cdef public bint shifted               # whether shift is set

    # of the dtype of the sketch
    cdef readonly object out               # (q, d): Phi times the rows so far
    cdef readonly object pending           # (p, d): rows of the step that is not complete, as they came; else zero
    cdef readonly object shift             # (d,): subtracted from every row (zeros if the map does not centre)
    cdef object value                      # random numbers: see above
    cdef object scratch

    cdef readonly double[::1] root         # (p,): roots of the weights of the pending rows, 0 for absent ones
    cdef readonly double[::1] sums         # (d,): sum of root^2 (x - shift); empty if the map does not centre
    cdef readonly double[::1] ones         # (q,): sum of Phi[:, i] root_i, the map of the column of root weights
    cdef double[::1] square                # (p,): root squared
    cdef int32_t[::1] target
    cdef int64_t[::1] hi

    def __init__(self, int loop, *, Py_ssize_t p, Py_ssize_t d, Py_ssize_t q, bint center, space, dtype):
        self.loop, self.p, self.d, self.q, self.center = loop, p, d, q, center
        self.out = np.zeros((q, d), dtype)
        self.pending = np.zeros((p, d), dtype)
        self.shift = np.zeros(d, dtype)
        self.scratch = np.empty(space, dtype)
        self.root, self.square = np.zeros(p), np.zeros(p)
        self.sums, self.ones = np.zeros(d if center else 0), np.zeros(q)

    def set_numbers(self, value, target, hi, Py_ssize_t s):
        """Take the random numbers of a block."""
        self.value, self.target, self.hi, self.s = value, target, hi, s

    def copy(self):
        """An independent state of the same block; the random numbers, which nothing changes, are shared."""
        cdef BlockState other = BlockState.__new__(BlockState)
        other.loop, other.p, other.d, other.q, other.s = self.loop, self.p, self.d, self.q, self.s
        other.center, other.weighted, other.shifted = self.center, self.weighted, self.shifted
        other.weight, other.largest = self.weight, self.largest
        other.n_rows, other.pending_rows = self.n_rows, self.pending_rows
        other.out, other.pending, other.shift = self.out.copy(), self.pending.copy(), self.shift.copy()
        other.value, other.target, other.hi = self.value, self.target, self.hi
        other.root, other.sums, other.ones = self.root.copy(), self.sums.copy(), self.ones.copy()
        other.scratch, other.square = np.empty_like(self.scratch), np.empty(self.p)
        return other


cdef inline bint odd(int64_t x) noexcept nogil:
    x ^= x >> 32
    x ^= x >> 16
    x ^= x >> 8
    x ^= x >> 4
    x ^= x >> 2
    x ^= x >> 1
    return x & 1


cdef void step(BlockState b, Py_ssize_t first, Py_ssize_t ld, const real* x, const real* shift, const real* value,
               real* scratch, real* rows, real* out) noexcept nogil:
    """Rows first .. first + p of the block, all present or zero with a root of zero.

    scratch: the map's workspace; rows: p x d, may be x itself (gemm only).
    """
    cdef Py_ssize_t p = b.p, d = b.d, q = b.q, s = b.s, i, k, t
    cdef double* sums = &b.sums[0] if b.center else NULL
    cdef const double* weight = &b.square[0] if b.weighted else NULL
    cdef real* flip
    cdef real* factor
    cdef int32_t* target
    if b.loop == SRHT:
        flip = scratch
        factor = scratch + q
        # out[k] += (-1)^<hi_k, step> (H_p diag(factor) (x - shift))[target_k]
        for k in range(q):
            flip[k] = -1 if odd(b.hi[k] & (first // p)) else 1
        if b.weighted:
            for i in range(p):
                factor[p + i] = <real> (value[first + i] * b.root[i])
            value = factor + p - first
        srht_block(p, d, ld, x, value + first, weight, shift, sums, q, &b.target[0], flip, factor + 2 * p, out, d)
        if b.center:
            # ones[k] += flip[k] (H_p factor)[target_k]
            memcpy(factor, value + first, p * sizeof(real))
            transform_rows(1, p, p, factor)
            for k in range(q):
                b.ones[k] += flip[k] * factor[b.target[k]]
        return
    if b.loop == SCATTER:
        target = &b.target[first * s]
        for i in range(p):
            for t in range(s):
                scratch[i * s + t] = <real> (value[(first + i) * s + t] * (b.root[i] if b.weighted else 1.0))
                b.ones[target[i * s + t]] += scratch[i * s + t]
        scatter_rows(p, d, ld, x, weight, shift, sums, s, target, <const real*> scratch, out, d)
        return
    # gemm: rows = root (x - shift), out += value[step].T @ rows
    if b.center:
        scatter_rows(p, d, ld, x, weight, shift, sums, 0, NULL, <const real*> NULL, out, d)
    cdef real r
    for i in range(p):
        r = <real> (b.root[i] if b.weighted else 1.0)
        for k in range(d):
            rows[i * d + k] = r * (x[i * ld + k] - shift[k])
        for k in range(q):
            b.ones[k] += r * value[(first + i) * q + k]
    gemm(c'N', c'T', d, q, p, <real> 1.0, rows, d, value + first * q, q, <real> 1.0, out, d)


def absorb(const real[:, :] rows, weights, Py_ssize_t limit, BlockState b):
    """Take rows until the block has `limit` of them; returns (rows taken, index of a row that is not finite or -1).

    Rows before a bad one may have been taken. A batch that neither completes a step nor holds a bad row changes
    nothing but the pending rows.
    """
    cdef Py_ssize_t n = rows.shape[0], ld = rows.strides[0] // <Py_ssize_t> sizeof(real)
    cdef real[:, ::1] out = b.out
    cdef real[:, ::1] pending = b.pending
    cdef real[::1] shift = b.shift
    cdef real[::1] value = b.value
    cdef real[::1] scratch = b.scratch
    cdef const double[::1] w
    cdef const double* wp = NULL
    cdef Py_ssize_t done = 0, now, i, bad
    cdef double largest
    if n > limit - b.n_rows:
        n = limit - b.n_rows
    if n <= 0:
        return 0, -1
    if weights is not None:
        w = weights
        wp = &w[0]
    with nogil:
        while done < n:
            now = b.p - b.pending_rows
            if now > n - done:
                now = n - done
            if real is float:
                bad = fs_scan_rows_s(now, b.d, ld, &rows[done, 0], &largest)
            else:
                bad = fs_scan_rows_d(now, b.d, ld, &rows[done, 0], &largest)
            if bad >= 0:
                with gil:
                    return done, done + bad
            if largest > b.largest:
                b.largest = largest
            if b.center and not b.shifted:
                # The block's first row that has a weight, near to its mean wherever that lies: differences are as
                # exact as the spread.
                for i in range(now):
                    if wp is NULL or wp[done + i] > 0.0:
                        memcpy(&shift[0], &rows[done + i, 0], b.d * sizeof(real))
                        b.shifted = True
                        break
            if now == b.p and wp is NULL:
                b.weighted = False
                step(b, b.n_rows, ld, &rows[done, 0], &shift[0], &value[0], &scratch[0], &pending[0, 0],
                     &out[0, 0])
                b.weight += now
                b.n_rows += now
            else:
                for i in range(now):
                    memcpy(&pending[b.pending_rows, 0], &rows[done + i, 0], b.d * sizeof(real))
                    b.root[b.pending_rows] = sqrt(wp[done + i]) if wp is not NULL else 1.0
                    b.weight += wp[done + i] if wp is not NULL else 1.0
                    b.pending_rows += 1
                b.n_rows += now
                if b.pending_rows == b.p:
                    flush(b, &shift[0], &value[0], &scratch[0], &pending[0, 0], &out[0, 0])
            done += now
    return done, -1


cdef void flush(BlockState b, const real* shift, const real* value, real* scratch, real* pending,
                real* out) noexcept nogil:
    """Put the pending rows, a complete step or not, through the map."""
    cdef Py_ssize_t i
    b.weighted = False
    for i in range(b.p):
        b.square[i] = b.root[i] * b.root[i]
        if b.root[i] != 1.0:
            b.weighted = True
    step(b, b.n_rows - b.pending_rows, b.d, pending, shift, value, scratch, pending, out)
    memset(pending, 0, b.p * b.d * sizeof(real))
    for i in range(b.p):
        b.root[i] = 0.0
    b.pending_rows = 0


def finish(real[:, ::1] out, BlockState b):
    """Put the pending rows through the map; `out` is the block's own. Absent rows count as zero."""
    cdef real[:, ::1] pending = b.pending
    cdef real[::1] shift = b.shift
    cdef real[::1] value = b.value
    cdef real[::1] scratch = b.scratch
    if b.pending_rows:
        with nogil:
            flush(b, &shift[0], &value[0], &scratch[0], &pending[0, 0], &out[0, 0])
