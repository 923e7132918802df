"""Nearest neighbours in a sample of rows, from which directions are weighted and the recall of a quantizer measured."""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# Number of nearest rows of a row: the default k of a search.
N_NEIGHBOURS: Final = 10
# Number of rows of the sample that serve as queries, and of rows of one matrix product.
QUERIES: Final = 1000
BLOCK: Final = 512
# Differences of sums of squares below this share of them are rounding errors.
ROUNDING: Final = 1e-9


class NeighbourStatistics(NamedTuple):
    """Nearest neighbours of some rows of a sample, and mean squared differences of neighbours in each coordinate.

    They decide how a quantizer distributes its bits. Neighbours are those of the first m of n rows with r coordinates.

    Parameters
    ----------
    difference, variance : ndarray float64 (r,)
        Mean squares of the coordinates in each direction: of differences of near rows, and of all rows.
    total_difference, total_variance : float
        Mean squared lengths of differences of near rows, and of all rows.
    nearest : ndarray int64 (m, N_NEIGHBOURS)
        Indices of the rows nearest to row i < m.
    """

    difference: Array
    variance: Array
    total_difference: float
    total_variance: float
    nearest: Integers

    @property
    def correlation(self) -> Array:
        """Correlation of the coordinates of nearest neighbours in each direction, shape (r,): 1 if they are equal, 0 if
        they are independent.

        It is (r,).
        """
        return _correlation(self.difference, self.variance)

    def correlation_outside(self, excluded: list[int]) -> float:
        """Return the correlation of nearest neighbours in the subspace that remains without the excluded directions.

        It is 0.5 if these directions have no variance.
        """
        difference = self.total_difference - float(self.difference[excluded].sum())
        variance = self.total_variance - float(self.variance[excluded].sum())
        if variance <= ROUNDING * self.total_variance:
            return 0.5
        return float(_correlation(np.array([max(difference, 0.0)]), np.array([variance]))[0])


def _correlation(difference: Array, variance: Array) -> Array:
    """Return correlations from mean squared differences of pairs and variances, clipped to [0, 1]."""
    return np.clip(1.0 - difference / np.where(variance > 0, 2.0 * variance, np.inf), 0.0, 1.0)


def neighbour_statistics(centred: Array, z: Array, spread: Array) -> NeighbourStatistics:
    """Return the nearest neighbours of rows of a sample, and how much neighbours differ in each direction.

    Rows are centred (n, d), with coordinates z (n, r) of standard deviations `spread` (r,).
    """
    n = len(z)
    if n <= N_NEIGHBOURS:  # too few rows: treat near rows as independent
        variance = np.square(spread)
        total = float(variance.sum())
        return NeighbourStatistics(variance, variance, total, total, np.zeros((0, N_NEIGHBOURS), np.int64))
    nearest = np.concatenate(
        [nearest_rows(queries, -2.0 * (z[queries] @ z.T), _squares(z)) for queries in _query_blocks(n)]
    )
    difference, total_difference = np.zeros(z.shape[1]), 0.0
    for k in range(N_NEIGHBOURS):
        difference += np.square(z[: len(nearest)] - z[nearest[:, k]]).mean(axis=0) / N_NEIGHBOURS
        total_difference += float(_squares(centred[: len(nearest)] - centred[nearest[:, k]]).mean()) / N_NEIGHBOURS
    return NeighbourStatistics(difference, _mean_squares(z), total_difference, float(_squares(centred).mean()), nearest)


def measure_recall(offsets: Array, z: Array, decoded: Array, statistics: NeighbourStatistics) -> float:
    """Return the recall of a code on the sample: the fraction of true nearest neighbours that are found if distances
    are estimated from codes.

    Parameters
    ----------
    offsets : ndarray float64 (n,)
        Estimates of the squared lengths of the rows.
    z, decoded : ndarray float64 (n, r)
        Exact and decoded coordinates of the rows.
    statistics : Nearness
    """
    n_found = 0
    for queries in _query_blocks(len(z)) if len(statistics.nearest) else []:
        answers = nearest_rows(queries, -2.0 * (z[queries] @ decoded.T), offsets)
        n_found += int((answers[:, :, np.newaxis] == statistics.nearest[queries][:, np.newaxis]).sum())
    return n_found / max(1, statistics.nearest.size)


def nearest_rows(queries: slice, products: Array, offsets: Array) -> Integers:
    """Find the nearest rows of each query, without the query itself. Return their indices (m, N_NEIGHBOURS).

    Queries are the rows of the slice `queries`. The rows with the smallest products (m, n) + offsets (n,) are nearest;
    their order is arbitrary.
    """
    estimates = products + offsets
    estimates[np.arange(len(estimates)), np.arange(queries.start, queries.stop)] = np.inf
    return np.argpartition(estimates, N_NEIGHBOURS - 1, axis=1)[:, :N_NEIGHBOURS].astype(np.int64)


def _query_blocks(n: int) -> list[slice]:
    """Return slices that split the rows used as queries into blocks, to limit memory."""
    n_queries = min(n, QUERIES)
    return [slice(start, min(start + BLOCK, n_queries)) for start in range(0, n_queries, BLOCK)]


def _squares(rows: Array) -> Array:
    """Return the squared length of each row, shape (n,)."""
    return np.asarray(np.einsum("ij,ij->i", rows, rows))


def _mean_squares(rows: Array) -> Array:
    """Return the mean square of each column, shape (r,)."""
    return np.asarray(np.einsum("ij,ij->j", rows, rows)) / len(rows)
