"""Near rows of a sample: they tell what queries and the rows that they look for have in common."""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# Nearest rows of a row that are looked at: as many as a search returns by default.
NEAR: Final = 10
# Rows of the sample that take the part of queries, and rows of one product.
QUERIES: Final = 1000
BLOCK: Final = 512
# What is left of a sum of squares below this share of it is rounding.
ROUNDING: Final = 1e-9


class Nearness(NamedTuple):
    """The first rows of a sample (n, r) as queries, and the rows of it that are nearest to each.

    Parameters
    ----------
    apart, variance : ndarray float64 (r,)
        Mean squares in the directions of a basis: of the difference of near rows, of all rows.
    all_apart, all_variance : float
        The same of whole rows, not their coordinates.
    nearest : ndarray int64 (m, NEAR)
        Places in the sample of the rows nearest to row i < m.
    """

    apart: Array
    variance: Array
    all_apart: float
    all_variance: float
    nearest: Integers

    @property
    def shared(self) -> Array:
        """Return (r,): how much of a row's coordinate a near query has, 1 where near rows are equal, 0 where not."""
        return _shared(self.apart, self.variance)

    def outside(self, chosen: list[int]) -> float:
        """Return the share that near rows have in common of their part outside these directions."""
        apart = self.all_apart - float(self.apart[chosen].sum())
        variance = self.all_variance - float(self.variance[chosen].sum())
        if variance <= ROUNDING * self.all_variance:
            return 0.5
        return float(_shared(np.array([max(apart, 0.0)]), np.array([variance]))[0])


def _shared(apart: Array, variance: Array) -> Array:
    return np.clip(1.0 - apart / np.where(variance > 0, 2.0 * variance, np.inf), 0.0, 1.0)


def nearness(centred: Array, z: Array, spread: Array) -> Nearness:
    """Measure centred rows (n, d): coordinates (n, r), and the standard deviations (r,) that are known of these."""
    n = len(z)
    if n <= NEAR:  # too few to tell: as if near rows were no nearer than others
        variance = np.square(spread)
        total = float(variance.sum())
        return Nearness(variance, variance, total, total, np.zeros((0, NEAR), np.int64))
    near = np.concatenate([nearest_of(part, -2.0 * (z[part] @ z.T), _squares(z)) for part in _parts(n)])
    apart, all_apart = np.zeros(z.shape[1]), 0.0
    for k in range(NEAR):
        apart += np.square(z[: len(near)] - z[near[:, k]]).mean(axis=0) / NEAR
        all_apart += float(_squares(centred[: len(near)] - centred[near[:, k]]).mean()) / NEAR
    return Nearness(apart, _mean_squares(z), all_apart, float(_squares(centred).mean()), near)


def recall(known: Array, z: Array, decoded: Array, near: Nearness) -> float:
    """Return the share of near rows that estimated distances find among those of the least.

    Parameters
    ----------
    known : ndarray float64 (n,)
        What stands for the squared lengths of the rows of the sample.
    z, decoded : ndarray float64 (n, r)
        Coordinates of the rows, and what their codes stand for.
    near : Nearness
    """
    found = 0
    for part in _parts(len(z)) if len(near.nearest) else []:
        answers = nearest_of(part, -2.0 * (z[part] @ decoded.T), known)
        found += int((answers[:, :, np.newaxis] == near.nearest[part][:, np.newaxis]).sum())
    return found / max(1, near.nearest.size)


def nearest_of(part: slice, products: Array, known: Array) -> Integers:
    """Return places (m, NEAR) of the least of products (m, n) plus known (n,), without the rows `part` themselves."""
    estimates = products + known
    estimates[np.arange(len(estimates)), np.arange(part.start, part.stop)] = np.inf
    return np.argpartition(estimates, NEAR - 1, axis=1)[:, :NEAR].astype(np.int64)


def _parts(n: int) -> list[slice]:
    """Return the slices of the rows that take the part of queries."""
    most = min(n, QUERIES)
    return [slice(start, min(start + BLOCK, most)) for start in range(0, most, BLOCK)]


def _squares(rows: Array) -> Array:
    """Return the squared lengths of rows (n, d), (n,)."""
    return np.asarray(np.einsum("ij,ij->i", rows, rows))


def _mean_squares(rows: Array) -> Array:
    """Return the mean squares of columns of rows (n, d), (d,)."""
    return np.asarray(np.einsum("ij,ij->j", rows, rows)) / len(rows)
