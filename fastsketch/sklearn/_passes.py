"""Choice of the number of passes over few rows, and scaling of the scores, both by cross-validation.

One pass is too short for some hundreds of rows: on iris it leaves 16% wrong where ten passes leave 6%. The passes are
those of a documented grid (``epochs`` of the estimators). The next number is tried as long as it lowers the loss of
held-out rows by more than one standard error (Breiman and others 1984, section 3.4.3). With few rows hardly any gain
reaches that, and they need the passes most, so a proportionally smaller gain is enough there.

More passes make scores larger, and their calibration used rows that had been learned before. So the scores of
classifiers are multiplied by the factor, at most 1, that minimises the log loss of the same held-out rows (temperature
scaling: Guo and others 2017, section 4.2).
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from fastsketch._core.bottom_k import CV_FOLDS
from fastsketch._core.random import Key, raw_numbers

Places = NDArray[np.intp]
Floats = NDArray[np.float64]
# Two functions of one learner: make a pass over rows, and compute the scores of rows.
Learner = tuple[Callable[[int, Places], None], Callable[[Places], Floats]]
# Numbers of passes that are tried.
STEPS = (1, 2, 3, 5, 10)
# One pass is enough from ENOUGH rows on: a second one changed the log loss of no set by more than .003 (a9a, w8a,
# clicks, MNIST, halves of news20), and the choice takes as much time as two. Rows of uneven weights count as fewer, but
# from MOST rows on one pass takes long enough.
ENOUGH, MOST = 10_000, 100_000
# Fewer rows cannot be split into folds.
TOO_FEW = 10
# Folds are held out in turn until they have this many rows in all: an error rate has then a standard error of at most
# 2.2% (the binomial law).
HELD_OUT = 500


def effective_weights(weights: Floats) -> Floats:
    """Return weights rescaled so that their sum is Kish's effective number of rows, (sum w)^2 / sum w^2.

    With class_weight="balanced" and a class of twenty rows this is about eighty, however many rows the others have.
    """
    shares = weights / (weights.max() or 1.0)
    return shares * (shares.sum() / ((shares @ shares) or 1.0))


def choose_passes(
    learner: Callable[[], Learner],
    losses: Callable[[Floats, Places], Floats],
    even: Floats,
    *,
    seed: int,
    classes: Places | None,
    hasty: bool,
) -> tuple[int, Places, Floats]:
    """Choose the number of passes over the rows by cross-validation, and return (passes, held-out rows, scores).
    More passes are tried as long as the loss of held-out rows decreases.

    Parameters
    ----------
    learner : callable
        Makes a new learner: functions learn(epoch, indices), a pass over these rows, and scores(indices).
    losses : callable
        losses(scores, indices) returns the loss of each row.
    even : ndarray (n,)
        Weights as ``effective_weights`` returns them.
    seed : int
        Seed of the folds.
    classes : ndarray (n,) or None
        Numbers of the classes, for stratified folds.
    hasty : bool
        Whether a gain of less than one standard error is enough for few rows: that of their number over HELD_OUT.

    Returns
    -------
    passes : int
    held_out : ndarray
        Indices of the held-out rows; empty if there is nothing to choose.
    scores : ndarray
        Their scores after this number of passes.
    """
    n, counted = len(even), float(even.sum())
    if not TOO_FEW <= n < MOST or not 0 < counted < ENOUGH:
        return 1, np.empty(0, np.intp), np.empty(0)
    order = np.argsort(raw_numbers(seed, Key.EPOCH, 0, 1, n), kind="stable")
    if classes is not None:
        order = order[np.argsort(classes[order], kind="stable")]
    parts = [order[first::CV_FOLDS] for first in range(CV_FOLDS)][: int(-(-HELD_OUT * CV_FOLDS // counted))]
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


def fit_temperature(scores: Floats, numbers: Places, weights: Floats) -> float:
    """Return the factor in [0, 1] by which scores are multiplied to minimise their log loss (temperature scaling).

    `numbers` (n,) are their classes, and `weights` as ``effective_weights`` returns them. A prior as strong as one row
    favours 1.
    """
    from scipy.optimize import minimize_scalar

    z = np.stack([np.zeros(len(scores)), scores], axis=1) if scores.ndim == 1 else scores
    rows = np.arange(len(z))

    def loss(factor: float) -> float:
        return 0.5 * (factor - 1.0) ** 2 - float(weights @ log_softmax(factor * z, axis=1)[rows, numbers])

    return float(minimize_scalar(loss, bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-4}).x)
