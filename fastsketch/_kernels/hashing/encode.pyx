"""Signed distances of rows to hyperplanes, rows @ projection - offsets, and their signs as packed codes.

The number of rows of a task depends on the width and the number of bits only, so that results do not depend on the
number of threads.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from fastsketch._kernels.level cimport follow
from fastsketch._kernels.linalg.blas cimport real, gemm, gemv
from fastsketch._kernels.linalg.rows cimport scan_rows
from fastsketch._kernels.pool cimport fs_blas_alone, fs_part, fs_pool_run, join
from fastsketch._kernels.sketching.sparse_rows cimport csr_times_z, scan_csr

import numpy as np


follow()
join()


cdef enum:
    PART_PRODUCTS = 1 << 23  # multiply-adds of a task: some tenths of a millisecond
    FEWEST = 64              # rows of a task, at least: BLAS packs the projection for each task
    MOST = 2048              # rows of a task, at most: their scores stay in the caches


cdef Py_ssize_t part_rows(Py_ssize_t d, Py_ssize_t n_bits) noexcept nogil:
    cdef Py_ssize_t rows = PART_PRODUCTS // (d * n_bits) // FEWEST * FEWEST
    return FEWEST if rows < FEWEST else MOST if rows > MOST else rows


def rows_of_part(Py_ssize_t d, Py_ssize_t n_bits):
    """Return the number of rows of one task. Calls with multiples of it give the same bits as a single call."""
    return part_rows(d, n_bits)


cdef struct Job:
    Py_ssize_t n, d, ld, n_bits, n_bytes, rows
    const void* x              # (n, d), or of CSR rows
    const int64_t* indptr
    const int32_t* indices
    const void* projection     # (d, n_bits)
    const void* offsets        # (n_bits,)
    void* scores               # (n, n_bits), or NULL: codes are wanted
    uint8_t* codes             # (n, n_bytes)
    Py_ssize_t* bad            # of each part, its first row that is not finite or -1


cdef void signs(Py_ssize_t n_bits, const real* scores, const real* offsets, uint8_t* code) noexcept nogil:
    """np.packbits(scores - offsets > 0, bitorder="little")"""
    cdef Py_ssize_t k, b
    cdef int byte
    k = 0
    while k + 8 <= n_bits:
        byte = 0
        for b in range(8):
            byte |= (scores[k + b] > offsets[k + b]) << b
        code[k // 8] = <uint8_t> byte
        k += 8
    if k < n_bits:
        byte = 0
        for b in range(n_bits - k):
            byte |= (scores[k + b] > offsets[k + b]) << b
        code[k // 8] = <uint8_t> byte


cdef void some_rows(void* context, ptrdiff_t part, real* scratch) noexcept nogil:
    cdef Job* c = <Job*> context
    cdef Py_ssize_t first = part * c.rows, n = c.n - first if c.n - first < c.rows else c.rows, bits = c.n_bits, i, k
    cdef const real* offsets = <const real*> c.offsets
    cdef const real* projection = <const real*> c.projection
    cdef const real* x = <const real*> c.x
    cdef real* scores = scratch if c.scores is NULL else <real*> c.scores + first * bits
    cdef double largest
    cdef Py_ssize_t bad
    if c.indptr is not NULL:
        bad = scan_csr(n, c.indptr + first, x, &largest)
    else:
        x += first * c.ld
        bad = scan_rows(n, c.d, c.ld, x, &largest)
    c.bad[part] = bad if bad < 0 else first + bad
    if bad >= 0:
        return
    # scores = rows @ projection
    if c.indptr is not NULL:
        csr_times_z(n, bits, bits, c.indptr + first, c.indices, x, projection, scores)
    elif n == 1:
        gemv(c'N', bits, c.d, <real> 1.0, projection, bits, x, <real> 0.0, scores)
    else:
        gemm(c'N', c'N', bits, n, c.d, <real> 1.0, projection, bits, x, c.ld, <real> 0.0, scores, bits)
    # compared with mu'P: no centred copy of the rows
    for i in range(n):
        if c.scores is NULL:
            signs(bits, scores + i * bits, offsets, c.codes + (first + i) * c.n_bytes)
        else:
            for k in range(bits):
                scores[i * bits + k] -= offsets[k]


cdef Py_ssize_t run(Job* c, const real[:, ::1] projection, const real[::1] offsets, scores, codes) except -2:
    """Run all tasks, and return the index of the first row that is not finite, or -1."""
    cdef Py_ssize_t parts, i
    cdef real[:, ::1] out
    cdef uint8_t[:, ::1] packed
    cdef real[::1] scratch
    c.n_bits, c.n_bytes = projection.shape[1], (projection.shape[1] + 7) // 8
    c.projection, c.offsets, c.scores, c.codes = &projection[0, 0], &offsets[0], NULL, NULL
    c.rows = part_rows(c.d, c.n_bits)
    parts = (c.n + c.rows - 1) // c.rows
    if scores is not None:
        out = scores
        c.scores = &out[0, 0]
        scratch = out[0]
    else:
        packed = codes
        c.codes = &packed[0, 0]
        scratch = np.empty((c.rows if parts > 1 else c.n) * c.n_bits, np.float32 if real is float else np.float64)
    cdef Py_ssize_t[::1] bad = np.empty(parts, np.intp)
    c.bad = &bad[0]
    with nogil:
        fs_blas_alone(1)
        fs_pool_run(parts, <fs_part> some_rows[real], c, &scratch[0],
                    0 if c.scores is not NULL else c.rows * c.n_bits * sizeof(real))
        fs_blas_alone(0)
    for i in range(parts):
        if bad[i] >= 0:
            return bad[i]
    return -1


def dense(const real[:, :] rows, const real[:, ::1] projection, const real[::1] offsets, *, scores=None, codes=None):
    """Compute rows @ projection - offsets, and write it to scores (n, n_bits), or its packed signs to codes.

    Rows must be contiguous along columns. Returns the index of the first row that is not finite, or -1.
    """
    cdef Job c
    c.n, c.d, c.ld = rows.shape[0], rows.shape[1], rows.strides[0] // <Py_ssize_t> sizeof(real)
    if c.n == 0:
        return -1
    c.x, c.indptr, c.indices = &rows[0, 0], NULL, NULL
    return run(&c, projection, offsets, scores, codes)


def csr(const int64_t[::1] indptr, const int32_t[::1] indices, const real[::1] data, const real[:, ::1] projection,
        const real[::1] offsets, *, scores=None, codes=None):
    """Compute the results of ``dense`` for CSR rows without duplicates."""
    cdef Job c
    c.n, c.d, c.ld = indptr.shape[0] - 1, projection.shape[0], 0
    if c.n == 0:
        return -1
    c.x = &data[0] if data.shape[0] else <const real*> &indptr[0]
    c.indices = &indices[0] if indices.shape[0] else <const int32_t*> &indptr[0]
    c.indptr = &indptr[0]
    return run(&c, projection, offsets, scores, codes)
