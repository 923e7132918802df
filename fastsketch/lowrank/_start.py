"""Where a fit begins: the loss with its parameter, the ridges in units of the loss, and the biases."""

from dataclasses import replace
from typing import NamedTuple

from fastsketch.lowrank._biases import constant_score, fit_biases, no_biases
from fastsketch.lowrank._data import Observed
from fastsketch.lowrank._fitted import Biases
from fastsketch.lowrank._setting import FROM_SPREAD, LossSetting
from fastsketch.lowrank._units import BIAS_OBSERVATIONS, mean_curvature, parameter_from_data


class Start(NamedTuple):
    """A fit before its first rank."""

    loss: LossSetting
    biases: Biases
    bias_ridge: float  # observations
    curvature: float  # of one of them


def begin(data: Observed, loss: LossSetting, *, given: bool, biases: bool, bias_ridge: float | None) -> Start:
    """`given`: whether the user has given the parameter of the loss."""
    ridge = BIAS_OBSERVATIONS if bias_ridge is None else bias_ridge
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
    return Start(loss, fit_biases(data, loss, ridge=ridge * curvature, level=level), ridge, curvature)
