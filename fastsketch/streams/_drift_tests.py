"""Permutation tests for changes between blocks of a stream, and the statistics that describe a block.

If blocks are exchangeable, their order carries no information. Whatever statistic of the last blocks is used, and
whatever the distribution of the rows, the probability that it is larger than in each of N random arrangements of all
blocks is at most 1 / (N + 1), and the probability that this ever happens within n blocks at most n / (N + 1).
Arrangements are tried until one is as large; while nothing changes that takes about log N of them.
"""

from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri, ndtri_exp

from fastsketch._core.random import Key, raw_numbers
from fastsketch._core.validation import is_sparse
from fastsketch.sketching import FrequentDirections
from fastsketch.streams._compare import whitening

Floats: TypeAlias = NDArray[np.float64]
Places: TypeAlias = NDArray[np.intp]

# Smallest number of latest blocks that is compared with all others, and the ratio of consecutive numbers.
MIN_BLOCKS, LENGTH_RATIO = 3, 1.5
# Robust standard deviations at which a statistic of a block is clipped, so that no single block hides the others:
# Hampel's identifier (Davies and Gather 1993).
LARGEST_DEVIATION = 3.0
# Standard deviation of a normal distribution in median absolute deviations; rounding of a constant statistic, in units.
NORMAL_SPREAD, ROUNDING = float(1.0 / ndtri(0.75)), 8.0
# Arrangements that estimate the usual size of a statistic; those of the first batch of the test; numbers in memory.
N_CALIBRATION, FIRST_BATCH, MAX_NUMBERS = 16, 8, 1 << 21
# Number of arrangements of the test of dependence, and its level.
N_DEPENDENCE_PERMUTATIONS, DEPENDENCE_LEVEL = 499, 0.01


class Family(NamedTuple):
    """A group of a block's statistics, those at positions [begin, end), that are tested together.

    The test uses the mean square of the group if `by_mean_square`, otherwise its largest deviation.
    """

    score: str
    begin: int
    end: int
    by_mean_square: bool


class PermutationResult(NamedTuple):
    """Result of a permutation test: how many random orders deviated less than the true one, and where it deviates most.

    `length` and `family` are the number of latest blocks and the index of the group of statistics that deviate most.
    """

    n_less: int
    length: int
    family: int


def latest_lengths(n_latest: int) -> Places:
    """Return the numbers of latest blocks that are compared with all earlier ones: 3, 4, 6, 9 and so on, up to
    `n_latest`.
    """
    out = [MIN_BLOCKS]
    while (longer := int(LENGTH_RATIO * out[-1])) <= n_latest:
        out.append(longer)
    return np.array(out if n_latest >= MIN_BLOCKS else [], np.intp)


def standardised(table: Floats) -> Floats:
    """Return a table of block statistics whose columns are standardised by median and spread; outliers are clipped.

    Constant columns become 0. The table is not changed.
    """
    columns = np.ascontiguousarray(table.T)
    out = columns - _medians(columns)
    spread = NORMAL_SPREAD * _medians(np.abs(out))
    # where more than half are alike
    spread = np.where(spread > 0.0, spread, columns.std(axis=1, keepdims=True))
    # statistics that are constant up to rounding
    is_constant = spread <= ROUNDING * float(np.finfo(float).eps) * np.abs(columns[:, :1] - out[:, :1])
    limit = LARGEST_DEVIATION * np.where(is_constant, 0.0, spread)
    out = np.clip(out, -limit, limit)
    out -= out.mean(axis=1, keepdims=True)
    spread = out.std(axis=1, keepdims=True)
    return np.where(spread > 0.0, out / np.where(spread > 0.0, spread, 1.0), 0.0).T


def _medians(columns: Floats) -> Floats:
    """Return the upper median of each row of a matrix, as an array with one column."""
    middle = columns.shape[1] // 2
    return np.partition(columns, middle, axis=1)[:, middle : middle + 1]


def deviations(z: Floats, orders: Places, lengths: Places) -> Floats:
    """Return how far the mean of the first blocks is from 0, in standard deviations.
    There is one value for each order of the blocks, each number of first blocks, and each statistic.

    Statistics z are (w, f), orders (p, w) permutations of the blocks; `lengths` says how many of the first blocks are
    averaged. Return (p, len(lengths), f).
    """
    n = len(z)
    weights = (orders[:, np.newaxis] < lengths[:, np.newaxis]).astype(np.float64)
    weights /= np.sqrt(lengths * (n - lengths) / (n - 1.0))[:, np.newaxis]
    return (weights.reshape(-1, n) @ z).reshape(len(orders), len(lengths), -1)


def deviation_sizes(deviating: Floats, families: tuple[Family, ...]) -> Floats:
    """Return how far each group of statistics deviates, as one number that can be compared between groups.

    It is the mean square of the group, or its largest absolute value, transformed such that the two can be compared:
    for independent normal statistics both have an almost normal distribution. The cube root of a mean square has one
    (Wilson and Hilferty 1931); the largest value becomes the normal quantile of its probability (Tippett 1931).
    """
    out = np.empty((*deviating.shape[:-1], len(families)))
    for i, family in enumerate(families):
        group = deviating[..., family.begin : family.end]
        out[..., i] = np.cbrt((group**2).mean(axis=-1)) if family.by_mean_square else _quantile_of_largest(group)
    return out


def _quantile_of_largest(group: Floats) -> Floats:
    """Return the standard normal quantile of the largest absolute value of each row, given the group's size.
    Groups of different size can so be compared.

    Its probability is that of f independent normal variables that are all smaller.
    """
    tail = np.asarray(2.0 * ndtr(-np.abs(group).max(axis=-1)), np.float64)
    # where all statistics are 0 the quantile would be infinite
    log_smaller = group.shape[-1] * np.log1p(-np.minimum(tail, 1.0 - float(np.finfo(float).eps)))
    log_tail = np.minimum(np.log(-np.expm1(log_smaller)), -float(np.finfo(float).tiny))
    return -np.asarray(ndtri_exp(log_tail), np.float64)


def random_permutations(seed: int, moment: int, batch: int, n: int, width: int) -> Places:
    """Return n random permutations of `width` blocks, one in each row. They depend on seed, moment and batch only."""
    raw = raw_numbers(seed, Key.ALARM, moment, batch, n * width)
    return np.argsort(raw.reshape(n, width), axis=1)


def latest_first(n: int) -> Places:
    """Return the block numbers n - 1, ..., 1, 0 as an array (1, n): the order that puts the latest block first."""
    return np.arange(n)[np.newaxis, ::-1]


def permutation_test(
    table: Floats, n_latest: int, families: tuple[Family, ...], n_permutations: int, seed: int, moment: int
) -> PermutationResult:
    """Test whether the latest blocks differ from the others, and return a PermutationResult.
    The true order of the blocks is compared with random permutations of it.

    Count random permutations, at most `n_permutations`, until one deviates as much as the order of the stream. `table`
    (w, f) has the statistics of the blocks, of which at most `n_latest` are compared; `moment` selects the random
    numbers.
    """
    z, lengths, width = standardised(table), latest_lengths(n_latest), len(table)
    if not len(lengths):
        return PermutationResult(0, 0, 0)

    def deviations_in(orders: Places) -> Floats:
        return deviation_sizes(deviations(z, orders, lengths), families)

    # depends on the set of blocks only, not on their order: the test stays valid
    calibration = deviations_in(random_permutations(seed, moment, 0, N_CALIBRATION, width)).reshape(-1, len(families))
    centre, spread = calibration.mean(axis=0), calibration.std(axis=0)
    spread = np.where(spread > 0.0, spread, 1.0)
    observed = (deviations_in(latest_first(width))[0] - centre) / spread
    length, family = np.unravel_index(np.argmax(observed), observed.shape)
    largest = observed.max()
    largest -= 1e-9 * abs(largest)  # sums in another order
    count, batch, max_batch = 0, 1, max(FIRST_BATCH, MAX_NUMBERS // (len(lengths) * table.shape[1]))
    while count < n_permutations:
        n = min(FIRST_BATCH * 4 ** (batch - 1), max_batch, n_permutations - count)
        as_large = ((deviations_in(random_permutations(seed, moment, batch, n, width)) - centre) / spread).max(
            axis=(1, 2)
        ) >= largest
        count += int(np.argmax(as_large)) if as_large.any() else n
        if as_large.any():
            break
        batch += 1
    return PermutationResult(count, int(lengths[length]), int(family))


def likeliest_length(table: Floats, n_latest: int, family: Family) -> int:
    """Return an estimate of how many of the latest blocks have changed: the number at which their statistics deviate
    most.
    """
    lengths = np.arange(1, n_latest + 1)
    deviating = deviations(standardised(table), latest_first(len(table)), lengths)
    return 1 + int(np.argmax(deviation_sizes(deviating, (family,))))


def are_dependent(values: Floats, seed: int, moment: int, n_tests: int) -> bool:
    """Return True if consecutive blocks are correlated, according to a permutation test of their serial correlation.

    Wald and Wolfowitz (1943). For exchangeable blocks the probability that any of n_tests answers yes is at most
    DEPENDENT.
    """
    if not values.size:
        return False
    z = standardised(values)
    order = np.vstack([np.arange(len(z)), random_permutations(seed, moment, 0, N_DEPENDENCE_PERMUTATIONS, len(z))])
    permuted = z[order]
    serial_correlations = (permuted[:, 1:] * permuted[:, :-1]).sum(axis=1)
    # the maximum of all statistics together, and of each
    largest = np.maximum(serial_correlations.sum(axis=1) / np.sqrt(z.shape[1]), serial_correlations.max(axis=1))
    return bool((largest >= largest[0]).mean() <= DEPENDENCE_LEVEL / n_tests)


# Groups of statistics that an alarm may name.
SCORES = ("columns", "means", "directions")
# Largest number of columns watched individually: those with the largest variance in the first blocks.
MAX_WATCHED = 1024
MOMENTS = ("mean", "variance", "direction")
# Largest number of columns that an alarm names, and their smallest deviation as a share of the largest.
MAX_NAMED_COLUMNS, MIN_DEVIATION_SHARE = 5, 0.5
# Level at which the mean or variance of a single column deviates, divided by the number of these (Bonferroni).
SIGNIFICANCE_LEVEL = 0.05
# What is added to variances before their logarithm is taken, in units of the mean variance of all columns: now the
# smallest number, and in monitors that an earlier version saved a share, which hides small columns.
SMALLEST_VARIANCE, EARLIER_SMALLEST_VARIANCE = float(np.finfo(float).tiny), 1e-3
# Scaled rows and statistics are clipped to this, so that their squares are finite.
MAX_VALUE = 1e100


class Coordinates(NamedTuple):
    """Columns and directions in which blocks are compared, with the centre and scale of rows.
    The first blocks determine all of these.
    """

    watched: Places  # (k,) columns that are watched individually
    centre: Floats  # (d,)
    unit: float  # square root of the mean variance of the columns
    directions: Floats  # (q, d) leading
    n_directions: int  # of these, whose covariances are compared, at most
    smallest_variance: float = SMALLEST_VARIANCE  # added to variances before their logarithm is taken

    @classmethod
    def from_sketch(cls, sketch: FrequentDirections, n_directions: int) -> Self:
        """Return Coordinates whose columns, directions, centre and scale come from a sketch of the first blocks.

        The centre is the sketch's mean, the directions are its leading ones, and the columns those of largest variance.
        At most `n_directions` of the directions have their covariances compared.
        """
        v, d = sketch.components.astype(np.float64), int(sketch.n_features or 0)
        assert sketch.mean is not None
        unit = float(np.sqrt(sketch.squared_norm / sketch.total_weight / d)) or 1.0
        watched = np.arange(d)
        if d > MAX_WATCHED:
            deviation_sizes = (sketch.sketch().astype(np.float64) ** 2).sum(axis=0)
            watched = np.sort(np.argsort(-deviation_sizes, kind="stable")[:MAX_WATCHED])
        return cls(watched, np.asarray(sketch.mean, np.float64), unit, v, n_directions)

    @property
    def ends(self) -> list[int]:
        """Return the positions in the feature vector of a block at which the groups of statistics end.

        These are means, variances, means along directions, their covariances, and the variance outside of them.
        """
        (q, _), k = self.directions.shape, len(self.watched)
        c = min(q, self.n_directions)
        return np.cumsum([k, k, q, c * (c + 1) // 2, 1]).tolist()

    @property
    def families(self) -> tuple[Family, ...]:
        """Return the groups of statistics that are tested together. Empty groups are left out."""
        means, variances, along, inside, outside = self.ends
        groups = [
            Family("columns", 0, means, by_mean_square=False),
            Family("columns", means, variances, by_mean_square=False),
            Family("means", variances, along, by_mean_square=True),
            Family("means", variances, along, by_mean_square=False),
            Family("directions", along, inside, by_mean_square=True),
            Family("directions", along, outside, by_mean_square=False),
        ]
        return tuple(family for family in groups if family.begin < family.end)

    def features(self, rows: Any) -> Floats:
        """Return the feature vector of a block of rows: the statistics by which blocks are compared.

        These are means, log variances, and covariances along the leading directions.
        """
        n = rows.shape[0]
        scaled, centre = rows.astype(np.float64) / self.unit, self.centre / self.unit
        if is_sparse(rows):
            np.clip(scaled.data, -MAX_VALUE, MAX_VALUE, out=scaled.data)
            x = scaled[:, self.watched].toarray() - centre[self.watched]
            trace = (scaled.data**2).sum() / n - (np.asarray(scaled.mean(axis=0)) ** 2).sum()
            u = scaled @ self.directions.T - self.directions @ centre
        else:
            x = np.clip(scaled, -MAX_VALUE, MAX_VALUE) - centre
            trace = x.var(axis=0).sum()
            u = x @ self.directions.T
            x = x[:, self.watched]
        along = u.mean(axis=0)
        u = u - along
        c = min(u.shape[1], self.n_directions)
        inside = u[:, :c].T @ u[:, :c] / n
        outside = trace - (u**2).sum() / n
        # 0 where only rounding is left, as the directions span all rows (the tolerance of numpy.linalg.matrix_rank)
        outside = outside if outside > max(rows.shape) * float(np.finfo(float).eps) * trace else 0.0
        beyond = np.log(outside + self.smallest_variance)
        variances = np.log(x.var(axis=0) + self.smallest_variance)
        parts = [x.mean(axis=0), variances, along, inside[np.triu_indices(c)], [beyond]]
        return np.clip(np.concatenate(parts), -MAX_VALUE, MAX_VALUE)

    def watched_for_dependence(self, table: Floats) -> tuple[Floats, Floats]:
        """Return two tables of statistics, in which correlation between consecutive blocks is tested.

        These are means along directions, and log variances of columns.
        """
        means, variances, along, *_ = self.ends
        return table[:, variances:along], table[:, means:variances]

    def most_changed_columns(self, table: Floats, length: int, score: str) -> list[tuple[int, str, float, float]]:
        """Return the columns whose mean or variance changed most in the latest `length` blocks, for an alarm.

        They are those whose own mean or variance deviates significantly; where none does and the directions deviate,
        those with large entries in the direction whose variance changed most. Return a list of (column, what, before,
        after).
        """
        k, (means, variances, along, inside, _) = len(self.watched), self.ends
        before, after = table[:-length].mean(axis=0), table[-length:].mean(axis=0)
        z = np.abs(deviations(standardised(table), latest_first(len(table)), np.array([length]))[0, 0])
        column_deviations = z[: means if score == "means" else variances]
        significant = -float(ndtri(SIGNIFICANCE_LEVEL / 2.0 / len(column_deviations)))
        if score != "directions" or column_deviations.max() >= significant:
            return [
                (int(self.watched[f % k]), MOMENTS[f // k], self._moment_of(before, f), self._moment_of(after, f))
                for f in _largest_indices(column_deviations, significant).tolist()
            ]
        c = min(len(self.directions), self.n_directions)
        covariance_before, covariance_after = (_symmetric(side[along:inside], c) for side in (before, after))
        # the direction u with the largest relative change of u'Su
        whitener = whitening(covariance_before)
        values, vectors = np.linalg.eigh(whitener @ (covariance_after - covariance_before) @ whitener.T)
        u = vectors[:, np.argmax(np.abs(values))] @ whitener
        u /= np.linalg.norm(u)
        weights = np.abs(u @ self.directions[:c])
        variance_before, variance_after = (
            float(u @ side @ u) * self.unit**2 for side in (covariance_before, covariance_after)
        )
        return [(int(column), MOMENTS[2], variance_before, variance_after) for column in _largest_indices(weights, 0.0)]

    def _moment_of(self, features: Floats, f: int) -> float:
        """Return statistic number f of a block, a scaled mean or log variance of a column, in the rows' own units."""
        k, value = len(self.watched), float(features[f])
        if f < k:
            return float(self.centre[self.watched[f]]) + value * self.unit
        return max(float(np.exp(value)) - self.smallest_variance, 0.0) * self.unit**2


def _symmetric(upper: Floats, c: int) -> Floats:
    """Return the symmetric c x c matrix with the given entries in its upper triangle."""
    out = np.zeros((c, c))
    out[np.triu_indices(c)] = upper
    return out + np.triu(out, 1).T


def _largest_indices(values: Floats, threshold: float) -> NDArray[np.intp]:
    """Return the indices of the largest numbers, in descending order of these, at most MAX_NAMED_COLUMNS.

    All but the first are at least `threshold` and half of the largest.
    """
    best = np.argsort(-values, kind="stable")[:MAX_NAMED_COLUMNS]
    share = max(MIN_DEVIATION_SHARE * float(values[best[0]]), threshold)
    return best[(values[best] > 0) & ((values[best] >= share) | (np.arange(len(best)) == 0))]
