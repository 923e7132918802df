"""How unusual a block of a stream is, beside the blocks of a reference, and which columns make it so."""

# pyright: reportPrivateUsage=false
# (sketches are read by what windows and comparisons read them by)

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch.sketching import FrequentDirections
from fastsketch.streams._compare import Moments, whitening
from fastsketch.streams._evidence import Floats
from fastsketch.streams._sliding_merge import joined

# What blocks are scored by; each has its own evidence, and a third of the rate of false alarms.
SCORES = ("columns", "means", "directions")
# Leading directions of the reference in which covariances are watched. More see weaker ones among more noise.
MOST_DIRECTIONS = 16
MOMENTS = ("mean", "variance", "direction")
# Columns that an alarm names, and of the largest deviation (or part of a direction) the least share that they have.
MOST_CARRIED, LEAST_SHARE = 5, 0.3
# A change is told by moments of columns unless that of a direction is so many times as unusual.
PLAINER = 1.25
# Of the variance of a feature over the reference, the share of the mean over all of its kind that is added: columns
# that hardly occur there would have a scale of nearly nothing.
SHRUNKEN = 1e-3
# Deviations are at most this: of what is constant in the reference any change is huge, and squares must be finite.
LARGEST = 1e100


class Usual(NamedTuple):
    """What blocks of a reference are like."""

    sketch: FrequentDirections
    location: Floats  # (f,) mean of each feature of a block over the reference
    scale: Floats  # (f,) its standard deviation

    def features(self, block: FrequentDirections) -> Floats:
        """Return the features of a block along the directions of the reference (f,)."""
        return features_of(block, directions_of(self.sketch))

    def ends(self) -> tuple[int, int]:
        """Return where the features of columns end, and those of means along directions."""
        columns = 2 * directions_of(self.sketch).shape[1]
        return columns, columns + len(directions_of(self.sketch))

    def deviations(self, features: Floats) -> Floats:
        """Return features in standard deviations of the reference."""
        with np.errstate(over="ignore"):
            return np.clip((features - self.location) / self.scale, -LARGEST, LARGEST)

    def scores(self, block: FrequentDirections) -> Floats:
        """Return how unusual a block is, by each of SCORES."""
        z, (columns, means) = self.deviations(self.features(block)), self.ends()
        return np.array([np.abs(z[:columns]).max(), (z[columns:means] ** 2).sum(), np.abs(z[means:]).max(initial=0.0)])

    def carrying(self, blocks: Sequence[FrequentDirections], which: int) -> list[tuple[int, str, float, float]]:
        """Return (column, what, before, after) of the columns that carry the change to these blocks, by one score."""
        now, (columns, means) = np.mean([self.features(block) for block in blocks], axis=0), self.ends()
        z, d = np.abs(self.deviations(now)), columns // 2
        inside = z[means:-1]  # the last one is the variance outside, of whatever columns it is
        if SCORES[which] != "directions" or inside.max(initial=0.0) <= PLAINER * z[:columns].max():
            best = _largest(z[: d if SCORES[which] == "means" else columns])
            return [(int(f) % d, MOMENTS[f // d], float(self.location[f]), float(now[f])) for f in best]
        v, sides = directions_of(self.sketch), (self.sketch, reduce(joined, blocks))
        before, after = (Moments.of(sketch).within(v) for sketch in sides)
        # u with the largest change of u'Su in units of u'Su before
        white = whitening(before)
        values, vectors = np.linalg.eigh(white @ (after - before) @ white.T)
        u = vectors[:, np.argmax(np.abs(values))] @ white
        u /= np.linalg.norm(u)
        return [
            (int(column), MOMENTS[2], float(u @ before @ u), float(u @ after @ u)) for column in _largest(np.abs(u @ v))
        ]


def _largest(sizes: Floats) -> NDArray[np.intp]:
    """Return the places of the largest, in descending order."""
    best = np.argsort(-sizes, kind="stable")[:MOST_CARRIED]
    return best[(sizes[best] >= LEAST_SHARE * sizes[best[0]]) & (sizes[best] > 0)]


def directions_of(sketch: FrequentDirections) -> Floats:
    """Return the leading directions (q, d)."""
    return sketch.components[:MOST_DIRECTIONS].astype(np.float64)


def features_of(block: FrequentDirections, directions: Floats) -> Floats:
    """Return what a block is scored by (2 d + q + q (q + 1) / 2 + 1,).

    Means and variances of the d columns, means along q directions, their covariances, and the variance outside of them.
    """
    moments, mean = Moments.of(block), np.asarray(block.mean, np.float64)
    inside = moments.within(directions)
    outside = block.squared_norm / block.total_weight - np.trace(inside)
    return np.concatenate(
        [mean, moments.variances(), directions @ mean, inside[np.triu_indices(len(directions))], [outside]]
    )


def usual_of(blocks: Sequence[FrequentDirections]) -> Usual:
    """Return what these blocks are like."""
    sketch = reduce(joined, blocks)
    v = directions_of(sketch)
    features = np.array([features_of(block, v) for block in blocks])
    q, d = v.shape
    size = np.abs(features).max(axis=0) + np.finfo(float).tiny  # squares of squares might overflow
    scale = size * (features / size).std(axis=0, ddof=1)
    for kind in np.split(scale, np.cumsum([d, d, q, q * (q + 1) // 2])):
        if kind.any():
            # sqrt(s^2 + SHRUNKEN mean(s^2))
            kind[:] = np.hypot(kind, np.sqrt(SHRUNKEN * ((kind / kind.max()) ** 2).mean()) * kind.max())
    location = features.mean(axis=0)
    # what is constant but for rounding
    return Usual(sketch, location, scale + np.finfo(float).eps * np.abs(location) + np.finfo(float).tiny)
