"""Gradient of the loss at the observed entries, and products of a sparse matrix with eight vectors.

The loop of the products is compiled by Numba (block_loop.py). Arrays are named as in entries.pyx; a (nnz,) has the
values of the gradient, left (m,) and right (n,) the scales of rows and columns.
"""

from libc.stdint cimport int64_t, uint32_t

from fastsketch._kernels.linalg.blas cimport real
from fastsketch._kernels.linalg.parts cimport parts_of_sums
from fastsketch._kernels.losses cimport loss_terms
from fastsketch._kernels.lowrank.loop cimport Loop, at, entry_by_entry, part_row, row_by_row, sum_of
from fastsketch._kernels.pool cimport fs_part, fs_pool_run, join

import numpy as np

join()


cdef void gradient_part(void* context, ptrdiff_t part, real* scratch) noexcept nogil:
    cdef Loop* loop = <Loop*> context
    cdef const real* z = <const real*> loop.z
    cdef const real* o = <const real*> loop.o
    cdef const real* c = <const real*> loop.c
    cdef const real* left = <const real*> loop.left
    cdef const real* right = <const real*> loop.right
    cdef real* a = <real*> loop.out
    cdef real largest = 0
    cdef double total = 0, f, slope, curve
    cdef Py_ssize_t i, k
    for i in range(part_row(loop, part), part_row(loop, part + 1)):
        for k in range(loop.indptr[i], loop.indptr[i + 1]):
            f = loss_terms(loop.loss, loop.p, z[k], o[k], &slope, &curve)
            if loop.weighted:
                f *= c[k]
                slope *= c[k]
            total += f
            a[k] = <real> (slope * left[i] * right[loop.indices[k]])
            largest = max(largest, abs(a[k]))
    loop.sums[part][0], loop.sums[part][1] = total, largest


def gradient(int loss, double p, const uint32_t[::1] indptr, const uint32_t[::1] indices,
             const real[::1] z, const real[::1] o, const real[::1] c, const real[::1] left, const real[::1] right,
             real[::1] a):
    """Write weight * slope * left_i * right_j to a, and return the objective and the largest absolute value of a."""
    cdef Loop loop
    loop.left, loop.right, loop.out = at(left), at(right), <void*> at[real](a)
    with nogil:
        entry_by_entry(&loop, loss, p, z, o, c)
        row_by_row(&loop, indptr, indices, 1)
        fs_pool_run(loop.parts, <fs_part> gradient_part[real], &loop, NULL, 0)
    return sum_of(&loop, 0), max([loop.sums[k][1] for k in range(loop.parts)])


# block_loop.multiply, compiled by Numba
ctypedef void (*products_t)(int64_t first, int64_t stop, const void* indptr, const void* indices, const void* a,
                            const void* v, const void* u, void* w) noexcept nogil


cdef void multiply_part(void* context, ptrdiff_t part, real* scratch) noexcept nogil:
    cdef Loop* loop = <Loop*> context
    (<products_t> loop.function)(part_row(loop, part), part_row(loop, part + 1), loop.indptr, loop.indices, loop.z,
                                 loop.v, loop.u, <real*> loop.out + part * loop.n * 8)


def multiply_parts(size_t function, const uint32_t[::1] indptr, const uint32_t[::1] indices, const real[::1] a,
                   const real[:, ::1] v, real[:, ::1] u):
    """Write A v to u (m, 8) with the C function at an address; return w (parts, n, 8), whose sum over parts is A'u."""
    cdef Loop loop
    if not (v.shape[1] == u.shape[1] == 8 and u.shape[0] == indptr.shape[0] - 1 and indices.shape[0] == a.shape[0]
            and indptr[u.shape[0]] == <uint32_t> a.shape[0]):
        raise ValueError("the matrix, v and u do not belong together")
    loop.function, loop.n = <void*> function, v.shape[0]
    row_by_row(&loop, indptr, indices, 1)
    loop.parts = parts_of_sums(indices.shape[0], loop.n)
    cdef real[:, :, ::1] w = np.zeros((loop.parts, loop.n, 8), np.asarray(u).dtype)
    if loop.m and loop.n:
        loop.z, loop.v, loop.u, loop.out = at(a), &v[0, 0], &u[0, 0], &w[0, 0, 0]
        with nogil:
            fs_pool_run(loop.parts, <fs_part> multiply_part[real], &loop, NULL, 0)
    return np.asarray(w)
