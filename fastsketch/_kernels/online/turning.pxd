# The small space of adaptive subgradients: S'S = V diag(lam) V' with orthonormal V = C'T. C has at most `cap` rows: those of
# the last rebase and the rows x of gradients since. Gradients change T, not the rows of C. The owner of C (dense rows,
# [F Z'; X], or torch tensors) computes the products C x, and T'C in a rebase. Everything else is here.

from libc.math cimport sqrt
from libc.stddef cimport ptrdiff_t
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy, memset

from fastsketch._kernels.linalg.blas cimport gemm
from fastsketch._kernels.linalg.secular cimport (FS_ROOTS, fs_secular_deflate, fs_secular_roots, fs_secular_weights,
                                                 secular_vectors)
from fastsketch._kernels.losses cimport dot, finite
from fastsketch._kernels.online.basis cimport add
from fastsketch._kernels.online.numbers cimport EVERY_ROUND, RANK, ROWS, TURNS, WHEN_FULL
from fastsketch._kernels.pool cimport fs_blas_alone

cdef enum:
    POLISH = 256                 # updates of T after which it is reorthonormalised: each adds a rounding error to V'V - I
    ALONE = 262144               # multiplications up to which OpenBLAS uses one core for a product anyway


cdef inline double clear() noexcept nogil:
    # A row x is appended to C as it is if more than this share of x'x is orthogonal to C.
    return 1e-4


cdef inline double least_new() noexcept nogil:
    # Smallest residual, relative to the length of the row, that adds a direction: the papers' test g' != g with a guard.
    return 1e-10


cdef inline double least_update() noexcept nogil:
    # Updates below this share of the largest eigenvalue are skipped: the secular equation would underflow.
    return 1e-280


cdef struct Turning:
    Py_ssize_t tau, most, cap
    int rule                     # when to shrink: EVERY_ROUND, WHEN_FULL, NEVER
    bint root                    # H takes the square root of S'S
    double* carried              # sum of what shrinks removed, rho, if H takes the root of S'S + rho I (FTSL), or NULL
    double* buffered             # number of rows in the buffer, at most 2 tau (FD-SON); NULL: the rank is limited instead
    double* turn                 # T' (most, cap)
    double* lam                  # (most,), descending
    double* gram                 # C C' (cap, cap)
    int64_t* count               # RANK, ROWS, TURNS
    double* y                    # V'x (most + 1,)
    # scratch
    double* secular              # secular_size
    double* small                # small_size, or more
    int32_t* ints                # ints_size


cdef inline Py_ssize_t secular_size(Py_ssize_t most) noexcept nogil:
    # d, z, poles, weights, tau, v
    return 6 * (most + FS_ROOTS)


cdef inline Py_ssize_t small_size(Py_ssize_t most, Py_ssize_t cap) noexcept nogil:
    # vectors, gathered, made; polish needs less
    return 64 + most * (most + 2 * cap)


cdef inline Py_ssize_t ints_size(Py_ssize_t most) noexcept nogil:
    # order, keep, kind, pair (twice as long), origin, place
    return 7 * most + 2 * FS_ROOTS


cdef inline void project(const Turning* t, const double* p) noexcept nogil:
    # y = V'x = T'p for p = C x
    cdef Py_ssize_t i
    for i in range(t.count[RANK]):
        t.y[i] = dot(t.count[ROWS], t.turn + i * t.cap, p)


cdef inline void add_turned(const Turning* t, double scale, const double* v, double* out) noexcept nogil:
    # out += scale T v
    cdef Py_ssize_t i
    for i in range(t.count[RANK]):
        add(t.count[ROWS], scale * v[i], t.turn + i * t.cap, out)


cdef inline double carried_root(const Turning* t) noexcept nogil:
    # Return sqrt(rho), which H has in all directions besides delta.
    return 0.0 if t.carried == NULL else sqrt(t.carried[0])


cdef inline double root_of(const Turning* t, double lam) noexcept nogil:
    # Return what H has in the direction of an eigenvalue beyond delta + sqrt(rho): sqrt(lam + rho) - sqrt(rho).
    cdef double least = carried_root(t)
    if not t.root:
        return lam
    lam = max(lam, 0.0)
    return sqrt(lam) if least == 0 else lam / (sqrt(lam + t.carried[0]) + least)


cdef inline double share(const Turning* t, double lam, double delta) noexcept nogil:
    # Return the entry of diag(share) for an eigenvalue, where H^-1 = (I - V diag(share) V') / delta.
    cdef double root = root_of(t, lam)
    return root / (delta + root)


cdef inline void alone(Py_ssize_t multiplications, int enter) noexcept nogil:
    # Keep BLAS on one thread, around matrix products that are large enough to be split.
    if multiplications > ALONE:
        fs_blas_alone(enter)


cdef inline void rank_one(Turning* t, double weight) noexcept nogil:
    """Add weight (V y)(V y)' to V diag(lam) V' by a rank-one eigenvalue update; lam stays in descending order."""
    cdef Py_ssize_t n = t.count[RANK], rows = t.count[ROWS], i, j, k, c, gone, room = t.most + FS_ROOTS
    cdef ptrdiff_t n_turns
    cdef double* d = t.secular
    cdef double* z = d + room
    cdef double* poles = z + room
    cdef double* weights = poles + room
    cdef double* tau = weights + room
    cdef double* v = tau + room
    cdef int32_t* order = t.ints
    cdef int32_t* keep = order + t.most
    cdef int32_t* kind = keep + t.most
    cdef int32_t* pair = kind + t.most
    cdef int32_t* origin = pair + 2 * t.most
    cdef int32_t* place = origin + t.most + FS_ROOTS
    cdef double* vectors = t.small
    cdef double* gathered = vectors + t.most * t.most
    cdef double* made = gathered + t.most * t.cap
    cdef double* givens = made          # 2 n, used before made
    cdef double total = dot(n, t.y, t.y), largest, rho, cosine, sine, one, two, length = sqrt(total)
    if not (total > 0 and weight > 0 and finite(weight * total) and finite(t.lam[0])):
        return
    largest = max(t.lam[0], weight * total)
    rho = weight * total / largest
    if rho < least_update():
        return
    for i in range(n):
        d[i] = t.lam[i] / largest
        z[i] = t.y[i] / length
        order[i] = <int32_t> (n - 1 - i)
    # with a tiny tolerance for deflation small eigenvalues keep their relative accuracy
    k = fs_secular_deflate(n, n, rho, 1e-40, d, z, order, keep, kind, pair, givens, &n_turns)
    for i in range(n_turns):
        cosine, sine = givens[2 * i], givens[2 * i + 1]
        for j in range(rows):
            one, two = t.turn[pair[2 * i] * t.cap + j], t.turn[pair[2 * i + 1] * t.cap + j]
            t.turn[pair[2 * i] * t.cap + j] = cosine * one + sine * two
            t.turn[pair[2 * i + 1] * t.cap + j] = cosine * two - sine * one
    for i in range(n):
        kind[i] = 1
    for i in range(k):
        poles[i], weights[i] = d[keep[i]], z[keep[i]]
        place[i] = <int32_t> i
        kind[keep[i]] = 0
        memcpy(gathered + i * t.cap, t.turn + keep[i] * t.cap, rows * sizeof(double))
    for i in range(k, k + FS_ROOTS):
        poles[i], weights[i] = 0, 0
    fs_secular_roots(k, 0, k, poles, weights, rho, origin, tau)
    fs_secular_weights(k, 0, k, poles, origin, tau, weights)
    secular_vectors(k, 0, k, poles, origin, tau, weights, place, v, vectors)
    # rows of the new T': vectors' @ gathered
    alone(rows * k * k, 1)
    gemm(c'N', c'N', rows, k, k, 1.0, gathered, t.cap, vectors, k, 0.0, made, t.cap)
    alone(rows * k * k, 0)
    # sort the deflated eigenvalues in descending order, then merge both lists
    gone = 0
    for i in range(n):
        if kind[i]:
            j = gone
            while j > 0 and d[order[j - 1]] < d[i]:
                order[j] = order[j - 1]
                j -= 1
            order[j] = <int32_t> i
            gone += 1
    for i in range(gone):
        memcpy(gathered + i * t.cap, t.turn + order[i] * t.cap, rows * sizeof(double))
    i, c = 0, k - 1
    for j in range(n):
        if c >= 0 and (i == gone or poles[origin[c]] + tau[c] >= d[order[i]]):
            t.lam[j] = largest * max(0.0, poles[origin[c]] + tau[c])
            memcpy(t.turn + j * t.cap, made + c * t.cap, rows * sizeof(double))
            c -= 1
        else:
            t.lam[j] = largest * d[order[i]]
            memcpy(t.turn + j * t.cap, gathered + i * t.cap, rows * sizeof(double))
            i += 1
    t.count[TURNS] += 1


cdef inline void polish(Turning* t) noexcept nogil:
    """Reorthonormalise V by a Newton step: T' <- (3/2 I - 1/2 E) T' with E = T'(C C')T = V'V. It squares the error."""
    cdef Py_ssize_t n = t.count[RANK], rows = t.count[ROWS], i
    cdef double* e = t.small
    cdef double* half = e + t.most * t.most
    alone(rows * rows * n, 1)
    # half = gram T; e = T'half   (row-major T' is column-major T)
    gemm(c'N', c'N', rows, n, rows, 1.0, t.gram, t.cap, t.turn, t.cap, 0.0, half, t.cap)
    gemm(c'T', c'N', n, n, rows, -0.5, t.turn, t.cap, half, t.cap, 0.0, e, t.most)
    for i in range(n):
        e[i * t.most + i] += 1.5
    gemm(c'N', c'N', rows, n, n, 1.0, t.turn, t.cap, e, t.most, 0.0, half, t.cap)
    alone(rows * rows * n, 0)
    for i in range(n):
        memcpy(t.turn + i * t.cap, half + i * t.cap, rows * sizeof(double))
    t.count[TURNS] = 0


cdef inline void fresh_basis(Turning* t) noexcept nogil:
    # Set T = I and C C' = I, once C has become V'.
    cdef Py_ssize_t n = t.count[RANK], i
    memset(t.turn, 0, t.most * t.cap * sizeof(double))
    memset(t.gram, 0, t.cap * t.cap * sizeof(double))
    for i in range(n):
        t.turn[i * t.cap + i] = 1
        t.gram[i * t.cap + i] = 1
    t.count[ROWS] = n


cdef inline bint full(Turning* t) noexcept nogil:
    if t.rule != WHEN_FULL:
        return False
    return t.count[RANK] == 2 * t.tau or (t.buffered != NULL and t.buffered[0] >= 2 * t.tau)


cdef inline bint must_rebase(Turning* t) noexcept nogil:
    """Return whether C must be rebased before a gradient is added. A full sketch is shrunk: lam and rank change."""
    cdef Py_ssize_t i, rank = t.count[RANK], kept = min(rank, t.tau - 1), left = 0
    cdef double least
    if full(t):
        least = t.lam[t.tau - 1] if rank >= t.tau else 0.0
        for i in range(kept):
            t.lam[i] -= least
            left += t.lam[i] > 0
        if t.carried != NULL:
            t.carried[0] += least
        memset(t.lam + kept, 0, (t.most - kept) * sizeof(double))
        t.count[RANK] = kept
        if t.buffered != NULL:
            t.buffered[0] = left
        return True
    return t.count[ROWS] == t.cap and rank < t.cap


cdef inline void new_direction(Turning* t, double rest, bint unit) noexcept nogil:
    """Append a row to C, and a direction to V, with eigenvalue 0.

    rest: length of the component of x orthogonal to V. unit: the row is that component, normalised, instead of x.
    """
    cdef Py_ssize_t rank = t.count[RANK], rows = t.count[ROWS], i
    cdef double* fresh = t.turn + rank * t.cap
    memset(fresh, 0, t.cap * sizeof(double))
    if unit:
        fresh[rows] = 1
    else:
        # T gets the column [-T y; 1] / rest
        for i in range(rank):
            add(rows, -t.y[i] / rest, t.turn + i * t.cap, fresh)
        fresh[rows] = 1 / rest
    for i in range(rank):
        t.turn[i * t.cap + rows] = 0
    t.y[rank] = rest
    t.lam[rank] = 0
    t.count[RANK] = rank + 1
    t.count[ROWS] = rows + 1


cdef inline void border(Turning* t, const double* products, double corner) noexcept nogil:
    """Extend gram by the products of the next row of C with the other rows and itself."""
    cdef Py_ssize_t rows = t.count[ROWS], i
    for i in range(rows):
        t.gram[rows * t.cap + i] = t.gram[i * t.cap + rows] = products[i]
    t.gram[rows * t.cap + rows] = corner


cdef inline void take_gradient(Turning* t, double weight) noexcept nogil:
    """Add weight x x' to S'S, given y = V'x; then shrink if the rule is EVERY_ROUND."""
    cdef Py_ssize_t rank = t.count[RANK], i
    cdef double least
    rank_one(t, weight)
    if t.buffered != NULL:
        t.buffered[0] += 1
    if t.rule == EVERY_ROUND and rank == t.tau:
        least = t.lam[rank - 1]
        for i in range(rank):
            t.lam[i] -= least
        t.count[RANK] = rank - 1
        if t.carried != NULL:
            t.carried[0] += least
    if t.count[TURNS] >= POLISH:
        polish(t)
