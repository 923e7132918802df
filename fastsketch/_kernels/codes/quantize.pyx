"""Projection of rows on a basis, encoding, and decoding of codes (csrc/fs_project.h, csrc/fs_quantize.h).

The coordinates and the code of a row depend on that row only, and are bitwise identical for all instruction sets,
batches, tasks and threads.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memset

from fastsketch._kernels.level cimport follow
from fastsketch._kernels.linalg.blas cimport real
from fastsketch._kernels.linalg.rows cimport scan_rows
from fastsketch._kernels.pool cimport fs_part, fs_pool_run, join
from fastsketch._kernels.sketching.sparse_rows cimport scan_csr

import numpy as np


cdef extern from "fs_project.h" nogil:
    enum:
        FS_PROJECT_ROWS
        FS_PROJECT_TILE
        FS_PROJECT_PANEL
    void fs_project_rows_s(ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, const float *x, const double *mean, double scale,
                           ptrdiff_t n_tiles, const float *w, float *panel, float *z, double *square)
    void fs_project_rows_d(ptrdiff_t n, ptrdiff_t d, ptrdiff_t ld, const double *x, const double *mean, double scale,
                           ptrdiff_t n_tiles, const float *w, float *panel, float *z, double *square)
    void fs_project_csr_s(ptrdiff_t n, ptrdiff_t d, const int64_t *indptr, const int32_t *indices, const float *data,
                          const double *mean, double scale, double mean_square, ptrdiff_t n_tiles, const float *w,
                          const double *base, double *sum, float *z, double *square)
    void fs_project_csr_d(ptrdiff_t n, ptrdiff_t d, const int64_t *indptr, const int32_t *indices, const double *data,
                          const double *mean, double scale, double mean_square, ptrdiff_t n_tiles, const float *w,
                          const double *base, double *sum, float *z, double *square)
    void fs_project_back_s(ptrdiff_t n, ptrdiff_t r, ptrdiff_t d, const float *z, const double *mean, double factor,
                           const float *w, float *out)


cdef extern from "fs_quantize.h" nogil:
    ctypedef struct fs_small_float:
        int bytes, mantissa
        float unit
    ctypedef struct fs_quantizer:
        ptrdiff_t n_directions, n_groups, n_nibbles, width
        const int32_t *start
        const int32_t *count
        const int32_t *nibbles
        const float *words
        const float *weighted
        const float *half
        const float *slope
        const double *offset
        fs_small_float factor
    size_t fs_quantize_scratch(ptrdiff_t n_nibbles)
    void fs_quantize_panel_s(const fs_quantizer *q, ptrdiff_t n, const float *z, const double *square, uint8_t *codes,
                             void *scratch)
    void fs_words_panel_s(const fs_quantizer *q, ptrdiff_t n, const uint8_t *codes, float *z, void *scratch)


follow()
join()


cdef enum:
    PART_PRODUCTS = 1 << 22  # multiply-adds of a task: some tenths of a millisecond
    MOST = 2048              # rows of a task, at most


def tiles_of(matrix):
    """Copy the columns of a float32 matrix (d, r) to tiles (ceil(r / tile), d, tile), see csrc/fs_project.h."""
    cdef Py_ssize_t tile = FS_PROJECT_TILE
    d, r = matrix.shape
    out = np.zeros((-(-r // tile) * tile, d), np.float32)
    out[:r] = matrix.T
    return np.ascontiguousarray(out.reshape(-1, tile, d).transpose(0, 2, 1))


def halves_of(list words, weights):
    """Return half the weighted squared lengths of the codewords of a group, float32.

    words: the codebooks (16, count) of its one or two nibbles. The result is (16,) for one nibble, and (16, 16) for the
    sums of words of two, indexed by the second nibble and then the first.
    """
    chosen = words[0] if len(words) == 1 else words[0][np.newaxis] + words[1][:, np.newaxis]
    total = np.zeros((16,) * len(words))
    for k in range(words[0].shape[1]):
        total += np.square(chosen[..., k], dtype=np.float64) * float(weights[k])
    return (0.5 * total).astype(np.float32)


cdef class Quantizer:
    """A quantizer in the layout of csrc/fs_quantize.h. Lengths are in units of `length`.

    Parameters
    ----------
    mean : float64 (d,), in units of the rows
    basis : float32 (d, r)
    length : float
        z = (x - mean) W / length.
    groups : sequence of (start, [words]) or (start, [words, words])
        Words float32 (16, count) of one nibble or of two, for directions start .. start + count - 1.
    factor : (bytes, mantissa bits, unit)
        Format of the factor of a row; 0 bytes: no factor.
    offset : float64 (4,)
        The factor is offset . s, s = (1, |x - mean|^2, |z|^2, sum of slope z (z - word) over directions in groups).
    weights, slope : float32 (r,)
        For each direction; the words of the smallest sum of weight (z - word)^2 are chosen.
    """

    cdef fs_quantizer q
    cdef readonly Py_ssize_t n_features, n_directions, width
    cdef Py_ssize_t n_tiles
    cdef double scale, mean_square
    cdef const double[::1] mean, base, offset
    cdef const float[::1] tiles, back, words, weighted, halves, slope
    cdef const int32_t[:, ::1] groups

    def __init__(self, mean, basis, *, double length, groups, factor, offset, weights, slope):
        cdef Py_ssize_t d = basis.shape[0], r = basis.shape[1]
        self.mean = np.ascontiguousarray(mean, np.float64)
        self.scale = 1.0 / length
        basis = np.asarray(basis, np.float32)
        self.tiles, self.back = tiles_of(basis).ravel(), tiles_of(basis.T).ravel()
        self.n_features, self.n_directions, self.n_tiles = d, r, (r + FS_PROJECT_TILE - 1) // FS_PROJECT_TILE
        base = np.zeros(self.n_tiles * FS_PROJECT_TILE)
        self.mean_square = of_mean(self.scale, self.mean, np.ascontiguousarray(basis), base)
        self.base = base

        shapes = [(start, words[0].shape[1], len(words)) for start, words in groups]
        self.groups = np.ascontiguousarray(np.array(shapes, np.int32).reshape(-1, 3).T)
        none = [np.zeros(1, np.float32)]  # an address where there are no groups
        of_group = [weights[start : start + count] for start, count, _ in shapes]
        self.words = np.concatenate([part.T.ravel() for _, words in groups for part in words] + none)
        self.weighted = np.concatenate(
            [(part * own).T.ravel() for own, (_, words) in zip(of_group, groups) for part in words] + none
        )
        self.halves = np.concatenate(
            [halves_of(words, own).ravel() for own, (_, words) in zip(of_group, groups)] + none
        )
        self.slope, self.offset = np.ascontiguousarray(slope, np.float32), np.ascontiguousarray(offset, np.float64)
        self.q.n_directions, self.q.n_groups = r, len(shapes)
        self.q.n_nibbles = sum(nibbles for _, _, nibbles in shapes)
        self.q.width = (self.q.n_nibbles + 1) // 2 + factor[0]
        self.width = self.q.width
        if shapes:
            self.q.start, self.q.count, self.q.nibbles = &self.groups[0, 0], &self.groups[1, 0], &self.groups[2, 0]
        self.q.words, self.q.weighted, self.q.half = &self.words[0], &self.weighted[0], &self.halves[0]
        self.q.slope, self.q.offset = &self.slope[0], &self.offset[0]
        self.q.factor.bytes, self.q.factor.mantissa, self.q.factor.unit = factor


cdef double of_mean(double scale, const double[::1] mean, const float[:, ::1] basis, double[::1] base) noexcept:
    """Add scale * mean @ basis to `base`, and return the squared length of scale * mean."""
    cdef double total = 0, m
    cdef Py_ssize_t k, j
    for k in range(mean.shape[0]):
        m = mean[k] * scale
        total += m * m
        for j in range(basis.shape[1]):
            base[j] += m * <double> basis[k, j]
    return total


cdef struct Job:
    Py_ssize_t n, ld, rows           # rows: of a task
    const void* x                    # (n, d), or of CSR rows
    const int64_t* indptr
    const int32_t* indices
    const fs_quantizer* q
    Py_ssize_t d, n_tiles
    const double* mean
    const double* base
    double scale, mean_square
    const float* tiles
    uint8_t* codes                   # (n, width); outputs that are not requested are NULL
    float* z                         # (n, n_directions)
    double* square                   # (n,)
    float* out                       # (n, d), of codes
    Py_ssize_t* bad                  # for each task, its first row that is not finite, or -1


cdef size_t lined(size_t bytes) noexcept nogil:
    return (bytes + 63) // 64 * 64


cdef size_t z_bytes(const Job* c) noexcept nogil:
    return lined(c.n_tiles * FS_PROJECT_TILE * FS_PROJECT_ROWS * sizeof(float))


cdef size_t scratch_bytes(const Job* c) noexcept nogil:
    """Return the bytes of scratch memory of a task: a panel of columns, one of directions, squares and sums."""
    return (FS_PROJECT_PANEL * sizeof(float) + z_bytes(c) + FS_PROJECT_ROWS * sizeof(double)
            + lined(c.n_tiles * FS_PROJECT_TILE * sizeof(double)) + lined(fs_quantize_scratch(c.q.n_nibbles)))


cdef void some_rows(void* context, ptrdiff_t part, real* scratch) noexcept nogil:
    cdef Job* c = <Job*> context
    cdef Py_ssize_t start = part * c.rows, stop = start + c.rows if start + c.rows < c.n else c.n, n, i, j, bad
    cdef Py_ssize_t r = c.q.n_directions
    cdef const real* x = <const real*> c.x
    cdef float* panel = <float*> scratch
    cdef float* z = panel + FS_PROJECT_PANEL
    cdef double* square = <double*> (<char*> z + z_bytes(c))
    cdef double* sum = square + FS_PROJECT_ROWS
    cdef void* rest = <char*> sum + lined(c.n_tiles * FS_PROJECT_TILE * sizeof(double))
    cdef double largest
    if c.indptr is not NULL:
        bad = scan_csr(stop - start, c.indptr + start, x, &largest)
    else:
        bad = scan_rows(stop - start, c.d, c.ld, x + start * c.ld, &largest)
    c.bad[part] = bad if bad < 0 else start + bad
    if bad >= 0:
        return
    while start < stop:
        n = stop - start if stop - start < FS_PROJECT_ROWS else FS_PROJECT_ROWS
        # z = (rows - mean) @ basis / length
        if real is float:
            if c.indptr is not NULL:
                fs_project_csr_s(n, c.d, c.indptr + start, c.indices, x, c.mean, c.scale, c.mean_square, c.n_tiles,
                                 c.tiles, c.base, sum, z, square)
            else:
                fs_project_rows_s(n, c.d, c.ld, x + start * c.ld, c.mean, c.scale, c.n_tiles, c.tiles, panel, z, square)
        else:
            if c.indptr is not NULL:
                fs_project_csr_d(n, c.d, c.indptr + start, c.indices, x, c.mean, c.scale, c.mean_square, c.n_tiles,
                                 c.tiles, c.base, sum, z, square)
            else:
                fs_project_rows_d(n, c.d, c.ld, x + start * c.ld, c.mean, c.scale, c.n_tiles, c.tiles, panel, z, square)
        if c.codes is not NULL:
            fs_quantize_panel_s(c.q, n, z, square, c.codes + start * c.q.width, rest)
        for i in range(n):
            if c.square is not NULL:
                c.square[start + i] = square[i]
            if c.z is not NULL:
                for j in range(r):
                    c.z[(start + i) * r + j] = z[j * FS_PROJECT_ROWS + i]
        start += n


cdef void some_codes(void* context, ptrdiff_t part, void* scratch) noexcept nogil:
    cdef Job* c = <Job*> context
    cdef Py_ssize_t start = part * c.rows, stop = start + c.rows if start + c.rows < c.n else c.n, n
    cdef float* z = <float*> scratch
    while start < stop:
        n = stop - start if stop - start < FS_PROJECT_ROWS else FS_PROJECT_ROWS
        fs_words_panel_s(c.q, n, c.codes + start * c.q.width, z, <char*> scratch + z_bytes(c))
        # out = mean + words @ basis.T * length
        fs_project_back_s(n, c.q.n_directions, c.d, z, c.mean, c.scale, c.tiles, c.out + start * c.d)
        start += n


cdef void begin(Quantizer q, Job* c, Py_ssize_t n) noexcept:
    cdef Py_ssize_t panels = PART_PRODUCTS // ((q.n_features + 64) * (q.n_directions + 8)) // FS_PROJECT_ROWS
    memset(c, 0, sizeof(Job))
    c.q, c.d, c.n, c.n_tiles = &q.q, q.n_features, n, q.n_tiles
    c.mean, c.base, c.tiles = &q.mean[0], &q.base[0], &q.tiles[0]
    c.scale, c.mean_square = q.scale, q.mean_square
    c.rows = min(max(panels, 1) * FS_PROJECT_ROWS, MOST)


cdef Py_ssize_t run(Job* c, fs_part some, codes, z, square) except -2:
    """Run all tasks, and return the index of the first row that is not finite, or -1."""
    cdef Py_ssize_t parts = (c.n + c.rows - 1) // c.rows, i
    cdef size_t bytes = scratch_bytes(c)
    cdef uint8_t[:, ::1] packed
    cdef float[:, ::1] directions
    cdef double[::1] squares
    cdef double[::1] scratch = np.empty(bytes // sizeof(double) + 8)
    cdef Py_ssize_t[::1] bad = np.empty(parts, np.intp)
    if codes is not None:
        packed = codes
        c.codes = &packed[0, 0]
    if z is not None:
        directions = z
        c.z = &directions[0, 0]
    if square is not None:
        squares = square
        c.square = &squares[0]
    c.bad = &bad[0]
    with nogil:
        fs_pool_run(parts, some, c, &scratch[0], bytes)
    for i in range(parts):
        if bad[i] >= 0:
            return bad[i]
    return -1


def dense(Quantizer quantizer, const real[:, :] rows, *, codes=None, z=None, square=None):
    """Encode rows (n, d), float32 or float64, and write `codes`, `z` and `square`, those that are given.

    codes: uint8 (n, width). z: coordinates, float32 (n, r). square: |row - mean|^2 / length^2, float64 (n,). Returns
    the index of the first row that is not finite, or -1.
    """
    cdef Job c
    begin(quantizer, &c, rows.shape[0])
    if c.n == 0:
        return -1
    c.ld, c.x = rows.strides[0] // <Py_ssize_t> sizeof(real), &rows[0, 0]
    return run(&c, <fs_part> some_rows[real], codes, z, square)


def csr(Quantizer quantizer, const int64_t[::1] indptr, const int32_t[::1] indices, const real[::1] data, *,
        codes=None, z=None, square=None):
    """Encode CSR rows without duplicates like ``dense``; rounding differs from that of dense rows, and so may codes."""
    cdef Job c
    begin(quantizer, &c, indptr.shape[0] - 1)
    if c.n == 0:
        return -1
    c.x = &data[0] if data.shape[0] else <const real*> &indptr[0]
    c.indices = &indices[0] if indices.shape[0] else <const int32_t*> &indptr[0]
    c.indptr = &indptr[0]
    return run(&c, <fs_part> some_rows[real], codes, z, square)


def decode(Quantizer quantizer, const uint8_t[:, ::1] codes, float[:, ::1] out):
    """Decode codes (n, width), and write the rows mean + words @ basis.T * length to out (n, d)."""
    cdef Job c
    cdef double[::1] scratch
    cdef size_t bytes
    cdef Py_ssize_t parts
    begin(quantizer, &c, codes.shape[0])
    if c.n == 0:
        return
    c.codes, c.out, c.tiles, c.scale = <uint8_t*> &codes[0, 0], &out[0, 0], &quantizer.back[0], 1.0 / c.scale
    parts, bytes = (c.n + c.rows - 1) // c.rows, scratch_bytes(&c)
    scratch = np.empty(bytes // sizeof(double) + 8)
    with nogil:
        fs_pool_run(parts, some_codes, &c, &scratch[0], bytes)
