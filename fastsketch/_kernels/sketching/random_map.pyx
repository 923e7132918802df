"""Apply random linear maps from m rows to q, a few rows at a time: out += Phi[:, step] (x - shift), in place.

The random numbers of a block come from sketching/_random_maps.py, which also owns the state:

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
    FS_SRHT_STRIP_BYTES, fs_srht_work_d, fs_srht_work_s, scatter_rows, srht_block, transform_rows,
)
from fastsketch._kernels.linalg.row_parts cimport scan_parts
from fastsketch._kernels.level cimport follow
from fastsketch._kernels.pool cimport fs_blas_alone, fs_part, fs_pool_from, fs_pool_parts, fs_pool_run, join

import numpy as np


follow()
join()


# The loop for a kind of map.
SRHT_LOOP, SCATTER_LOOP, GEMM_LOOP = SRHT, SCATTER, GEMM

cdef enum:
    SRHT = 0
    SCATTER = 1
    GEMM = 2

cdef enum:
    MOST_STEPS = 16         # largest number of steps of one job
    JOB_ENTRIES = 1 << 18   # largest number of entries of a job of several steps: they stay in the caches until mapped
    LEAST_ENTRIES = 1 << 13  # smallest number of entries of a part: about ten microseconds
    GEMM_COLUMNS = 512      # columns of one product, so that its bits do not depend on the parts


def srht_space(q, p, dtype):
    """Return the length of the scratch array that the SRHT needs to map p rows at a time to q rows."""
    return MOST_STEPS * q + 2 * p + (fs_srht_work_s(p) if dtype == np.float32 else fs_srht_work_d(p))


@cython.auto_pickle(False)
cdef class BlockState:
    """State of one block of a stream that is being mapped, and the map's random numbers for it."""

    # in the order of state files
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
        """Set the random numbers by which the rows of the present block are mapped."""
        self.value, self.target, self.hi, self.s = value, target, hi, s


cdef inline bint odd(int64_t x) noexcept nogil:
    x ^= x >> 32
    x ^= x >> 16
    x ^= x >> 8
    x ^= x >> 4
    x ^= x >> 2
    x ^= x >> 1
    return x & 1


cdef struct Steps:
    # some steps of the map, and the arrays as they are from the first of them on
    int loop
    Py_ssize_t n_steps, p, d, q, s, ld, n_parts, cut
    const void* x
    const void* value
    const void* shift
    const void* flip
    const double* root      # NULL: ones
    const double* square
    double* sums            # NULL: not wanted
    const int32_t* target
    void* rows              # (p, d) of scratch, for gemm
    void* out


cdef void map_columns(void* context, ptrdiff_t part, real* scratch) noexcept nogil:
    """Map some columns of all steps; columns are independent."""
    cdef Steps* c = <Steps*> context
    cdef Py_ssize_t j = fs_pool_from(c.d, c.n_parts, part, c.cut), w = fs_pool_from(c.d, c.n_parts, part + 1, c.cut) - j
    cdef Py_ssize_t p = c.p, d = c.d, q = c.q, i, k, t, _t, width
    cdef const real* x = <const real*> c.x + j
    cdef const real* shift = <const real*> c.shift + j
    cdef const real* value = <const real*> c.value
    cdef double* sums = NULL if c.sums is NULL else c.sums + j
    cdef real* rows = <real*> c.rows + j
    cdef real* out = <real*> c.out + j
    cdef real r
    if c.loop == SRHT:
        for t in range(c.n_steps):
            srht_block(p, w, c.ld, x + t * p * c.ld, value + t * p, c.square, shift, sums, q, c.target,
                       <const real*> c.flip + t * q, scratch, out, d)
        return
    if c.loop == SCATTER:
        scatter_rows(c.n_steps * p, w, c.ld, x, c.square, shift, sums, c.s, c.target, value, out, d)
        return
    for _t in range(c.n_steps):
        # rows = root (x - shift), out += value[step].T @ rows
        if sums is not NULL:
            scatter_rows(p, w, c.ld, x, c.square, shift, sums, 0, NULL, <const real*> NULL, out, d)
        for i in range(p):
            r = <real> (1.0 if c.root is NULL else c.root[i])
            for k in range(w):
                rows[i * d + k] = r * (x[i * c.ld + k] - shift[k])
        k = 0
        while k < w:
            width = w - k if w - k < GEMM_COLUMNS else <Py_ssize_t> GEMM_COLUMNS
            gemm(c'N', c'T', width, q, p, <real> 1.0, rows + k, d, value, q, <real> 1.0, out + k, d)
            k += width
        x += p * c.ld
        value += p * q


cdef void map_steps(BlockState b, Py_ssize_t first, Py_ssize_t n_steps, Py_ssize_t ld, const real* x,
                    const real* shift, const real* value, real* scratch, real* rows, real* out) noexcept nogil:
    """Map rows first .. first + n_steps p of the block; absent rows are zero with a root of zero.

    Of weighted rows only one step at a time.

    scratch: the map's workspace; rows: p x d, may be x itself (gemm only, one step).
    """
    cdef Py_ssize_t p = b.p, d = b.d, q = b.q, s = b.s, i, k, t
    cdef Py_ssize_t entries = n_steps * p * d, columns
    cdef size_t bytes = 0
    cdef real* flip = scratch
    cdef real* factor
    cdef real* work = NULL
    cdef real r
    cdef Steps c
    c.loop, c.n_steps, c.p, c.d, c.q, c.s, c.ld = b.loop, n_steps, p, d, q, s, ld
    c.x, c.shift, c.flip, c.rows, c.out = x, shift, flip, rows, out
    c.sums = &b.sums[0] if b.center else NULL
    c.root = &b.root[0] if b.weighted else NULL
    c.square = &b.square[0] if b.weighted else NULL
    c.target = NULL
    if b.loop == SRHT:
        # out[k] += (-1)^<hi_k, step> (H_p diag(factor) (x - shift))[target_k]
        c.target, c.value = &b.target[0], value + first
        factor = scratch + MOST_STEPS * q
        work = factor + 2 * p
        bytes = (fs_srht_work_s(p) if real is float else fs_srht_work_d(p)) * sizeof(real)
        for t in range(n_steps):
            for k in range(q):
                flip[t * q + k] = -1 if odd(b.hi[k] & (first // p + t)) else 1
            if b.center:
                # ones[k] += flip[k] (H_p factor)[target_k]
                for i in range(p):
                    r = value[first + t * p + i]
                    factor[i] = <real> (r * b.root[i]) if b.weighted else r
                    factor[p + i] = factor[i]
                transform_rows(1, p, p, factor)
                for k in range(q):
                    b.ones[k] += flip[t * q + k] * factor[b.target[k]]
        if b.weighted:
            for i in range(p):
                factor[p + i] = <real> (value[first + i] * b.root[i])
            c.value = factor + p
    elif b.loop == SCATTER:
        c.target, c.value = &b.target[first * s], value + first * s
        if b.weighted:
            for i in range(p * s):
                scratch[i] = <real> (value[first * s + i] * b.root[i // s])
            c.value = scratch
        for i in range(n_steps * p * s):
            b.ones[c.target[i]] += (<const real*> c.value)[i]
    else:
        c.value = value + first * q
        for i in range(n_steps * p):
            r = <real> (b.root[i] if b.weighted else 1.0)
            for k in range(q):
                b.ones[k] += r * value[(first + i) * q + k]
        entries *= 1 + q // 8
    c.cut = GEMM_COLUMNS if b.loop == GEMM else FS_SRHT_STRIP_BYTES // sizeof(real)
    if b.loop != GEMM and d < 4 * c.cut:
        c.cut //= 2
    columns = (d + c.cut - 1) // c.cut
    c.n_parts = 1 if entries < 8 * LEAST_ENTRIES else fs_pool_parts(<double> entries, LEAST_ENTRIES)
    if c.n_parts > columns:
        c.n_parts = columns
    if b.loop == GEMM:
        fs_blas_alone(1)
    fs_pool_run(c.n_parts, <fs_part> map_columns[real], &c, work, bytes)
    if b.loop == GEMM:
        fs_blas_alone(0)


def absorb(const real[:, :] rows, weights, Py_ssize_t limit, BlockState b):
    """Add rows to the block, in place, until it has `limit` of them. Return (number of rows added, index of a row that
    is not finite, or -1).

    Rows before a bad one may have been taken, or not. A batch that does not complete a step changes only the pending
    rows.
    """
    cdef Py_ssize_t n = rows.shape[0], ld = rows.strides[0] // <Py_ssize_t> sizeof(real)
    cdef real[:, ::1] out = b.out
    cdef real[:, ::1] pending = b.pending
    cdef real[::1] shift = b.shift
    cdef real[::1] value = b.value
    cdef real[::1] scratch = b.scratch
    cdef const double[::1] w
    cdef const double* wp = NULL
    cdef Py_ssize_t done = 0, now, i, bad, steps
    cdef double largest
    cdef Py_ssize_t most = (JOB_ENTRIES // 2 if b.loop == SCATTER else JOB_ENTRIES) // (b.p * b.d)
    most = 1 if most < 1 else MOST_STEPS if most > MOST_STEPS else most
    if n > limit - b.n_rows:
        n = limit - b.n_rows
    if n <= 0:
        return 0, -1
    if weights is not None:
        w = weights
        wp = &w[0]
    with nogil:
        while done < n:
            steps = (n - done) // b.p if b.pending_rows == 0 and wp is NULL else 0
            if steps > most:
                steps = most
            now = steps * b.p if steps else b.p - b.pending_rows
            if now > n - done:
                now = n - done
            bad = scan_parts(now, b.d, ld, &rows[done, 0], &largest)
            if bad >= 0:
                with gil:
                    return done, done + bad
            b.largest = max(b.largest, largest)
            if b.center and not b.shifted:
                # The block's first row of positive weight, which is near the mean wherever that is: differences are as
                # accurate as the spread.
                for i in range(now):
                    if wp is NULL or wp[done + i] > 0.0:
                        memcpy(&shift[0], &rows[done + i, 0], b.d * sizeof(real))
                        b.shifted = True
                        break
            if steps:
                b.weighted = False
                map_steps(b, b.n_rows, steps, ld, &rows[done, 0], &shift[0], &value[0], &scratch[0], &pending[0, 0],
                          &out[0, 0])
                if b.loop == GEMM:  # it was used as workspace
                    memset(&pending[0, 0], 0, b.p * b.d * sizeof(real))
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
    """Map the pending rows, whether or not they are a complete step, and add the result to the output."""
    cdef Py_ssize_t i
    b.weighted = False
    for i in range(b.p):
        b.square[i] = b.root[i] * b.root[i]
        if b.root[i] != 1.0:
            b.weighted = True
    map_steps(b, b.n_rows - b.pending_rows, 1, b.d, pending, shift, value, scratch, pending, out)
    memset(pending, 0, b.p * b.d * sizeof(real))
    for i in range(b.p):
        b.root[i] = 0.0
    b.pending_rows = 0


def finish(real[:, ::1] out, BlockState b):
    """Map the rows that are still waiting, and add them to `out`, the block's own array. Missing rows of the block
    count as zero.
    """
    cdef real[:, ::1] pending = b.pending
    cdef real[::1] shift = b.shift
    cdef real[::1] value = b.value
    cdef real[::1] scratch = b.scratch
    if b.pending_rows:
        with nogil:
            flush(b, &shift[0], &value[0], &scratch[0], &pending[0, 0], &out[0, 0])
