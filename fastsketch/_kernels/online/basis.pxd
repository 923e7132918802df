# The factored rows C = [F Z'; X] of a sketch of sparse rows. Z (d, width), feature-major, is the result of earlier rebases,
# F is a small matrix, and X has the sparse rows since the last rebase. A round costs the nonzeros of its row; only a rebase
# may touch all slots of Z in use. Columns have slots in the order of their first appearance, so that `seen`, the number of
# slots in use, depends on the rows only, not on batches or on the size of the arrays.
# Adaptive subgradients use V = C'T, the online Newton step uses B = [F Z'; diag(factors) X].

from libc.float cimport DBL_EPSILON
from libc.math cimport fabs, sqrt
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy, memset

from fastsketch._kernels.linalg.blas cimport gemm, gemv

cdef enum:
    SOME = 256                   # rows of Z recomputed together

cdef inline double tolerance() noexcept nogil:
    # Scores of sparse rows equal those of the same dense rows to 1e-9 of the largest, and projections keep |w'x| below
    # 1 + 1e-9. A single operation may use a hundredth of that, because errors add up until a shrink.
    return 1e-11


cdef struct Basis:
    Py_ssize_t seen              # slots in use; all entries beyond them are zero
    Py_ssize_t width, ld_frame
    double* z                    # (slots, width)
    double* frame                # F, leading dimension ld_frame
    double* data                 # X, CSR
    int32_t* indices
    int64_t* indptr
    Py_ssize_t room              # length of data and indices
    double* work                 # scratch: a zero for each slot


cdef inline void add(Py_ssize_t n, double f, const double* a, double* out) noexcept nogil:
    # out += f a
    cdef Py_ssize_t i
    for i in range(n):
        out[i] += f * a[i]


cdef inline double row_dot(double total, const double* values, const int32_t* places, Py_ssize_t nonzeros,
                           const double* v) noexcept nogil:
    # total + x'v for a sparse row x
    cdef Py_ssize_t i
    for i in range(nonzeros):
        total += values[i] * v[places[i]]
    return total


cdef inline void add_row(double f, const double* values, const int32_t* places, Py_ssize_t nonzeros,
                         double* out) noexcept nogil:
    # out += f x
    cdef Py_ssize_t i
    for i in range(nonzeros):
        out[places[i]] += f * values[i]


cdef inline void add_kept_row(const Basis* c, Py_ssize_t row, double f, double* out) noexcept nogil:
    # out += f X[row]
    cdef int64_t first = c.indptr[row]
    add_row(f, c.data + first, c.indices + first, <Py_ssize_t> (c.indptr[row + 1] - first), out)


cdef inline Py_ssize_t seen_with(Py_ssize_t seen, const int32_t* places, Py_ssize_t nonzeros) noexcept nogil:
    # Return the number of slots in use, including those of these nonzeros.
    cdef Py_ssize_t i = 0
    cdef int32_t last = -1, b = -1, c = -1, d = -1
    while i + 4 <= nonzeros:
        last, b, c, d = max(last, places[i]), max(b, places[i + 1]), max(c, places[i + 2]), max(d, places[i + 3])
        i += 4
    while i < nonzeros:
        last = max(last, places[i])
        i += 1
    last = max(max(last, b), max(c, d))
    return max(seen, <Py_ssize_t> last + 1)


cdef inline double row_products(const Basis* c, Py_ssize_t old, Py_ssize_t fresh, const double* values,
                                const int32_t* places, Py_ssize_t nonzeros, double* zx, double* gx) noexcept nogil:
    """Compute zx = Z'x (old,) and gx = X x (fresh,) for old columns of Z and fresh rows of X; return x'x."""
    cdef Py_ssize_t i, j
    cdef int64_t q
    cdef double total = 0, x_square = 0
    memset(zx, 0, old * sizeof(double))
    for i in range(nonzeros):
        x_square += values[i] * values[i]
        c.work[places[i]] = values[i]
        add(old, values[i], c.z + places[i] * c.width, zx)
    for j in range(fresh):
        total = 0
        for q in range(c.indptr[j], c.indptr[j + 1]):
            total += c.data[q] * c.work[c.indices[q]]
        gx[j] = total
    for i in range(nonzeros):
        c.work[places[i]] = 0
    return x_square


cdef inline void keep_row(const Basis* c, Py_ssize_t fresh, const double* values, const int32_t* places,
                          Py_ssize_t nonzeros) noexcept nogil:
    # X[fresh] = x
    cdef int64_t used = c.indptr[fresh]
    memcpy(c.data + used, values, nonzeros * sizeof(double))
    memcpy(c.indices + used, places, nonzeros * sizeof(int32_t))
    c.indptr[fresh + 1] = used + nonzeros


cdef inline void add_kept_to_z(const Basis* c, Py_ssize_t fresh, Py_ssize_t n, const double* mix,
                               Py_ssize_t ld) noexcept nogil:
    """Add X'mix' to Z[:, :n], mix (n, fresh) with leading dimension ld."""
    cdef Py_ssize_t i, j
    cdef int64_t q
    cdef double* row
    for j in range(fresh):
        for q in range(c.indptr[j], c.indptr[j + 1]):
            row = c.z + c.indices[q] * c.width
            for i in range(n):
                row[i] += c.data[q] * mix[i * ld + j]


cdef inline bint solve_small(Py_ssize_t n, double* a, double* right, Py_ssize_t m) noexcept nogil:
    """Solve a x = right in place by Gauss-Jordan elimination with row pivoting; return False if a (n, n) is singular.

    Both are row-major and overwritten; right is (n, m).
    """
    cdef Py_ssize_t i, j, c, pivot
    cdef double f, least = 0
    for i in range(n * n):
        least = max(least, fabs(a[i]))
    least *= 1e-14
    for i in range(n):
        pivot = i
        for j in range(i + 1, n):
            if fabs(a[j * n + i]) > fabs(a[pivot * n + i]):
                pivot = j
        if not fabs(a[pivot * n + i]) > least:
            return False
        if pivot != i:
            for c in range(n):
                a[i * n + c], a[pivot * n + c] = a[pivot * n + c], a[i * n + c]
            for c in range(m):
                right[i * m + c], right[pivot * m + c] = right[pivot * m + c], right[i * m + c]
        for j in range(n):
            if j != i and a[j * n + i] != 0:
                f = a[j * n + i] / a[i * n + i]
                add(n, -f, a + i * n, a + j * n)
                add(m, -f, right + i * m, right + j * m)
    for i in range(n):
        f = 1 / a[i * n + i]
        for c in range(m):
            right[i * m + c] *= f
    return True


cdef inline double length_of(const Basis* c, Py_ssize_t row) noexcept nogil:
    # |X[row]|
    cdef int64_t q
    cdef double total = 0
    for q in range(c.indptr[row], c.indptr[row + 1]):
        total += c.data[q] * c.data[q]
    return sqrt(total)


cdef inline double largest_move(const Basis* c, Py_ssize_t fresh, const double* steps) noexcept nogil:
    # Return the largest change of the score of a row of X by its own step.
    cdef Py_ssize_t j
    cdef double largest = 0
    for j in range(fresh):
        largest = max(largest, fabs(steps[j]) * length_of(c, j) ** 2)
    return largest


cdef inline bint keeps_digits(const Basis* c, Py_ssize_t n, Py_ssize_t fresh, const double* moved, const double* mix,
                              const double* squares, double least, const double* b, double move,
                              double allowed, double* lengths) noexcept nogil:
    """Return whether rows F (Z' + S X) and the model base + Z b are as accurate as if Z were computed again.

    An element of base + Z b is the result of n + 4 operations, those of Z <- Z + X'S' and base <- base - X'S'b among
    them: its rounding error is at most n + 4 unit roundoffs of its largest terms (Higham 2002, section 3.1).

    moved: F; mix: [F^-1, S]; squares (n,): squared lengths of the orthogonal rows F Z'; least: the smallest eigenvalue
    of H; move: largest_move since the last rebase; allowed: the relative error of scores. lengths (n,) is scratch.
    """
    cdef Py_ssize_t i, j, m = n + fresh
    cdef double total, roundoff = (n + 4) * (DBL_EPSILON / 2), length, longest = sqrt(squares[0]), growth = 0
    # Z b grows by X'S'b, which is subtracted from base. Its rounding error changes scores by its length times that of a
    # row, here the longest of X and of F Z'. This must be small compared to the largest change of a score by a step.
    for j in range(fresh):
        total = 0
        for i in range(n):
            total += mix[i * m + n + j] * b[i]
        length = length_of(c, j)
        longest = max(longest, length)
        growth = max(growth, fabs(total) * length)
    if not roundoff * growth * longest <= allowed * move:
        return False
    # Skeel's condition number of F: its rows may be of any lengths, but terms of F Z' may not cancel
    for i in range(n):
        total = 0
        for j in range(n):
            total += mix[i * m + j] * mix[i * m + j] * squares[j]
        lengths[i] = sqrt(total)
    for i in range(n):
        total = 0
        for j in range(n):
            total += fabs(moved[i * n + j]) * lengths[j]
        # this row's share of the relative error of H^-1: the error of its square in B'B, over the least eigenvalue of H
        if not roundoff * total / sqrt(squares[i]) * (1 + squares[i] / least) <= allowed:
            return False
    return True


cdef inline bint take_in(const Basis* c, Py_ssize_t n, Py_ssize_t fresh, const double* moved, double* mix, double* copy,
                         const double* squares, double least, const double* b,
                         double move, double allowed) noexcept nogil:
    """Replace C by the rows moved Z' + mix X = moved (Z' + S X), changing Z at the nonzeros of X only.

    Z grows by X'S' and F becomes `moved`. The model base + Z b has then grown by X'S'b, which the caller subtracts from
    base. Returns False, with only scratch changed, if the rows or the model would lose accuracy.

    moved (n, n); mix (n, n + fresh): the first n columns are overwritten, the others become S = moved^-1 mix where
    the answer is True and are lost where it is not. copy: n * n. squares (n,): squared lengths of the new rows, which
    are orthogonal. least, b, move, allowed: as keeps_digits takes them.
    """
    cdef Py_ssize_t i, m = n + fresh
    for i in range(n):
        memset(mix + i * m, 0, n * sizeof(double))
        mix[i * m + i] = 1
    memcpy(copy, moved, n * n * sizeof(double))
    if not solve_small(n, copy, mix, m):
        return False
    if not keeps_digits(c, n, fresh, moved, mix, squares, least, b, move, allowed, copy):
        return False
    add_kept_to_z(c, fresh, n, mix + n, m)
    for i in range(n):
        memcpy(c.frame + i * c.ld_frame, moved + i * n, n * sizeof(double))
    return True


cdef inline void recompute(const Basis* c, Py_ssize_t n, Py_ssize_t old, Py_ssize_t fresh, const double* moved,
                           const double* mix, Py_ssize_t ld, double* copy, const double* b,
                           double* base) noexcept nogil:
    """Set Z <- Z moved' + X'mix', moved (n, old), mix (n, fresh) with leading dimension ld; copy: SOME * n.

    base += Z b is computed first, in the same pass over Z.
    """
    cdef Py_ssize_t i, j = 0, m
    cdef double* row
    while j < c.seen:
        m = min(<Py_ssize_t> SOME, c.seen - j)
        if not old:
            memset(copy, 0, m * n * sizeof(double))
        else:
            gemv(c'T', old, m, 1.0, c.z + j * c.width, c.width, b, 1.0, base + j)
            # a row-major matrix is its transpose to gemm
            gemm(c'T', c'N', n, m, old, 1.0, moved, old, c.z + j * c.width, c.width, 0.0, copy, n)
        for i in range(m):
            row = c.z + (j + i) * c.width
            memcpy(row, copy + i * n, n * sizeof(double))
            memset(row + n, 0, (c.width - n) * sizeof(double))
        j += m
    add_kept_to_z(c, fresh, n, mix, ld)
