"""Hill-climbing search for the ridge penalty with the best held-out score."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

# Number of ridge penalties per decade of a grid.
RIDGES_PER_DECADE = 4
# Ratio of neighbouring ridges in a search: two steps of the grid.
RIDGE_RATIO = 10.0 ** (2.0 / RIDGES_PER_DECADE)


def hill_climb(
    scores: Callable[[float], Values],
    lower_limit: float,
    upper_limit: float,
    *,
    first_step: float = 0.0,
    min_relative_gain: float = 0.0,
) -> dict[float, Values]:
    """Search for the ridge penalty with the best mean score on a logarithmic grid; return {step: scores} of all tried.

    Parameters
    ----------
    scores : callable
        Maps a step to the scores (k,) of k rows at the ridge RIDGE_RATIO**step, in units of a ridge that the caller
        chooses.
    lower_limit, upper_limit : float
        Smallest and largest RIDGE_RATIO**step that may be tried, except for the first step and its two neighbours.
    first_step : float, default 0.0
    min_relative_gain : float, default 0.0
        If positive, the search also ends when a step improves the mean score by less than this share.

    Returns
    -------
    dict
        The scores of all steps tried, {step: scores}.
    """
    scores_by_step = {first_step + step: scores(first_step + step) for step in (-1.0, 0.0, 1.0)}
    while True:
        best = best_step(scores_by_step)
        next_step = best - 1 if best == min(scores_by_step) else best + 1 if best == max(scores_by_step) else None
        if next_step is None or not lower_limit <= RIDGE_RATIO**next_step <= upper_limit:
            return scores_by_step
        best_mean = scores_by_step[best].mean()
        if min_relative_gain and best_mean - scores_by_step[2 * best - next_step].mean() <= min_relative_gain * abs(
            best_mean
        ):
            return scores_by_step
        scores_by_step[next_step] = scores(next_step)


def best_step(scores_by_step: dict[float, Values]) -> float:
    """Return the grid step with the highest mean score; among equal ones the largest step, or largest penalty."""
    return max(scores_by_step, key=lambda step: (scores_by_step[step].mean(), step))


def standard_error(values: Values) -> float:
    """Return the standard error of the mean of independent values (n,)."""
    return float(values.std()) / max(1, len(values) - 1) ** 0.5
