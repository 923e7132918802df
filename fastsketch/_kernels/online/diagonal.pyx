"""Rounds of adaptive subgradients with a diagonal H: ADA-DIAG, online gradient descent, ADAM.

A round of a sparse row costs its nonzeros. The other coordinates have no gradient, and the effect of a regulariser on
them has a closed form, which is applied when a coordinate is next used (lazy updates). ADAM is the exception: its moments
decay everywhere, so that a round costs all slots in use. The arrays are those of DiagonalState in
fastsketch.online._adaptive_state; for sparse rows d is the number of slots (basis.pxd):

    base (d,)       w of mirror descent, the sum of gradients of dual averaging
    squares (d,)    sum of squared gradients, to be multiplied with FADED; ADAM's second moment
    first (d,)      ADAM's first moment
    last (d,)       the value of CLOCK up to which the regulariser has been applied to a coordinate
    scalar, count   see numbers.pxd
"""

cimport cython
from libc.math cimport exp, log1p, sqrt
from libc.stddef cimport ptrdiff_t
from libc.stdint cimport int32_t, int64_t

from fastsketch._kernels.level cimport follow
from fastsketch._kernels.losses cimport (ABSOLUTE, L1_PENALTY, L2_PENALTY, NO_PENALTY, finite, flat, in_units,
                                         loss_and_slope, squares_with)
from fastsketch._kernels.online.basis cimport seen_with
from fastsketch._kernels.online.numbers cimport (ADAM, CLOCK, COUNTS, DELTA, DIAGONAL, FADED, GRADIENT, LOSS, Lesson,
                                                 MISTAKES, RESIDUALS, ROUND, RowBlock, SCALARS, SEEN, StateArrays,
                                                 WEIGHTS)
from fastsketch._kernels.online.rollback cimport Rollback, save_array, save_entries

cdef extern from "fs_adagrad.h" nogil:
    void fs_adagrad_d(ptrdiff_t d, double slope, double step, double delta, const double *x, double *squares,
                      double *w)

follow()

cdef enum:
    SIDE_BY_SIDE = 4             # models whose scores are summed in one loop, to hide the latency of additions
    LEAST = 100000               # coordinates that are worth a thread: about 100 us
    SOME = 64                    # steps computed together

# Kingma and Ba 2015, algorithm 1.
cdef double BETA1 = 0.9
cdef double BETA2 = 0.999
# Largest squared gradient that is accepted: `squares` has sums of them times 1 / FADED, which is at most 1e100.
cdef double MOST_SQUARE = 1e200


cdef struct Model:
    int method, loss, phi
    bint dual, in_units          # dual averaging; H takes slopes in units of the root mean square residual
    Py_ssize_t d
    Py_ssize_t seen              # slots in use, or d
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
    """Return the amount of regularisation of coordinate j for `units` of CLOCK, as `pulled` takes it.

    The clock counts rounds (DIAGONAL), or adds up the amounts themselves (GRADIENT).
    """
    cdef double rate = s.eta * s.strength
    if s.method == GRADIENT:
        return units
    return units * (rate / diagonal(s, j) if s.phi == L1_PENALTY else log1p(rate / diagonal(s, j)))


cdef inline double coef_of(Model* s, Py_ssize_t j) noexcept nogil:
    """Return w_j. For mirror descent, regularisation that is due is applied to base[j] first."""
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
    """Multiply the weight of earlier rows in H by decay, by changing FADED instead of all squares."""
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
    """Make a step of DIAGONAL mirror descent without regulariser, as `move` does, by vectorised quotients and roots."""
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
    """Return w'x and set x_square = x'x. plain: base is w, without regularisation that is due."""
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


# -- learning rows -----------------------------------------------------------------------------------------------------
cdef inline Py_ssize_t row_of(const RowBlock* rows, Py_ssize_t i, Py_ssize_t d, const double** values,
                              const int32_t** places) noexcept nogil:
    """Return the number of values of row i, and set pointers to them and their slots (NULL for dense rows)."""
    if rows.indptr == NULL:
        values[0], places[0] = rows.data + i * d, NULL
        return d
    values[0], places[0] = rows.data + rows.indptr[i], rows.slots + rows.indptr[i]
    return rows.indptr[i + 1] - rows.indptr[i]


cdef inline bint learn_row(const RowBlock* rows, Py_ssize_t i, Lesson* its, const double* values,
                           const int32_t* places, Py_ssize_t nonzeros, double z, double x_square,
                           bint plain) noexcept nogil:
    """Learn from row i, whose score is z; return False, with nothing changed, if it is refused."""
    cdef Model* s = <Model*> its.model
    cdef double h_slope, unit = 1, square = 0, loss, y = its.targets[i], weight = rows.sample_weight[i]
    loss = loss_and_slope(s.loss, z, y, &s.slope)
    s.slope *= weight
    # for the absolute loss the gradient in H is weight * x, even where the slope is 0, so that H does not depend on w
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


cdef void loop(const RowBlock* rows, Lesson* its) noexcept nogil:
    """Let one model learn from rows, up to the first one that is refused."""
    cdef Model* s = <Model*> its.model
    cdef Py_ssize_t i, nonzeros, before
    cdef const double* values
    cdef const int32_t* places
    cdef double x_square, z
    cdef bint plain = s.phi == NO_PENALTY and not s.dual
    for i in range(rows.n):
        before, nonzeros = s.seen, row_of(rows, i, s.d, &values, &places)
        if s.method == ADAM and places != NULL:  # the other methods change no coordinate that a row lacks
            s.seen = seen_with(before, places, nonzeros)
        z = score(s, values, places, nonzeros, plain, &x_square)
        if not learn_row(rows, i, its, values, places, nonzeros, z, x_square, plain):
            s.seen = before
            return


cdef inline bint is_plain(const Model* s) noexcept nogil:
    """Return whether a model needs nothing but `move_plainly` in a round."""
    return (s.method == DIAGONAL and not s.dual and s.phi == NO_PENALTY and s.decay == 1 and s.scalar[FADED] == 1
            and not s.in_units)


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


cdef void plain_loop(const RowBlock* rows, Lesson* lessons, Py_ssize_t n_lessons) noexcept nogil:
    """Let up to SIDE_BY_SIDE plain models learn from the same rows; one that refuses a row learns no more."""
    cdef double* w[SIDE_BY_SIDE]
    cdef double[SIDE_BY_SIDE] z
    cdef Py_ssize_t i, k, nonzeros
    cdef const double* values
    cdef const int32_t* places
    cdef double x_square
    for k in range(SIDE_BY_SIDE):
        w[k] = (<Model*> lessons[min(k, n_lessons - 1)].model).base
    for i in range(rows.n):
        nonzeros = row_of(rows, i, (<Model*> lessons.model).d, &values, &places)
        x_square = side_by_side(values, places, nonzeros, w, z)
        for k in range(n_lessons):
            if lessons[k].done == i:
                learn_row(rows, i, lessons + k, values, places, nonzeros, z[k], x_square, True)


cdef void learn_block(Lesson* lessons, Py_ssize_t n_lessons, const RowBlock* rows) noexcept nogil:
    cdef Py_ssize_t k
    cdef Model* s
    cdef bint plain = rows.n > 1 or n_lessons > 1
    for k in range(n_lessons):
        s = <Model*> lessons[k].model
        s.seen = s.count[SEEN]
        plain = plain and is_plain(s)
    if plain:
        plain_loop(rows, lessons, n_lessons)
    for k in range(n_lessons):
        s = <Model*> lessons[k].model
        if not plain:
            loop(rows, lessons + k)
        if rows.indptr != NULL:
            s.count[SEEN] = seen_with(s.count[SEEN], rows.slots, rows.indptr[lessons[k].done])


# -- what Python calls ---------------------------------------------------------------------------------------------------
@cython.auto_pickle(False)
cdef class DiagonalRounds(StateArrays):
    """Pointers to the arrays of a DiagonalState; valid until one of the arrays is replaced.

    setting: an AdaptiveSetting.
    """

    cdef Model s

    def __init__(self, state, setting):
        cdef Model* s = &self.s
        if self.n_views:
            raise TypeError("rounds are of one state")
        self.model, self.learn_block, self.together, self.part_work = s, learn_block, SIDE_BY_SIDE, LEAST
        s.method, s.loss, s.phi, s.dual = setting.method, setting.loss, setting.phi, setting.dual
        s.strength, s.eta, s.decay = setting.strength, setting.learning_rate, setting.decay
        s.in_units, s.d = setting.in_units, state.base.shape[0]
        s.base, s.squares = self.doubles(state.base), self.doubles(state.squares)
        s.first, s.last, s.scalar = self.doubles(state.first), self.doubles(state.last), self.doubles(state.scalar)
        s.count = <int64_t*> self.pointer_to(state.count, b"l")

    cdef double work(self, double n_values, double n) noexcept nogil:
        return n_values + n * (self.s.count[SEEN] if self.s.method == ADAM else 1)

    cdef bint is_ready(self, const RowBlock* rows) noexcept nogil:
        return True

    cdef bint takes_in_whole(self) noexcept nogil:
        return self.s.method == DIAGONAL and self.s.phi == NO_PENALTY

    cdef void save_before(self, Rollback* before, const RowBlock* rows) noexcept nogil:
        cdef Model* s = &self.s
        cdef double* arrays[4]
        cdef Py_ssize_t i
        arrays[0], arrays[1], arrays[2], arrays[3] = s.base, s.squares, s.first, NULL
        if s.phi != NO_PENALTY:
            arrays[3] = s.last
        save_array(before, s.scalar, SCALARS * sizeof(double))
        save_array(before, s.count, COUNTS * sizeof(int64_t))
        for i in range(4):
            # with decay `fade` may rescale the squares of all coordinates
            if rows.indptr == NULL or s.method == ADAM or s.decay != 1:
                save_array(before, arrays[i], s.d * sizeof(double))
            else:
                save_entries(before, arrays[i], rows.slots, rows.indptr[rows.n])

    def coef(self):
        """Return w (slots in use,). Regularisation that is due is applied to base."""
        import numpy as np

        cdef Py_ssize_t j
        cdef double[::1] out = np.empty(self.s.count[SEEN])
        for j in range(out.shape[0]):
            out[j] = coef_of(&self.s, j)
        return np.asarray(out)
