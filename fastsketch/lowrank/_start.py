"""Where a fit begins: the loss with its parameter, the ridges in units of the loss, and the biases."""

from dataclasses import replace
from typing import NamedTuple

from fastsketch.lowrank._biases import constant_score, fit_biases, no_biases
from fastsketch.lowrank._choose import BIAS_RIDGES, Score, along, bias_score
from fastsketch.lowrank._data import Observed
from fastsketch.lowrank._fitted import Biases, SelectionLine
from fastsketch.lowrank._setting import FROM_SPREAD, LossSetting
from fastsketch.lowrank._units import BIAS_OBSERVATIONS, mean_curvature, parameter_from_data


class Start(NamedTuple):
    """A fit before its first rank."""

    loss: LossSetting
    biases: Biases
    bias_ridge: float  # observations
    curvature: float  # of one of them
    selection: tuple[SelectionLine, ...] = ()  # what held-out entries have said of bias ridges


def begin(
    data: Observed,
    loss: LossSetting,
    *,
    given: bool,
    biases: bool,
    bias_ridge: float | None,
    held: Observed | None = None,
) -> Start:
    """`given`: whether the user has given the parameter of the loss; `held`: entries that choose bias_ridge if None."""
    ridge = BIAS_OBSERVATIONS[loss.about.targets] if bias_ridge is None else bias_ridge
    from_data = loss.name in FROM_SPREAD and not given
    if not biases and not from_data:
        return Start(loss, no_biases(data), ridge, 1.0)
    level = constant_score(data, loss)
    if from_data:
        found = parameter_from_data(data, loss, level, biases=biases, bias_ridge=ridge)
        loss = replace(loss, parameter=found)
    if not biases:
        return Start(loss, no_biases(data), ridge, 1.0)
    curvature = mean_curvature(data, loss, level)

    def fit(ridge: float) -> Biases:
        return fit_biases(data, loss, ridge=ridge * curvature, level=level)

    if held is None or bias_ridge is not None:
        return Start(loss, fit(ridge), ridge, curvature)
    tried: dict[float, tuple[Biases, Score]] = {}

    def score(ridge: float) -> float:
        found = fit(ridge)
        tried[ridge] = found, bias_score(held, loss, found)
        return tried[ridge][1][0]

    ridge = along(BIAS_RIDGES, ridge, score)
    lines = tuple(
        SelectionLine(rank=0, ridge=None, bias_ridge=each, validation=mean, standard_error=error)
        for each, (_, (mean, error)) in tried.items()
    )
    return Start(loss, tried[ridge][0], ridge, curvature, lines)
