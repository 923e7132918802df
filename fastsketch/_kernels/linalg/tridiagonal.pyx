"""Top eigenvectors of a symmetric tridiagonal matrix by divide and conquer.

Like LAPACK's stedc, with four differences that make it faster: the roots of the secular equation are
found eight at a time (csrc/fs_secular), the leaves are solved by our own QL iteration (csrc/fs_ql), the last merge forms
only the requested eigenvectors, and deflated columns are not moved. Disjoint blocks, and columns of one merge, are parts
for the threads of the pool; the split depends on sizes only.
"""
from libc.math cimport fabs
from libc.stddef cimport ptrdiff_t
from libc.stdint cimport int32_t
from libc.string cimport memcpy, memset

from fastsketch._kernels.linalg.blas cimport real, blas_int, gemm
from fastsketch._kernels.level cimport follow
from fastsketch._kernels.linalg.ql cimport fs_ql
from fastsketch._kernels.linalg.secular cimport (
    FS_ROOTS, fs_secular_deflate, fs_secular_roots, fs_secular_weights, secular_vectors)
from fastsketch._kernels.pool cimport fs_part, fs_pool_from, fs_pool_parts, fs_pool_run, join

follow()
join()


# LEAF: blocks of at most this size are solved by QL iteration, at most FS_QL_MOST.
cdef enum:
    LEAF = 10
    LEVELS = 3           # largest depth of the tree at which blocks are parts: eight blocks
    BLOCKS = 1 << LEVELS
    PAD = 8 * BLOCKS     # extra length of arrays, as each block reads beyond its own part

# Smallest size of a part: rows of a block; pairs of pole and root; products.
cdef double LEAST_BLOCK = 48.0, LEAST_POLES = 8192.0, LEAST_PRODUCTS = 5e5


cdef struct Tree:
    # Arrays of length n of the whole problem; each block uses its own range of them.
    Py_ssize_t n, top
    double* d          # eigenvalues of the solved blocks
    double* z          # weights of one merge
    double* poles      # d without the deflated ones
    double* weights
    double* tau
    double* v
    double* turn       # 2 n
    int32_t* order     # columns of a solved block by ascending eigenvalue, relative to the block
    int32_t* merged
    int32_t* keep
    int32_t* type
    int32_t* origin
    int32_t* place
    int32_t* gone
    int32_t* pair      # 2 n


cdef struct Forest:
    # The blocks of one level of the tree, as parts.
    Tree* tree
    int level          # 2^level blocks
    bint solved        # whether halves are solved and are to be merged; else blocks are to be solved
    Py_ssize_t longest
    int info[BLOCKS]
    void* d
    void* e
    void* z
    void* work


cdef struct Vectors:
    # Parts of the columns of one merge.
    Tree* tree
    Py_ssize_t n_parts, n, n1, k, first, k1, k12
    double rho
    void* q
    void* above
    void* below
    void* s


cdef Py_ssize_t doubles_size(Py_ssize_t n) noexcept nogil:
    """Return the number of doubles of workspace that tridiagonal_top needs."""
    return 8 * (n + PAD)


cdef Py_ssize_t integers_size(Py_ssize_t n) noexcept nogil:
    """Return the number of integers of workspace that tridiagonal_top needs."""
    return 9 * (n + PAD)


cdef void sort_order(Py_ssize_t n, const double* d, int32_t* order) noexcept nogil:
    """Sort columns by d (insertion sort: there are few deflated columns)."""
    cdef Py_ssize_t i, j
    cdef int32_t column
    for i in range(1, n):
        column = order[i]
        j = i
        while j > 0 and d[order[j - 1]] > d[column]:
            order[j] = order[j - 1]
            j -= 1
        order[j] = column


cdef void merge_order(Py_ssize_t n1, const int32_t* first, Py_ssize_t n2, const int32_t* second, int32_t shift,
                      const double* d, int32_t* out) noexcept nogil:
    """Merge two ascending lists of columns; shift is added to the second."""
    cdef Py_ssize_t i = 0, j = 0, k
    for k in range(n1 + n2):
        if j == n2 or (i < n1 and d[first[i]] <= d[second[j] + shift]):
            out[k] = first[i]
            i += 1
        else:
            out[k] = second[j] + shift
            j += 1


cdef void merge(Tree* t, Py_ssize_t start, Py_ssize_t n, Py_ssize_t n1, double coupling, real* z, real* work,
                Py_ssize_t wanted) noexcept nogil:
    """Merge two solved blocks that the off-diagonal `coupling` connects; form the vectors of the top `wanted` roots."""
    cdef Py_ssize_t ld = t.n, n2 = n - n1, k, k1 = 0, k2 = 0, k12 = 0, k23 = 0, i, j, c, row, n_gone
    cdef Py_ssize_t first
    cdef Vectors job
    cdef ptrdiff_t n_turns = 0
    cdef real* q = z + start * ld + start
    cdef real* above = NULL
    cdef real* below = NULL
    cdef real* s = NULL
    cdef double* d = t.d + start
    cdef int32_t* order = t.order + start
    cdef double rho = 2.0 * fabs(coupling), sign = 1.0 if coupling >= 0 else -1.0, cosine, sine
    cdef double eps = 1.1920928955078125e-07 / 2 if real is float else 2.220446049250313e-16 / 2
    cdef real x, y
    # the last row of the upper vectors and the first of the lower ones, as a unit vector
    for j in range(n1):
        t.z[j] = <double> q[j * ld + n1 - 1] * 0.7071067811865476
    for j in range(n1, n):
        t.z[j] = <double> q[j * ld + n1] * 0.7071067811865476 * sign
    merge_order(n1, order, n2, order + n1, <int32_t> n1, d, t.merged)
    k = fs_secular_deflate(n, n1, rho, eps, d, t.z, t.merged, t.keep, t.type, t.pair, t.turn, &n_turns)
    for i in range(n_turns):
        cosine, sine = t.turn[2 * i], t.turn[2 * i + 1]
        for row in range(n):
            x, y = q[t.pair[2 * i] * ld + row], q[t.pair[2 * i + 1] * ld + row]
            q[t.pair[2 * i] * ld + row] = <real> (cosine * x + sine * y)
            q[t.pair[2 * i + 1] * ld + row] = <real> (cosine * y - sine * x)
    # which columns deflated
    for j in range(n):
        t.place[j] = 0
    for i in range(k):
        t.place[t.keep[i]] = 1
    n_gone = 0
    for j in range(n):
        if not t.place[j]:
            t.gone[n_gone] = <int32_t> j
            n_gone += 1
    sort_order(n_gone, d, t.gone)
    if k > 0:
        for i in range(k):
            t.poles[i], t.weights[i] = d[t.keep[i]], t.z[t.keep[i]]
            k1 += t.type[t.keep[i]] == 1
            k2 += t.type[t.keep[i]] == 2
        k12, k23 = k1 + k2, k - k1
        # rows of the small eigenvectors: columns with upper rows only, with both, with lower rows only
        i, j, c = 0, k1, k12
        above = work
        below = work + n1 * k12
        s = below + n2 * k23
        for row in range(k):
            if t.type[t.keep[row]] == 1:
                t.place[row] = <int32_t> i
                i += 1
            elif t.type[t.keep[row]] == 2:
                t.place[row] = <int32_t> j
                j += 1
            else:
                t.place[row] = <int32_t> c
                c += 1
            if t.place[row] < k12:
                memcpy(above + t.place[row] * n1, q + t.keep[row] * ld, n1 * sizeof(real))
            if t.place[row] >= k1:
                memcpy(below + (t.place[row] - k1) * n2, q + t.keep[row] * ld + n1, n2 * sizeof(real))
        job.tree, job.k, job.rho = t, k, rho
        job.n_parts = fs_pool_parts(<double> k * k, LEAST_POLES)
        fs_pool_run(job.n_parts, roots, &job, NULL, 0)
        fs_pool_run(job.n_parts, weigh, &job, NULL, 0)
        # columns that are free now, ascending: root i goes to the i-th of them
        for j in range(n):
            t.type[j] = 1
        for j in range(n_gone):
            t.type[t.gone[j]] = 0
        i = 0
        for j in range(n):
            if t.type[j]:
                t.keep[i] = <int32_t> j
                i += 1
        for i in range(k):
            d[t.keep[i]] = t.poles[t.origin[i]] + t.tau[i]
    merge_order(k, t.keep, n_gone, t.gone, 0, d, order)
    if k == 0:
        return
    # the first root whose vector is wanted
    first = k
    for i in range(n - wanted, n):
        for j in range(first):
            if t.keep[j] == order[i]:
                first = j
                break
    job.n, job.n1, job.first, job.k1, job.k12 = n, n1, first, k1, k12
    job.q, job.above, job.below, job.s = q, above, below, s
    job.n_parts = min(fs_pool_parts(0.5 * n * k * (k - first), LEAST_PRODUCTS), 1 + (k - first) // 32)
    fs_pool_run(job.n_parts, <fs_part> columns[real], &job, t.v, k * sizeof(double))


cdef void roots(void* context, ptrdiff_t part, void* unused) noexcept nogil:
    cdef Vectors* job = <Vectors*> context
    cdef Tree* t = job.tree
    fs_secular_roots(job.k, fs_pool_from(job.k, job.n_parts, part, FS_ROOTS),
                     fs_pool_from(job.k, job.n_parts, part + 1, FS_ROOTS), t.poles, t.weights, job.rho, t.origin, t.tau)


cdef void weigh(void* context, ptrdiff_t part, void* unused) noexcept nogil:
    cdef Vectors* job = <Vectors*> context
    cdef Tree* t = job.tree
    fs_secular_weights(job.k, fs_pool_from(job.k, job.n_parts, part, FS_ROOTS),
                       fs_pool_from(job.k, job.n_parts, part + 1, FS_ROOTS), t.poles, t.origin, t.tau, t.weights)


cdef void columns(Vectors* job, ptrdiff_t part, real* v) noexcept nogil:
    """Compute the eigenvectors of some roots, for runs of neighbouring columns.

    # Q[:n1, run] = above @ S[:k12, run];  Q[n1:, run] = below @ S[k1:, run]
    """
    cdef Tree* t = job.tree
    cdef Py_ssize_t count = job.k - job.first, ld = t.n, k = job.k, n1 = job.n1, n2 = job.n - n1, run, j, c
    cdef Py_ssize_t i = job.first + fs_pool_from(count, job.n_parts, part, 1)
    cdef Py_ssize_t stop = job.first + fs_pool_from(count, job.n_parts, part + 1, 1)
    cdef real* q = <real*> job.q
    cdef real* s = <real*> job.s + (i - job.first) * k
    secular_vectors(k, i, stop - i, t.poles, t.origin, t.tau, t.weights, t.place, <double*> v, s)
    while i < stop:
        run = 1
        while i + run < stop and t.keep[i + run] == t.keep[i] + run:
            run += 1
        c = t.keep[i]
        if job.k12 > 0:
            gemm(c'N', c'N', n1, run, job.k12, <real> 1.0, <real*> job.above, n1, s, k, <real> 0.0, q + c * ld, ld)
        if k > job.k1:
            gemm(c'N', c'N', n2, run, k - job.k1, <real> 1.0, <real*> job.below, n2, s + job.k1, k, <real> 0.0,
                 q + c * ld + n1, ld)
        for j in range(run):
            if job.k12 == 0:
                memset(q + (c + j) * ld, 0, n1 * sizeof(real))
            if k == job.k1:
                memset(q + (c + j) * ld + n1, 0, n2 * sizeof(real))
        s += run * k
        i += run


cdef int solve(Tree* t, Py_ssize_t start, Py_ssize_t n, real* d, real* e, real* z, real* work) noexcept nogil:
    """Solve one block: set t.d, t.order and the diagonal block of z."""
    cdef Py_ssize_t n1 = n // 2, i
    cdef double coupling
    cdef int info
    if n <= LEAF:
        for i in range(n):
            t.order[start + i] = <int32_t> i
        return fs_ql(n, d + start, e + start, t.d + start, z + start * t.n + start, t.n)
    # T = diag(T1, T2) + |e| u u', u = (0 .. 0, 1, sign(e), 0 .. 0)
    coupling = <double> e[start + n1 - 1]
    d[start + n1 - 1] -= <real> fabs(coupling)
    d[start + n1] -= <real> fabs(coupling)
    info = solve(t, start, n1, d, e, z, work)
    if info:
        return info
    info = solve(t, start + n1, n - n1, d, e, z, work)
    if info:
        return info
    merge(t, start, n, n1, coupling, z, work, t.top if n == t.n else n)
    return 0


cdef void block_at(Py_ssize_t n, int level, Py_ssize_t number, Py_ssize_t* start, Py_ssize_t* size) noexcept nogil:
    """Set start and size of block `number` of the 2^level blocks of a level."""
    start[0], size[0] = 0, n
    while level > 0:
        level -= 1
        if (number >> level) & 1:
            start[0] += size[0] // 2
            size[0] -= size[0] // 2
        else:
            size[0] //= 2


cdef void block(Forest* job, ptrdiff_t part, real* unused) noexcept nogil:
    """Solve one block, or merge its halves, in its own range of every array."""
    cdef Py_ssize_t start, n, n1, at
    cdef Tree own = job.tree[0]
    cdef real* d = <real*> job.d
    cdef real* e = <real*> job.e
    cdef real* z = <real*> job.z
    cdef real* work
    block_at(own.n, job.level, part, &start, &n)
    # blocks are at most one longer than others: 2 n^2 reals of work each
    work = <real*> job.work + 2 * start * job.longest
    at = start + 8 * part
    own.z, own.poles, own.weights, own.tau = own.z + at, own.poles + at, own.weights + at, own.tau + at
    own.v, own.turn, own.merged, own.keep = own.v + at, own.turn + 2 * at, own.merged + at, own.keep + at
    own.type, own.origin, own.place, own.gone = own.type + at, own.origin + at, own.place + at, own.gone + at
    own.pair = own.pair + 2 * at
    job.info[part] = 0
    if job.solved:
        n1 = n // 2
        merge(&own, start, n, n1, <double> e[start + n1 - 1], z, work, own.top if n == own.n else n)
    else:
        job.info[part] = solve(&own, start, n, d, e, z, work)


cdef int solve_in_parts(Tree* t, int levels, real* d, real* e, real* z, real* work) noexcept nogil:
    """Solve the whole problem like ``solve``, with the blocks of the upper levels in parts."""
    cdef Forest job
    cdef Py_ssize_t start, n, number, i
    cdef int level
    cdef double coupling
    for level in range(levels):
        for number in range(1 << level):
            block_at(t.n, level, number, &start, &n)
            i = start + n // 2
            coupling = <double> e[i - 1]
            d[i - 1] -= <real> fabs(coupling)
            d[i] -= <real> fabs(coupling)
    job.tree, job.d, job.e, job.z, job.work = t, d, e, z, work
    for level in range(levels, -1, -1):
        job.level, job.solved = level, level < levels
        job.longest = (t.n + (1 << level) - 1) >> level
        if level == 0:
            block(&job, 0, z)  # not as a part, as it has parts itself
            break
        fs_pool_run(1 << level, <fs_part> block[real], &job, NULL, 0)
        if not job.solved:
            for number in range(1 << level):
                if job.info[number]:
                    return job.info[number]
    return 0


cdef int tridiagonal_top(Py_ssize_t n, Py_ssize_t top, real* d, real* e, real* z, real* work, double* doubles,
                         blas_int* integers) noexcept nogil:
    """Set d to all eigenvalues of (d, e), ascending, and the last `top` columns of z (n x n) to eigenvectors.

    e is overwritten; work holds n^2 + 5 n + 1 reals if top <= n / 2 + 1, else 2 n^2. Returns LAPACK's info.
    """
    cdef Tree t
    cdef Py_ssize_t pad = n + PAD, i, j
    cdef int32_t* whole = <int32_t*> integers
    cdef int32_t column
    cdef int info, levels
    cdef real swap
    cdef double scale = 0.0, value
    t.n, t.top = n, top
    t.d, t.z, t.poles, t.weights = doubles, doubles + pad, doubles + 2 * pad, doubles + 3 * pad
    t.tau, t.v, t.turn = doubles + 4 * pad, doubles + 5 * pad, doubles + 6 * pad
    t.order, t.merged, t.keep, t.type = whole, whole + pad, whole + 2 * pad, whole + 3 * pad
    t.origin, t.place, t.gone, t.pair = whole + 4 * pad, whole + 5 * pad, whole + 6 * pad, whole + 7 * pad
    memset(z, 0, n * n * sizeof(real))
    memset(doubles, 0, doubles_size(n) * sizeof(double))
    # scale to size 1, as stedc does: the weights of a merge have that size
    for i in range(n):
        scale = max(scale, fabs(<double> d[i]))
        if i + 1 < n:
            scale = max(scale, fabs(<double> e[i]))
    if scale == 0.0:
        scale = 1.0
    for i in range(n):
        d[i] = <real> (<double> d[i] / scale)
        if i + 1 < n:
            e[i] = <real> (<double> e[i] / scale)
    levels = 0
    while levels < LEVELS and (n >> (levels + 1)) >= LEAST_BLOCK:
        levels += 1
    if levels > 0:
        info = solve_in_parts(&t, levels, d, e, z, work)
    else:
        info = solve(&t, 0, n, d, e, z, work)
    if info:
        return info
    # move the columns to their positions, the largest last
    for i in range(n - 1, n - 1 - top, -1):
        column = t.order[i]
        if column != i:
            for j in range(n):
                swap = z[i * n + j]
                z[i * n + j] = z[column * n + j]
                z[column * n + j] = swap
            for j in range(i):
                if t.order[j] == i:
                    t.order[j] = column
            value = t.d[i]
            t.d[i] = t.d[column]
            t.d[column] = value
            t.order[i] = <int32_t> i
    for i in range(n):
        d[i] = <real> (t.d[t.order[i]] * scale)
    return 0
