"""Nearest neighbours in a sample of rows, from which directions are weighted and the recall of a quantizer measured."""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# Number of nearest rows of a row: the default k of a search.
NEAR: Final = 10
# Number of rows of the sample that serve as queries, and of rows of one matrix product.
QUERIES: Final = 1000
BLOCK: Final = 512
# Differences of sums of squares below this share of them are rounding errors.
ROUNDING: Final = 1e-9


class Nearness(NamedTuple):
    """Nearest neighbours of rows of a sample, and how much neighbours differ in each direction.

    Neighbours are those of the first m of n rows with r coordinates.

    Parameters
    ----------
    apart, variance : ndarray float64 (r,)
        Mean squares of the coordinates in each direction: of differences of near rows, and of all rows.
    all_apart, all_variance : float
        Mean squared lengths of differences of near rows, and of all rows.
    nearest : ndarray int64 (m, NEAR)
        Indices of the rows nearest to row i < m.
    """

    apart: Array
    variance: Array
    all_apart: float
    all_variance: float
    nearest: Integers

    @property
    def shared(self) -> Array:
        """Correlation of nearest neighbours in each direction: 1 if they are equal, 0 if they are independent.

        It is (r,).
        """
        return _shared(self.apart, self.variance)

    def outside(self, chosen: list[int]) -> float:
        """Return the correlation of nearest neighbours in all directions except the chosen ones.

        It is 0.5 if these directions have no variance.
        """
        apart = self.all_apart - float(self.apart[chosen].sum())
        variance = self.all_variance - float(self.variance[chosen].sum())
        if variance <= ROUNDING * self.all_variance:
            return 0.5
        return float(_shared(np.array([max(apart, 0.0)]), np.array([variance]))[0])


def _shared(apart: Array, variance: Array) -> Array:
    return np.clip(1.0 - apart / np.where(variance > 0, 2.0 * variance, np.inf), 0.0, 1.0)


def nearness(centred: Array, z: Array, spread: Array) -> Nearness:
    """Find the nearest neighbours of rows of a sample, and measure how much they differ in each direction.

    Rows are centred (n, d), with coordinates z (n, r) of standard deviations `spread` (r,).
    """
    n = len(z)
    if n <= NEAR:  # too few rows: treat near rows as independent
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
    """Compute the recall of the nearest neighbours in the sample if distances are estimated from codes.

    Parameters
    ----------
    known : ndarray float64 (n,)
        Estimates of the squared lengths of the rows.
    z, decoded : ndarray float64 (n, r)
        Exact and decoded coordinates of the rows.
    near : Nearness
    """
    found = 0
    for part in _parts(len(z)) if len(near.nearest) else []:
        answers = nearest_of(part, -2.0 * (z[part] @ decoded.T), known)
        found += int((answers[:, :, np.newaxis] == near.nearest[part][:, np.newaxis]).sum())
    return found / max(1, near.nearest.size)


def nearest_of(part: slice, products: Array, known: Array) -> Integers:
    """Return the indices of the nearest rows of each query. A query itself is left out.

    Queries are the rows of the slice `part`. The rows (m, NEAR) with the smallest products (m, n) + known (n,) are
    nearest; their order is arbitrary.
    """
    estimates = products + known
    estimates[np.arange(len(estimates)), np.arange(part.start, part.stop)] = np.inf
    return np.argpartition(estimates, NEAR - 1, axis=1)[:, :NEAR].astype(np.int64)


def _parts(n: int) -> list[slice]:
    """Split the rows that serve as queries into blocks. Return a list of slices."""
    most = min(n, QUERIES)
    return [slice(start, min(start + BLOCK, most)) for start in range(0, most, BLOCK)]


def _squares(rows: Array) -> Array:
    """Compute the squared length of each row."""
    return np.asarray(np.einsum("ij,ij->i", rows, rows))


def _mean_squares(rows: Array) -> Array:
    """Compute the mean square of each column."""
    return np.asarray(np.einsum("ij,ij->j", rows, rows)) / len(rows)
