"""Where a fit begins: the loss with its parameter, the ridges in units of the loss, and the biases."""

from dataclasses import replace
from typing import Any, NamedTuple

from fastsketch.lowrank._choose import BIAS_RIDGES, along
from fastsketch.lowrank._fitted import Score, SelectionLine
from fastsketch.lowrank._ground import Ground
from fastsketch.lowrank._setting import FROM_SPREAD, LossSetting
from fastsketch.lowrank._units import BIAS_OBSERVATIONS, parameter_from_data


class Start(NamedTuple):
    """A fit before its first rank."""

    loss: LossSetting
    biases: Any  # as the ground has them
    bias_ridge: float  # observations
    curvature: float  # of one of them
    selection: tuple[SelectionLine, ...] = ()  # what held-out entries have said of bias ridges


def begin(ground: Ground, loss: LossSetting, *, given: bool, biases: bool, bias_ridge: float | None) -> Start:
    """`given`: whether the user has given the parameter of the loss. Held-out entries choose a bias_ridge of None."""
    ridge = BIAS_OBSERVATIONS[loss.about.targets] if bias_ridge is None else bias_ridge
    from_data = loss.name in FROM_SPREAD and not given
    if not biases and not from_data:
        return Start(loss, ground.no_biases(), ridge, 1.0)
    level = ground.constant_score(loss)
    if from_data:
        found = parameter_from_data(ground, loss, level, biases=biases, bias_ridge=ridge)
        loss = replace(loss, parameter=found)
    if not biases:
        return Start(loss, ground.no_biases(), ridge, 1.0)
    curvature = ground.mean_curvature(loss, level)

    def fit(ridge: float) -> Any:
        return ground.fit_biases(loss, ridge=ridge * curvature, level=level)

    if not ground.has_held or bias_ridge is not None:
        return Start(loss, fit(ridge), ridge, curvature)
    tried: dict[float, tuple[Any, Score]] = {}

    def score(ridge: float) -> float:
        found = fit(ridge)
        tried[ridge] = found, ground.bias_score(loss, found)
        return tried[ridge][1][0]

    ridge = along(BIAS_RIDGES, ridge, score)
    lines = tuple(
        SelectionLine(rank=0, ridge=None, bias_ridge=each, validation=mean, standard_error=error)
        for each, (_, (mean, error)) in tried.items()
    )
    return Start(loss, tried[ridge][0], ridge, curvature, lines)
