"""Anomaly scores of rows, and a threshold that a stated share of exchangeable new rows exceeds.

Rows are measured by a weighted mean of logarithms: of the squared Mahalanobis distance, of that by the variances of the
columns alone, and of the squared reconstruction errors after the leading components that explain 50%, 80% and 90% of
the variance. The weights minimise the variance of that mean over the rows kept: an anomaly that multiplies all measures
by one factor shifts every weighted mean equally, so that the least variable one shows it best; no label is needed. An
anomaly in a direction that hardly varies, as a total that is not the sum of its columns, is in the distance alone, and
the mean may leave that out. Anomalies that are many and alike make a leading direction of their own: they are no
further away than other rows, but along it. A score is the largest of these three: the first two from their medians, in
units of the upper quartile less the median; the last, since one direction of many is always loud, where the larger of
these two would be at a lower quantile.

Rows kept are scored by what the other rows give (in folds), as new rows are. The directions of few rows are these rows:
only those count along which rows left out vary as much as the others.
"""

# pyright: basic

import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch.sketching import FrequentDirections
from fastsketch.sklearn._gaussian import ShrunkCovariance
from fastsketch.sklearn._left_out import KeptSample, Pairs, RowModel, measures_left_out

Floats = NDArray[np.float64]

# Shares of the variance that the directions before a residual hold.
SHARES = (0.5, 0.8, 0.9)
# Added to the variances of the logarithms when weights are found, as a share of each.
RIDGE = 0.02
# Folds where all rows are kept; where only a sample is, so few that one is at most 1 / FOLDS of all rows.
FOLDS = 20
# Of the median of a measure, and of the variance that directions leave: less is rounding.
NOTHING_LEFT = 1e-9
# Shrinkage is left out for a try where it changes the log-density by more than this for each column. If in so many
# folds it makes rows so many times likelier, the other folds are not asked.
LEAST_GAIN, TRIED, HOPELESS = 0.02, 4, 10.0
# With fewer rows a column it is not: without shrinkage, distances by all rows are too unlike those by rows outside a
# fold.
MANY = 10
# Of the variance that a direction has in the rows that it was found by, what it has in other ones: a direction that has
# less of it is one of those rows rather than of what they have in common.
HOLDS = 0.8
# These quantiles of the peak's logarithm are as far apart as those of the larger of the other two scores, the second
# midway between these two: where ordinary rows are far out along a direction, as of heavy tails, they hide no anomalies
# of the other kinds.
TAIL = 0.5, 0.9


class Threshold(NamedTuple):
    """How rows are scored, and which score is an alarm."""

    counts: list[int]
    holding: int  # leading directions along which rows that were left out vary as much as the others
    least: Floats  # (c, 1) of each measure: less is taken for this
    ways: Floats  # (w, c) weights of the logarithms: of the mean that varies least, of the distance, of the peak if any
    zeros: Floats  # (w, 1) medians of what they give; of the peak, what puts it beside the larger of the others (TAIL)
    spreads: Floats  # (w, 1) upper quartiles less medians; of the peak, as many of its units as of the larger
    scores: Floats  # (m,) of the rows kept, ascending, larger for what is stranger

    def score(self, model: RowModel, rows: Any, mean: Floats) -> Floats:
        """Score rows in standard units, (n,): larger for what is stranger."""
        measures = with_peaks(model.measures(rows, mean, self.counts), self.counts, self.holding)
        return ((self.ways @ np.log(np.maximum(measures, self.least)) - self.zeros) / self.spreads).max(axis=0)

    def exceeded_by(self, share: float) -> tuple[float, Floats]:
        """Return (the score that this share of new rows exceeds, the interval of the share itself, of 95%)."""
        from scipy.stats import beta

        m = len(self.scores)
        beyond = max(1.0, share * (m + 1))
        if beyond > share * (m + 1):
            warnings.warn(
                f"contamination={share:g} needs at least {int(np.ceil(1 / share)) - 1} rows kept, and there are {m}: "
                f"alarms are of a share of about {1 / (m + 1):.2g}; learn from more rows",
                stacklevel=4,
            )
        level = float(np.quantile(self.scores, 1 - beyond / (m + 1), method="weibull"))
        return level, np.asarray(beta.ppf([0.025, 0.975], beyond, m + 1 - beyond))


def counts_for(values: Floats, trace: float, d: int) -> list[int]:
    """Return how many leading directions hold each of SHARES of the variance; at most all that are known.

    Those that leave nothing are left out.
    """
    held = np.cumsum(values) / trace if trace > 0 else np.ones(len(values))
    most = min(len(values), d - 1)
    counts = {min(int(np.searchsorted(held, share)) + 1, most) for share in SHARES} if most > 0 else set()
    return sorted(k for k in counts if held[k - 1] < 1 - NOTHING_LEFT)


def set_threshold(sample: KeptSample, pairs: Pairs, counts: list[int], shrunk: ShrunkCovariance) -> Threshold:
    """Score the rows kept, in random order, which have been learned from, by what the others give.

    ``pairs`` are the leading ones of the covariance of all rows, ``shrunk`` is that as it is given out.
    """
    weights = sample.weights
    measures = measures_left_out(sample, pairs, folds_of(sample.sketch, weights), counts, shrunk)
    along = np.average(measures[2 + len(counts) :], axis=1, weights=weights)
    holding = int(np.argmin(np.append(along >= HOLDS, False)))
    measures = with_peaks(measures, counts, holding)
    least = np.maximum(NOTHING_LEFT * np.median(measures, axis=1, keepdims=True), np.finfo(np.float64).tiny)
    logs, alone = np.log(np.maximum(measures, least)), np.eye(len(measures))
    several = 2 + len(counts)
    ways = np.stack([np.append(least_variance(logs[:several]), alone[0, several:]), alone[0]])
    zeros, upper = np.quantile(ways @ logs, [0.5, 0.75], axis=1, keepdims=True)
    spreads = np.where(upper > zeros, upper - zeros, 1.0)
    if holding:
        others, along = (np.quantile(x, TAIL) for x in (((ways @ logs - zeros) / spreads).max(axis=0), logs[-1]))
        unit = np.ptp(along) / np.ptp(others) if np.ptp(along) > 0 and np.ptp(others) > 0 else 1.0
        ways, spreads = np.vstack([ways, alone[-1:]]), np.vstack([spreads, unit])
        zeros = np.vstack([zeros, along[1] - unit * others.mean()])
    scores = np.sort(((ways @ logs - zeros) / spreads).max(axis=0))
    return Threshold(counts, holding, least, ways, zeros, spreads, scores)


def folds_of(sketch: FrequentDirections, weights: Floats) -> int:
    """Return in how many parts rows kept, of these weights, are left out."""
    m, of = len(weights), rows_learned(sketch, weights)
    if of < 2:
        raise ValueError("a threshold needs at least 2 rows, got 1")
    return min(m, -(-FOLDS * m // of))


def rows_learned(sketch: FrequentDirections, weights: Floats) -> int:
    """Count the rows learned from, but for those of weight 0, by the weights of those that are kept."""
    return max(len(weights), round(sketch.total_weight / float(weights.mean())))


def likelier(sample: KeptSample, pairs: Pairs, bare: ShrunkCovariance, shrunk: ShrunkCovariance) -> ShrunkCovariance:
    """Return the one of two covariances, not shrunk and shrunk, by which rows left out are likelier.

    Shrinkage helps where rows are few. Where they are many it is small, but a total that hardly ever differs from the
    sum of its columns by so much is hidden by it.
    """
    weights, d = sample.weights, sample.rows.shape[1]
    if rows_learned(sample.sketch, weights) < MANY * d:
        return shrunk
    gain = shrunk.matrix.log_determinant - bare.matrix.log_determinant
    if not gain > LEAST_GAIN * d:
        return shrunk
    folds = folds_of(sample.sketch, weights)
    for tried in sorted({min(TRIED, folds), folds}):
        some = np.flatnonzero(np.arange(len(weights)) % folds < tried)
        of_bare, of_shrunk = (
            measures_left_out(sample.some(some), pairs, tried, [], matrix)[0] for matrix in (bare, shrunk)
        )
        lost = np.average(of_bare - of_shrunk, weights=weights[some])
        if lost > HOPELESS * gain:
            break
    return bare if lost < gain else shrunk


def with_peaks(measures: Floats, counts: list[int], holding: int) -> Floats:
    """Return measures (c, n) with the largest along the leading `holding` directions in the place of one for each."""
    first = 2 + len(counts)
    along = measures[first : first + holding]
    return np.vstack([measures[:first], along.max(axis=0)]) if holding else measures[:first]


def least_variance(logs: Floats) -> Floats:
    """Return the weights (c,), none negative and 1 in all, with which the mean of `logs` (c, m) varies least."""
    from scipy.optimize import nnls

    spread = np.atleast_2d(np.cov(logs)) if logs.shape[1] > 1 else np.zeros((len(logs), len(logs)))
    total = float(np.trace(spread))
    if not total > 0:  # no two rows differ
        return np.full(len(logs), 1 / len(logs))
    spread = spread / total + np.diag(RIDGE * spread.diagonal() / total + 1e-12)
    # w >= 0 of least w'Sw whose sum is 1: a row of ones, weighted far above the rest, asks for the sum
    ones = np.full(len(logs), 1e4)
    weights = nnls(np.vstack([np.linalg.cholesky(spread).T, ones]), np.append(np.zeros(len(logs)), ones[0]))[0]
    return weights / weights.sum()
