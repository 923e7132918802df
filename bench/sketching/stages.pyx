"""The stages of a shrink, timed one by one: built by bench_stages.py, against the compiled kernels."""
from time import process_time

from fastsketch._kernels.linalg.blas cimport real, blas_int
from fastsketch._kernels.linalg.tridiagonal cimport tridiagonal_top
from fastsketch._kernels.sketching.products cimport gram_products, partials_size, rotate_rows
from fastsketch._kernels.sketching.shrink cimport (
    arena_size, iwork_size, reduce_to_tridiagonal, rotation, small_size, turn_back)

import numpy as np


def time_stages(real[:, ::1] rows, Py_ssize_t size, int repeats):
    """{stage: shortest seconds} of one shrink of the full buffer `rows` (m x d) to size - 1 rows, m >= 40."""
    cdef Py_ssize_t m = rows.shape[0], d = rows.shape[1], kept = size - 1, h = m - kept, spare, lwork
    cdef double[::1] gain = np.ones(size), square = np.empty(16 * size), vector_square = np.empty(size)
    cdef double[::1] doubles = np.empty(small_size(m, kept))
    cdef blas_int[::1] iwork = np.empty(iwork_size(m), np.intc)
    cdef real[::1] arena = np.empty(arena_size(m) + partials_size(m, d), np.asarray(rows).dtype)
    cdef real* g = &arena[0]
    cdef real* z = g + m * m
    cdef real* w = z + m * m
    cdef real* work = w + m
    cdef real* partials = g + arena_size(m)
    cdef real* f = &rows[0, 0]
    spare, lwork = arena_size(m) - m * m, arena_size(m) - 2 * m * m - m
    fresh = np.asarray(rows).copy()
    best = {"Gram": 1e9, "tridiagonal": 1e9, "divide and conquer": 1e9, "back": 1e9, "rotate": 1e9, "rotate half": 1e9}
    for _ in range(repeats):
        np.asarray(rows)[:] = fresh
        t0 = process_time()
        gram_products(m, kept, d, True, f, g, partials, z, spare)
        t1 = process_time()
        gram_products(m, kept, d, False, f, g, partials, z, spare)  # the eigensolver is given the whole matrix
        t2 = process_time()
        reduce_to_tridiagonal(m, g, w, work, work + m, work + 2 * m, lwork - 2 * m)
        t3 = process_time()
        tridiagonal_top(m, size, w, work, z, work + 2 * m, &doubles[0], &iwork[0])
        t4 = process_time()
        turn_back(m, size, g, work + m, z + (m - size) * m, work + 2 * m, lwork - 2 * m)
        t5 = process_time()
        rotation(m, h, kept, size, z, &gain[kept - 1], -1, g, &vector_square[0])
        rotate_rows(m, size, d, f, g, &square[0], z, spare)
        t6 = process_time()
        rotate_rows(h, size, d, f, g, &square[0], z, spare)  # the rows that leave alone: half of the products
        t7 = process_time()
        for name, value in zip(best, (t1 - t0, t3 - t2, t4 - t3, t5 - t4, t6 - t5, t7 - t6), strict=True):
            best[name] = min(best[name], value)
    return best
