"""A ridge chosen on users that the sketch has not seen: part of their items is shown, the rest is to be found."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch.ranking import ndcg_at
from fastsketch.recommending._reading import Reading
from fastsketch.recommending._weights import item_weights

# Share of a user's items that is hidden, and the depth of the list in which they are looked for.
HIDDEN, DEPTH = 0.2, 20
# Ridges in units of the mean sum of squares of a column: where a path begins, its step, and how far it may go.
FIRST, STEP, LEAST, MOST = 3.0, 10.0**0.5, 1e-3, 1e6

# Standard errors of a difference that the middle of the path is given before another ridge is taken.
SLACK = 0.5


class RidgePath(NamedTuple):
    """Ridges that were tried, and how well each found the hidden items of users.

    Attributes
    ----------
    ridge : float
        The one that is taken.
    ridges : ndarray (p,)
        Ascending, in squared units of the rows.
    scores : ndarray (p,)
        Mean NDCG@20 of the users.
    standard_errors : ndarray (p,)
        Of these means. The difference of two of them is far better known, as both are of the same users.
    n_users : int
    """

    ridge: float
    ridges: NDArray[np.float64]
    scores: NDArray[np.float64]
    standard_errors: NDArray[np.float64]
    n_users: int


class Trial:
    """Users whose hidden items are to be found."""

    def __init__(self, reading: Reading, shown: Any, hidden: Any, open_items: NDArray[np.int32]) -> None:
        self._reading, self._shown, self._open = reading, shown, open_items
        self._hidden = hidden
        self._seen = shown.indptr.astype(np.int64), shown.indices.astype(np.int32), None

    def of(self, ridge: float) -> NDArray[np.float64]:
        """NDCG of every user at a ridge."""
        weights = item_weights(self._reading, ridge)
        found, _ = weights.best(weights.projected(self._shown), DEPTH, left_out=[self._seen], allowed=self._open)
        return ndcg_at(found, self._hidden)


def along(trial: Trial, ridges: Sequence[float]) -> RidgePath:
    """The best of these ridges; of equal ones the largest."""
    found = [(float(ridge), trial.of(float(ridge))) for ridge in sorted(ridges)]
    best = max(range(len(found)), key=lambda place: (found[place][1].mean(), place))
    return _path(found, best)


def climb(trial: Trial, unit: float) -> RidgePath:
    """From the middle of a geometric path in the direction of better ones, until they are worse again.

    A few hundred users know the best ridge only roughly: of those that are worse than the best by no more than SLACK
    standard errors of the difference, the nearest to the middle is taken.
    """
    found = {step: trial.of(FIRST * unit * STEP**step) for step in (-1, 0, 1)}
    while True:
        best = max(found, key=lambda step: (found[step].mean(), step))
        ahead = best - 1 if best == min(found) else best + 1 if best == max(found) else None
        if ahead is None or not LEAST <= FIRST * STEP**ahead <= MOST:
            break
        found[ahead] = trial.of(FIRST * unit * STEP**ahead)
    steps = sorted(found)
    behind = {step: found[best] - found[step] for step in steps}
    good = [step for step in steps if behind[step].mean() <= SLACK * error_of(behind[step])]
    chosen = min(good, key=lambda step: (abs(step), -step))
    return _path([(FIRST * unit * STEP**step, found[step]) for step in steps], steps.index(chosen))


def error_of(values: NDArray[np.float64]) -> float:
    """Standard error of the mean of independent values."""
    return float(values.std()) / max(1, len(values) - 1) ** 0.5


def _path(found: list[tuple[float, NDArray[np.float64]]], chosen: int) -> RidgePath:
    ridges, values = zip(*found, strict=True)
    scores, errors = np.array([v.mean() for v in values]), np.array([error_of(v) for v in values])
    return RidgePath(ridges[chosen], np.array(ridges), scores, errors, len(values[0]))
