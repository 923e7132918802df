"""Running metrics of progressive validation: each row is scored before it is learned.

    sums (METRIC_SUMS,)   sums of weight * unit * metric of each row; every reported metric is a ratio of two of them
    bins (2, BINS)        histograms of scores of the negative and of the positive class, for the AUC

With decay, `unit` is divided by decay at every row instead of multiplying the sums by it. Before it overflows, all sums
are divided by it, at rows that depend on the number of rows only. A decay below 1e-20 multiplies the sums at every row.

A bin of the histogram has the scores with one sign, exponent and first six bits of the mantissa: it is at most 1/64 of
its scores wide. Scores below 2^-9 in size share one bin for each sign, and so do those from 32 on.
"""

from libc.float cimport DBL_MAX
from libc.math cimport exp, fabs, log, log1p
from libc.stdint cimport int64_t
from libc.string cimport memcpy

from fastsketch._kernels.brief cimport is_brief

cpdef enum:
    # Entries of `sums`.
    UNIT = 0               # weight of the next row, if its sample weight is 1
    WEIGHT = 1
    LOG_LOSS = 2
    RIGHT = 3              # weight of the rows whose class was predicted
    ABSOLUTE = 4           # errors of real targets
    SQUARED = 5
    METRIC_SUMS = 6

cpdef enum:
    # Meaning of a score.
    LOG_ODDS = 0
    HALVES = 1             # z stands for the probability (1 + z) / 2, clipped to [0, 1]
    REAL = 2               # a real target
    CALIBRATED = 3         # log-odds; for more than two classes the logits of a softmax

cpdef enum:
    # 14 octaves of scores from 2^-9 on, 64 bins each, for either sign
    HALF = 896
    BINS = 2 * HALF + 1    # zero has its own

cdef enum:
    LOWEST = (1023 - 9) * 64     # exponent and six bits of 2^-9


cdef inline double most_log_odds() noexcept nogil:
    return 36.04365338911715     # of the probability 1 - 2^-52


cdef inline double least() noexcept nogil:
    return 2.220446049250313e-16     # 2^-52: what probabilities are clipped to


cdef inline Py_ssize_t bin_of(double z) noexcept nogil:
    cdef double size = fabs(z)
    cdef int64_t bits, place
    memcpy(&bits, &size, sizeof(double))
    place = (bits >> 46) - LOWEST
    place = 0 if place < 0 else HALF - 1 if place >= HALF else place
    return HALF + 1 + place if z > 0 else HALF - 1 - place if z < 0 else HALF


cdef inline double fade(double* sums, double decay, double* bins) noexcept nogil:
    """Discount all earlier rows by `decay` and return the weight of the next row."""
    cdef double unit = sums[UNIT]
    cdef Py_ssize_t i
    if decay == 1:
        return unit
    if decay < 1e-20:  # 1 / decay, or UNIT, would overflow
        for i in range(1, METRIC_SUMS):
            sums[i] *= decay
        if bins != NULL:
            for i in range(2 * BINS):
                bins[i] *= decay
        return unit
    if unit > 1e100:
        for i in range(1, METRIC_SUMS):
            sums[i] /= unit
        if bins != NULL:
            for i in range(2 * BINS):
                bins[i] /= unit
        unit = 1
    sums[UNIT] = unit / decay
    return sums[UNIT]


cdef inline double chance(double z, int how) noexcept nogil:
    """Return the probability of the class whose score is z."""
    if how == HALVES:
        return 0.5 + 0.5 * min(max(z, -1.0), 1.0)
    return 1 / (1 + exp(-z)) if z > 0 else exp(z) / (1 + exp(z))


cdef inline double surprise(double z, int how) noexcept nogil:
    """Return -log of the probability of the true class, whose score is z."""
    if how == HALVES:
        # exact at both ends, without logarithms
        return 0.0 if z >= 1 else most_log_odds() if z <= -1 else -log(max(chance(z, how), least()))
    z = min(max(z, -most_log_odds()), most_log_odds())
    # log(1 + exp(-z)), without overflow on either side
    return log1p(exp(-z)) if z > 0 else log1p(exp(z)) - z


cdef void loop_two(double* sums, double* bins, Py_ssize_t n, const double* scores, const double* targets,
                   const double* weights, double decay, int how) noexcept nogil:
    cdef Py_ssize_t i
    cdef double w, z, unit = sums[UNIT], weight = sums[WEIGHT], loss = sums[LOG_LOSS], right = sums[RIGHT]
    cdef bint positive
    for i in range(n):
        if decay != 1:
            sums[WEIGHT], sums[LOG_LOSS], sums[RIGHT] = weight, loss, right
            unit = fade(sums, decay, bins)
            weight, loss, right = sums[WEIGHT], sums[LOG_LOSS], sums[RIGHT]
        w = unit * (weights[i] if weights != NULL else 1.0)
        z, positive = scores[i], targets[i] > 0
        if bins != NULL:
            bins[positive * BINS + bin_of(z)] += w
        z = z if positive else -z
        weight += w
        right += w * (z > 0)
        loss += w * surprise(z, how)
    sums[WEIGHT], sums[LOG_LOSS], sums[RIGHT] = weight, loss, right


cdef void loop_more(double* sums, Py_ssize_t n, Py_ssize_t k, const double* scores, const double* signs,
                    const int64_t* classes, const double* weights, double decay, int how, bint is_new) noexcept nogil:
    cdef Py_ssize_t i, j
    cdef double w, z, own, rest, total, largest
    for i in range(n):
        w = fade(sums, decay, NULL) * (weights[i] if weights != NULL else 1.0)
        own, rest, total = scores[classes[i] * n + i] * signs[classes[i]], -DBL_MAX, 0
        for j in range(k):
            z = scores[j * n + i] * signs[j]
            if j != classes[i]:
                rest = max(rest, z)
        largest = max(own, rest)
        for j in range(k):
            z = scores[j * n + i] * signs[j]
            total += exp(z - largest) if how == CALIBRATED else chance(z, how)
        sums[WEIGHT] += w
        if own > rest and not (is_new and i == 0):
            sums[RIGHT] += w
        own = exp(own - largest) if how == CALIBRATED else chance(own, how)
        sums[LOG_LOSS] -= w * log(max(own / total if total > 0 else 1.0 / k, least()))


cdef void loop_real(double* sums, Py_ssize_t n, const double* predicted, const double* targets, const double* weights,
                    double decay) noexcept nogil:
    cdef Py_ssize_t i
    cdef double w, r
    for i in range(n):
        w, r = fade(sums, decay, NULL) * (weights[i] if weights != NULL else 1.0), fabs(predicted[i] - targets[i])
        sums[WEIGHT] += w
        if w > 0:
            sums[ABSOLUTE] += w * r
            sums[SQUARED] += w * (r * r)


def learn(double[::1] sums, double[:, ::1] bins, const double[:, ::1] scores, const double[:, ::1] targets,
          const double[::1] signs, const int64_t[::1] classes, const double[::1] weights, double decay, int how,
          bint is_new):
    """Add rows to `sums` and `bins`, which are changed.

    scores, targets (K, n): K = 1 for real targets and for two classes (targets -1 and +1), else one against the rest for
    each class, whose scores are multiplied by signs (K,); classes (n,) are then the class numbers of the rows.
    Probabilities of more than two classes are normalised to sum 1, or those of a softmax (how=CALIBRATED). weights (n,)
    or None. is_new: row 0 is the first of its class and counts as wrong.
    """
    cdef Py_ssize_t k = scores.shape[0], n = scores.shape[1]
    if n == 0:
        return
    cdef double* counts = &bins[0, 0] if bins is not None else NULL
    cdef const double* w = &weights[0] if weights is not None else NULL
    if how == REAL:
        loop_real(&sums[0], n, &scores[0, 0], &targets[0, 0], w, decay)
    elif k > 1:
        with nogil:
            loop_more(&sums[0], n, k, &scores[0, 0], &signs[0], &classes[0], w, decay, how, is_new)
    elif is_brief(n, 32):
        loop_two(&sums[0], counts, n, &scores[0, 0], &targets[0, 0], w, decay, how)
    else:
        with nogil:
            loop_two(&sums[0], counts, n, &scores[0, 0], &targets[0, 0], w, decay, how)
