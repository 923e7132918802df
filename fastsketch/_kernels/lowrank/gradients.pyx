"""Gradients at the observed entries of a matrix, and its products with a vector, whose loop is in
_kernels/lowrank/products (Numba); arrays as in lowrank/entries.

a (nnz,) are values of the matrix, left (m,) and right (n,) the scales of its rows and columns.
"""

from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memset

from fastsketch._kernels.linalg.blas cimport real
from fastsketch._kernels.linalg.parts cimport parts_of, parts_of_sums
from fastsketch._kernels.losses cimport loss_terms
from fastsketch._kernels.lowrank.loop cimport Loop, at, entry_by_entry, part_row, row_by_row, sum_of
from fastsketch._kernels.pool cimport fs_part, fs_pool_from, fs_pool_run, join

import numpy as np

join()


cdef void gradient_part(void* context, ptrdiff_t part, real* scratch) noexcept nogil:
    cdef Loop* loop = <Loop*> context
    cdef real* z = <real*> loop.z
    cdef const real* o = <const real*> loop.o
    cdef const real* c = <const real*> loop.c
    cdef const real* left = <const real*> loop.left
    cdef const real* right = <const real*> loop.right
    cdef const real* u = <const real*> loop.u
    cdef const real* v = <const real*> loop.v
    cdef const real* rb = <const real*> loop.rb
    cdef const real* cb = <const real*> loop.cb
    cdef const real* d = <const real*> loop.d
    cdef real* a = <real*> loop.out
    cdef real keep = <real> loop.mu, theta = <real> loop.rho, eta = <real> loop.eta, b, step = 0
    cdef real largest = 0, near = <real> loop.smooth
    cdef double total = 0, f, slope, curve
    cdef Py_ssize_t i, j, k
    for i in range(part_row(loop, part), part_row(loop, part + 1)):
        if u:
            step = theta * u[i]
        for k in range(loop.indptr[i], loop.indptr[i + 1]):
            j = loop.indices[k]
            if u:
                if keep == 1:
                    z[k] += step * v[j]
                else:
                    b = rb[i] + cb[j]
                    z[k] = b + keep * (z[k] - b) + step * v[j]
            elif d:
                z[k] += eta * d[k]
                if abs(z[k] - o[k]) <= near:
                    z[k] = o[k]
            f = loss_terms(loop.loss, loop.p, z[k], o[k], &slope, &curve)
            if loop.weighted:
                f *= c[k]
                slope *= c[k]
            total += f
            a[k] = <real> (slope * left[i] * right[j])
            largest = max(largest, abs(a[k]))
    loop.sums[part][0], loop.sums[part][1] = total, largest


def gradient(int loss, double p, const uint32_t[::1] indptr, const uint32_t[::1] indices, real[::1] z,
             const real[::1] o, const real[::1] c, const real[::1] left, const real[::1] right, real[::1] a,
             double keep=1, double theta=0, const real[::1] u=None, const real[::1] v=None, const real[::1] rb=None,
             const real[::1] cb=None, double eta=0, double near=0, const real[::1] d=None):
    """a = weight * slope * left_i * right_j; returns the objective, and the largest size of an a.

    With u (m,), v (n,) and biases z = b + keep (z - b) + theta u_i v_j before that, b = rb_i + cb_j. With d (nnz,)
    z += eta d, or z = o where that is as near: rounding would choose the sign of the slope where a search has met o.
    """
    cdef Loop loop
    loop.mu, loop.rho, loop.eta, loop.smooth, loop.u, loop.d = keep, theta, eta, near, NULL, NULL
    loop.left, loop.right, loop.out = at(left), at(right), <void*> at[real](a)
    if u is not None:
        loop.u, loop.v, loop.rb, loop.cb = at(u), at(v), at(rb), at(cb)
    elif d is not None:
        loop.d = at(d)
    with nogil:
        entry_by_entry(&loop, loss, p, z, o, c)
        row_by_row(&loop, indptr, indices, 1)
        fs_pool_run(loop.parts, <fs_part> gradient_part[real], &loop, NULL, 0)
    return sum_of(&loop, 0), max([loop.sums[k][1] for k in range(loop.parts)])


# of products.multiply
ctypedef void (*products_t)(int64_t first, int64_t stop, int64_t forth, int64_t back, const void* indptr,
                            const void* indices, const void* a, const void* v, void* u, void* w) noexcept nogil
# for float and for double; NULL until first asked for
cdef void* compiled[2]


cdef void* products(bint wide) except NULL:
    if compiled[wide] == NULL:
        # numba takes long to import: only where this loop runs
        from fastsketch._kernels.lowrank.products import address

        compiled[wide] = <void*> <size_t> address("float64" if wide else "float32")
    return compiled[wide]


cdef void multiply_part(void* context, ptrdiff_t part, real* scratch) noexcept nogil:
    # w of the first part is the one asked for, of another its own
    cdef Loop* loop = <Loop*> context
    cdef real* w = <real*> loop.right
    if part and w:
        w = <real*> loop.out + (part - 1) * loop.n
    if w:
        memset(w, 0, loop.n * sizeof(real))
    (<products_t> loop.function)(part_row(loop, part), part_row(loop, part + 1), loop.v != NULL, w != NULL, loop.indptr,
                                 loop.indices, loop.z, loop.v, <void*> loop.u, w)


cdef void add_part(void* context, ptrdiff_t part, real* scratch) noexcept nogil:
    # w of some columns from that of all parts
    cdef Loop* loop = <Loop*> context
    cdef real* w = <real*> loop.right
    cdef const real* more
    cdef Py_ssize_t j, k
    for k in range(loop.parts - 1):
        more = <const real*> loop.out + k * loop.n
        for j in range(fs_pool_from(loop.n, loop.passes, part, 1), fs_pool_from(loop.n, loop.passes, part + 1, 1)):
            w[j] += more[j]


def multiply(const uint32_t[::1] indptr, const uint32_t[::1] indices, const real[::1] a, const real[::1] v,
             real[::1] u, real[::1] w=None):
    """u (m,) = A v, where v is not None, and w (n,) = A'u, where w is not: in one pass over the entries."""
    cdef Loop loop
    loop.function = products(real is double)
    row_by_row(&loop, indptr, indices, 1)
    loop.n = 0 if w is None else w.shape[0]
    loop.parts = parts_of_sums(indices.shape[0], loop.n)
    cdef real[::1] space = np.empty((loop.parts - 1) * loop.n + 1, np.asarray(u).dtype)
    loop.z, loop.v, loop.u, loop.right, loop.out = at(a), NULL, at[real](u), NULL, &space[0]
    if v is not None:
        loop.v = at(v)
    if w is not None:
        loop.right = at[real](w)
    loop.passes = parts_of(0.5 * loop.parts * loop.n)
    with nogil:
        fs_pool_run(loop.parts, <fs_part> multiply_part[real], &loop, NULL, 0)
        if loop.n and loop.parts > 1:
            fs_pool_run(loop.passes, <fs_part> add_part[real], &loop, NULL, 0)
