"""Rounds of adaptive subgradients with a diagonal H: ADA-DIAG, online gradient descent, ADAM.

A round of a sparse row costs its nonzeros: H and the gradient of every other coordinate stay, and the effect of a
regulariser on it has a closed form, made up for when the coordinate is needed (ADAM's moments decay everywhere, so
that its rounds cost all slots seen). The arrays are those of fastsketch.online._adaptive_state.DiagonalState; of sparse
rows d is a number of slots (basis.pxd):

    base (d,)       w of mirror descent, the sum of gradients of dual averaging
    squares (d,)    sum of squared gradients, to be multiplied with FADED; ADAM's second moment
    first (d,)      ADAM's first moment
    last (d,)       how much of CLOCK a coordinate has been given
    scalar, count   entries of numbers.pxd
"""

cimport cython
from libc.math cimport exp, log1p, sqrt
from libc.stddef cimport ptrdiff_t
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc

from fastsketch._kernels.brief cimport is_brief
from fastsketch._kernels.level cimport follow
from fastsketch._kernels.losses cimport (ABSOLUTE, L1_PENALTY, L2_PENALTY, NO_PENALTY, finite, flat, in_units,
                                         loss_and_slope, squares_with)
from fastsketch._kernels.online.basis cimport seen_with
from fastsketch._kernels.online.numbers cimport (ADAM, CLOCK, COUNTS, DELTA, DIAGONAL, FADED, FewRowsOf, GRADIENT, LOSS,
                                                 MISTAKES, RESIDUALS, ROUND, SCALARS, SEEN, StateArrays, WEIGHTS)
from fastsketch._kernels.online.undo cimport Undo, keep, keep_entries
from fastsketch._kernels.pool cimport fs_pool_from, fs_pool_parts, fs_pool_run, join

cdef extern from "fs_adagrad.h" nogil:
    void fs_adagrad_d(ptrdiff_t d, double slope, double step, double delta, const double *x, double *squares,
                      double *w)

follow()
join()

cdef enum:
    SIDE_BY_SIDE = 4             # models whose sums are made together: none waits for its own last product
    LEAST = 100000               # coordinates of a part: about 100 us
    SOME = 64                    # steps at a time

# Kingma and Ba 2015, algorithm 1.
cdef double BETA1 = 0.9
cdef double BETA2 = 0.999
# Of the square of a gradient: squares are sums of such, times 1 / FADED, which is 1e100 at most.
cdef double MOST_SQUARE = 1e200


cdef struct Model:
    int method, loss, phi
    bint dual, in_units          # slopes and steps in units of residuals
    Py_ssize_t d
    Py_ssize_t seen              # slots that have occurred, or d
    double strength, eta, decay
    double* base
    double* squares
    double* first
    double* last
    double* scalar
    int64_t* count
    double slope                 # of the round


cdef inline double pulled(int phi, double w, double amount) noexcept nogil:
    """Return w after the regulariser: soft threshold (L1_PENALTY), or w times exp(-amount) (L2_PENALTY)."""
    if phi == L1_PENALTY:
        return w - amount if w > amount else w + amount if w < -amount else 0.0
    return w * exp(-amount)


cdef inline double diagonal(Model* s, Py_ssize_t j) noexcept nogil:
    return 1.0 if s.method == GRADIENT else s.scalar[DELTA] + sqrt(s.squares[j] * s.scalar[FADED])


cdef inline double amount_of(Model* s, Py_ssize_t j, double units) noexcept nogil:
    """Return the pull of `units` of the clock: rounds (DIAGONAL), or the sum of the pulls of GRADIENT's rounds."""
    cdef double rate = s.eta * s.strength
    if s.method == GRADIENT:
        return units
    return units * (rate / diagonal(s, j) if s.phi == L1_PENALTY else log1p(rate / diagonal(s, j)))


cdef inline double coef_of(Model* s, Py_ssize_t j) noexcept nogil:
    """Return w_j as it is now; mirror descent stores it."""
    cdef double t, h, g
    if s.dual:
        t, h, g = <double> s.count[ROUND], diagonal(s, j), s.base[j]
        if g == 0:
            return 0
        if s.phi == L1_PENALTY:
            return -s.eta / h * pulled(L1_PENALTY, g, t * s.strength)
        return -s.eta * g / (h + (s.eta * s.strength * t if s.phi == L2_PENALTY else 0))
    if s.phi != NO_PENALTY and s.last[j] != s.scalar[CLOCK]:
        if s.base[j] != 0:
            s.base[j] = pulled(s.phi, s.base[j], amount_of(s, j, s.scalar[CLOCK] - s.last[j]))
        s.last[j] = s.scalar[CLOCK]
    return s.base[j]


cdef inline void fade(Model* s) noexcept nogil:
    """Multiply the weight of earlier rows by decay: squares stay, and their factor is kept beside them."""
    cdef Py_ssize_t j
    s.scalar[FADED] *= s.decay
    if s.scalar[FADED] < 1e-100:
        for j in range(s.d):
            s.squares[j] *= s.scalar[FADED]
        s.scalar[FADED] = 1


cdef void move_adam(Model* s, const double* values, const int32_t* places, Py_ssize_t nonzeros,
                    double h_slope) noexcept nogil:
    cdef Py_ssize_t i, j
    cdef double t = <double> s.count[ROUND], one = 1 - BETA1**t, two = 1 - BETA2**t, h, rate
    for j in range(s.seen):
        s.squares[j] *= BETA2
        s.first[j] *= BETA1
    for i in range(nonzeros):
        j = places[i] if places != NULL else i
        s.squares[j] += (1 - BETA2) * (h_slope * values[i]) * (h_slope * values[i])
        s.first[j] += (1 - BETA1) * s.slope * values[i]
    for j in range(s.seen):
        h = sqrt(s.squares[j] / two) + s.scalar[DELTA]
        s.base[j] -= s.eta * (s.first[j] / one) / h
        if s.phi != NO_PENALTY:
            rate = s.eta * s.strength / h
            s.base[j] = pulled(s.phi, s.base[j], rate if s.phi == L1_PENALTY else log1p(rate))


cdef void move(Model* s, const double* values, const int32_t* places, Py_ssize_t nonzeros,
               double h_slope) noexcept nogil:
    cdef Py_ssize_t i, j
    cdef double units = 1.0, rate = s.eta, grown = 1.0 / s.scalar[FADED]
    if s.method == DIAGONAL:
        for i in range(nonzeros):
            j = places[i] if places != NULL else i
            s.squares[j] += (h_slope * values[i]) * (h_slope * values[i]) * grown
    if s.dual:
        for i in range(nonzeros):
            s.base[places[i] if places != NULL else i] += s.slope * values[i]
        return
    if s.method == GRADIENT:
        rate /= sqrt(<double> s.count[ROUND])
        units = rate * s.strength if s.phi == L1_PENALTY else log1p(rate * s.strength)
    s.scalar[CLOCK] += units
    for i in range(nonzeros):
        j = places[i] if places != NULL else i
        s.base[j] -= rate * s.slope * values[i] / diagonal(s, j)
        if s.phi != NO_PENALTY:
            s.base[j] = pulled(s.phi, s.base[j], amount_of(s, j, units))
            s.last[j] = s.scalar[CLOCK]


cdef void move_plainly(Model* s, const double* values, const int32_t* places, Py_ssize_t nonzeros,
                       double h_slope) noexcept nogil:
    """Move as ``move`` of DIAGONAL where base is w: the same operations, quotients and roots several at a time."""
    cdef Py_ssize_t i, first = 0, n
    cdef double fading = s.scalar[FADED], grown = 1.0 / fading, delta = s.scalar[DELTA], g
    cdef double* squares = s.squares
    cdef double* base = s.base
    cdef double steps[SOME]
    s.scalar[CLOCK] += 1
    if places == NULL and fading == 1:
        fs_adagrad_d(nonzeros, h_slope, s.eta * s.slope, delta, values, squares, base)
        return
    for i in range(nonzeros):
        g = h_slope * values[i]
        squares[places[i] if places != NULL else i] += g * g * grown
    g = s.eta * s.slope
    while first < nonzeros:
        n = min(nonzeros - first, <Py_ssize_t> SOME)
        for i in range(n):
            steps[i] = squares[places[first + i] if places != NULL else first + i]
        for i in range(n):
            steps[i] = g * values[first + i] / (delta + sqrt(steps[i] * fading))
        for i in range(n):
            base[places[first + i] if places != NULL else first + i] -= steps[i]
        first += n


cdef inline double score(Model* s, const double* values, const int32_t* places, Py_ssize_t nonzeros, bint plain,
                         double* x_square) noexcept nogil:
    """Compute w'x, and x'x. plain: base is w."""
    cdef Py_ssize_t j
    cdef double z = 0, square = 0
    if plain and places != NULL:
        for j in range(nonzeros):
            z += values[j] * s.base[places[j]]
            square += values[j] * values[j]
    elif plain:
        for j in range(nonzeros):
            z += values[j] * s.base[j]
            square += values[j] * values[j]
    else:
        for j in range(nonzeros):
            z += values[j] * coef_of(s, places[j] if places != NULL else j)
            square += values[j] * values[j]
    x_square[0] = square
    return z


# -- the loops ---------------------------------------------------------------------------------------------------------
cdef struct Rows:
    Py_ssize_t n
    const double* data
    const int32_t* indices
    const int64_t* indptr        # NULL: dense rows
    const double* sample_weight


cdef struct Lesson:
    Model* s
    const double* targets
    double* scores
    Py_ssize_t done              # rows learned from


cdef struct Lessons:
    Rows rows
    Lesson* each
    Py_ssize_t n_models, n_parts, n_values


cdef inline Py_ssize_t row_of(const Rows* rows, Py_ssize_t i, Py_ssize_t d, const double** values,
                              const int32_t** places) noexcept nogil:
    """Return the number of values of row i, and where they are."""
    if rows.indptr == NULL:
        values[0], places[0] = rows.data + i * d, NULL
        return d
    values[0], places[0] = rows.data + rows.indptr[i], rows.indices + rows.indptr[i]
    return rows.indptr[i + 1] - rows.indptr[i]


cdef inline bint learn_row(const Rows* rows, Py_ssize_t i, Lesson* its, const double* values, const int32_t* places,
                           Py_ssize_t nonzeros, double z, double x_square, bint plain) noexcept nogil:
    """Learn from row i, whose score is z; return False, with nothing changed, if it is refused."""
    cdef Model* s = its.s
    cdef double h_slope, unit = 1, square = 0, loss, y = its.targets[i], weight = rows.sample_weight[i]
    loss = loss_and_slope(s.loss, z, y, &s.slope)
    s.slope *= weight
    # of the absolute loss H does not depend on w, not even at a tie
    h_slope = weight if s.loss == ABSOLUTE else s.slope
    if s.in_units and weight > 0:
        square = squares_with(s.loss, s.scalar[RESIDUALS], s.scalar[WEIGHTS], y, z - y, weight)
    if not (finite(z) and h_slope * h_slope * x_square <= MOST_SQUARE and finite(square)):
        return False
    if s.in_units and weight > 0:
        s.scalar[RESIDUALS] = square
        s.scalar[WEIGHTS] += weight
        unit = in_units(s.loss, z - y, weight, sqrt(square / s.scalar[WEIGHTS]), &s.slope)
    its.scores[i], its.done = z, i + 1
    s.count[ROUND] += 1
    if s.decay != 1:
        fade(s)
    s.scalar[LOSS] += weight * loss
    s.count[MISTAKES] += z * y <= 0
    h_slope = weight if s.loss == ABSOLUTE else s.slope / unit
    if s.method == ADAM:
        move_adam(s, values, places, nonzeros, h_slope)
    elif not (s.phi == NO_PENALTY and flat(h_slope)):
        if plain and s.method == DIAGONAL:
            move_plainly(s, values, places, nonzeros, h_slope)
        else:
            move(s, values, places, nonzeros, h_slope)
    return True


cdef void loop(const Rows* rows, Lesson* its) noexcept nogil:
    """Let one model learn from rows, up to the first one that is refused."""
    cdef Model* s = its.s
    cdef Py_ssize_t i, nonzeros, before
    cdef const double* values
    cdef const int32_t* places
    cdef double x_square, z
    cdef bint plain = s.phi == NO_PENALTY and not s.dual
    for i in range(rows.n):
        before, nonzeros = s.seen, row_of(rows, i, s.d, &values, &places)
        if s.method == ADAM and places != NULL:  # of the others no other coordinate has a part in a row
            s.seen = seen_with(before, places, nonzeros)
        z = score(s, values, places, nonzeros, plain, &x_square)
        if not learn_row(rows, i, its, values, places, nonzeros, z, x_square, plain):
            s.seen = before
            return


# -- plain models: DIAGONAL, mirror descent, no regulariser, nothing faded, no units --------------------------------------
cdef inline bint is_plain(const Model* s) noexcept nogil:
    if s.decay != 1 or s.scalar[FADED] != 1 or s.in_units:
        return False
    return s.method == DIAGONAL and not s.dual and s.phi == NO_PENALTY


cdef inline double side_by_side(const double* values, const int32_t* places, Py_ssize_t nonzeros, double** w,
                                double* z) noexcept nogil:
    """Compute z[k] = w[k]'x, each summed in its own order; return x'x."""
    cdef double x_square = 0, z0 = 0, z1 = 0, z2 = 0, z3 = 0, x
    cdef const double* w0 = w[0]
    cdef const double* w1 = w[1]
    cdef const double* w2 = w[2]
    cdef const double* w3 = w[3]
    cdef Py_ssize_t i, j
    for i in range(nonzeros):
        x, j = values[i], places[i] if places != NULL else i
        x_square += x * x
        z0 += x * w0[j]
        z1 += x * w1[j]
        z2 += x * w2[j]
        z3 += x * w3[j]
    z[0], z[1], z[2], z[3] = z0, z1, z2, z3
    return x_square


cdef void plain_loop(const Rows* rows, Lesson* models, Py_ssize_t n_models) noexcept nogil:
    """Let up to SIDE_BY_SIDE models learn from the same rows; one that is refused a row learns no more."""
    cdef double* w[SIDE_BY_SIDE]
    cdef double[SIDE_BY_SIDE] z
    cdef Py_ssize_t i, k, nonzeros
    cdef const double* values
    cdef const int32_t* places
    cdef double x_square
    for k in range(SIDE_BY_SIDE):
        w[k] = models[min(k, n_models - 1)].s.base
    for i in range(rows.n):
        nonzeros = row_of(rows, i, models.s.d, &values, &places)
        x_square = side_by_side(values, places, nonzeros, w, z)
        for k in range(n_models):
            if models[k].done == i:
                learn_row(rows, i, models + k, values, places, nonzeros, z[k], x_square, True)


cdef void one_part(void* context, ptrdiff_t part, void* _scratch) noexcept nogil:
    cdef Lessons* a = <Lessons*> context
    cdef Py_ssize_t first = fs_pool_from(a.n_models, a.n_parts, part, 1)
    plain_loop(&a.rows, a.each + first, fs_pool_from(a.n_models, a.n_parts, part + 1, 1) - first)


cdef void all_lessons(Lessons* a, bint plain) noexcept nogil:
    cdef Py_ssize_t i
    if plain and fs_pool_parts(<double> a.n_models * a.n_values, LEAST) > 1:
        fs_pool_run(a.n_parts, one_part, a, NULL, 0)
        return
    for i in range(a.n_parts if plain else a.n_models):
        if plain:
            one_part(a, i, NULL)
        else:
            loop(&a.rows, a.each + i)


# -- the door ----------------------------------------------------------------------------------------------------------
@cython.auto_pickle(False)
cdef class DiagonalRounds(StateArrays):
    """Pointers to the arrays of a DiagonalState as its rounds take them, good until one of them is replaced.

    setting: an AdaptiveSetting.
    """

    cdef Model s

    def __init__(self, state, setting):
        cdef Model* s = &self.s
        if self.n_views:
            raise TypeError("rounds are of one state")
        s.method, s.loss, s.phi, s.dual = setting.method, setting.loss, setting.phi, setting.dual
        s.strength, s.eta, s.decay = setting.strength, setting.learning_rate, setting.decay
        s.in_units, s.d = setting.in_units, state.base.shape[0]
        s.base, s.squares = <double*> self.pointer_to(state.base, b"d"), <double*> self.pointer_to(state.squares, b"d")
        s.first, s.last = <double*> self.pointer_to(state.first, b"d"), <double*> self.pointer_to(state.last, b"d")
        s.scalar, s.count = <double*> self.pointer_to(state.scalar, b"d"), <int64_t*> self.pointer_to(state.count, b"l")

    # -- a few rows --------------------------------------------------------------------------------------------------------
    cdef bint is_ready(self, const FewRowsOf* rows) noexcept nogil:
        return True

    cdef bint takes_in_whole(self) noexcept nogil:
        return self.s.method == DIAGONAL and self.s.phi == NO_PENALTY

    cdef void keep_before(self, Undo* undo, const FewRowsOf* rows) noexcept nogil:
        cdef Model* s = &self.s
        cdef double* arrays[4]
        cdef Py_ssize_t i
        arrays[0], arrays[1], arrays[2], arrays[3] = s.base, s.squares, s.first, NULL
        if s.phi != NO_PENALTY:
            arrays[3] = s.last
        keep(undo, s.scalar, SCALARS * sizeof(double))
        keep(undo, s.count, COUNTS * sizeof(int64_t))
        for i in range(4):
            # squares of all columns may be put in other units
            if rows.indptr == NULL or s.method == ADAM or s.decay != 1:
                keep(undo, arrays[i], s.d * sizeof(double))
            else:
                keep_entries(undo, arrays[i], rows.slots, rows.indptr[rows.n])

    cdef bint learn_few(self, const FewRowsOf* rows, const double* targets, const double* weights,
                        double* scores) noexcept nogil:
        cdef Rows batch
        cdef Lesson lesson
        self.s.seen = self.s.count[SEEN]
        batch.n, batch.data, batch.indices, batch.indptr = rows.n, rows.data, rows.slots, rows.indptr
        batch.sample_weight = weights
        lesson.s, lesson.targets, lesson.scores, lesson.done = &self.s, targets, scores, 0
        loop(&batch, &lesson)
        if lesson.done < rows.n:
            return False
        if rows.indptr != NULL:
            self.s.count[SEEN] = seen_with(self.s.count[SEEN], rows.slots, rows.indptr[rows.n])
        return True

    def coef(self):
        """Return w (slots seen,); the pull that a regulariser still owes is applied to base first."""
        import numpy as np

        cdef Py_ssize_t j
        cdef double[::1] out = np.empty(self.s.count[SEEN])
        for j in range(out.shape[0]):
            out[j] = coef_of(&self.s, j)
        return np.asarray(out)


def learn(list rounds, const double[::1] data, const int32_t[::1] indices, const int64_t[::1] indptr,
          const double[:, :] targets, const double[::1] sample_weight, double[:, :] scores):
    """Let models learn from the same rows, each as it does alone, plain ones side by side on the threads of the pool.

    rounds: k DiagonalRounds of one setting; data (n d,) of dense rows, whose indices and indptr are None, or CSR rows in
    slots; targets, scores (k, n), row by row. A model that is refused a row, which gets no score, learns no more.
    """
    cdef Py_ssize_t n = targets.shape[1], k, n_models = len(rounds)
    cdef Lessons a
    cdef DiagonalRounds one
    cdef bint some = data.shape[0] > 0, plain = n > 1 or n_models > 1
    if n == 0:
        return
    a.rows.n, a.rows.sample_weight = n, &sample_weight[0]
    a.rows.data = &data[0] if some else NULL
    a.rows.indices = &indices[0] if indptr is not None and some else NULL
    a.rows.indptr = &indptr[0] if indptr is not None else NULL
    a.n_models, a.n_parts, a.n_values = n_models, (n_models + SIDE_BY_SIDE - 1) // SIDE_BY_SIDE, data.shape[0]
    a.each = <Lesson*> malloc(n_models * sizeof(Lesson))
    if a.each == NULL:
        raise MemoryError
    try:
        for k in range(n_models):
            one = rounds[k]
            one.s.seen = one.s.count[SEEN]
            a.each[k].s, a.each[k].targets, a.each[k].scores, a.each[k].done = &one.s, &targets[k, 0], &scores[k, 0], 0
            plain = plain and is_plain(&one.s)
        if is_brief(n_models, data.shape[0] + n) and (one.s.method != ADAM or is_brief(n_models * n, one.s.seen)):
            all_lessons(&a, plain)
        else:
            with nogil:
                all_lessons(&a, plain)
        if indptr is not None:
            for k in range(n_models):
                one = rounds[k]
                one.s.count[SEEN] = seen_with(one.s.count[SEEN], a.rows.indices, indptr[a.each[k].done])
    finally:
        free(a.each)
