"""Rounds of adaptive subgradients with a diagonal H: ADA-DIAG, online gradient descent, ADAM.

A round of a sparse row costs its nonzeros: H and the gradient of every other coordinate stay, and the effect of a
regulariser on it has a closed form, made up for when the coordinate is needed (ADAM's moments decay everywhere, so
that its rounds cost all slots seen). The arrays are those of fastsketch.online._adaptive_state.DiagonalState; of sparse
rows d is a number of slots (basis.pxd):

    base (points, d)     w of mirror descent, the sum of gradients of dual averaging
    squares (d,)         sum of squared gradients; ADAM's second moment
    fading (1,)          what squares are to be multiplied with, where they fade
    first (points, d)    ADAM's first moment
    last (points, d)     how much of clock (points,) a coordinate has been given
    losses, mistakes (points,)
    residuals (2,)       None, or for steps in units of residuals
    count                the entries of an adaptive model in online.pxd, of which ROUND alone is used
"""

from libc.math cimport exp, log1p, sqrt
from libc.stddef cimport ptrdiff_t
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc

from fastsketch._kernels.brief cimport is_brief
from fastsketch._kernels.level cimport follow
from fastsketch._kernels.losses cimport (ABSOLUTE, L1_PENALTY, L2_PENALTY, NO_PENALTY, finite, flat, in_units,
                                         loss_and_slope)
from fastsketch._kernels.online.basis cimport seen_with
from fastsketch._kernels.online.numbers cimport ADAM, DIAGONAL, GRADIENT, ROUND
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

cdef double BETA1 = 0.9
cdef double BETA2 = 0.999
# Of the square of a gradient: squares are sums of such, times 1 / fading, which is 1e100 at most.
cdef double MOST_SQUARE = 1e200


cdef struct Model:
    int method, loss, phi
    bint dual
    Py_ssize_t d, points
    Py_ssize_t seen              # slots that have occurred, or d
    double strength
    int64_t* seen_so_far
    const double* eta
    const double* delta
    double* base
    double* squares
    double* first
    double* fading
    double decay
    double* last
    double* clock
    double* losses
    int64_t* mistakes
    int64_t* count
    double* residuals            # as in adaptive_model.pxd, or NULL
    double* slopes
    double* z


cdef inline double pulled(int phi, double w, double amount) noexcept nogil:
    """Return w after the regulariser: soft threshold (L1_PENALTY), or w times exp(-amount) (L2_PENALTY)."""
    if phi == L1_PENALTY:
        return w - amount if w > amount else w + amount if w < -amount else 0.0
    return w * exp(-amount)


cdef inline double diagonal(Model* s, Py_ssize_t k, Py_ssize_t j) noexcept nogil:
    return 1.0 if s.method == GRADIENT else s.delta[k] + sqrt(s.squares[j] * s.fading[0])


cdef inline double amount_of(Model* s, Py_ssize_t k, Py_ssize_t j, double units) noexcept nogil:
    """Return the pull of `units` of the clock: rounds (DIAGONAL), or the sum of the pulls of GRADIENT's rounds."""
    cdef double rate = s.eta[k] * s.strength
    if s.method == GRADIENT:
        return units
    return units * (rate / diagonal(s, k, j) if s.phi == L1_PENALTY else log1p(rate / diagonal(s, k, j)))


cdef inline double coef_of(Model* s, Py_ssize_t k, Py_ssize_t j) noexcept nogil:
    """Return w_j as it is now; mirror descent stores it."""
    cdef Py_ssize_t at = k * s.d + j
    cdef double t, h, g
    if s.dual:
        t, h, g = <double> s.count[ROUND], diagonal(s, k, j), s.base[at]
        if g == 0:
            return 0
        if s.phi == L1_PENALTY:
            return -s.eta[k] / h * pulled(L1_PENALTY, g, t * s.strength)
        return -s.eta[k] * g / (h + (s.eta[k] * s.strength * t if s.phi == L2_PENALTY else 0))
    if s.phi != NO_PENALTY and s.last[at] != s.clock[k]:
        if s.base[at] != 0:
            s.base[at] = pulled(s.phi, s.base[at], amount_of(s, k, j, s.clock[k] - s.last[at]))
        s.last[at] = s.clock[k]
    return s.base[at]


cdef inline void fade(Model* s) noexcept nogil:
    """Multiply the weight of earlier rows by decay: squares stay, and their factor is kept beside them."""
    cdef Py_ssize_t j
    s.fading[0] *= s.decay
    if s.fading[0] < 1e-100:
        for j in range(s.d):
            s.squares[j] *= s.fading[0]
        s.fading[0] = 1


cdef void move_adam(Model* s, const double* values, const int32_t* places, Py_ssize_t nonzeros,
                    double h_slope) noexcept nogil:
    cdef Py_ssize_t i, j, k, at
    cdef double t = <double> s.count[ROUND], one = 1 - BETA1**t, two = 1 - BETA2**t, h, rate
    for j in range(s.seen):
        s.squares[j] *= BETA2
    for i in range(nonzeros):
        j = places[i] if places != NULL else i
        s.squares[j] += (1 - BETA2) * (h_slope * values[i]) * (h_slope * values[i])
    for k in range(s.points):
        for j in range(s.seen):
            s.first[k * s.d + j] *= BETA1
        for i in range(nonzeros):
            j = places[i] if places != NULL else i
            s.first[k * s.d + j] += (1 - BETA1) * s.slopes[k] * values[i]
        for j in range(s.seen):
            at = k * s.d + j
            h = sqrt(s.squares[j] / two) + s.delta[k]
            s.base[at] -= s.eta[k] * (s.first[at] / one) / h
            if s.phi != NO_PENALTY:
                rate = s.eta[k] * s.strength / h
                s.base[at] = pulled(s.phi, s.base[at], rate if s.phi == L1_PENALTY else log1p(rate))


cdef void move(Model* s, const double* values, const int32_t* places, Py_ssize_t nonzeros,
               double h_slope) noexcept nogil:
    cdef Py_ssize_t i, j, k, at
    cdef double t = <double> s.count[ROUND], units, rate, grown = 1.0 / s.fading[0]
    if s.method == DIAGONAL:
        for i in range(nonzeros):
            j = places[i] if places != NULL else i
            s.squares[j] += (h_slope * values[i]) * (h_slope * values[i]) * grown
    for k in range(s.points):
        if s.dual:
            for i in range(nonzeros):
                s.base[k * s.d + (places[i] if places != NULL else i)] += s.slopes[k] * values[i]
            continue
        rate, units = s.eta[k], 1.0
        if s.method == GRADIENT:
            rate /= sqrt(t)
            units = rate * s.strength if s.phi == L1_PENALTY else log1p(rate * s.strength)
        s.clock[k] += units
        for i in range(nonzeros):
            j = places[i] if places != NULL else i
            at = k * s.d + j
            s.base[at] -= rate * s.slopes[k] * values[i] / diagonal(s, k, j)
            if s.phi != NO_PENALTY:
                s.base[at] = pulled(s.phi, s.base[at], amount_of(s, k, j, units))
                s.last[at] = s.clock[k]


cdef void move_plainly(Model* s, const double* values, const int32_t* places, Py_ssize_t nonzeros,
                       double h_slope) noexcept nogil:
    """Move as ``move`` of DIAGONAL where base is w: the same operations, quotients and roots several at a time."""
    cdef Py_ssize_t i, k, first, n
    cdef double fading = s.fading[0], grown = 1.0 / fading, g, delta
    cdef double* squares = s.squares
    cdef double* base
    cdef double steps[SOME]
    for i in range(nonzeros):
        g = h_slope * values[i]
        squares[places[i] if places != NULL else i] += g * g * grown
    for k in range(s.points):
        base, delta, g = s.base + k * s.d, s.delta[k], s.eta[k] * s.slopes[k]
        s.clock[k] += 1
        first = 0
        while first < nonzeros:
            n = min(nonzeros - first, <Py_ssize_t> SOME)
            for i in range(n):
                steps[i] = squares[places[first + i] if places != NULL else first + i]
            for i in range(n):
                steps[i] = g * values[first + i] / (delta + sqrt(steps[i] * fading))
            for i in range(n):
                base[places[first + i] if places != NULL else first + i] -= steps[i]
            first += n


cdef inline double score(Model* s, Py_ssize_t k, const double* values, const int32_t* places,
                         Py_ssize_t nonzeros, bint plain, double* x_square) noexcept nogil:
    """Compute w'x at point k, and x'x. plain: base is w."""
    cdef Py_ssize_t j
    cdef double z = 0, square = 0
    cdef const double* base = s.base + k * s.d
    if plain and places != NULL:
        for j in range(nonzeros):
            z += values[j] * base[places[j]]
            square += values[j] * values[j]
    elif plain:
        for j in range(nonzeros):
            z += values[j] * base[j]
            square += values[j] * values[j]
    else:
        for j in range(nonzeros):
            z += values[j] * coef_of(s, k, places[j] if places != NULL else j)
            square += values[j] * values[j]
    x_square[0] = square
    return z


cdef Py_ssize_t loop(Model* s, Py_ssize_t n, const double* data, const int32_t* indices, const int64_t* indptr,
                     const double* targets, const double* sample_weight, double* scores) noexcept nogil:
    cdef Py_ssize_t i, k, nonzeros, before
    cdef const double* values
    cdef const int32_t* places = NULL
    cdef double x_square, slope, h_slope, unit, square, loss, of_first = 0
    cdef bint plain = s.phi == NO_PENALTY and not s.dual
    for i in range(n):
        before = s.seen
        if indptr != NULL:
            values, places, nonzeros = data + indptr[i], indices + indptr[i], indptr[i + 1] - indptr[i]
            if s.method == ADAM:  # of the others no other coordinate has a part in a row
                s.seen = seen_with(before, places, nonzeros)
        else:
            values, nonzeros = data + i * s.d, s.d
        for k in range(s.points):
            s.z[k] = score(s, k, values, places, nonzeros, plain, &x_square)
            loss = loss_and_slope(s.loss, s.z[k], targets[i], s.slopes + k)
            of_first = loss if k == 0 else of_first
            s.slopes[k] *= sample_weight[i]
            # of the absolute loss H does not depend on w, not even at a tie
            h_slope = sample_weight[i] if s.loss == ABSOLUTE else s.slopes[k]
            if not (finite(s.z[k]) and h_slope * h_slope * x_square <= MOST_SQUARE):
                s.seen = before
                return i
        unit = 1
        if s.residuals != NULL and sample_weight[i] > 0:
            square = s.residuals[0] + sample_weight[i] * (s.z[0] - targets[i]) * (s.z[0] - targets[i])
            if not finite(square):
                s.seen = before
                return i
            s.residuals[0] = square
            s.residuals[1] += sample_weight[i]
            unit = in_units(s.loss, sqrt(square / s.residuals[1]), s.slopes)
        scores[i] = s.z[0]
        s.count[ROUND] += 1
        if s.decay != 1:
            fade(s)
        for k in range(s.points):
            loss = loss_and_slope(s.loss, s.z[k], targets[i], &slope) if k else of_first
            s.losses[k] += sample_weight[i] * loss
            s.mistakes[k] += s.z[k] * targets[i] <= 0
        h_slope = sample_weight[i] if s.loss == ABSOLUTE else s.slopes[0] / unit
        if s.method == ADAM:
            move_adam(s, values, places, nonzeros, h_slope)
        elif not (s.phi == NO_PENALTY and flat(h_slope)):
            if plain and s.method == DIAGONAL:
                move_plainly(s, values, places, nonzeros, h_slope)
            else:
                move(s, values, places, nonzeros, h_slope)
    return n


# -- plain models: one point, DIAGONAL, mirror descent, no regulariser, no decay ------------------------------------------
cdef struct Rows:
    Py_ssize_t n
    const double* data
    const int32_t* indices
    const int64_t* indptr        # NULL: dense rows
    const double* sample_weight


cdef struct Lesson:
    Model s
    const double* targets
    double* scores
    Py_ssize_t done              # rows learned from


cdef struct Lessons:
    Rows rows
    Lesson* each
    Py_ssize_t n_models, n_parts


cdef inline bint is_plain(const Model* s) noexcept nogil:
    if s.points != 1 or s.decay != 1 or s.fading[0] != 1 or s.residuals != NULL:
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


cdef inline void plain_move(Model* s, const double* values, const int32_t* places, Py_ssize_t nonzeros,
                            double h_slope) noexcept nogil:
    cdef Py_ssize_t i, j
    cdef double step = s.eta[0] * s.slopes[0], delta = s.delta[0], g
    s.clock[0] += 1
    if places == NULL:
        fs_adagrad_d(nonzeros, h_slope, step, delta, values, s.squares, s.base)
        return
    for i in range(nonzeros):
        j, g = places[i], h_slope * values[i]
        s.squares[j] += g * g
        s.base[j] -= step * values[i] / (delta + sqrt(s.squares[j]))


cdef void plain_loop(const Rows* rows, Lesson* models, Py_ssize_t n_models) noexcept nogil:
    """Let up to SIDE_BY_SIDE models learn from the same rows; one that is refused a row learns no more."""
    cdef double* w[SIDE_BY_SIDE]
    cdef double[SIDE_BY_SIDE] z
    cdef Py_ssize_t i, k, nonzeros
    cdef const double* values
    cdef const int32_t* places = NULL
    cdef double x_square, weight, loss, slope, h_slope, y
    cdef Lesson* its
    cdef Model* s
    for k in range(SIDE_BY_SIDE):
        w[k] = models[min(k, n_models - 1)].s.base
    for i in range(rows.n):
        if rows.indptr != NULL:
            values, places = rows.data + rows.indptr[i], rows.indices + rows.indptr[i]
            nonzeros = rows.indptr[i + 1] - rows.indptr[i]
        else:
            values, nonzeros = rows.data + i * models.s.d, models.s.d
        x_square, weight = side_by_side(values, places, nonzeros, w, z), rows.sample_weight[i]
        for k in range(n_models):
            its = models + k
            if its.done < i:
                continue
            s, y = &its.s, its.targets[i]
            loss = loss_and_slope(s.loss, z[k], y, &slope)
            slope *= weight
            # of the absolute loss H does not depend on w, not even at a tie
            h_slope = weight if s.loss == ABSOLUTE else slope
            if not (finite(z[k]) and h_slope * h_slope * x_square <= MOST_SQUARE):
                continue
            its.scores[i], s.slopes[0], s.z[0], its.done = z[k], slope, z[k], i + 1
            s.count[ROUND] += 1
            s.losses[0] += weight * loss
            s.mistakes[0] += z[k] * y <= 0
            if not flat(h_slope):
                plain_move(s, values, places, nonzeros, h_slope)


cdef void one_part(void* context, ptrdiff_t part, void* _scratch) noexcept nogil:
    cdef Lessons* a = <Lessons*> context
    cdef Py_ssize_t first = fs_pool_from(a.n_models, a.n_parts, part, 1)
    plain_loop(&a.rows, a.each + first, fs_pool_from(a.n_models, a.n_parts, part + 1, 1) - first)


cdef inline void all_parts(Lessons* a, Py_ssize_t n_threaded) noexcept nogil:
    cdef Py_ssize_t i
    if n_threaded > 1:
        fs_pool_run(a.n_parts, one_part, a, NULL, 0)
        return
    for i in range(a.n_parts):
        one_part(a, i, NULL)


cdef int fill(Model* s, state, setting) except -1:
    cdef double[:, ::1] base = state.base, last = state.last, first
    cdef double[::1] fading = state.fading, squares = state.squares, clock = state.clock, losses = state.losses
    cdef double[::1] slopes = state.slopes, scores = state.scores, residuals
    cdef const double[::1] eta = state.learning_rate, delta = state.delta
    cdef int64_t[::1] mistakes = state.mistakes, count = state.count, seen = state.seen
    s.residuals = NULL
    if state.residuals is not None:
        residuals = state.residuals
        s.residuals = &residuals[0]
    s.method, s.loss, s.phi, s.dual, s.strength = (setting.method, setting.loss, setting.phi, setting.dual,
                                                   setting.strength)
    s.points, s.d, s.seen = base.shape[0], base.shape[1], seen[0]
    s.seen_so_far = &seen[0]
    if eta.shape[0] != s.points or delta.shape[0] != s.points:
        raise ValueError("learning_rate and delta must have one entry for each point")
    s.eta, s.delta, s.base, s.squares, s.last = &eta[0], &delta[0], &base[0, 0], &squares[0], &last[0, 0]
    s.clock, s.losses, s.slopes, s.z = &clock[0], &losses[0], &slopes[0], &scores[0]
    s.fading, s.decay = &fading[0], setting.decay
    s.mistakes, s.count = &mistakes[0], &count[0]
    if s.method == ADAM:
        first = state.first
        s.first = &first[0, 0]
    return 0


def rounds(state, setting, const double[::1] data, const int32_t[::1] indices, const int64_t[::1] indptr,
           const double[::1] targets, const double[::1] sample_weight, double[::1] scores):
    """Learn from CSR rows, or from dense ones (data their n d values, indices and indptr None).

    Returns how many were learned from: fewer than all if the next has no finite score. state: a DiagonalState;
    setting: a DiagonalSetting.
    """
    cdef Model s
    cdef Py_ssize_t n = targets.shape[0], done
    fill(&s, state, setting)
    if n == 0:
        return 0
    cdef bint some = data.shape[0] > 0
    cdef const int32_t* places = &indices[0] if indptr is not None and some else NULL
    cdef const int64_t* starts = &indptr[0] if indptr is not None else NULL
    cdef const double* values = &data[0] if some else NULL
    if n > 1 and is_plain(&s):
        return rounds_together([state], setting, data, indices, indptr, targets[None, :], sample_weight,
                               scores[None, :])[0]
    if is_brief(s.points * n, s.seen):
        done = loop(&s, n, values, places, starts, &targets[0], &sample_weight[0], &scores[0])
    else:
        with nogil:
            done = loop(&s, n, values, places, starts, &targets[0], &sample_weight[0], &scores[0])
    if indptr is not None:
        s.seen_so_far[0] = seen_with(s.seen_so_far[0], places, indptr[done])
    return done


def rounds_together(list states, setting, const double[::1] data, const int32_t[::1] indices,
                    const int64_t[::1] indptr, const double[:, :] targets, const double[::1] sample_weight,
                    double[:, :] scores):
    """Let plain models learn from the same rows, each as it does alone; returns how many rows each has learned from.

    states: k DiagonalStates of one point of this setting: DIAGONAL, mirror descent, no regulariser, no decay;
    targets, scores (k, n), row by row. The rest is as of ``rounds``.
    """
    cdef Py_ssize_t n = targets.shape[1], k, n_models = len(states), n_threaded
    cdef Lessons a
    cdef int64_t[::1] seen
    cdef bint some = data.shape[0] > 0
    if not (targets.shape[0] == n_models == scores.shape[0] and scores.shape[1] == n == sample_weight.shape[0]):
        raise ValueError("targets and scores must have a row for each model, and an entry for each row")
    if n == 0 or n_models == 0:
        return [0] * n_models
    if targets.strides[1] != sizeof(double) or scores.strides[1] != sizeof(double):
        raise ValueError("rows of targets and scores must be contiguous")
    a.rows.n, a.rows.sample_weight = n, &sample_weight[0]
    a.rows.data = &data[0] if some else NULL
    a.rows.indices = &indices[0] if indptr is not None and some else NULL
    a.rows.indptr = &indptr[0] if indptr is not None else NULL
    a.n_models, a.n_parts = n_models, (n_models + SIDE_BY_SIDE - 1) // SIDE_BY_SIDE
    a.each = <Lesson*> malloc(n_models * sizeof(Lesson))
    if a.each == NULL:
        raise MemoryError
    try:
        for k in range(n_models):
            fill(&a.each[k].s, states[k], setting)
            a.each[k].targets, a.each[k].scores, a.each[k].done = &targets[k, 0], &scores[k, 0], 0
            if not is_plain(&a.each[k].s):
                raise ValueError("these models are not plain ones of one point")
        n_threaded = fs_pool_parts(<double> n_models * data.shape[0], LEAST)
        if is_brief(n_models, data.shape[0] + n):
            all_parts(&a, n_threaded)
        else:
            with nogil:
                all_parts(&a, n_threaded)
        if indptr is not None:
            for k in range(n_models):
                seen = states[k].seen
                seen[0] = seen_with(seen[0], a.rows.indices, indptr[a.each[k].done])
        return [a.each[k].done for k in range(n_models)]
    finally:
        free(a.each)


def coef_now(state, setting):
    """Return w (points, slots seen); the pull that a regulariser still owes is applied to base first."""
    import numpy as np

    cdef Model s
    cdef Py_ssize_t k, j
    fill(&s, state, setting)
    cdef double[:, ::1] out = np.empty((s.points, s.seen))
    for k in range(s.points):
        for j in range(s.seen):
            out[k, j] = coef_of(&s, k, j)
    return np.asarray(out)
