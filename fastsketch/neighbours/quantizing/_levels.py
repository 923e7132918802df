"""Scalar quantizer of the coordinates in one direction: its levels and its mean squared error."""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# The largest number of bits of a direction. With more than NIBBLE bits it takes part in two nibbles.
MAX_BITS: Final = 8
NIBBLE: Final = 4
# Largest number of iterations of Lloyd's algorithm, which places the levels of one direction.
ITERATIONS: Final = 25
# Mean squared error of the optimal quantizer of a normal variable by 1, 2, 4, 8 and 16 levels, as a share of its
# variance (Max 1960, table I).
NORMAL_ERRORS: Final = (1.0, 0.36338, 0.11748, 0.034548, 0.0095010)


class Levels(NamedTuple):
    """The values (levels) to which a scalar quantizer rounds the coordinates in one direction.

    A level is the sum of a coarse level and, with more than four bits, a fine one.
    """

    coarse: Array
    fine: Array  # [0.0] with at most NIBBLE bits


class Direction:
    """Scalar quantizer for the coordinates of rows in one direction. It is fitted to a sample, for any number of bits.

    The sample has the standard deviation `spread`.

    Up to four bits stand for the levels of Lloyd's algorithm, more bits for an even grid over the range of the sample.
    An empty sample is replaced by the two coordinates -spread and spread.
    """

    def __init__(self, z: Array, spread: float) -> None:
        self._z = np.sort(z) if len(z) else np.array([-spread, spread])
        self._sum = np.concatenate([[0.0], np.cumsum(self._z)])
        self._variance, self._range = spread**2, float(self._z[-1] - self._z[0])
        self._levels_by_bits: dict[int, Levels] = {}

    def residual_error(self, bits: int) -> float:
        """Return the expected mean squared error of the coordinates after rounding with `bits` bits.

        Up to four bits it is that of a normal variable, with more bits that of an even grid.
        """
        if bits <= NIBBLE:
            return NORMAL_ERRORS[bits] * self._variance
        return (self._range / (1 << bits)) ** 2 / 12.0

    def levels(self, bits: int) -> Levels:
        """Return the values to which coordinates are rounded with this number of bits. They are computed once and
        cached.
        """
        if bits not in self._levels_by_bits:
            self._levels_by_bits[bits] = (
                self._grid_levels(1 << (bits - NIBBLE)) if bits > NIBBLE else self._lloyd_levels(1 << bits)
            )
        return self._levels_by_bits[bits]

    def _grid_levels(self, n: int) -> Levels:
        """Return an even grid of 16 n values over the range of the sample, as sums of 16 coarse values and n fine
        offsets.
        """
        width = self._range / 16
        coarse = self._z[0] + width * (np.arange(16) + 0.5)
        return Levels(coarse, width * ((np.arange(n) + 0.5) / n - 0.5))

    def _lloyd_levels(self, n: int) -> Levels:
        """Return n values, ascending, that Lloyd's algorithm fits to the sample."""
        if n == 1:
            return Levels(np.zeros(1), np.zeros(1))
        levels = self._initial_levels(n)
        for _ in range(ITERATIONS):
            ends = np.concatenate([[0], np.searchsorted(self._z, (levels[1:] + levels[:-1]) / 2), [len(self._z)]])
            count, sums = np.diff(ends), np.diff(self._sum[ends])
            centroids = np.where(count > 0, sums / np.maximum(count, 1), levels)
            if np.array_equal(centroids, levels):
                break
            levels = centroids
        return Levels(levels, np.zeros(1))

    def _initial_levels(self, n: int) -> Array:
        """Return n initial levels for Lloyd's algorithm.

        The density of many optimal levels is proportional to the cube root of the density of the variable (Panter and
        Dite 1951); for a normal variable this is a normal density of three times the variance. The ranks of such levels
        are applied to the sample.
        """
        from scipy.special import ndtr, ndtri

        rank: Array = (np.arange(n) + 0.5) / n
        share = np.asarray(ndtr(np.sqrt(3.0) * np.asarray(ndtri(rank), np.float64)), np.float64)
        return np.interp(share * len(self._z) - 0.5, np.arange(len(self._z)), self._z)
