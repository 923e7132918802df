"""Choice of the ridge from a grid, by the loss on held-out entries.

All ridges start from the same greedy ranks. Each is fitted as if it had been given, so that the chosen one can be given
to the fit of all entries. The model of biases alone is scored too, to report how much the factors gain over it.
"""

from dataclasses import dataclass, replace
from math import frexp, inf, ldexp

import numpy as np
from numpy.typing import NDArray

from fastsketch.lowrank._fitted import Score, SelectionLine
from fastsketch.lowrank._pursuit import Pursuit
from fastsketch.lowrank._setting import LEARNED, Ridge, Ridges
from fastsketch.lowrank._sweeps import Factors, Sweeps, biases_alone, held_gain, held_losses, held_score

RIDGES = (4.0, 2.0, 1.0, 0.5, 0.25)  # noise levels: octaves about the one at which a factor of pure noise vanishes


def unit_of(mean: float) -> float:
    """Return a power of two near the mean loss. Losses are divided by it so that their squares do not overflow."""
    return ldexp(1.0, frexp(mean)[1]) if 0 < mean < inf else 1.0


@dataclass(frozen=True)
class Candidate:
    """A fitted model with its losses on the held-out entries."""

    model: Factors
    losses: NDArray[np.float64]  # of the held-out entries
    score: Score
    gain: Score  # mean loss of biases alone minus that of the model, and the standard error of the difference

    @property
    def line(self) -> SelectionLine:
        """Return a dict with the candidate's rank, ridges, held-out loss and gain, for ``LowRankModel.selection``."""
        rank, ridges = self.model.rank, self.model.ridges
        return SelectionLine(
            rank=rank,
            ridge=ridges.ridge if rank else None,
            bias_ridge=ridges.bias_ridge,
            validation=self.score[0],
            standard_error=self.score[1],
            gain=self.gain[0],
            gain_error=self.gain[1],
        )


def choose(
    pursuit: Pursuit, sweeps: Sweeps, ridges: Ridges, *, ridge: Ridge | None
) -> tuple[Factors, Score, list[SelectionLine]]:
    """Fit the model with each candidate ridge, and return the one with the smallest held-out loss.

    Its score and a list of dicts that describe all candidates are returned too.

    Parameters
    ----------
    pursuit : Pursuit
        The greedy ranks at which all candidates start.
    sweeps : Sweeps
    ridges : Ridges
        Its ridge is the only candidate if it is "learned", or if `ridge` is given.
    ridge : float, "learned" or None
        The parameter of the model.

    Returns
    -------
    model, (mean held-out loss, its standard error), selection
        The selection has one line for each candidate, and the model of biases alone comes last.
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
