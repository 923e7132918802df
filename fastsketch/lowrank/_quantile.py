"""Weighted quantiles by quickselect."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def weighted_quantile(values: Floats, weights: Floats | None, target: float | None) -> float:
    """Return the smallest value up to which the total weight of the values is at least `target`.

    With ``target=None`` that is half of the total weight, and the result is the x that minimises
    sum_k weights_k |values_k - x|. Weights of None are all 1. The result is NaN without values, or if all weights are
    zero. Each step keeps the half of the values that has the quantile, so that the time is linear in their number.
    """
    if weights is None:
        weights = np.ones(len(values))
    total = float(weights.sum())
    if not total > 0:
        return float("nan")
    remaining_target = 0.5 * total if target is None else target
    while len(values) > 1:
        middle = (len(values) - 1) // 2
        pivot = np.partition(values, middle)[middle]
        below, above = values < pivot, values > pivot
        weight_below = float(weights[below].sum())
        weight_up_to = float(weights[~above].sum())
        if weight_below >= remaining_target:
            values, weights = values[below], weights[below]
        elif weight_up_to >= remaining_target or not above.any():
            return float(pivot)
        else:
            values, weights, remaining_target = values[above], weights[above], remaining_target - weight_up_to
    return float(values[0])
