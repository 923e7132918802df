"""The best items of a row of scores."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def best_items(scores: NDArray[Any], n: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """(items, scores) (k, n) of scores (k, items), best first, of equal ones the first; -1 and NaN for -inf."""
    k, width = scores.shape
    most = min(n, width)
    found, values = np.full((k, n), -1, np.int64), np.full((k, n), np.nan)
    for i, row in enumerate(scores):
        # the places that are as good as the n-th best: more than n of them where scores are equal
        floor = np.partition(row, width - most)[width - most]
        places = np.flatnonzero(row >= floor)
        order = places[np.argsort(-row[places], kind="stable")][:most]
        order = order[row[order] > -np.inf]
        found[i, : len(order)], values[i, : len(order)] = order, row[order]
    return found, values
