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


def fit_candidates(pursuit: Pursuit, sweeps: Sweeps, ridges: Ridges, *, ridge: Ridge | None) -> list[Candidate]:
    """Fit the model with each candidate ridge, and return the candidates. The model of biases alone comes last.

    Parameters
    ----------
    pursuit : Pursuit
        The greedy ranks at which all candidates start.
    sweeps : Sweeps
    ridges : Ridges
        Its ridge is the only candidate if it is "learned", or if `ridge` is given.
    ridge : float, "learned" or None
        The parameter of the model.
    """
    entries, loss, rank = pursuit.observations, pursuit.loss, pursuit.rank
    models = [
        sweeps.run(*pursuit.factors_and_biases(rank), pursuit.path[rank], replace(ridges, ridge=ridge_candidate))
        for ridge_candidate in (RIDGE_CANDIDATES if ridge is None and ridges.ridge != LEARNED else (ridges.ridge,))
    ]
    models.append(biases_only_model(entries, pursuit.biases, ridges))
    return score_models(models, [held_out_losses(entries, loss, model) for model in models])


def score_models(models: list[FactorModel], losses: list[NDArray[np.float64]]) -> list[Candidate]:
    """Return each model with its score and its gain over the last model, that of biases alone."""
    biases_only = losses[-1]
    loss_unit = power_of_two_above(mean_held_out_loss(biases_only)[0])
    gains = [mean_held_out_gain(biases_only, each, loss_unit) for each in losses[:-1]]
    return [
        Candidate(model, each, mean_held_out_loss(each), gain)
        for model, each, gain in zip(models, losses, [*gains, (0.0, 0.0)], strict=True)
    ]


def pool_folds(folds: list[list[Candidate]]) -> list[Candidate]:
    """Return candidates with the models of the first fold and the losses of all folds of a cross-validation."""
    losses = [np.concatenate([each.losses for each in same_ridge]) for same_ridge in zip(*folds, strict=True)]
    return score_models([candidate.model for candidate in folds[0]], losses)


def best_candidate(candidates: list[Candidate]) -> Candidate:
    """Return the candidate with factors that has the smallest loss on held-out entries."""
    return min(candidates[:-1], key=lambda candidate: candidate.score[0])
