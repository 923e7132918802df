# Several shrinks of one long buffer of sparse rows. All but the last are computed among coefficients: K = C'[K0; N].

from libc.math cimport sqrt

from fastsketch._kernels.linalg.blas cimport NOT_FINITE, gemm, real
from fastsketch._kernels.pool cimport fs_part, fs_pool_from, fs_pool_parts, fs_pool_run
from fastsketch._kernels.sketching.ledger cimport post
from fastsketch._kernels.sketching.shrink cimport arena_size, rotation, shorten, top_eigenpairs
from fastsketch._kernels.sketching.sparse_parts cimport (
    Block, LEAST_DENSE, LEAST_SPARSE, decay_block, gram_of_kept, kept_part, rotate_features, sums_of_kept)
from fastsketch._kernels.sketching.sparse_rows cimport gram_row_before, csr_times_z, transpose_csr
from fastsketch._kernels.sketching.sparse_state cimport SparseState, TOGETHER
from fastsketch._kernels.sketching.state cimport REFRESH, ROUNDING_PER_SHRINK


cdef struct Inner:
    # shared by the parts of one of the shrinks
    Py_ssize_t first, rows, kept, m, before, n_parts, r, n_keep, ld
    double* gram
    const double* turn                     # (r, m) eigenvectors, the largest first
    const double* gain                     # of the new kept rows; or NULL
    double* combined                       # (k + h, ld)
    Block* b


cdef inline void inner_part(Inner* job, Py_ssize_t part, real* room) noexcept nogil:
    """Some new rows of this shrink: their products with the kept rows, which are C'[K0; N], and with one another."""
    cdef Block* b = job.b
    cdef Py_ssize_t i = fs_pool_from(job.rows, job.n_parts, part, TOGETHER)
    cdef Py_ssize_t stop = fs_pool_from(job.rows, job.n_parts, part + 1, TOGETHER), count, e, c, at, ld = b.k + b.h
    cdef double* scratch = <double*> room
    cdef double* out = scratch + TOGETHER * ld
    cdef real* line = <real*> (out + TOGETHER * job.ld)
    cdef double* to
    while i < stop:
        count = min(stop - i, <Py_ssize_t> TOGETHER)
        for e in range(count):
            # Y = N[i] @ [K0; N].T
            to = scratch + e * ld
            csr_times_z(1, b.k, b.ldz, b.indptr + job.first + i + e, b.indices, <const real*> b.data,
                        <const real*> b.z, line)
            for c in range(b.k):
                to[c] = <double> line[c]
            gram_row_before(job.first + i + e, b.indptr, b.indices, <const real*> b.data, b.stop, b.row,
                            <const real*> b.turned, b.place, to + b.k)
            at = job.kept + i + e
            for c in range(i + e + 1):
                job.gram[at * job.m + job.kept + c] = job.gram[(job.kept + c) * job.m + at] = to[b.k + job.first + c]
        # N K' = Y C
        gemm(c'N', c'N', job.kept, count, job.before, <double> 1.0, job.combined, job.ld, scratch, ld, <double> 0.0,
             out, job.ld)
        for e in range(count):
            at = job.kept + i + e
            for c in range(job.kept):
                job.gram[at * job.m + c] = job.gram[c * job.m + at] = out[e * job.ld + c]
        i += count


cdef inline void combine_part(Inner* job, Py_ssize_t part, real* room) noexcept nogil:
    """Some rows of C W1 and, from those of this shrink on, of W2: in place times the gains, or to `last`."""
    cdef Block* b = job.b
    cdef double* scratch = <double*> room
    cdef real* last = <real*> b.g
    cdef Py_ssize_t length = job.before + job.rows, i = fs_pool_from(length, job.n_parts, part, TOGETHER), e, c, count
    cdef Py_ssize_t stop = fs_pool_from(length, job.n_parts, part + 1, TOGETHER)
    cdef double* to
    while i < stop:
        count = min(stop - i, <Py_ssize_t> TOGETHER)
        if i < job.before:
            count = min(count, job.before - i)
            gemm(c'T', c'N', job.r, count, job.kept, <double> 1.0, job.turn, job.m, job.combined + i * job.ld,
                 job.ld, <double> 0.0, scratch, job.r)
        else:
            for e in range(count):
                for c in range(job.r):
                    scratch[e * job.r + c] = job.turn[c * job.m + job.kept + i + e - job.before]
        for e in range(count):
            to = scratch + e * job.r
            if job.gain:
                for c in range(job.n_keep):
                    job.combined[(i + e) * job.ld + c] = to[c] * job.gain[c]
            elif i + e < b.k:
                # column by column, as settle_part reads them in a single shrink
                for c in range(job.r):
                    last[c * b.k + i + e] = <real> to[c]
            else:
                for c in range(job.r):
                    last[b.k * job.r + (i + e - b.k) * job.r + c] = <real> to[c]
        i += count


cdef inline int cascade(SparseState s, real* z, real* arena) except? -1 nogil:
    """Shrink after every `block` new rows, without centring; only the last shrink visits the features."""
    cdef Py_ssize_t k = s.kept, h = s.fill - s.kept, n_keep = s.n_keep, i, c, m = 0, r = 0, lwork = 0
    cdef Py_ssize_t size, bytes
    cdef real* g = arena
    cdef real* vec
    cdef real* w
    cdef real* work = arena
    cdef double* square = &s.small[0]
    cdef double* vector_square = square + n_keep + 1
    cdef double* gram = &s.gram[0]
    cdef double* turn = &s.turn[0]
    cdef double* product
    cdef double value, nnz, top = 0.0
    cdef double eps = 1.1920928955078125e-07 if real is float else 2.220446049250313e-16
    cdef bint diagonal = 0 <= s.age < REFRESH, last
    cdef Block b
    cdef Inner job
    cdef int info
    if s.decay != 1.0:
        decay_block(s, h, <real*> s.values)
    b.h, b.k, b.d, b.kept, b.ldz, b.n_keep, b.center, b.whole = h, k, s.seen, k, s.ldz, n_keep, False, True
    b.indptr, b.indices, b.data, b.turned = &s.indptr[0], &s.indices[0], s.values, s.turned_values
    b.stop, b.row, b.place, b.z, b.g = &s.stop[0], &s.row[0], &s.place[0], z, s.last_values
    nnz = <double> s.indptr[h]
    transpose_csr(h, b.d, b.indptr, b.indices, <real*> s.values, b.stop, b.row, <real*> s.turned_values, b.place)
    job.b, job.gram, job.turn, job.combined, job.n_keep = &b, gram, turn, &s.combined[0], n_keep
    job.first, job.kept, job.before, job.ld = 0, k, k, s.ldz - 1
    while job.first < h:
        job.rows = min(s.block, h - job.first)
        last = job.first + job.rows == h
        m = job.m = job.kept + job.rows
        r = job.r = n_keep + 1 if n_keep + 1 < m else m
        vec, w = g + m * m, g + 2 * m * m
        work, lwork = w + m, arena_size(m) - 2 * m * m - m
        # G[:k, :k] = K @ K.T, computed for the rows of the buffer every REFRESH shrinks, else diagonal by construction
        for i in range(job.kept):
            for c in range(job.kept):
                gram[i * m + c] = 0.0
            gram[i * m + i] = s.lam[i]
        if job.first == 0:
            if not diagonal and k:
                size = sums_of_kept(&b, z)
                b.sums = vec + (<size_t> vec // sizeof(real)) % (sizeof(double) // sizeof(real))
                b.n_parts = fs_pool_parts(b.d * 0.5 * k * k, LEAST_DENSE)
                b.n_parts = min(b.n_parts, (2 * m * m + 8 * m) // size)
                fs_pool_run(b.n_parts, <fs_part> kept_part[real], &b, NULL, 0)
                gram_of_kept(&b, m, &s.gain[0], gram, z)
            for i in range(k):
                for c in range(k):  # C = diag(gain)
                    job.combined[i * job.ld + c] = s.gain[i] if i == c else 0.0
        job.n_parts = fs_pool_parts(nnz * job.rows / h * (k + h / 16.0) + <double> job.rows * job.before * job.kept / 8,
                                    LEAST_SPARSE)
        bytes = (TOGETHER * (k + h + job.ld) + k + 1) * sizeof(double)
        fs_pool_run(job.n_parts, <fs_part> inner_part[real], &job, &s.room[0], bytes)
        for c in range(m):
            for i in range(c, m):
                g[c * m + i] = <real> gram[c * m + i]
        info = top_eigenpairs(m, r, g, w, vec, work, lwork, square + 2 * (n_keep + 1), &s.iwork[0])
        if info:
            return info
        top = <double> w[m - 1]
        value = sqrt(s.rounding) + ROUNDING_PER_SHRINK * eps * top
        s.rounding = value * value
        rotation(m, 0, 0, r, vec, &s.gain[0], 1, g, vector_square)
        if s.ledger is not None and post(s.ledger, m, job.kept, s.n_features, n_keep, vec + (m - 1) * m, -m, 1, 0,
                                         1, w + m - 1, -1, m, False, &s.lam[0]):
            return NOT_FINITE
        for c in range(r * m):
            turn[c] = <double> g[c]
        job.gain = NULL
        if not last:
            # the squares of the new kept rows: v'G v
            product = turn + r * m
            gemm(c'N', c'N', m, r, m, <double> 1.0, gram, m, turn, m, <double> 0.0, product, m)
            for c in range(r):
                square[c] = 0.0
                for i in range(m):
                    square[c] += turn[c * m + i] * product[c * m + i]
            s.shrinkage += shorten(m, n_keep, s.n_spare, s.ledger, square, vector_square, &s.lam[0], &s.gain[0])
            job.gain = &s.gain[0]
        job.n_parts = fs_pool_parts(<double> (job.before + job.rows) * job.kept * r, LEAST_DENSE)
        fs_pool_run(job.n_parts, <fs_part> combine_part[real], &job, &s.room[0],
                    TOGETHER * (n_keep + 1) * sizeof(double))
        job.before += job.rows
        job.first += job.rows
        job.kept = n_keep
        s.age = s.age + 1 if diagonal or job.first > s.block else 0
    s.age = min(s.age, <Py_ssize_t> REFRESH)
    b.r, b.m, b.w = r, max(k, 1), <real*> s.last_values + k * r
    rotate_features(s, &b, m, nnz, top, work, lwork)
    return 0
