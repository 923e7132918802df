"""A sparse matrix times eight vectors at once (csrc/fs_block), and its leading singular vectors by such products.

Matrices are CSR with unsigned indices. Work is cut into parts by its size and sums are added part by part, so that the
bits do not depend on the number of threads.
"""

from libc.math cimport sqrt
from libc.stdint cimport uint32_t
from libc.string cimport memset

from fastsketch._kernels.level cimport follow
from fastsketch._kernels.linalg.blas cimport blas_int, converged, real, syevd
from fastsketch._kernels.linalg.parts cimport first_row, parts_of, parts_of_sums
from fastsketch._kernels.pool cimport FS_PARTS, fs_part, fs_pool_from, fs_pool_run, join

import numpy as np

follow()
join()

BLOCK = FS_BLOCK

cdef enum:
    SIDE = 8                     # FS_BLOCK, where an array needs a constant
    SQUARE = 64


cdef struct Job:
    # of one product or pass; arrays of `real`
    Py_ssize_t m, n, parts, passes
    const uint32_t* indptr
    const uint32_t* indices
    const void* a
    const void* v
    void* u
    void* w
    void* space                  # (parts - 1, n, 8): what the other parts add to w
    const void* turn             # (8, 8)
    const double* y              # (8,)
    double top
    double sums[FS_PARTS][SQUARE]


cdef inline void add_up(Job* job, Py_ssize_t parts, double* out) noexcept nogil:
    cdef Py_ssize_t k, q
    for q in range(SQUARE):
        out[q] = job.sums[0][q]
    for k in range(1, parts):
        for q in range(SQUARE):
            out[q] += job.sums[k][q]


cdef void rows_part(void* context, ptrdiff_t part, real* scratch) noexcept nogil:
    # u = a v of some rows, w += a'u, sums = u'u
    cdef Job* job = <Job*> context
    cdef Py_ssize_t first = first_row(job.indptr, job.m, job.parts, part)
    cdef Py_ssize_t count = first_row(job.indptr, job.m, job.parts, part + 1) - first
    cdef real* u = <real*> job.u + SIDE * first
    cdef real* w = <real*> job.w if part == 0 else <real*> job.space + (part - 1) * job.n * SIDE
    memset(w, 0, job.n * SIDE * sizeof(real))
    block_of_products(count, job.indptr + first, job.indices, <const real*> job.a, <const real*> job.v, u, w)
    memset(job.sums[part], 0, SQUARE * sizeof(double))
    square_block(count, u, job.sums[part])


cdef void columns_part(void* context, ptrdiff_t part, real* scratch) noexcept nogil:
    # w of some columns from that of all parts, sums = w'w
    cdef Job* job = <Job*> context
    cdef Py_ssize_t first = fs_pool_from(job.n, job.passes, part, 1)
    cdef Py_ssize_t count = fs_pool_from(job.n, job.passes, part + 1, 1) - first, k, e
    cdef real* w = <real*> job.w + SIDE * first
    cdef const real* more
    for k in range(job.parts - 1):
        more = <const real*> job.space + (k * job.n + first) * SIDE
        for e in range(SIDE * count):
            w[e] += more[e]
    memset(job.sums[part], 0, SQUARE * sizeof(double))
    square_block(count, w, job.sums[part])


cdef void turn_part(void* context, ptrdiff_t part, real* scratch) noexcept nogil:
    # u = w turn of some rows, sums = u'u
    cdef Job* job = <Job*> context
    cdef Py_ssize_t first = fs_pool_from(job.n, job.passes, part, 1)
    cdef Py_ssize_t count = fs_pool_from(job.n, job.passes, part + 1, 1) - first
    cdef real* u = <real*> job.u + SIDE * first
    turn_block(count, <const real*> job.w + SIDE * first, <const real*> job.turn, u)
    memset(job.sums[part], 0, SQUARE * sizeof(double))
    square_block(count, u, job.sums[part])


cdef void distance_part(void* context, ptrdiff_t part, real* scratch) noexcept nogil:
    # sums[0] = |w y - top v y|^2 over some rows; with top == 0, u = w y too, a vector
    cdef Job* job = <Job*> context
    cdef Py_ssize_t first = fs_pool_from(job.n, job.passes, part, 1)
    cdef Py_ssize_t stop = fs_pool_from(job.n, job.passes, part + 1, 1)
    cdef Py_ssize_t i, q
    cdef const real* w = <const real*> job.w
    cdef const real* v = <const real*> job.v
    cdef double total = 0, x
    for i in range(first, stop):
        x = 0
        if job.top == 0:
            for q in range(SIDE):
                x += w[SIDE * i + q] * job.y[q]
            (<real*> job.u)[i] = <real> x
        else:
            for q in range(SIDE):
                x += (w[SIDE * i + q] - job.top * v[SIDE * i + q]) * job.y[q]
        total += x * x
    job.sums[part][0] = total


cdef inline Py_ssize_t passes_of(Py_ssize_t n) noexcept nogil:
    # parts of a pass over n rows of eight
    return parts_of(4.0 * n)


cdef void multiply(Job* job, real* u, real* w, real* space, double* inner, double* outer) noexcept nogil:
    # u (m, 8) = A v, w (n, 8) = A'u;  inner = u'u, outer = w'w, (8, 8)
    job.u, job.w, job.space = u, w, space
    fs_pool_run(job.parts, <fs_part> rows_part[real], job, NULL, 0)
    add_up(job, job.parts, inner)
    job.passes = passes_of(job.parts * job.n)
    fs_pool_run(job.passes, <fs_part> columns_part[real], job, NULL, 0)
    add_up(job, job.passes, outer)


cdef void turn(Job* job, Py_ssize_t n, real* x, const double* t, real* out, double* gram) noexcept nogil:
    # out (n, 8) = x t, gram = out'out
    cdef real narrow[SQUARE]
    cdef Py_ssize_t q
    for q in range(SQUARE):
        narrow[q] = <real> t[q]
    job.n, job.w, job.u, job.turn, job.passes = n, x, out, narrow, passes_of(n)
    fs_pool_run(job.passes, <fs_part> turn_part[real], job, NULL, 0)
    add_up(job, job.passes, gram)


cdef double distance(Job* job, Py_ssize_t n, real* x, const real* less, double top, const double* y,
                     real* out) noexcept nogil:
    # |x y - top less y|^2; without `less` out = x y, a vector (n,)
    cdef double total = 0
    cdef Py_ssize_t k
    job.n, job.w, job.v, job.top, job.y, job.u, job.passes = n, x, less, top, y, out, passes_of(n)
    fs_pool_run(job.passes, <fs_part> distance_part[real], job, NULL, 0)
    for k in range(job.passes):
        total += job.sums[k][0]
    return total


cdef bint inverse_root(const double* gram, double* t) noexcept nogil:
    # t = inv(chol(gram))': columns x with x'x = gram have x t orthonormal; False if gram is not definite
    cdef double lower[SQUARE]
    cdef double d
    cdef int i, j, k
    memset(t, 0, SQUARE * sizeof(double))
    for j in range(SIDE):
        for i in range(j, SIDE):
            d = gram[SIDE * i + j]
            for k in range(j):
                d -= lower[SIDE * i + k] * lower[SIDE * j + k]
            if i == j:
                if not d > 0:
                    return False
                lower[SIDE * j + j] = sqrt(d)
            else:
                lower[SIDE * i + j] = d / lower[SIDE * j + j]
    for j in range(SIDE):
        # column j of the inverse is row j of t
        for i in range(j, SIDE):
            d = 1.0 if i == j else 0.0
            for k in range(j, i):
                d -= lower[SIDE * i + k] * t[SIDE * j + k]
            t[SIDE * j + i] = d / lower[SIDE * i + i]
    return True


cdef void product(const double* x, const double* y, bint transposed, double* out) noexcept nogil:
    # out = x y, or x'y
    cdef int i, j, k
    cdef double s
    for i in range(SIDE):
        for j in range(SIDE):
            s = 0
            for k in range(SIDE):
                s += (x[SIDE * k + i] if transposed else x[SIDE * i + k]) * y[SIDE * k + j]
            out[SIDE * i + j] = s


cdef void one_by_one(Py_ssize_t n, real* x) noexcept nogil:
    # columns of x (n, 8) made orthonormal, each against those before it and twice; of what has no length of its own
    # the unit vector takes the place that they reach least
    cdef Py_ssize_t i, least = 0
    cdef int q, k, again
    cdef double size, before, s, reach, smallest
    for q in range(SIDE):
        before = 0
        for i in range(n):
            before += <double> x[SIDE * i + q] * x[SIDE * i + q]
        for again in range(4):
            for k in range(q):
                s = 0
                for i in range(n):
                    s += <double> x[SIDE * i + k] * x[SIDE * i + q]
                for i in range(n):
                    x[SIDE * i + q] = <real> (x[SIDE * i + q] - s * x[SIDE * i + k])
            size = 0
            for i in range(n):
                size += <double> x[SIDE * i + q] * x[SIDE * i + q]
            if again == 1 and not size > 1e-12 * before:
                smallest = 2
                for i in range(n):
                    reach = 0
                    for k in range(q):
                        reach += <double> x[SIDE * i + k] * x[SIDE * i + k]
                    if reach < smallest:
                        smallest, least = reach, i
                for i in range(n):
                    x[SIDE * i + q] = 1 if i == least else 0
            elif again == 1:
                break
        size = sqrt(size)
        for i in range(n):
            x[SIDE * i + q] = <real> (x[SIDE * i + q] / size)


cdef void orthonormal(Job* job, Py_ssize_t n, real* x, const double* y, const double* gram, real* space,
                      real* out) noexcept nogil:
    # out (n, 8): orthonormal columns with the span of x, gram = x'x, begun at x y: by Cholesky twice, or one by one
    cdef double own[SQUARE]
    cdef double t[SQUARE]
    cdef double half[SQUARE]
    product(gram, y, False, half)
    product(y, half, True, own)
    if inverse_root(own, t):
        product(y, t, False, half)
        turn(job, n, x, half, space, own)
        if inverse_root(own, t):
            turn(job, n, space, t, out, own)
            return
    turn(job, n, x, y, out, own)
    one_by_one(n, out)


cdef inline void identity(double* y) noexcept nogil:
    cdef int q
    memset(y, 0, SQUARE * sizeof(double))
    for q in range(SIDE):
        y[(SIDE + 1) * q] = 1


cdef void begin_step(Job* job, Py_ssize_t n, real* x, double* y, real* out, double* gram) noexcept nogil:
    # out (n, 8) = x, gram = x'x, y the identity
    identity(y)
    turn(job, n, x, y, out, gram)


cdef int advance(Job* job, Py_ssize_t n, real* v, real* w, double* inner, const double* outer, double turned,
                 double* top, double* first, bint* done, real* right, real* space, real* out) noexcept nogil:
    # a step of subspace iteration with w = A'A v, outer = w'w and inner = v'A'A v, which is destroyed: top and `first`,
    # the leading eigenvalue and the combination of v that has it, and out (n, 8), where the next step begins. `done`
    # goes in where this step is the last, comes out where the right vector turns by less than `turned`; it is stored
    # then. Returns the status of LAPACK
    cdef double y[SQUARE]
    cdef double values[SIDE]
    cdef double work[SIDE * SIDE * 4]
    cdef blas_int iwork[SIDE * 8]
    cdef Py_ssize_t q
    # inner = y diag(values) y', the largest first in y
    cdef int info = syevd(c'V', c'U', SIDE, inner, SIDE, values, work, SIDE * SIDE * 4, iwork, SIDE * 8)
    top[0] = max(values[SIDE - 1], 0.0)
    if info or top[0] == 0:
        done[0] = False
        return info
    for q in range(SQUARE):
        y[q] = inner[(SIDE - 1 - q % SIDE) * SIDE + q // SIDE]
    for q in range(SIDE):
        first[q] = y[SIDE * q]
    done[0] = done[0] or distance(job, n, w, v, top[0], first, NULL) <= (turned * top[0]) * (turned * top[0])
    if done[0]:
        distance(job, n, v, NULL, 0, first, right)
    orthonormal(job, n, w, y, outer, space, out)
    return 0


cdef void begin(Job* job, const uint32_t[::1] indptr, const uint32_t[::1] indices, const real[::1] a, Py_ssize_t n):
    job.m, job.n = indptr.shape[0] - 1, n
    job.indptr, job.indices = &indptr[0], &indices[0] if a.shape[0] else NULL
    job.a = &a[0] if a.shape[0] else NULL
    job.parts = parts_of_sums(a.shape[0], n)


def gram_block(const uint32_t[::1] indptr, const uint32_t[::1] indices, const real[::1] a, const real[:, ::1] v,
               real[:, ::1] u, real[:, ::1] w):
    """u (m, 8) = A v, w (n, 8) = A'u for CSR A, whose indices must lie below n; returns u'u, (8, 8) float64."""
    cdef Py_ssize_t m = indptr.shape[0] - 1, n = v.shape[0]
    cdef Job job
    cdef double outer[SQUARE]
    cdef double[:, ::1] inner = np.zeros((SIDE, SIDE))
    if not (v.shape[1] == u.shape[1] == w.shape[1] == SIDE and u.shape[0] == m and w.shape[0] == n
            and indices.shape[0] == a.shape[0] and indptr[m] == <uint32_t> a.shape[0]):
        raise ValueError("the matrix, v, u and w do not belong together")
    if m == 0 or n == 0:
        return np.asarray(inner)
    begin(&job, indptr, indices, a, n)
    cdef real[::1] space = np.empty((job.parts - 1) * n * SIDE + 1, np.asarray(u).dtype)
    job.v = &v[0, 0]
    with nogil:
        multiply(&job, &u[0, 0], &w[0, 0], &space[0], &inner[0, 0], outer)
    return np.asarray(inner)


def leading_of_block(const uint32_t[::1] indptr, const uint32_t[::1] indices, const real[::1] a, real[:, ::1] v,
                     Py_ssize_t iterations, double turned, real[::1] left, real[::1] right):
    """The leading singular triplet of CSR A (m, n) by subspace iteration from v (n, 8), n > 8; 0 if A is zero.

    left (m,) and right (n,) get its vectors, left times the singular value, which is returned; v gets an orthonormal
    basis in which those after it will be found. Ends when the right vector turns by less than `turned` (sine of the
    angle), or after so many iterations.
    """
    cdef Py_ssize_t m = indptr.shape[0] - 1, n = v.shape[0], k
    cdef Job job
    cdef double y[SQUARE]
    cdef double inner[SQUARE]
    cdef double outer[SQUARE]
    cdef double first[SIDE]
    cdef int info = 0
    cdef double top = 0, size = 0
    cdef bint done = False
    dtype = np.asarray(v).dtype
    if not (v.shape[1] == SIDE < n and left.shape[0] == m and right.shape[0] == n and iterations >= 1
            and indices.shape[0] == a.shape[0] and indptr[m] == <uint32_t> a.shape[0]):
        raise ValueError("the matrix, v, left and right do not belong together")
    begin(&job, indptr, indices, a, n)
    cdef real[:, ::1] u = np.empty((m, SIDE), dtype), w = np.empty((n, SIDE), dtype), next = np.empty((n, SIDE), dtype)
    # other parts' sums, and a block between two steps
    cdef real[:, ::1] space = np.empty((max(job.parts - 1, 1) * n, SIDE), dtype)
    cdef real* now = &v[0, 0]
    cdef real* then = &next[0, 0]
    with nogil:
        begin_step(&job, n, now, y, then, inner)
        orthonormal(&job, n, then, y, inner, &space[0, 0], now)
        for k in range(iterations):
            job.n, job.v, done = n, now, k + 1 == iterations
            multiply(&job, &u[0, 0], &w[0, 0], &space[0, 0], inner, outer)
            info = advance(&job, n, now, &w[0, 0], inner, outer, turned, &top, first, &done, &right[0], &space[0, 0],
                           then)
            if info or top == 0:
                break
            now, then = then, now
            if done:
                size = sqrt(distance(&job, m, &u[0, 0], NULL, 0, first, &left[0]))
                break
    converged(info, "syevd")
    if now != &v[0, 0] and done:
        v[:] = next
    return size
