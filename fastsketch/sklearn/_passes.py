"""How often few rows are learned from: as held-out rows of the same data say.

One pass is short for some hundreds of rows: on iris it leaves 16% wrong where ten leave 6%. More passes make scores
larger, which costs where labels are noisy: on clicks the log loss rises from the second pass on. So rows are held out,
a fifth at a time, and one more step of `STEPS` is taken only where they are predicted better by more than one standard
error of the difference.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.random import Key, raw_numbers

Places = NDArray[np.intp]
Floats = NDArray[np.float64]
# A pass over rows, and the losses of rows: of one learner.
Learner = tuple[Callable[[int, Places], None], Callable[[Places], Floats]]
# Numbers of passes that are tried, in turn, until one is no better than the one before.
STEPS = (1, 2, 3, 5, 10)
# Rows of which one pass is enough: from 10,000 on a second one moved the log loss of no set by more than .003 (a9a,
# w8a, clicks, MNIST, halves of news20), and choosing costs as much time as two.
ENOUGH = 10_000
# Rows below which a fold says nothing.
TOO_FEW = 20
FOLDS = 5
# Rows that are to be held out in all, a fold after the other as long as there are fewer.
HELD_OUT = 500


def chosen_passes(learner: Callable[[], Learner], n: int, seed: int) -> int:
    """Return the number of passes over n rows after which rows that were held out are predicted best.

    learner() begins anew and returns (learn, losses): learn(epoch, places) makes a pass over rows, losses(places) are
    those of what has been learned so far, one for each row.
    """
    if not TOO_FEW <= n < ENOUGH:
        return 1
    parts = np.array_split(np.argsort(raw_numbers(seed, Key.EPOCH, 0, 1, n), kind="stable"), FOLDS)
    parts = parts[: -(-HELD_OUT * FOLDS // n)]
    folds = [(*learner(), np.setdiff1d(np.arange(n), held), held) for held in parts]
    best: Floats | None = None
    chosen = done = 0
    for passes in STEPS:
        for learn, _, kept, _ in folds:
            for epoch in range(done, passes):
                learn(epoch, kept)
        now = np.concatenate([losses(held) for _, losses, _, held in folds])
        if best is not None:
            gain = best - now
            if not gain.mean() > gain.std() / np.sqrt(len(gain)):
                break
        best, chosen, done = now, passes, passes
    return chosen
