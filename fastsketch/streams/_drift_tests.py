"""Whether the latest blocks of a stream differ from those before: a permutation test after every block.

If blocks are exchangeable, their order says nothing. Whatever a statistic of the last blocks is, and whatever the
distribution of the rows: that it is larger than in each of N random arrangements of all blocks has a probability of at
most 1 / (N + 1), and that this ever happens within n blocks one of at most n / (N + 1). Arrangements are tried until
one is as large: about log N of them while nothing changes."""

from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from fastsketch._core.random import Key, raw_numbers
from fastsketch._core.validation import is_sparse
from fastsketch.sketching import FrequentDirections
from fastsketch.streams._compare import whitening

Floats: TypeAlias = NDArray[np.float64]
Places: TypeAlias = NDArray[np.intp]

# Blocks of the shortest stretch that is compared with all others, and by how much each is longer than the one before.
SHORTEST, LONGER = 3, 1.5
# Deviations of a block are cut here: no single one may hide what all others do.
LARGEST_DEVIATION = 4.0
# Of a normal distribution the standard deviation, in medians of distances; units of rounding of what is constant.
NORMAL_SPREAD, ROUNDING = 1.4826, 8.0
# Arrangements that say how large a statistic usually is, before those that are compared; the first of these at a time,
# and numbers in memory.
USUAL, FIRST, MOST_NUMBERS = 16, 8, 1 << 21
# The farthest of many features has a longer tail than the sum of their squares, in its standard deviations.
FARTHEST = 0.7
# Arrangements of the test of dependence, and its level.
OF_DEPENDENCE, DEPENDENT = 499, 0.01


class Family(NamedTuple):
    """Features [begin, end) that are looked at as one statistic: all of them together, or the farthest."""

    score: str
    begin: int
    end: int
    together: bool


class Tried(NamedTuple):
    """What a test found: arrangements before one was as large, of the stretch and family that deviate most."""

    n_less: int
    length: int
    family: int


def stretches(most: int) -> Places:
    """Return the numbers of latest blocks that are compared with all others, at most so many."""
    out = [SHORTEST]
    while (longer := int(LONGER * out[-1])) <= most:
        out.append(longer)
    return np.array(out if most >= SHORTEST else [], np.intp)


def standardised(table: Floats) -> Floats:
    """Return features (w, f) of blocks about their mean and of variance 1, the farthest cut; 0 where constant."""
    columns = np.ascontiguousarray(table.T)
    out = columns - _medians(columns)
    spread = NORMAL_SPREAD * _medians(np.abs(out))
    # where more than half are alike
    spread = np.where(spread > 0.0, spread, columns.std(axis=1, keepdims=True))
    # what is constant but for rounding
    still = spread <= ROUNDING * float(np.finfo(float).eps) * np.abs(columns[:, :1] - out[:, :1])
    cut = LARGEST_DEVIATION * np.where(still, 0.0, spread)
    out = np.clip(out, -cut, cut)
    out -= out.mean(axis=1, keepdims=True)
    spread = out.std(axis=1, keepdims=True)
    return np.where(spread > 0.0, out / np.where(spread > 0.0, spread, 1.0), 0.0).T


def _medians(columns: Floats) -> Floats:
    """Return the upper median of each row (f, 1)."""
    half = columns.shape[1] // 2
    return np.partition(columns, half, axis=1)[:, half : half + 1]


def deviations(z: Floats, places: Places, lengths: Places) -> Floats:
    """Return means of the blocks at the first places (p, w) in units of their chance deviation (p, lengths, f)."""
    n = len(z)
    chosen = (places[:, np.newaxis] < lengths[:, np.newaxis]).astype(np.float64)
    chosen /= np.sqrt(lengths * (n - lengths) / (n - 1.0))[:, np.newaxis]
    return (chosen.reshape(-1, n) @ z).reshape(len(places), len(lengths), -1)


def sizes(deviating: Floats, families: tuple[Family, ...]) -> Floats:
    """Return a size for each family (..., families), which is about normal where features are."""
    out = np.empty((*deviating.shape[:-1], len(families)))
    for i, family in enumerate(families):
        part = deviating[..., family.begin : family.end]
        out[..., i] = np.cbrt((part**2).mean(axis=-1)) if family.together else np.abs(part).max(axis=-1)
    return out


def arranged(seed: int, moment: int, batch: int, n: int, width: int) -> Places:
    """Return the places of blocks in random arrangements (n, width)."""
    raw = raw_numbers(seed, Key.ALARM, moment, batch, n * width)
    return np.argsort(raw.reshape(n, width), axis=1)


def latest_first(n: int) -> Places:
    """Return the places of blocks, the latest one first (1, n)."""
    return np.arange(n)[np.newaxis, ::-1]


def tried(table: Floats, n_latest: int, families: tuple[Family, ...], wanted: int, seed: int, moment: int) -> Tried:
    """Return in how many arrangements of blocks (w, f) none deviates as the latest do, `wanted` at most."""
    z, lengths, width = standardised(table), stretches(n_latest), len(table)
    if not len(lengths):
        return Tried(0, 0, 0)

    def found(places: Places) -> Floats:
        return sizes(deviations(z, places, lengths), families)

    # a function of which blocks there are, not of their order: the test stays one
    usual = found(arranged(seed, moment, 0, USUAL, width)).reshape(-1, len(families))
    centre, spread = usual.mean(axis=0), usual.std(axis=0)
    spread = np.where(spread > 0.0, spread, 1.0) / [1.0 if family.together else FARTHEST for family in families]
    own = (found(latest_first(width))[0] - centre) / spread
    length, family = np.unravel_index(np.argmax(own), own.shape)
    largest = own.max()
    largest -= 1e-9 * abs(largest)  # sums in another order
    count, batch, room = 0, 1, max(FIRST, MOST_NUMBERS // (len(lengths) * table.shape[1]))
    while count < wanted:
        n = min(FIRST * 4 ** (batch - 1), room, wanted - count)
        as_large = ((found(arranged(seed, moment, batch, n, width)) - centre) / spread).max(axis=(1, 2)) >= largest
        count += int(np.argmax(as_large)) if as_large.any() else n
        if as_large.any():
            break
        batch += 1
    return Tried(count, int(lengths[length]), int(family))


def likeliest_length(table: Floats, n_latest: int, family: Family) -> int:
    """Return with how many of the latest blocks a family deviates most from what is usual."""
    lengths = np.arange(1, n_latest + 1)
    found = deviations(standardised(table), latest_first(len(table)), lengths)
    return 1 + int(np.argmax(sizes(found, (family,))))


def are_dependent(values: Floats, seed: int, moment: int, n_tests: int) -> bool:
    """Return whether blocks (n, f) resemble the ones before them, by a permutation test of their serial correlation.

    Wald and Wolfowitz (1943). The chance that one of n_tests says so of exchangeable blocks is at most DEPENDENT.
    """
    if not values.size:
        return False
    z = standardised(values)
    order = np.vstack([np.arange(len(z)), arranged(seed, moment, 0, OF_DEPENDENCE, len(z))])
    drawn = z[order]
    alike = (drawn[:, 1:] * drawn[:, :-1]).sum(axis=1)
    # of all features together, or of one
    largest = np.maximum(alike.sum(axis=1) / np.sqrt(z.shape[1]), alike.max(axis=1))
    return bool((largest >= largest[0]).mean() <= DEPENDENT / n_tests)


# What an alarm may be said by.
SCORES = ("columns", "means", "directions")
# Columns that are watched each by itself: of more those whose variance was largest in the beginning.
MOST_WATCHED = 1024
# Leading directions whose covariances are watched. More see weaker ones among more noise.
MOST_DIRECTIONS = 16
MOMENTS = ("mean", "variance", "direction")
# Columns that an alarm names, and of the largest deviation (or part of a direction) the least share that they have.
MOST_CARRIED, LEAST_SHARE = 5, 0.5
# A change is told by moments of columns unless that of a direction is so many times as unusual.
PLAINER = 1.25
# Of the mean variance of all columns, the share that is added to variances before their logarithm is taken.
SHRUNKEN = 1e-3
# Rows in units of the first blocks, and features, are at most this: squares must be finite.
LARGEST = 1e100


class Units(NamedTuple):
    """Where blocks are looked at, and in which units: what the first of them say, which are not compared then."""

    watched: Places  # (k,) columns that are looked at each by itself
    centre: Floats  # (d,)
    unit: float  # square root of the mean variance of the columns
    directions: Floats  # (q, d) leading

    @classmethod
    def of(cls, sketch: FrequentDirections) -> Self:
        """Return the units of the rows of a sketch."""
        v, d = sketch.components.astype(np.float64), int(sketch.n_features or 0)
        assert sketch.mean is not None
        unit = float(np.sqrt(sketch.squared_norm / sketch.total_weight / d)) or 1.0
        watched = np.arange(d)
        if d > MOST_WATCHED:
            sizes = (sketch.sketch().astype(np.float64) ** 2).sum(axis=0)
            watched = np.sort(np.argsort(-sizes, kind="stable")[:MOST_WATCHED])
        return cls(watched, np.asarray(sketch.mean, np.float64), unit, v)

    @property
    def ends(self) -> list[int]:
        """Return where features end: means, variances, means along directions, their covariances, variance outside."""
        (q, _), k = self.directions.shape, len(self.watched)
        c = min(q, MOST_DIRECTIONS)
        return np.cumsum([k, k, q, c * (c + 1) // 2, 1]).tolist()

    @property
    def families(self) -> tuple[Family, ...]:
        """Return which features are looked at as one."""
        means, variances, along, inside, outside = self.ends
        every = [
            Family("columns", 0, means, together=False),
            Family("columns", means, variances, together=False),
            Family("means", variances, along, together=True),
            Family("means", variances, along, together=False),
            Family("directions", along, inside, together=True),
            Family("directions", along, outside, together=False),
        ]
        return tuple(family for family in every if family.begin < family.end)

    def features(self, rows: Any) -> Floats:
        """Return the features of a block of rows (f,)."""
        n = rows.shape[0]
        scaled, centre = rows.astype(np.float64) / self.unit, self.centre / self.unit
        if is_sparse(rows):
            np.clip(scaled.data, -LARGEST, LARGEST, out=scaled.data)
            x = scaled[:, self.watched].toarray() - centre[self.watched]
            trace = (scaled.data**2).sum() / n - (np.asarray(scaled.mean(axis=0)) ** 2).sum()
            u = scaled @ self.directions.T - self.directions @ centre
        else:
            x = np.clip(scaled, -LARGEST, LARGEST) - centre
            trace = x.var(axis=0).sum()
            u = x @ self.directions.T
            x = x[:, self.watched]
        along = u.mean(axis=0)
        u = u - along
        c = min(u.shape[1], MOST_DIRECTIONS)
        inside = u[:, :c].T @ u[:, :c] / n
        outside = trace - (u**2).sum() / n
        # what rounding leaves where the directions span all rows (the tolerance of numpy.linalg.matrix_rank)
        outside = outside if outside > max(rows.shape) * float(np.finfo(float).eps) * trace else 0.0
        beyond = np.log(outside + SHRUNKEN)
        variances = np.log(x.var(axis=0) + SHRUNKEN)
        parts = [x.mean(axis=0), variances, along, inside[np.triu_indices(c)], [beyond]]
        return np.clip(np.concatenate(parts), -LARGEST, LARGEST)

    def watched_for_dependence(self, table: Floats) -> tuple[Floats, Floats]:
        """Return the means along directions and the variances of columns of blocks."""
        means, variances, along, *_ = self.ends
        return table[:, variances:along], table[:, means:variances]

    def carrying(self, table: Floats, length: int, score: str) -> list[tuple[int, str, float, float]]:
        """Return (column, what, before, after) of the columns that carry the change to the last blocks of a table."""
        k, (means, variances, along, inside, _) = len(self.watched), self.ends
        before, now = table[:-length].mean(axis=0), table[-length:].mean(axis=0)
        z = np.abs(deviations(standardised(table), latest_first(len(table)), np.array([length]))[0, 0])
        if score != "directions" or z[along:inside].max(initial=0.0) <= PLAINER * z[:variances].max():
            plain = z[: means if score == "means" else variances]
            return [
                (int(self.watched[f % k]), MOMENTS[f // k], self._moment_of(before, f), self._moment_of(now, f))
                for f in _largest(plain, -float(ndtri(0.025 / len(plain)))).tolist()
            ]
        c = min(len(self.directions), MOST_DIRECTIONS)
        old, new = (_symmetric(side[along:inside], c) for side in (before, now))
        # u with the largest change of u'Su in units of u'Su before
        white = whitening(old)
        values, vectors = np.linalg.eigh(white @ (new - old) @ white.T)
        u = vectors[:, np.argmax(np.abs(values))] @ white
        u /= np.linalg.norm(u)
        on = np.abs(u @ self.directions[:c])
        was, became = (float(u @ side @ u) * self.unit**2 for side in (old, new))
        return [(int(column), MOMENTS[2], was, became) for column in _largest(on, 0.0)]

    def _moment_of(self, features: Floats, f: int) -> float:
        """Return the mean or variance of a watched column in the units of the rows."""
        k, value = len(self.watched), float(features[f])
        if f < k:
            return float(self.centre[self.watched[f]]) + value * self.unit
        return max(float(np.exp(value)) - SHRUNKEN, 0.0) * self.unit**2


def _symmetric(upper: Floats, c: int) -> Floats:
    """Return a matrix (c, c) from its upper triangle."""
    out = np.zeros((c, c))
    out[np.triu_indices(c)] = upper
    return out + np.triu(out, 1).T


def _largest(found: Floats, least: float) -> NDArray[np.intp]:
    """Return the places of the largest, in descending order: the first, and those of at least `least`."""
    best = np.argsort(-found, kind="stable")[:MOST_CARRIED]
    share = max(LEAST_SHARE * float(found[best[0]]), least)
    return best[(found[best] > 0) & ((found[best] >= share) | (np.arange(len(best)) == 0))]
