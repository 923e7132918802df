"""The k-th smallest of numbers in partitions, exactly: sixteen bits at a time, from histograms."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.lowrank import entries
from fastsketch.lowrank._partitions import Partitions

Floats = NDArray[np.float64]
Weighted = tuple[Floats, Floats | None]  # values (k,), their weights; None: all are 1

BITS, ROUNDS = 16, 4


def least_reaching(parts: Partitions, numbers: Any, target: float | None) -> float:
    """Return the least value of which those up to it weigh `target`, or half of all if None; NaN if there are none.

    numbers: values and weights of every partition.
    """
    if parts.alone:
        return parts.total(selected, numbers, target, parts.in_place)
    prefix, below = 0, 0.0
    for turn in range(ROUNDS):
        weights = parts.total(histogram, numbers, prefix, turn)
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


def selected(numbers: Weighted, target: float | None, in_place: bool) -> float:
    """Select that value where all numbers are in one place; in_place: they may be put in another order."""
    values, weights = numbers
    if not len(values):
        return float("nan")
    if weights is not None:
        if not in_place:
            values, weights = values.copy(), weights.copy()
        return float(entries.weighted_quantile(values, weights, np.nan if target is None else target))
    rank = int(np.ceil(0.5 * len(values) if target is None else target)) - 1
    rank = min(max(rank, 0), len(values) - 1)
    return float(np.partition(values, rank)[rank])


def histogram(numbers: Weighted, prefix: int, turn: int) -> Floats:
    """Return weights (2^16,) of the numbers whose first `turn` sixteens are those of prefix, by the next sixteen."""
    values, weights = numbers
    if not len(values):
        return np.zeros(1 << BITS)
    own = keys(values)
    if turn:
        known = (own >> np.uint64(64 - BITS * turn)) == np.uint64(prefix)
        own, weights = own[known], None if weights is None else weights[known]
    digit = (own >> np.uint64(64 - BITS * (turn + 1))) & np.uint64((1 << BITS) - 1)
    return np.bincount(digit.astype(np.int64), weights, 1 << BITS).astype(np.float64)


def keys(values: Floats) -> NDArray[np.uint64]:
    """Return unsigned integers in the order of the values."""
    bits = (values + 0.0).view(np.uint64)  # one zero
    return np.where(bits >> np.uint64(63), ~bits, bits | np.uint64(1 << 63))


def value_of(key: int) -> float:
    """Return the value of a key."""
    bits = key ^ (1 << 63) if key >> 63 else ~key & (2**64 - 1)
    return float(np.array(bits, np.uint64).view(np.float64))
