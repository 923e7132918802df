"""What a fit stands on: the entries of a matrix, wherever they are, and what they are asked for.

`_fitting.py` is the one flow of a fit. Its ground is the entries in memory (`InMemory`), or partitions of rows that
stay where they are (`_spread.py`).
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fastsketch.lowrank._biases import SWEEPS, constant_score, fit_biases, no_biases
from fastsketch.lowrank._data import Observed
from fastsketch.lowrank._factors import swept
from fastsketch.lowrank._fitted import Biases, Fitted, Problem, Score
from fastsketch.lowrank._noise import NoiseLevel, NoiseOfEntries, scores, total_loss
from fastsketch.lowrank._pursuit import Pursuit
from fastsketch.lowrank._setting import LossSetting, PursuitSetting, SideSetting
from fastsketch.lowrank._units import mean_curvature, robust_spread


class Ground(Protocol):
    """Biases and fitted models are opaque to whoever asks: what they hold of rows may be anywhere."""

    @property
    def has_held(self) -> bool:
        """Whether entries are held out for validation."""
        ...

    def constant_score(self, loss: LossSetting) -> float:
        """The best constant score, or near it."""
        ...

    def mean_curvature(self, loss: LossSetting, level: float) -> float:
        """Of an observation of weight 1 at the constant score `level`."""
        ...

    def spread_around(self, centre: Any) -> float:
        """The robust spread of the observations around a constant score, or biases."""
        ...

    def no_biases(self) -> Any:
        """Zeros."""
        ...

    def fit_biases(self, loss: LossSetting, *, ridge: float, level: float, sweeps: int = SWEEPS) -> Any:
        """`ridge` in units of the loss."""
        ...

    def bias_score(self, loss: LossSetting, biases: Any) -> Score:
        """Of biases alone, on the entries held out."""
        ...

    def pursuit(self, biases: Any, setting: PursuitSetting) -> Any:
        """A pursuit before its first rank."""
        ...

    def noise(self, loss: LossSetting, pursuit: Any, *, bias_ridge: float, follow: bool) -> NoiseLevel:
        """The level that the biases leave."""
        ...

    def let_go(self, pursuit: Any) -> None:
        """It will not be asked again."""
        ...

    def swept(self, fitted: Any, setting: SideSetting, *, sweeps: int, noise: NoiseLevel) -> Any:
        """The selected rank with both sides fitted in turn."""
        ...

    def model_score(self, loss: LossSetting, fitted: Any) -> Score:
        """Of a model at its selected rank, on the entries held out."""
        ...

    def total_loss(self, loss: LossSetting, fitted: Any) -> float:
        """Sum of the losses of a model at the entries that it was fitted to."""
        ...

    def held_loss(self, loss: LossSetting, fitted: Any) -> float:
        """Mean of its losses at the entries held out."""
        ...


@dataclass(frozen=True)
class InMemory:
    """The entries of one process."""

    problem: Problem

    @property
    def _data(self) -> Observed:
        return self.problem.data

    @property
    def _held(self) -> Observed:
        assert self.problem.held is not None
        return self.problem.held

    @property
    def has_held(self) -> bool:
        return self.problem.held is not None

    def constant_score(self, loss: LossSetting) -> float:
        return constant_score(self._data, loss)

    def mean_curvature(self, loss: LossSetting, level: float) -> float:
        return mean_curvature(self._data, loss, level)

    def spread_around(self, centre: float | Biases) -> float:
        data = self._data
        z: Any = centre
        if isinstance(centre, Biases):
            z = scores(data, *nothing(data), centre.rows, centre.columns)
        left = np.asarray(data.o - z, np.float64)
        return robust_spread(left[data.c > 0] if len(data.c) else left)

    def no_biases(self) -> Biases:
        return no_biases(self._data)

    def fit_biases(self, loss: LossSetting, *, ridge: float, level: float, sweeps: int = SWEEPS) -> Biases:
        return fit_biases(self._data, loss, ridge=ridge, level=level, sweeps=sweeps)

    def bias_score(self, loss: LossSetting, biases: Biases) -> Score:
        held = self._held
        return score_of(held, loss, scores(held, *nothing(held), biases.rows, biases.columns))

    def pursuit(self, biases: Biases, setting: PursuitSetting) -> Pursuit:
        return Pursuit(self.problem, biases, setting)

    def noise(self, loss: LossSetting, pursuit: Pursuit, *, bias_ridge: float, follow: bool) -> NoiseLevel:
        return NoiseOfEntries(
            self._data, loss, pursuit.z, bias_ridge=bias_ridge, objective=pursuit.objective, follow=follow
        )

    def let_go(self, pursuit: Pursuit) -> None:
        pursuit.forget()  # the room of its scores and gradient is that of a transposed copy

    def swept(self, fitted: Fitted, setting: SideSetting, *, sweeps: int, noise: NoiseLevel) -> Fitted:
        return swept(self._data, fitted, setting, sweeps=sweeps, noise=noise)

    def model_score(self, loss: LossSetting, fitted: Fitted) -> Score:
        left, right, coefficients = fitted.sides(fitted.selected_rank)
        z = scores(self._held, left * coefficients, right, fitted.row + fitted.level, fitted.column)
        return score_of(self._held, loss, z)

    def total_loss(self, loss: LossSetting, fitted: Fitted) -> float:
        return total_loss(self._data, fitted, loss)

    def held_loss(self, loss: LossSetting, fitted: Fitted) -> float:
        return total_loss(self._held, fitted, loss) / len(self._held.o)


def nothing(data: Observed) -> tuple[np.ndarray, np.ndarray]:
    """Factors without ranks."""
    return np.zeros((data.m, 0), data.o.dtype), np.zeros((data.n, 0), data.o.dtype)


def losses_of(held: Observed, loss: LossSetting, z: np.ndarray) -> np.ndarray:
    """Weighted losses (nnz,) float64 of the scores z."""
    values = loss.about.value(z.astype(np.float64), held.o.astype(np.float64), loss.parameter)
    return values * held.c if len(held.c) else values


def score_of(held: Observed, loss: LossSetting, z: np.ndarray) -> Score:
    """The mean loss of the scores z (nnz,) and its standard error; infinite if it overflows."""
    values = losses_of(held, loss, z)
    with np.errstate(over="ignore", invalid="ignore"):
        mean, error = float(values.mean()), float(values.std() / np.sqrt(len(values)))
    return (mean, error) if np.isfinite(mean) else (np.inf, np.inf)
