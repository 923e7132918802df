"""The k-th smallest of numbers that lie in partitions, exactly: sixteen bits at a time, from histograms."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch.lowrank._crew import Each, Partitions

Floats = NDArray[np.float64]

BITS, ROUNDS = 16, 4


class Histogram(NamedTuple):
    """Weights of the numbers whose leading bits are known, by the next sixteen."""

    weights: Floats  # (2^16,)


def keys(values: Floats) -> NDArray[np.uint64]:
    """Unsigned integers in the order of the values."""
    bits = (values + 0.0).view(np.uint64)  # one zero
    return np.where(bits >> np.uint64(63), ~bits, bits | np.uint64(1 << 63))


def value_of(key: int) -> float:
    """The inverse of `keys`."""
    bits = key ^ (1 << 63) if key >> 63 else ~key & (2**64 - 1)
    return float(np.array(bits, np.uint64).view(np.float64))


def histogram(place: Any, numbers: Any, prefix: int, turn: int) -> Histogram:
    """Of the numbers whose first `turn` sixteens are those of prefix."""
    values: Floats = numbers[0]
    weights: Floats | None = numbers[1]
    if not len(values):
        return Histogram(np.zeros(1 << BITS))
    own = keys(values)
    if turn:
        known = (own >> np.uint64(64 - BITS * turn)) == np.uint64(prefix)
        own, weights = own[known], None if weights is None else weights[known]
    digit = (own >> np.uint64(64 - BITS * (turn + 1))) & np.uint64((1 << BITS) - 1)
    return Histogram(np.bincount(digit.astype(np.int64), weights, 1 << BITS).astype(np.float64))


def least_reaching(parts: Partitions, numbers: Each[Any], target: float | None) -> float:
    """The least value of which those up to it weigh `target`, or half of all if None; NaN if there are none.

    numbers: for every partition (values (k,), weights (k,) or None: all are 1).
    """
    prefix, below = 0, 0.0
    for turn in range(ROUNDS):
        weights = parts.total(histogram, numbers, prefix, turn).weights
        reached = np.cumsum(weights)
        if turn == 0:
            if not reached[-1] > 0:
                return float("nan")
            target = 0.5 * float(reached[-1]) if target is None else target
        assert target is not None
        digit = int(np.searchsorted(reached, target - below))
        if digit == 1 << BITS:  # by rounding: the largest there is
            digit = int(np.flatnonzero(weights)[-1])
        below += float(reached[digit - 1]) if digit else 0.0
        prefix = (prefix << BITS) | digit
    return value_of(prefix)
