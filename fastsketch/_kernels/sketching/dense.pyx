"""Pass dense rows through the buffer: load them, settle them (decay and centring), shrink or accumulate.

One call takes a whole batch without running Python code, so that neither a signal nor another thread sees the state
between two blocks.
"""

cimport cython
from libc.math cimport sqrt

from fastsketch._kernels.brief cimport is_brief
from fastsketch._kernels.level cimport follow
from fastsketch._kernels.linalg.blas cimport NO_ROOM, real, converged
from fastsketch._kernels.linalg.row_parts cimport (
    add_lower_parts, centre_parts, load_parts, scale_lower, scale_parts, scan_parts, square_parts)
from fastsketch._kernels.linalg.rows cimport fs_move_mean
from fastsketch._kernels.sketching.products cimport outer_product, partials_size
from fastsketch._kernels.sketching.shrink cimport (
    arena_size, iwork_size, small_size, gram_shrink, svd_shrink, svd_work_size)
from fastsketch._kernels.sketching.state cimport (
    GRAM, SVD, EXACT, REFRESH, ROUNDING_PER_SHRINK, ROUNDING_PER_SVD, decay_kept)

import numpy as np


follow()


@cython.auto_pickle(False)
cdef class DenseState(SketchState):
    """State of a sketch whose buffer holds dense rows."""

    def __init__(self, setting, Py_ssize_t capacity, Py_ssize_t n_features, dtype):
        cdef int solver = {"gram": GRAM, "svd": SVD, "exact": EXACT}[setting.solver]
        reals, integers, doubles = work_sizes(capacity, n_features, setting.sketch_size - 1, solver, dtype)
        super().__init__(setting, capacity, n_features)
        cdef Py_ssize_t side = n_features if solver == EXACT else 0
        cdef Py_ssize_t side32 = side if dtype == np.float32 else 0
        self.solver = solver
        self.buffer = np.zeros((capacity, n_features), dtype)
        self.cov = np.zeros((side, side))
        self.part = np.empty((side32, side32), dtype)
        self.work = np.empty(1 if solver == EXACT else reals, dtype)
        self.square = np.zeros(capacity + 1)
        self.small = np.empty(doubles)
        self.iwork = np.empty(integers, np.intc)


def scan(const real[:, :] rows):
    """Return (index of the first row with a NaN or an infinity, or -1; largest absolute entry before it). Each row must
    be contiguous.
    """
    cdef double largest = 0.0
    cdef Py_ssize_t n = rows.shape[0], d = rows.shape[1], bad = -1
    cdef Py_ssize_t ld = rows.strides[0] // <Py_ssize_t> sizeof(real)
    if n == 0 or d == 0:
        return -1, 0.0
    if is_brief(n, d):
        bad = scan_parts(n, d, ld, &rows[0, 0], &largest)
    else:
        with nogil:
            bad = scan_parts(n, d, ld, &rows[0, 0], &largest)
    return bad, largest


def work_sizes(Py_ssize_t m, Py_ssize_t d, Py_ssize_t n_keep, int solver, dtype):
    """Return the sizes of the workspace for shrinking a buffer of m rows: numbers of reals, integers and doubles.
    ValueError if LAPACK's integers cannot count them.
    """
    cdef Py_ssize_t size
    if m > 46340 or d > 2147483647:
        raise ValueError(f"a buffer of {m} rows and {d} columns exceeds LAPACK's 32-bit integers: "
                         "use a smaller sketch_size or buffer_size")
    if solver == SVD:
        if dtype == np.float32:
            size = svd_work_size(m, d, <float*> NULL)
        else:
            size = svd_work_size(m, d, <double*> NULL)
        if size < 0:
            raise ValueError(f"gesdd's workspace for {m} x {d} exceeds LAPACK's 32-bit integers: use solver='gram'")
        return size, iwork_size(m), 1
    return arena_size(m) + partials_size(m, d), iwork_size(m), small_size(m, n_keep)


cdef int settle(DenseState s, real* buffer) noexcept nogil:
    """Apply decay and centring to the rows loaded since the last shrink. Return 0, or NO_ROOM with nothing done.

    With centring new rows are stored unweighted, and their root weights in `root`, since the mean is subtracted first.
    """
    cdef Py_ssize_t d = s.n_features
    cdef Py_ssize_t h = s.fill - s.kept, j
    cdef Py_ssize_t first = s.capacity - s.fill
    cdef real* fresh = buffer + first * d
    cdef double* root = &s.root[first]
    cdef double factor, power, weight
    if h == 0:
        return 0
    if s.center and s.fill >= s.capacity:
        return NO_ROOM  # for the correction row: an earlier call failed, and was not rolled back
    if s.decay != 1.0:
        # The newest row is first. Row j is followed in time by j rows: its square is multiplied by decay^j, and all
        # rows before the block by decay^h. Powers of decay, not of its root, whose rounding would have the same sign
        # each time.
        factor = power = 1.0
        for j in range(h):
            s.square[j] = factor
            root[j] *= factor
            power *= s.decay
            factor = sqrt(power)
        if not s.center:  # else the rows are not weighted yet
            scale_parts(h, d, fresh, &s.square[0])
        if s.solver == EXACT:
            scale_lower(d, &s.cov[0, 0], power)
        decay_kept(s, power, factor)
    if s.center:
        weight = 0.0
        for j in range(h):
            weight += root[j] * root[j]
        centre_parts(h, d, fresh, fresh - d, root, s.settled_weight, weight, &s.mean[0], &s.mean_low[0], &s.base[0],
                     &s.shift[0])
        square_parts(h + 1, d, d, fresh - d, &s.square[0])
        for j in range(h + 1):
            s.squared_norm += s.square[j]
        s.settled_weight += weight
        s.fill += 1
    return 0


cdef int flush(DenseState s, real* buffer, real* part, real* work, Py_ssize_t lwork) noexcept nogil:
    """Settle the buffer, then shrink it to n_keep rows, or with solver EXACT add it to `cov` and empty it."""
    cdef Py_ssize_t d = s.n_features
    cdef double delta = 0.0, top = 0.0, before = 0.0, allowance
    cdef double eps = 1.1920928955078125e-07 if real is float else 2.220446049250313e-16
    cdef Py_ssize_t m, i
    cdef real* f
    cdef int info = settle(s, buffer)
    cdef bint diagonal
    if info:
        return info
    m = s.fill
    f = buffer + (s.capacity - m) * d
    if s.solver == EXACT:
        # C += F.T @ F.  In any order a sum of m products is off by at most m / 2 units of rounding of the sum of their
        # magnitudes; similar rows may all round to the same side. Adding to C and its decay round once, and so does
        # each step of a power of decay.
        for i in range(d):
            before += s.cov[i, i]
        if real is float:
            outer_product(m, d, f, 0.0, part)
            add_lower_parts(d, part, &s.cov[0, 0])
            for i in range(d):
                top += <double> part[i * d + i]  # the block's trace bounds its largest eigenvalue
        else:
            outer_product(m, d, f, 1.0, &s.cov[0, 0])
            for i in range(d):
                top += s.cov[i, i]
            top -= before
        allowance = 2.220446049250313e-16 * (before + top) * (1.0 if s.decay == 1.0 else 1.0 + 0.5 * m)
        allowance += sqrt(s.rounding) + 0.5 * m * eps * top
        s.rounding = allowance * allowance
        s.fill = s.kept = 0
        s.age = 1  # cov is no longer zero
        return 0
    if s.solver == SVD:
        info = svd_shrink(m, s.kept, d, s.n_keep, s.n_spare, s.ledger, f, &s.lam[0], &s.gain[0], &top, &delta, work,
                          lwork, &s.iwork[0])
        if info:
            return info
        s.age = 0
    else:
        diagonal = 0 <= s.age < REFRESH
        info = gram_shrink(m, s.kept, d, s.n_keep, s.n_spare, s.ledger, diagonal, f, &s.lam[0], &s.gain[0], &top,
                           &delta, work, work + arena_size(s.capacity), &s.small[0], &s.iwork[0])
        if info:
            return info
        s.age = s.age + 1 if diagonal else 0
    allowance = (ROUNDING_PER_SVD if s.solver == SVD else ROUNDING_PER_SHRINK) * eps * top
    if s.solver == GRAM and real is float:
        # Norms are summed in double, and the remaining errors have random signs: their squares add up.
        s.rounding += allowance * allowance
    else:
        # Errors may have the same sign in every shrink.
        allowance += sqrt(s.rounding)
        s.rounding = allowance * allowance
    s.shrinkage += delta
    s.fill = s.kept = s.n_keep
    return 0


cdef int take(DenseState s, Py_ssize_t n, Py_ssize_t ld, const real* rows, const double* weight, bint rooted,
              double scale, real* buffer, real* part, real* work, Py_ssize_t lwork) noexcept nogil:
    """Load all n rows into the buffer, from its end to its beginning, and flush it whenever it is full.

    rooted: `weight` holds the roots of the weights, whose squares may overflow.
    """
    cdef Py_ssize_t d = s.n_features
    cdef Py_ssize_t done = 0, count, j, slot
    cdef Py_ssize_t limit = s.capacity - s.center
    cdef double w
    cdef bint weighted = weight is not NULL and not s.center
    cdef int info
    while done < n:
        if s.fill >= limit:  # an earlier call failed here
            info = flush(s, buffer, part, work, lwork)
            if info:
                return info
        slot = s.capacity - s.fill - 1
        count = limit - s.fill
        if count > n - done:
            count = n - done
        for j in range(count):
            w = 1.0 if weight is NULL else weight[done + j]
            s.root[slot - j] = w if rooted else sqrt(w)
        load_parts(count, d, ld, rows + done * ld, &s.root[slot] if weighted else <double*> NULL, -1, scale,
                   buffer + slot * d, -d, &s.square[0])
        for j in range(count):
            w = s.root[slot - j]
            s.weight = s.decay * s.weight + w * w
            if not s.center:
                s.squared_norm = s.decay * s.squared_norm + s.square[j]
        s.fill += count
        s.n_rows += count
        done += count
        if s.fill == limit:
            info = flush(s, buffer, part, work, lwork)
            if info:
                return info
    return 0


def absorb(const real[:, :] rows, weights, double scale, DenseState state):
    """Add rows to the buffer of `state`, in place, with optional weights (float64). The buffer is shrunk whenever it is
    full. Rows must be finite, and each contiguous.

    scale multiplies the rows. Raises LinAlgError if an eigensolver does not converge.
    """
    cdef real[:, ::1] buffer = state.buffer
    cdef real[:, ::1] part = state.part
    cdef real[::1] work = state.work
    cdef const double[::1] w
    cdef const double* wp = NULL
    cdef real* pp = &part[0, 0] if part.shape[0] else NULL
    cdef Py_ssize_t n = rows.shape[0], ld = rows.strides[0] // <Py_ssize_t> sizeof(real)
    cdef int info
    if n == 0:
        return
    if weights is not None:
        w = weights
        wp = &w[0]
    if state.fill + n < state.capacity - state.center and is_brief(n, state.n_features):
        info = take(state, n, ld, &rows[0, 0], wp, False, scale, &buffer[0, 0], pp, &work[0], work.shape[0])
    else:
        with nogil:
            info = take(state, n, ld, &rows[0, 0], wp, False, scale, &buffer[0, 0], pp, &work[0], work.shape[0])
    converged(info, "the eigensolver of the shrink")


def absorb_buffer(const real[:, ::1] other, DenseState theirs, DenseState state):
    """Merge another buffer of the same scale into this one, in place: add its rows, multiplied by their factors, and
    its sums.

    Neither state has decay, a mean or a ledger; the other one does not change. Raises LinAlgError.
    """
    cdef real[:, ::1] buffer = state.buffer
    cdef real[:, ::1] part = state.part
    cdef real[::1] work = state.work
    cdef real* pp = &part[0, 0] if part.shape[0] else NULL
    cdef double norm = state.squared_norm + theirs.squared_norm, weight = state.weight + theirs.weight
    cdef Py_ssize_t n_rows = state.n_rows + theirs.n_rows, m = theirs.fill, i
    cdef double[::1] lengths = np.ones(m)
    cdef int info = 0
    for i in range(theirs.kept):
        lengths[m - 1 - i] = theirs.gain[i]
    state.top = max(state.top, theirs.top)
    with nogil:
        if m:
            info = take(state, m, theirs.n_features, &other[theirs.capacity - m, 0], &lengths[0], True, 1.0,
                        &buffer[0, 0], pp, &work[0], work.shape[0])
        state.root[:] = 1.0  # take has put the lengths there
        if state.solver == EXACT and theirs.age > 0:
            for i in range(theirs.cov.shape[0] * theirs.cov.shape[1]):
                (&state.cov[0, 0])[i] += (&theirs.cov[0, 0])[i]
            state.age = 1
        # as in `flush`, for shrinks of one stream
        if state.solver == GRAM and real is float:
            state.rounding += theirs.rounding
        else:
            state.rounding += theirs.rounding + 2.0 * sqrt(state.rounding) * sqrt(theirs.rounding)
    state.shrinkage += theirs.shrinkage
    # `take` has counted the rows as new ones
    state.squared_norm, state.weight, state.n_rows = norm, weight, n_rows
    converged(info, "the eigensolver of the shrink")


def flush_now(real[:, ::1] buffer, DenseState state):
    """Apply weights, decay and centring to the new rows of the buffer, then shrink the buffer, or add its rows to the
    exact sum. All is in place.
    """
    cdef real[:, ::1] part = state.part
    cdef real[::1] work = state.work
    cdef real* pp = &part[0, 0] if part.shape[0] else NULL
    cdef int info
    with nogil:
        info = flush(state, &buffer[0, 0], pp, &work[0], work.shape[0])
    converged(info, "the eigensolver of the shrink")


def settle_now(real[:, ::1] buffer, DenseState state):
    """Apply decay and centring to the new rows of the buffer, in place, without a shrink."""
    cdef int info
    with nogil:
        info = settle(state, &buffer[0, 0])
    converged(info, "the buffer")


def move_mean(double[::1] mean, double[::1] low, double weight, *, double[::1] base, double[::1] shift,
              double block_weight):
    """Update the mean of rows of total `weight`, in place, with further rows whose mean is base + shift and whose total
    weight is `block_weight` > 0.

    The mean is mean + low; both are updated. base becomes the correction row: see csrc/fs_rows.h.
    """
    if mean.shape[0]:
        fs_move_mean(mean.shape[0], weight, block_weight, &mean[0], &low[0], &base[0], &shift[0])
