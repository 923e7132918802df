"""What a block of rows is like, in numbers that are compared from block to block, and which columns make it unusual."""

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from fastsketch._core.validation import is_sparse
from fastsketch.sketching import FrequentDirections
from fastsketch.streams._compare import whitening
from fastsketch.streams._evidence import Family, Floats, Places, deviations, latest_first, standardised

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
