"""How often few rows are learned from, and how sure of them to be: as held-out rows of the same data say.

One pass is short for some hundreds of rows: on iris it leaves 16% wrong where ten leave 6%. So rows are held out, a
fifth at a time, of each class alike, and one more step of `STEPS` is taken as long as they are predicted better: by
more than one standard error where there are many, since a pass takes time, and on clicks the log loss rises from the
second on. Few rows, or few of a rare class, would hardly ever show as much, and need the passes most: the fewer they
are the less of a standard error is asked for.

More passes make scores larger, and what has calibrated them were rows that had been learned from before. So scores of
labels are multiplied by the factor, 1 or less, that the same held-out rows ask for.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from fastsketch._core.random import Key, raw_numbers

Places = NDArray[np.intp]
Floats = NDArray[np.float64]
# A pass over rows, and the scores of rows: of one learner.
Learner = tuple[Callable[[int, Places], None], Callable[[Places], Floats]]
# Numbers of passes that are tried, in turn, until one is no better than the one before.
STEPS = (1, 2, 3, 5, 10)
# Rows of which one pass is enough: from 10,000 on a second one moved the log loss of no set by more than .003 (a9a,
# w8a, clicks, MNIST, halves of news20), and choosing costs as much time as two. Rows of uneven weights count as fewer;
# of so many as MOST a pass alone takes long.
ENOUGH, MOST = 10_000, 100_000
# Rows below which a fold says nothing.
TOO_FEW = 10
FOLDS = 5
# Rows that are to be held out in all, a fold after the other as long as there are fewer.
HELD_OUT = 500
# What a wrong answer counts beside the right one of each row that is held out, times the square of their number: of
# twenty as much as one row in all, so that those without a mistake do not say that there will be none.
WRONG = 20.0


def evenly(weights: Floats) -> Floats:
    """Return weights whose sum is the number of rows of even weights that would say as much (Kish): (sum)^2 / sum w^2.

    With class_weight="balanced" and a class of twenty rows it is some eighty, however many rows the others have.
    """
    shares = weights / (weights.max() or 1.0)
    return shares * (shares.sum() / ((shares @ shares) or 1.0))


def chosen_passes(
    learner: Callable[[], Learner],
    losses: Callable[[Floats, Places], Floats],
    even: Floats,
    *,
    seed: int,
    classes: Places | None,
    hasty: bool,
) -> tuple[int, Places, Floats]:
    """Return the number of passes after which rows that were held out are predicted best, these rows and their scores.

    learner() begins anew and returns (learn, scores): learn(epoch, places) makes a pass over rows, scores(places) are
    those of what has been learned so far; losses(scores, places) of rows, one for each. even (n,): weights as
    ``evenly`` makes them; classes (n,): numbers, of which every fold has the same share, or None; hasty: whether few
    rows need to be no more than better.
    """
    n, counted = len(even), float(even.sum())
    if not TOO_FEW <= n < MOST or not 0 < counted < ENOUGH:
        return 1, np.empty(0, np.intp), np.empty(0)
    order = np.argsort(raw_numbers(seed, Key.EPOCH, 0, 1, n), kind="stable")
    if classes is not None:
        order = order[np.argsort(classes[order], kind="stable")]
    parts = [order[first::FOLDS] for first in range(FOLDS)][: int(-(-HELD_OUT * FOLDS // counted))]
    folds = [(*learner(), np.setdiff1d(np.arange(n), held), held) for held in parts]
    every, errors = np.concatenate(parts), min(1.0, counted / HELD_OUT) if hasty else 1.0
    best: tuple[int, Floats, Floats] | None = None
    done = 0
    for passes in STEPS:
        for learn, _, kept, _ in folds:
            for epoch in range(done, passes):
                learn(epoch, kept)
        scores = np.concatenate([scores_of(held) for _, scores_of, _, held in folds])
        now = losses(scores, every) * even[every]
        if best is not None:
            gain = best[2] - now
            if not gain.mean() > errors * gain.std() / np.sqrt(len(gain)):
                break
        best, done = (passes, scores, now), passes
    assert best is not None
    return best[0], every, best[1]


def sureness(scores: Floats, numbers: Places, weights: Floats) -> float:
    """Return the factor, 1 or less, by which scores (n,) or (n, k) have the least log loss.

    numbers (n,) of the classes; weights as ``evenly`` makes them. One row speaks for the factor 1.
    """
    from scipy.optimize import minimize_scalar

    z = np.stack([np.zeros(len(scores)), scores], axis=1) if scores.ndim == 1 else scores
    wrong = min(0.5, WRONG / max(weights.sum(), 1.0) ** 2)
    shares = np.full(z.shape, wrong / (z.shape[1] - 1))
    shares[np.arange(len(z)), numbers] = 1.0 - wrong
    shares *= weights[:, np.newaxis]

    def loss(factor: float) -> float:
        return 0.5 * (factor - 1.0) ** 2 - float(np.vdot(shares, log_softmax(factor * z, axis=1)))

    return float(minimize_scalar(loss, bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-4}).x)
