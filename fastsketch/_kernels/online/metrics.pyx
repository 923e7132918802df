"""Running metrics of progressive scores: sums that every row changes in turn, the same for any split into batches.

    sums (METRIC_SUMS,)   entries below; a sum is of weight * unit * what the row adds, and what is read is a ratio of two
    bins (2, BINS)        weight of the rows of the negative and of the positive class by their log odds

UNIT grows by 1 / decay with every row, so that what came before counts less without being touched; all sums are divided
by it, at rows that depend on nothing but their number, before it leaves the range of numbers.

A bin holds the log odds of one sign that agree in exponent and in the first six bits after the leading one, so that it
is at most 1/64 of its log odds wide; below 2^-9 there is one bin for each sign, and so there is from 32 on.
"""

from libc.math cimport exp, fabs, log, log1p
from libc.stdint cimport int64_t
from libc.string cimport memcpy

from fastsketch._kernels.brief cimport is_brief

cpdef enum:
    # entries of `sums`
    UNIT = 0               # what a row of weight 1 counts now
    WEIGHT = 1
    LOG_LOSS = 2
    RIGHT = 3              # weight of the rows whose class was predicted
    ABSOLUTE = 4           # errors of real targets
    SQUARED = 5
    METRIC_SUMS = 6

cpdef enum:
    # 14 octaves of log odds from 2^-9 on, 64 bins each, for either sign
    HALF = 896
    BINS = 2 * HALF

cdef enum:
    LOWEST = (1023 - 9) * 64     # exponent and six bits of 2^-9


cdef inline double most_log_odds() noexcept nogil:
    return 36.04365338911715     # of the probability 1 - 2^-52


cdef inline Py_ssize_t bin_of(double z) noexcept nogil:
    cdef double size = fabs(z)
    cdef int64_t bits, place
    memcpy(&bits, &size, sizeof(double))
    place = (bits >> 46) - LOWEST
    place = 0 if place < 0 else HALF - 1 if place >= HALF else place
    return HALF + place if z > 0 else HALF - 1 - place


cdef inline double fade(double* sums, double decay, double* bins) noexcept nogil:
    """What the next row counts."""
    cdef double unit = sums[UNIT]
    cdef Py_ssize_t i
    if decay == 1:
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


cdef inline double clipped(double z) noexcept nogil:
    return min(max(z, -most_log_odds()), most_log_odds())


cdef void loop_two(double* sums, double* bins, Py_ssize_t n, const double* log_odds, const double* targets,
                   const double* weights, double decay, bint probable) noexcept nogil:
    cdef Py_ssize_t i
    cdef double w, z, r
    cdef bint positive
    for i in range(n):
        w = fade(sums, decay, bins) * (weights[i] if weights != NULL else 1.0)
        z, positive = log_odds[i], targets[i] > 0
        sums[WEIGHT] += w
        if (z > 0) == positive:
            sums[RIGHT] += w
        if bins != NULL:
            bins[positive * BINS + bin_of(z)] += w
        if probable:
            r = clipped(z if positive else -z)
            # log(1 + exp(-r)), without overflow on either side
            sums[LOG_LOSS] += w * (log1p(exp(-r)) if r > 0 else log1p(exp(r)) - r)


cdef void loop_more(double* sums, Py_ssize_t n, Py_ssize_t n_classes, const double* shares, const int64_t* classes,
                    const double* weights, double decay, bint probable) noexcept nogil:
    cdef Py_ssize_t i, j, best
    cdef double w, p
    cdef const double* row
    for i in range(n):
        w, row, best = fade(sums, decay, NULL) * (weights[i] if weights != NULL else 1.0), shares + i * n_classes, 0
        for j in range(1, n_classes):
            if row[j] > row[best]:
                best = j
        sums[WEIGHT] += w
        if best == classes[i]:
            sums[RIGHT] += w
        if probable:
            p = row[classes[i]] if classes[i] >= 0 else 0.0
            sums[LOG_LOSS] -= w * log(max(p, 2.220446049250313e-16))


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


def take_two(double[::1] sums, double[:, ::1] bins, const double[::1] log_odds, const double[::1] targets,
             const double[::1] weights, double decay, bint probable):
    """Take in rows of two classes: their log odds (n,), or scores of the same order, targets (n,) -1 and +1.

    bins may be None; weights (n,) too. probable: whether log_odds are such, so that they have a log loss.
    """
    cdef Py_ssize_t n = log_odds.shape[0]
    if n == 0:
        return
    cdef double* counts = &bins[0, 0] if bins is not None else NULL
    cdef const double* w = &weights[0] if weights is not None else NULL
    if is_brief(n, 32):
        loop_two(&sums[0], counts, n, &log_odds[0], &targets[0], w, decay, probable)
        return
    with nogil:
        loop_two(&sums[0], counts, n, &log_odds[0], &targets[0], w, decay, probable)


def take_more(double[::1] sums, const double[:, ::1] shares, const int64_t[::1] classes, const double[::1] weights,
              double decay, bint probable):
    """Take in rows of K classes: shares (n, K), the largest being the prediction; classes (n,), -1 for none of them.

    probable: whether shares are probabilities, so that they have a log loss.
    """
    cdef Py_ssize_t n = shares.shape[0], k = shares.shape[1]
    if n == 0 or k == 0:
        return
    cdef const double* w = &weights[0] if weights is not None else NULL
    with nogil:
        loop_more(&sums[0], n, k, &shares[0, 0], &classes[0], w, decay, probable)


def take_real(double[::1] sums, const double[::1] predicted, const double[::1] targets, const double[::1] weights,
              double decay):
    """Take in rows of real targets (n,)."""
    cdef Py_ssize_t n = predicted.shape[0]
    if n == 0:
        return
    cdef const double* w = &weights[0] if weights is not None else NULL
    loop_real(&sums[0], n, &predicted[0], &targets[0], w, decay)
