"""Online calibration and stacking of the scores of learners (the read-out).

A member is a learner of the same rows: the model, and the diagonal learner that it is blended with. For labels the
read-out computes the score w'u of a class from the scores u (p,) of p members; with one state for two classes u ends
with a 1 and w with an intercept. The probability is the logistic function of the score, or the softmax over the classes.
This is Platt scaling (Platt 1999), and stacking (Wolpert 1992) for several members, fitted online to scores from before
their row was learned. A step is w -= H^-1 g for the gradient g of the log loss. H is I plus the sum of half the Fisher
information and half g g', as in the online Newton step (Hazan, Agarwal and Kale 2007), so that a row that contradicts a
confident model moves w by a bounded amount. With decay, every row multiplies that sum by `decay`.

For real targets there are two members a and b. The score is a + share (b - a), where the share in [0, 1] is that of
least squares over the rows so far (stacked regression, Breiman 1996). It does not depend on scale or offset of targets.

The arrays are those of ScoreCalibration in fastsketch.online._class_states, and of DecayMix in _decay_mix.
"""

from libc.math cimport exp, log, log1p, sqrt

from fastsketch._kernels.brief cimport is_brief
from fastsketch._kernels.losses cimport finite

cdef enum:
    MOST = 8  # maximum number of members, with the intercept

cdef double FAR = 1e3  # scores are clipped to this size, so that sums of squares do not overflow
cdef double HEAVY = 1e200  # weights are clipped to this, for the same reason
cdef double LEAST = 1e-14  # a pivot below this share of its diagonal entry is rounding


cdef inline double near(double z) noexcept nogil:
    return FAR if z > FAR else -FAR if z < -FAR else z


cdef inline void fade(Py_ssize_t q, double decay, double* h) noexcept nogil:
    cdef Py_ssize_t i
    if decay == 1:
        return
    for i in range(q * q):
        h[i] *= decay
    for i in range(q):
        h[i * q + i] = max(1.0, h[i * q + i] + (1 - decay))


cdef void step(Py_ssize_t q, double* h, const double* g, double* w) noexcept nogil:
    """Subtract H^-1 g from w by a Cholesky factorisation.

    The lower half of h is read, and copied to the upper half. Directions whose pivot is rounding are not moved.
    """
    cdef double[MOST][MOST] low
    cdef double[MOST] x
    cdef Py_ssize_t i, j, k
    cdef double s
    for i in range(q):
        for j in range(i + 1):
            h[j * q + i] = h[i * q + j]
            s = h[i * q + j]
            for k in range(j):
                s -= low[i][k] * low[j][k]
            if i == j:
                low[i][i] = sqrt(s) if s > LEAST * h[i * q + i] else 0
            else:
                low[i][j] = s / low[j][j] if low[j][j] > 0 else 0
    for i in range(q):
        s = g[i]
        for k in range(i):
            s -= low[i][k] * x[k]
        x[i] = s / low[i][i] if low[i][i] > 0 else 0
    for i in range(q - 1, -1, -1):
        s = x[i]
        for k in range(i + 1, q):
            s -= low[k][i] * x[k]
        x[i] = s / low[i][i] if low[i][i] > 0 else 0
        w[i] -= x[i]


cdef void rounds_of_two(Py_ssize_t p, Py_ssize_t n, const double* members, const double* numbers,
                        const double* sample_weight, double decay, double* w, double* h,
                        double* scores) noexcept nogil:
    cdef Py_ssize_t i, a, b, q = p + 1
    cdef double[MOST] u
    cdef double[MOST] g
    cdef double z, slope, curve, chance, weight
    for i in range(n):
        z, scores[i] = w[p], w[p]
        u[p] = 1
        for a in range(p):
            u[a] = near(members[a * n + i])
            z += w[a] * u[a]
            scores[i] += w[a] * members[a * n + i]
        fade(q, decay, h)
        if sample_weight[i] == 0:
            continue
        weight = min(sample_weight[i], HEAVY)
        chance = 1 / (1 + exp(-z))
        slope = chance - (numbers[i] > 0)
        curve = weight * 0.5 * (chance * (1 - chance) + slope * slope)
        for a in range(q):
            g[a] = weight * slope * u[a]
            for b in range(a + 1):
                h[a * q + b] += curve * u[a] * u[b]
        step(q, h, g, w)


cdef void rounds_of_more(Py_ssize_t p, Py_ssize_t k, Py_ssize_t n, const double* members, const double* numbers,
                         const double* sample_weight, double decay, double* w, double* h, double* chances,
                         double* scores) noexcept nogil:
    """Score and learn rows of k classes; chances (k,) is scratch."""
    cdef Py_ssize_t i, a, b, c
    cdef double[MOST] mean
    cdef double[MOST] g
    cdef double[MOST] u
    cdef double z, top, total, share, weight
    for i in range(n):
        top = 0
        for c in range(k):
            z, scores[c * n + i] = 0, 0
            for a in range(p):
                z += w[a] * near(members[(a * k + c) * n + i])
                scores[c * n + i] += w[a] * members[(a * k + c) * n + i]
            chances[c] = z
            top = z if c == 0 or z > top else top
        fade(p, decay, h)
        if sample_weight[i] == 0:
            continue
        weight = min(sample_weight[i], HEAVY)
        total = 0
        for c in range(k):
            chances[c] = exp(chances[c] - top)
            total += chances[c]
        for a in range(p):
            mean[a] = 0
            for c in range(k):
                mean[a] += chances[c] / total * near(members[(a * k + c) * n + i])
            g[a] = mean[a] - near(members[(a * k + <Py_ssize_t> numbers[i]) * n + i])
        share = 0.5 * weight
        for a in range(p):
            for b in range(a + 1):
                h[a * p + b] += share * g[a] * g[b]
        for c in range(k):
            for a in range(p):
                u[a] = near(members[(a * k + c) * n + i]) - mean[a]
            for a in range(p):
                for b in range(a + 1):
                    h[a * p + b] += share * chances[c] / total * u[a] * u[b]
        for a in range(p):
            g[a] *= weight
        step(p, h, g, w)


cdef inline double share_of(const double* sums) noexcept nogil:
    return min(max(sums[0] / sums[1], 0.0), 1.0) if sums[1] > 0 else 0.0


cdef void rounds_of_two_numbers(Py_ssize_t n, const double* members, const double* targets, const double* sample_weight,
                                double* sums, double* scores, double decay) noexcept nogil:
    cdef Py_ssize_t i
    cdef double gap, product, square
    for i in range(n):
        gap = members[n + i] - members[i]
        scores[i] = members[i] + share_of(sums) * gap
        product = decay * sums[0] + sample_weight[i] * gap * (targets[i] - members[i])
        square = decay * sums[1] + sample_weight[i] * gap * gap
        if finite(product) and finite(square):
            sums[0], sums[1] = product, square


def blend_numbers(const double[:, ::1] members, const double[::1] targets, const double[::1] sample_weight,
                  double[::1] sums, double[::1] scores, double decay=1.0):
    """Blend the scores members (2, n) of two regression learners, row by row. Each row is scored first; then it updates
    the share of the second learner.

    targets, sample_weight (n,). sums (2,), changed: weighted sums of (b - a)(y - a) and of (b - a)^2. scores (n,) is
    written. decay: factor on the sums for every row.
    """
    cdef Py_ssize_t n = members.shape[1]
    if n == 0:
        return
    if is_brief(n, 8):
        rounds_of_two_numbers(n, &members[0, 0], &targets[0], &sample_weight[0], &sums[0], &scores[0],
                              decay)
        return
    with nogil:
        rounds_of_two_numbers(n, &members[0, 0], &targets[0], &sample_weight[0], &sums[0], &scores[0],
                              decay)


def share_now(const double[::1] sums):
    """Return the present share of the second learner in the blended score, computed from the sums of ``blend_numbers``.
    """
    return share_of(&sums[0])


def rounds(const double[:, :, ::1] members, const double[::1] numbers, const double[::1] sample_weight,
           double[::1] weights, double[:, ::1] information, double[:, ::1] scores, double decay=1.0):
    """Calibrate the classification scores of one or more learners, row by row. Each row is scored first; then it
    updates the calibration weights.

    members (p, k, n): the members' scores for each class, from before they learned the row; k = 1 for two classes.
    numbers (n,): k = 1: above 0 for the positive class, else the class number. weights (q,), information (q, q), changed:
    w and H, q = p, or p + 1 for k = 1. scores (k, n) is written. decay: factor on H - I for every row.
    """
    cdef Py_ssize_t p = members.shape[0], k = members.shape[1], n = members.shape[2], q = p + (k == 1)
    cdef double[::1] chances
    if n == 0:
        return
    import numpy as np

    chances = np.empty(k)
    if is_brief(n, 4 * k * q * q):
        learn(p, k, n, &members[0, 0, 0], &numbers[0], &sample_weight[0], decay, &weights[0], &information[0, 0],
              &chances[0], &scores[0, 0])
        return
    with nogil:
        learn(p, k, n, &members[0, 0, 0], &numbers[0], &sample_weight[0], decay, &weights[0], &information[0, 0],
              &chances[0], &scores[0, 0])


cdef void learn(Py_ssize_t p, Py_ssize_t k, Py_ssize_t n, const double* members, const double* numbers,
                const double* sample_weight, double decay, double* w, double* h, double* chances,
                double* scores) noexcept nogil:
    if k == 1:
        rounds_of_two(p, n, members, numbers, sample_weight, decay, w, h, scores)
    else:
        rounds_of_more(p, k, n, members, numbers, sample_weight, decay, w, h, chances, scores)


# -- decay="auto": learners with different decay rates -----------------------------------------------------------------
cdef inline double loss_of(Py_ssize_t k, Py_ssize_t n, const double* scores, double answer) noexcept nogil:
    """Return the log loss of one row, whose k scores are n apart: logistic for k = 1, else of the softmax.

    answer: k = 1: above 0 for the positive class, else the class number.
    """
    cdef Py_ssize_t c
    cdef double z, top = near(scores[0]), total = 0
    if k == 1:
        z = -top if answer > 0 else top
        return log1p(exp(z)) if z < 0 else z + log1p(exp(-z))
    for c in range(1, k):
        top = max(top, near(scores[c * n]))
    for c in range(k):
        total += exp(near(scores[c * n]) - top)
    return log(total) + top - near(scores[<Py_ssize_t> answer * n])


cdef void rounds_of_decays(Py_ssize_t m, Py_ssize_t k, Py_ssize_t n, const double* scores, const double* answers,
                           const double* sample_weight, const double* first, double share, bint of_labels,
                           double* weights, double* losses, double* out) noexcept nogil:
    cdef Py_ssize_t i, c, g
    cdef double[MOST] loss
    cdef double gap, least, total, weight, square = 1
    for i in range(n):
        for c in range(k):
            out[c * n + i] = 0
            for g in range(m):
                out[c * n + i] += weights[g] * scores[(g * k + c) * n + i]
        weight = min(sample_weight[i], HEAVY)
        if weight == 0:
            continue
        losses[m] = min(losses[m] + 1, 1 / share)
        if not of_labels:
            gap = answers[i] - out[i]
            square, losses[m + 1] = losses[m + 1], losses[m + 1] + (gap * gap - losses[m + 1]) / losses[m]
            if not finite(losses[m + 1]):
                losses[m + 1] = square
            if square == 0:
                continue
        least = HEAVY
        for g in range(m):
            if of_labels:
                loss[g] = loss_of(k, n, &scores[g * k * n + i], answers[i])
            else:
                gap = answers[i] - scores[g * n + i]
                loss[g] = log1p(gap * gap / square)
            if not loss[g] < FAR:
                loss[g] = FAR
            losses[g] += (loss[g] - losses[g]) / losses[m]
            least = min(least, loss[g])
        total = 0
        for g in range(m):
            weights[g] *= exp(-weight * (loss[g] - least))
            total += weights[g]
        for g in range(m):
            weights[g] = (1 - share) * (weights[g] / total) + share * first[g]


def mix_decays(const double[:, :, ::1] scores, const double[::1] answers, const double[::1] sample_weight,
               double[::1] weights, double[::1] losses, double[:, ::1] out, const double[::1] first, double share,
               bint of_labels):
    """Average the scores of m learners by their weights, row by row. After each row the fixed-share algorithm updates
    the weights by the learners' losses.

    scores (m, k, n): from before each row was learned. answers (n,): a real target, or for labels as in `rounds`.
    weights (m,) and losses (m + 2,), changed: as in DecayMix. out (k, n) is written. first (m,): the initial weights, to
    which every row moves the share `share` of the total weight.
    """
    cdef Py_ssize_t m = scores.shape[0], k = scores.shape[1], n = scores.shape[2]
    if n == 0:
        return
    if is_brief(n, 16 * k * m):
        rounds_of_decays(m, k, n, &scores[0, 0, 0], &answers[0], &sample_weight[0], &first[0], share, of_labels,
                         &weights[0], &losses[0], &out[0, 0])
        return
    with nogil:
        rounds_of_decays(m, k, n, &scores[0, 0, 0], &answers[0], &sample_weight[0], &first[0], share, of_labels,
                         &weights[0], &losses[0], &out[0, 0])
