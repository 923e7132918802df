"""Paths of ridges: a search among them by the scores of rows that were held out, and what of it is as good as the best.

A few hundred rows know the best ridge only roughly: what loses less than they can tell is as good.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

# From one ridge of a path to the next.
STEP = 10.0**0.5
# Standard errors of a difference that another ridge is given before the best is taken.
SLACK = 0.5


def climbed(
    scores: Callable[[float], Values], least: float, most: float, *, start: float = 0.0, gain: float = 0.0
) -> dict[float, Values]:
    """Search from a step in the direction of better scores until they are worse again, and return what was tried.

    `scores` gives those of every row (k,) at STEP**step times the first ridge, which stays in [least, most]. With
    `gain` the search ends where a step gains less than this share of the score.
    """
    tried = {start + step: scores(start + step) for step in (-1.0, 0.0, 1.0)}
    while True:
        best = best_step(tried)
        ahead = best - 1 if best == min(tried) else best + 1 if best == max(tried) else None
        if ahead is None or not least <= STEP**ahead <= most:
            return tried
        level = tried[best].mean()
        if gain and level - tried[2 * best - ahead].mean() <= gain * abs(level):
            return tried
        tried[ahead] = scores(ahead)


def best_step(tried: dict[float, Values]) -> float:
    """Return the step of the best mean score, of equal ones the largest."""
    return max(tried, key=lambda step: (tried[step].mean(), step))


def as_good(tried: dict[float, Values]) -> list[float]:
    """Return the steps that lose no more to the best than rows can tell."""
    best = tried[best_step(tried)]
    return [step for step in sorted(tried) if is_as_good(best - tried[step])]


def is_as_good(behind: Values) -> bool:
    """Return whether rows lose no more by a choice than a few hundred of them can tell."""
    return behind.mean() <= SLACK * error_of(behind)


def error_of(values: Values) -> float:
    """Return the standard error of the mean of independent values."""
    return float(values.std()) / max(1, len(values) - 1) ** 0.5
