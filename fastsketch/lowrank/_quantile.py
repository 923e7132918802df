"""Weighted quantiles by selection."""

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.lowrank import entries

Floats = NDArray[np.float64]


def least_reaching(values: Floats, weights: Floats | None, target: float | None) -> float:
    """Return the least value such that the values up to it weigh `target`, or half of all if None; NaN without values.

    Weights of None are all 1. `values` and `weights` are put in another order.
    """
    if not len(values):
        return float("nan")
    if weights is not None:
        return float(entries.weighted_quantile(values, weights, np.nan if target is None else target))
    rank = int(np.ceil(0.5 * len(values) if target is None else target)) - 1
    rank = min(max(rank, 0), len(values) - 1)
    return float(np.partition(values, rank)[rank])
