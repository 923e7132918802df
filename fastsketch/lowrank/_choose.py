"""Ridges and rank by held-out entries: one after the other, each along a path that begins at the default.

Biases alone choose bias_ridge (_fitting): a fit of them is a few passes over the entries. Sweeps then begin where the
greedy ranks have ended, at the largest rank, once for each ridge that is tried; at the best ridge the rank is halved as
long as that is better. A path goes to larger values while the loss falls, or else to smaller ones, which is three or
four fits; every fit is the one that an explicit ridge and rank would have, so that the values found can be given to a
fit of all entries.

What is simple or usual stays where entries held out cannot tell: the usual bias_ridge unless another is better by half
a standard error; biases alone where no factors are better by more than one (of learned ridges, by anything: factors
that say nothing have faded, and cost nothing where a few entries prefer them by chance); ridge 1, and the ranks that
were asked for, unless another ridge or fewer ranks are better by more than two: the fit to all entries supports a
smaller ridge and more ranks than the one that chooses. Ridge 1 is not usual where it is no better than biases alone:
the best ridge is then what has to be. Losses are compared entry by entry, which tells more than their means do.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import frexp, inf, ldexp

import numpy as np
from numpy.typing import NDArray

from fastsketch.lowrank._fitted import Score, SelectionLine, selection_line
from fastsketch.lowrank._pursuit import Pursuit
from fastsketch.lowrank._setting import LEARNED, Ridge, Ridges
from fastsketch.lowrank._sweeps import Factors, Sweeps, biases_alone, held_gain, held_losses, held_score

BIAS_RIDGES = (0.3, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 40.0)  # observations
BIAS_ERRORS = 0.5  # by so many standard errors must another than the usual be better
RIDGES = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0)  # noise levels


def along(path: Sequence[float], start: float, score: Callable[[float], float]) -> float:
    """Return the value with the least score, up or down the path from `start` as long as each step gains."""
    scores = {start: score(start)}
    at = path.index(start)
    for step in (1, -1):
        place = at + step
        while 0 <= place < len(path):
            value = path[place]
            scores[value] = score(value)
            if not scores[value] < scores[path[place - step]]:
                break
            place += step
        if min(scores, key=scores.__getitem__) != start:
            break
    return min(scores, key=scores.__getitem__)


def unit_of(mean: float) -> float:
    """Return the power of two that losses of this mean are divided by where they are squared."""
    return ldexp(1.0, frexp(mean)[1]) if 0 < mean < inf else 1.0


@dataclass(frozen=True)
class Candidate:
    """A model that was tried."""

    model: Factors
    losses: NDArray[np.float64]  # of the entries held out
    score: Score
    gain: Score  # mean loss of biases alone less its own, and the standard error of that

    @property
    def line(self) -> SelectionLine:
        """Return its line of the selection."""
        rank, ridges = self.model.rank, self.model.ridges
        return selection_line(rank, ridges.ridge if rank else None, ridges.bias_ridge, self.score, self.gain)


def choose(
    pursuit: Pursuit, sweeps: Sweeps, ridges: Ridges, *, ridge: Ridge | None
) -> tuple[Factors, Score, list[SelectionLine]]:
    """Return the model after sweeps whose ridge and rank the held-out entries choose; biases alone are one.

    With its score, and a line for each model that was tried, that of biases alone last. A given `ridge` is kept.
    """
    entries, loss = pursuit.observations, pursuit.loss

    model = biases_alone(entries, pursuit.biases, ridges)
    losses = held_losses(entries, loss, model)
    alone = Candidate(model, losses, held_score(losses), (0.0, 0.0))
    unit = unit_of(alone.score[0])
    candidates: dict[tuple[int, Ridge], Candidate] = {}  # of a rank and a ridge

    def at(multiple: Ridge, rank: int) -> float:
        if (rank, multiple) not in candidates:
            model = sweeps.run(*pursuit.sides(rank), pursuit.path[rank], replace(ridges, ridge=multiple))
            losses = held_losses(entries, loss, model)
            gain = held_gain(alone.losses, losses, unit)
            candidates[rank, multiple] = Candidate(model, losses, held_score(losses), gain)
        return candidates[rank, multiple].score[0]

    def better(one: Candidate, other: Candidate, errors: float) -> bool:
        """Return whether `one` is better by more than so many standard errors."""
        gain, error = held_gain(other.losses, one.losses, unit)
        return gain > errors * error or other.score[0] == inf > one.score[0]

    rank = pursuit.rank
    if ridges.ridge == LEARNED:
        ridge = LEARNED
    chosen = ridge if ridge is not None else along(RIDGES, 1.0, lambda multiple: at(multiple, rank))
    at(chosen, rank)
    if ridge is None:
        usual, best = candidates[rank, 1.0], candidates[rank, chosen]
        if better(usual, alone, 1.0) and not better(best, usual, 2.0):
            chosen = 1.0
    while rank > 1:
        at(chosen, rank // 2)
        if not better(candidates[rank // 2, chosen], candidates[rank, chosen], 2.0):
            break
        rank //= 2
    factors = candidates[rank, chosen]
    errors = 0.0 if ridges.ridge == LEARNED else 1.0
    winner = factors if better(factors, alone, errors) else alone
    return winner.model, winner.score, [*(each.line for each in candidates.values()), alone.line]
