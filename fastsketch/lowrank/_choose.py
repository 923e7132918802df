"""The ridge of the losses for which it is not learned: that of a grid with the least loss of entries held out.

Sweeps begin where the greedy ranks have ended, once for each ridge; every fit is that of an explicit ridge, so that the
ridge found can be given to a fit of all entries. Biases alone are fitted beside them, to say how much the factors gain.
"""

from dataclasses import dataclass, replace
from math import frexp, inf, ldexp

import numpy as np
from numpy.typing import NDArray

from fastsketch.lowrank._fitted import Score, SelectionLine, selection_line
from fastsketch.lowrank._pursuit import Pursuit
from fastsketch.lowrank._setting import LEARNED, Ridge, Ridges
from fastsketch.lowrank._sweeps import Factors, Sweeps, biases_alone, held_gain, held_losses, held_score

RIDGES = (4.0, 2.0, 1.0, 0.5, 0.25)  # noise levels: octaves about the one at which pure noise is left out


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
    """Return the model after sweeps, whose ridge the held-out entries choose unless it is given or learned.

    With its score, and a line for each model that was fitted, that of biases alone last.
    """
    entries, loss, rank = pursuit.observations, pursuit.loss, pursuit.rank
    model = biases_alone(entries, pursuit.biases, ridges)
    losses = held_losses(entries, loss, model)
    alone = Candidate(model, losses, held_score(losses), (0.0, 0.0))
    unit = unit_of(alone.score[0])
    candidates: list[Candidate] = []
    for multiple in RIDGES if ridge is None and ridges.ridge != LEARNED else (ridges.ridge,):
        model = sweeps.run(*pursuit.sides(rank), pursuit.path[rank], replace(ridges, ridge=multiple))
        losses = held_losses(entries, loss, model)
        candidates.append(Candidate(model, losses, held_score(losses), held_gain(alone.losses, losses, unit)))
    winner = min(candidates, key=lambda candidate: candidate.score[0])
    return winner.model, winner.score, [*(each.line for each in candidates), alone.line]
