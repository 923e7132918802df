"""Levels of one direction: what its bits stand for, and the error that they leave in a weighted sample."""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Bits that a direction may have; more than NIBBLE of them are a level of one nibble plus one of a second.
MOST_BITS: Final = 8
NIBBLE: Final = 4
# Iterations of Lloyd's algorithm in one dimension.
ITERATIONS: Final = 25
# Rows a level of the sample from which on its quantiles are a better start than those of a normal variable.
MANY: Final = 4
# The share of a normal variable's variance that the best levels of 0, 1, ... bits leave, and the rows a level of a
# sample that this expectation counts as: without it the levels of a few rows would seem to leave nothing.
LEFT: Final = (1.0, 0.36338, 0.11748, 0.034548, 0.0094971, 0.0025, 0.00065, 0.000165, 0.000042)
COUNTS_AS: Final = 2.0
# Of the weight of a sample, what may lie beyond the first levels: a row that is too long to count (``_near``) has less.
ENDS: Final = 1e-4


class Levels(NamedTuple):
    """Levels of the bits of a direction: its low ones index `fine`, those above `coarse`; the two are added."""

    coarse: Array
    fine: Array  # [0.0] up to NIBBLE bits
    left: float  # mean square of the error, weighted


class Direction:
    """A sample of coordinates in one direction, sorted, with weights."""

    def __init__(self, z: Array, weight: Array, spread: float) -> None:
        order = np.argsort(z, kind="stable")
        self._z, held = z[order], weight[order]
        self._weight = np.concatenate([[0.0], np.cumsum(held)])
        self._sum = np.concatenate([[0.0], np.cumsum(held * self._z)])
        self._square = float(held @ np.square(self._z))
        self._spread = spread
        self._found: dict[int, Levels] = {}

    def levels(self, bits: int) -> Levels:
        """Return the levels of so many bits."""
        if bits not in self._found:
            if bits <= NIBBLE:
                pairs = [(self._coarse(bits), np.zeros(1))]
            else:  # from levels that are dense where rows are, and from even ones
                fine = 1 << (bits - NIBBLE)
                pairs = [self._two(coarse, fine) for coarse in (self._coarse(NIBBLE), self._even(1 << NIBBLE))]
            tried = [Levels(*pair, self._left(np.add.outer(*pair).ravel(), bits)) for pair in pairs]
            self._found[bits] = min(tried, key=lambda levels: levels.left)
        return self._found[bits]

    def _left(self, levels: Array, bits: int) -> float:
        total, count = float(self._weight[-1]), COUNTS_AS * len(levels)
        _, weight, sums = self._cells(np.sort(levels))
        ordered = np.sort(levels)
        # sum of w (z - level)^2
        lost = max(self._square - 2.0 * float(ordered @ sums) + float(np.square(ordered) @ weight), 0.0)
        return (lost + count * LEFT[bits] * self._spread**2) / (total + count)

    def _cells(self, ordered: Array) -> tuple[NDArray[np.int64], Array, Array]:
        """Return (rows, their weight, the sum of weight times z) of the cells of ascending levels."""
        inner = np.searchsorted(self._z, (ordered[1:] + ordered[:-1]) / 2)
        ends = np.concatenate([[0], inner, [len(self._z)]])
        return np.diff(ends), np.diff(self._weight[ends]), np.diff(self._sum[ends])

    def _coarse(self, bits: int) -> Array:
        """Return 2^bits ascending levels by Lloyd's algorithm."""
        if bits == 0:
            return np.zeros(1)
        levels = self._start(1 << bits)
        for _ in range(ITERATIONS):
            count, weight, sums = self._cells(levels)
            moved = np.sort(np.where(count > 0, sums / np.where(weight > 0, weight, 1.0), levels))
            if np.array_equal(moved, levels):
                break
            levels = moved
        return levels

    def _start(self, n: int) -> Array:
        from scipy.special import ndtri

        share = (np.arange(n) + 0.5) / n
        if len(self._z) < MANY * n:
            # the best levels of a normal variable have equal shares of one of thrice its variance
            return np.sqrt(3.0) * self._spread * ndtri(share)
        middle: Array = (self._weight[1:] + self._weight[:-1]) / (2.0 * self._weight[-1])
        low, high = self._ends()
        grid = low + (high - low) * np.arange(1, n + 1) / (n + 1)
        return 0.6 * np.interp(share, middle, self._z) + 0.4 * grid

    def _ends(self) -> tuple[float, float]:
        """Return what the sample reaches, less single rows that hardly count."""
        total = float(self._weight[-1])
        low, high = (int(np.searchsorted(self._weight[1:], share * total)) for share in (ENDS, 1.0 - ENDS))
        return float(self._z[low]), float(self._z[min(high, len(self._z) - 1)])

    def _even(self, n: int) -> Array:
        """Return levels in the middle of n equal parts of what the sample reaches."""
        low, high = self._ends() if len(self._z) > 1 else (-self._spread, self._spread)
        return low + (high - low) * (np.arange(n) + 0.5) / n

    def _two(self, coarse: Array, n: int) -> tuple[Array, Array]:
        """Return coarse and fine levels, their sums the levels: the means of what the other leaves, in turns."""
        # a cell of the mean width, cut evenly
        width = float(coarse[-1] - coarse[0]) / (len(coarse) - 1)
        fine = width * ((np.arange(n) + 0.5) / n - 0.5)
        for turn in range(ITERATIONS):
            sums_of = np.add.outer(coarse, fine).ravel()
            order = np.argsort(sums_of, kind="stable")
            _, weight, sums = self._cells(sums_of[order])
            one, two = np.divmod(order, n)
            if turn % 2:
                coarse = _means(sums - weight * fine[two], weight, one, coarse)
            else:
                fine = _means(sums - weight * coarse[one], weight, two, fine)
        return coarse, fine


def _means(sums: Array, weight: Array, place: NDArray[np.int64], old: Array) -> Array:
    """Return the mean of all cells of a place; what has no rows stays."""
    below = np.bincount(place, weight, len(old))
    return np.where(below > 0, np.bincount(place, sums, len(old)) / np.where(below > 0, below, 1.0), old)
