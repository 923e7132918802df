"""The one flow of a fit, over entries in memory or in partitions: biases, ranks, sweeps, what validation says."""

from dataclasses import dataclass, replace
from typing import Any

from fastsketch.lowrank._choose import choose
from fastsketch.lowrank._climb import Watch, climb
from fastsketch.lowrank._fitted import HistoryLine
from fastsketch.lowrank._ground import Ground
from fastsketch.lowrank._setting import LossSetting, PursuitSetting, Ridges, SideSetting
from fastsketch.lowrank._start import begin


@dataclass(frozen=True)
class Wanted:
    """What a model asks of a fit; the fields have the names of its parameters."""

    rank: int
    sweeps: int
    biases: bool
    ridge: float | None
    bias_ridge: float | None
    given: bool  # whether the parameter of the loss was
    pursuit: PursuitSetting

    @property
    def loss(self) -> LossSetting:
        """With the parameter of the table where none was given."""
        return self.pursuit.loss


def fitted_on(ground: Ground, wanted: Wanted, watch: Watch) -> tuple[Any, Any]:
    """(the model, of the kind that the ground has; the pursuit, if its ranks can be continued)."""
    start = begin(ground, wanted.loss, given=wanted.given, biases=wanted.biases, bias_ridge=wanted.bias_ridge)
    loss = start.loss
    pursuit = ground.pursuit(start.biases, replace(wanted.pursuit, loss=loss))
    follow = wanted.rank > 0 and wanted.sweeps > 0
    noise = ground.noise(loss, pursuit, bias_ridge=start.bias_ridge, follow=follow)
    ridge = 1.0 if wanted.ridge is None else wanted.ridge
    ridges = Ridges(ridge, start.bias_ridge, noise.unit(), start.curvature)
    climb(pursuit, wanted.rank, watch)
    fitted = pursuit.fitted(watch.history, watch.selected_rank(), ridges)
    selection = list(start.selection)
    if wanted.sweeps and fitted.ranks > 0:
        ground.let_go(pursuit)
        side = SideSetting(loss, fitted.level, ridges.penalty, ridges.bias_penalty, wanted.biases)
        if not ground.has_held:
            fitted = ground.swept(fitted, side, sweeps=wanted.sweeps, noise=noise)
        else:
            fitted, lines = choose(ground, fitted, side, noise, ridge=wanted.ridge, sweeps=wanted.sweeps)
            selection += lines if not selection else lines[:-1]  # biases alone are there already
        after = HistoryLine(
            rank=fitted.selected_rank,
            objective=ground.total_loss(loss, fitted),
            seconds=watch.seconds(),
            validation=ground.held_loss(loss, fitted) if ground.has_held else None,
        )
        fitted = replace(fitted, after=after)
    if ground.has_held:
        error = ground.model_score(loss, fitted)[1]
        fitted = replace(fitted, selection=tuple(selection), standard_error=error)
    return fitted, None if wanted.sweeps else pursuit
