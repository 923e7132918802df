"""Residual products and gradients over the observed entries, a part of the rows at a time: what each part does is in
_kernels/lowrank/products (Numba), called through pointers to C functions.

Arrays of values are all float32 or all float64; indptr (m + 1,) and indices (nnz,) are uint32, and indices lie below n.
c (nnz,) may be empty: all weights are 1. Parts depend on the matrix alone and their sums are added in one order.
"""

from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memset

from fastsketch._kernels.linalg.blas cimport real
from fastsketch._kernels.linalg.parts cimport first_row, parts_of, parts_of_sums
from fastsketch._kernels.pool cimport FS_PARTS, fs_part, fs_pool_from, fs_pool_run, join

import numpy as np

join()

ctypedef double (*gradient_of)(int64_t loss, double p, int64_t weighted, int64_t first, int64_t stop,
                               const void* indptr, const void* indices, const void* z, const void* o, const void* c,
                               const void* left, const void* right, void* a) noexcept nogil
ctypedef double (*step_gradient_of)(int64_t loss, double p, int64_t weighted, int64_t first, int64_t stop,
                                    const void* indptr, const void* indices, void* z, const void* o, const void* c,
                                    const void* left, const void* right, const void* keep_theta, const void* u,
                                    const void* v, const void* rb, const void* cb, void* a) noexcept nogil
ctypedef void (*gram_product_of)(int64_t first, int64_t stop, const void* indptr, const void* indices, const void* a,
                                 const void* v, void* u, void* w) noexcept nogil
# of times and of transposed_times
ctypedef void (*product_of)(int64_t first, int64_t stop, const void* indptr, const void* indices, const void* a,
                            const void* v, void* u) noexcept nogil

cdef enum:
    GRADIENT
    STEP_GRADIENT
    GRAM_PRODUCT
    TIMES
    TRANSPOSED_TIMES
    FUNCTIONS

cdef list NAMES = ["gradient", "step_gradient", "gram_product", "times", "transposed_times"]
# of float and of double; NULL until first asked for
cdef void* found[2][FUNCTIONS]


cdef void* compiled(int function, bint wide) except NULL:
    if found[wide][function] == NULL:
        # numba takes long to import: only where these loops run
        from fastsketch._kernels.lowrank.products import address

        found[wide][function] = <void*> <size_t> address(NAMES[function], "float64" if wide else "float32")
    return found[wide][function]


cdef struct Job:
    # one loop over the entries; what an argument is, the function says
    void* function
    Py_ssize_t m, n, parts, passes
    int64_t loss, weighted
    double p
    const uint32_t* indptr
    const uint32_t* indices
    const void* z
    const void* o
    const void* c
    const void* left
    const void* right
    const void* keep_theta
    const void* u
    const void* v
    const void* rb
    const void* cb
    void* a
    void* sums                   # (parts, n): of the parts
    double totals[FS_PARTS]


cdef inline const void* at(const real[::1] values) noexcept nogil:
    return &values[0] if values.shape[0] else NULL


cdef inline void begin(Job* job, const uint32_t[::1] indptr, const uint32_t[::1] indices) noexcept nogil:
    job.m = indptr.shape[0] - 1
    job.indptr, job.indices = &indptr[0], &indices[0] if indices.shape[0] else NULL
    job.parts = parts_of(indices.shape[0])


cdef inline double total(const Job* job) noexcept nogil:
    cdef double sum = 0
    cdef Py_ssize_t k
    for k in range(job.parts):
        sum += job.totals[k]
    return sum


cdef inline Py_ssize_t row(const Job* job, Py_ssize_t part) noexcept nogil:
    return first_row(job.indptr, job.m, job.parts, part)


cdef void gradient_part(void* context, ptrdiff_t part, void* scratch) noexcept nogil:
    cdef Job* job = <Job*> context
    job.totals[part] = (<gradient_of> job.function)(
        job.loss, job.p, job.weighted, row(job, part), row(job, part + 1), job.indptr, job.indices, job.z, job.o, job.c,
        job.left, job.right, job.a)


def gradient(int loss, double p, const uint32_t[::1] indptr, const uint32_t[::1] indices, const real[::1] z,
             const real[::1] o, const real[::1] c, const real[::1] left, const real[::1] right, real[::1] a):
    """a = weight * slope * left[i] * right[j]; returns the objective."""
    cdef Job job
    job.function = compiled(GRADIENT, real is double)
    job.loss, job.p, job.weighted = loss, p, c.shape[0] > 0
    job.z, job.o, job.c, job.left, job.right, job.a = at(z), at(o), at(c), at(left), at(right), <void*> at[real](a)
    with nogil:
        begin(&job, indptr, indices)
        fs_pool_run(job.parts, gradient_part, &job, NULL, 0)
    return total(&job)


cdef void step_gradient_part(void* context, ptrdiff_t part, void* scratch) noexcept nogil:
    cdef Job* job = <Job*> context
    job.totals[part] = (<step_gradient_of> job.function)(
        job.loss, job.p, job.weighted, row(job, part), row(job, part + 1), job.indptr, job.indices, <void*> job.z,
        job.o, job.c, job.left, job.right, job.keep_theta, job.u, job.v, job.rb, job.cb, job.a)


def step_gradient(int loss, double p, const uint32_t[::1] indptr, const uint32_t[::1] indices, real[::1] z,
                  const real[::1] o, const real[::1] c, const real[::1] left, const real[::1] right, double keep,
                  double theta, const real[::1] u, const real[::1] v, const real[::1] rb, const real[::1] cb,
                  real[::1] a):
    """z = b + keep (z - b) + theta u_i v_j with b = rb_i + cb_j, then as gradient."""
    cdef Job job
    cdef real keep_theta[2]
    keep_theta[0], keep_theta[1] = <real> keep, <real> theta
    job.function = compiled(STEP_GRADIENT, real is double)
    job.loss, job.p, job.weighted, job.keep_theta = loss, p, c.shape[0] > 0, keep_theta
    job.z, job.o, job.c, job.a = at[real](z), at(o), at(c), <void*> at[real](a)
    job.left, job.right = at(left), at(right)
    job.u, job.v, job.rb, job.cb = at(u), at(v), at(rb), at(cb)
    with nogil:
        begin(&job, indptr, indices)
        fs_pool_run(job.parts, step_gradient_part, &job, NULL, 0)
    return total(&job)


cdef inline real* sums_of(Job* job, Py_ssize_t part, real* first) noexcept nogil:
    # of the first part what is asked for, of another its own; 0
    cdef real* w = first if part == 0 else <real*> job.sums + (part - 1) * job.n
    memset(w, 0, job.n * sizeof(real))
    return w


cdef void gram_product_part(void* context, ptrdiff_t part, real* scratch) noexcept nogil:
    cdef Job* job = <Job*> context
    (<gram_product_of> job.function)(row(job, part), row(job, part + 1), job.indptr, job.indices, job.z, job.v,
                                     <void*> job.u, sums_of(job, part, <real*> job.a))


cdef void times_part(void* context, ptrdiff_t part, void* scratch) noexcept nogil:
    cdef Job* job = <Job*> context
    (<product_of> job.function)(row(job, part), row(job, part + 1), job.indptr, job.indices, job.z, job.v, job.a)


cdef void transposed_times_part(void* context, ptrdiff_t part, real* scratch) noexcept nogil:
    cdef Job* job = <Job*> context
    (<product_of> job.function)(row(job, part), row(job, part + 1), job.indptr, job.indices, job.z, job.u,
                                sums_of(job, part, <real*> job.a))


cdef void add_part(void* context, ptrdiff_t part, real* scratch) noexcept nogil:
    # w of some columns from that of all parts
    cdef Job* job = <Job*> context
    cdef Py_ssize_t first = fs_pool_from(job.n, job.passes, part, 1)
    cdef Py_ssize_t stop = fs_pool_from(job.n, job.passes, part + 1, 1)
    cdef real* w = <real*> job.a
    cdef const real* more
    cdef Py_ssize_t j, k
    for k in range(job.parts - 1):
        more = <const real*> job.sums + k * job.n
        for j in range(first, stop):
            w[j] += more[j]


cdef inline void add_parts(Job* job, const real* like) noexcept nogil:
    job.passes = parts_of(0.5 * job.parts * job.n)
    if job.parts > 1:
        fs_pool_run(job.passes, <fs_part> add_part[real], job, NULL, 0)


def gram_product(const uint32_t[::1] indptr, const uint32_t[::1] indices, const real[::1] a, const real[::1] v,
                 real[::1] u, real[::1] w):
    """u (m,) = A v, w (n,) = A'u in one pass over the entries."""
    cdef Job job
    job.function = compiled(GRAM_PRODUCT, real is double)
    begin(&job, indptr, indices)
    job.n, job.parts = w.shape[0], parts_of_sums(indices.shape[0], w.shape[0])
    cdef real[::1] space = np.empty((job.parts - 1) * job.n + 1, np.asarray(w).dtype)
    job.z, job.v, job.u, job.a, job.sums = at(a), at(v), at[real](u), <void*> at[real](w), &space[0]
    with nogil:
        fs_pool_run(job.parts, <fs_part> gram_product_part[real], &job, NULL, 0)
        add_parts(&job, &space[0])


def times(const uint32_t[::1] indptr, const uint32_t[::1] indices, const real[::1] a, const real[::1] v, real[::1] u):
    """u (m,) = A v."""
    cdef Job job
    job.function = compiled(TIMES, real is double)
    job.z, job.v, job.a = at(a), at(v), <void*> at[real](u)
    with nogil:
        begin(&job, indptr, indices)
        fs_pool_run(job.parts, times_part, &job, NULL, 0)


def transposed_times(const uint32_t[::1] indptr, const uint32_t[::1] indices, const real[::1] a, const real[::1] u,
                     real[::1] w):
    """w (n,) = A'u."""
    cdef Job job
    job.function = compiled(TRANSPOSED_TIMES, real is double)
    begin(&job, indptr, indices)
    job.n, job.parts = w.shape[0], parts_of_sums(indices.shape[0], w.shape[0])
    cdef real[::1] space = np.empty((job.parts - 1) * job.n + 1, np.asarray(w).dtype)
    job.z, job.u, job.a, job.sums = at(a), at(u), <void*> at[real](w), &space[0]
    with nogil:
        fs_pool_run(job.parts, <fs_part> transposed_times_part[real], &job, NULL, 0)
        add_parts(&job, &space[0])
