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
from fastsketch.lowrank._sweeps import (
    FactorModel,
    Sweeps,
    biases_only_model,
    held_out_losses,
    mean_held_out_gain,
    mean_held_out_loss,
)

RIDGE_CANDIDATES = (
    4.0,
    2.0,
    1.0,
    0.5,
    0.25,
)  # noise levels: octaves about the one at which a factor of pure noise vanishes


def power_of_two_above(mean: float) -> float:
    """Return the smallest power of two above a mean loss, by which losses are divided before they are squared.
    Then no square overflows, and the division does not round.
    """
    return ldexp(1.0, frexp(mean)[1]) if 0 < mean < inf else 1.0


@dataclass(frozen=True)
class Candidate:
    """A model fitted with one candidate ridge, and its losses on the held-out entries."""

    model: FactorModel
    losses: NDArray[np.float64]  # of the held-out entries
    score: Score
    gain: Score  # mean loss of biases alone minus that of the model, and the standard error of the difference

    @property
    def selection_line(self) -> SelectionLine:
        """Return a dict with the candidate's rank, ridges, held-out loss and gain over biases only, for
        ``LowRankModel.selection``.
        """
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


def choose_ridge(
    pursuit: Pursuit, sweeps: Sweeps, ridges: Ridges, *, ridge: Ridge | None
) -> tuple[FactorModel, Score, list[SelectionLine]]:
    """Fit the model with each candidate ridge, and return the model with the smallest loss on held-out entries.
    That loss and a record of all candidates are returned too.

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
    model = biases_only_model(entries, pursuit.biases, ridges)
    losses = held_out_losses(entries, loss, model)
    biases_only = Candidate(model, losses, mean_held_out_loss(losses), (0.0, 0.0))
    loss_unit = power_of_two_above(biases_only.score[0])
    candidates: list[Candidate] = []
    for ridge_candidate in RIDGE_CANDIDATES if ridge is None and ridges.ridge != LEARNED else (ridges.ridge,):
        model = sweeps.run(
            *pursuit.factors_and_biases(rank), pursuit.path[rank], replace(ridges, ridge=ridge_candidate)
        )
        losses = held_out_losses(entries, loss, model)
        candidates.append(
            Candidate(
                model, losses, mean_held_out_loss(losses), mean_held_out_gain(biases_only.losses, losses, loss_unit)
            )
        )
    best = min(candidates, key=lambda candidate: candidate.score[0])
    return best.model, best.score, [*(candidate.selection_line for candidate in candidates), biases_only.selection_line]
