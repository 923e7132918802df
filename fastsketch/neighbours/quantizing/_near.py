"""Near rows of a sample: they tell what queries and the rows that they look for have in common."""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# A row's distance to this many of its nearest is how dense the sample is around it.
NEAR: Final = 10
# Rows whose nearest are looked at direction by direction, and rows of one product.
PAIRED_ROWS: Final = 1000
BLOCK: Final = 512
# Rows count by their squared distance to the NEAR-th nearest to this power: where rows are dense, errors matter more.
DENSITY: Final = -0.5
# Below this quantile, and this share of the mean, distances are no closer: copies of one row would be all that counts.
LEAST_QUANTILE: Final = 0.05
LEAST_SHARE: Final = 1e-3
# Rows of a square above this many times the median count by its inverse: however long, as much as one of that.
LONG: Final = 8.0
# What is left of a sum of squares below this share of it is rounding.
ROUNDING: Final = 1e-9


class Nearness(NamedTuple):
    """Near rows of a sample (n, r) in the directions of a basis.

    Parameters
    ----------
    weight : ndarray float64 (n,)
        Of rows; 1 on average.
    apart, variance : ndarray float64 (r,)
        Mean squares, weighted: of the difference of near rows, of all rows.
    all_apart, all_variance : float
        The same of whole rows, not their coordinates.
    one, two : ndarray int64 (m,)
        The pairs of near rows: places in the sample, NEAR pairs of a row together.
    products : ndarray float64 (m,)
        Of the rows of each pair.
    """

    weight: Array
    apart: Array
    variance: Array
    all_apart: float
    all_variance: float
    one: Integers
    two: Integers
    products: Array

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
        none, variance = np.zeros(0, np.int64), np.square(spread)
        total = float(variance.sum())
        return Nearness(np.ones(n), variance, variance, total, total, none, none, np.zeros(0))
    square = np.einsum("ij,ij->i", z, z)
    reach = np.empty(n)
    near = np.empty((min(n, PAIRED_ROWS), NEAR), np.int64)
    for start in range(0, n, BLOCK):
        stop = min(start + BLOCK, n)
        distances = square + square[start:stop, np.newaxis] - 2.0 * (z[start:stop] @ z.T)
        distances[np.arange(stop - start), np.arange(start, stop)] = np.inf
        if start < len(near):
            near[start:stop] = np.argpartition(distances, NEAR - 1, axis=1)[: len(near) - start, :NEAR]
        distances.partition(NEAR - 1, axis=1)
        reach[start:stop] = distances[:, NEAR - 1]
    n2 = np.einsum("ij,ij->i", centred, centred)
    weight = _weights(np.maximum(reach, 0.0), n2)
    one, two = np.repeat(np.arange(len(near)), NEAR), near.ravel()
    of_pairs = weight[one] / weight[one].sum()
    apart = of_pairs @ np.square(z[one] - z[two])
    variance = weight @ np.square(z) / n
    products = _products(centred, one, two)
    all_apart = float(of_pairs @ (n2[one] + n2[two] - 2.0 * products))
    all_variance = float(weight @ n2) / n
    return Nearness(weight, apart, variance, all_apart, all_variance, one, two, products)


def _weights(reach: Array, square: Array) -> Array:
    """Return weights of rows by their squared distances to their NEAR-th nearest, and their squares, of long ones."""
    most = LONG * float(np.median(square))
    long = np.ones(len(reach))
    if most > 0:
        long = most / np.maximum(square, most)
    mean = float(long @ reach) / len(reach)
    if mean == 0:
        return long / long.mean()
    least = max(float(np.quantile(reach, LEAST_QUANTILE)), LEAST_SHARE * mean)
    weight: Array = (np.maximum(reach, least) / mean) ** DENSITY * long
    return weight / weight.mean()


def _products(rows: Array, one: Integers, two: Integers) -> Array:
    """Return inner products (m,) of pairs of rows."""
    out = np.empty(len(one))
    for start in range(0, len(one), BLOCK):
        part = slice(start, start + BLOCK)
        out[part] = np.einsum("ij,ij->i", rows[one[part]], rows[two[part]])
    return out
