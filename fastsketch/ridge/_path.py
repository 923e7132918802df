"""Hill-climbing search for the ridge penalty of the best held-out score, and which other penalties are as good.

A few hundred rows determine the best ridge only roughly, so a loss below their standard error does not count.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

# Ratio of neighbouring ridges of a search.
STEP = 10.0**0.5
# Number of standard errors within which a loss against the best ridge does not count.
SLACK = 0.5


def climbed(
    scores: Callable[[float], Values], least: float, most: float, *, start: float = 0.0, gain: float = 0.0
) -> dict[float, Values]:
    """Search for the best score by hill-climbing on a logarithmic grid of ridge penalties.

    Return the scores of all steps tried, as {step: scores}.

    The search moves towards better scores until they are worse again.

    `scores(step)` gives the score of every row (k,) at STEP**step times the first ridge, and STEP**step stays in
    [least, most]. With `gain` the search also ends where a step improves the mean score by less than this share.
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
    """Return the grid step of the highest mean score; among equal ones the largest step."""
    return max(tried, key=lambda step: (tried[step].mean(), step))


def as_good(tried: dict[float, Values]) -> list[float]:
    """Return the grid steps whose scores are statistically as good as the best, in ascending order.

    The criterion is ``is_as_good``.
    """
    best = tried[best_step(tried)]
    return [step for step in sorted(tried) if is_as_good(best - tried[step])]


def is_as_good(behind: Values) -> bool:
    """Return True if the mean deficit against the best score is at most SLACK standard errors.

    `behind` has the deficit of each row.
    """
    return behind.mean() <= SLACK * error_of(behind)


def error_of(values: Values) -> float:
    """Return the standard error of the mean of independent values."""
    return float(values.std()) / max(1, len(values) - 1) ** 0.5
