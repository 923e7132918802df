"""Whether the latest blocks of a stream differ from those before: a permutation test after every block.

If blocks are exchangeable, their order says nothing. Whatever a statistic of the last blocks is, and whatever the
distribution of the rows: that it is larger than in each of N random arrangements of all blocks has a probability of at
most 1 / (N + 1), and that this ever happens within n blocks one of at most n / (N + 1). Arrangements are tried until
one is as large: about log N of them while nothing changes.
"""

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.random import Key, raw_numbers

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
