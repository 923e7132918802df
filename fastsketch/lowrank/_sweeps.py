"""Sweeps: alternating fits of column and row factors after the last rank, and the fit of new rows (fold-in)."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.lowrank import fits
from fastsketch.lowrank._biases import Biases, smoothing
from fastsketch.lowrank._data import Array, Observed
from fastsketch.lowrank._entries import Entries
from fastsketch.lowrank._fitted import Score, Side, balance
from fastsketch.lowrank._learned import LearnedRidges
from fastsketch.lowrank._setting import LEARNED, LossSetting, Ridges, SideSetting
from fastsketch.lowrank._units import NoiseLevel

Floats = NDArray[np.float64]

# Largest number of Newton steps of a row; they stop when one lowers the objective of the row by less than this share.
# FEW_TURNS is the number in all sweeps but the last, whose results later sweeps improve.
TURNS, ENOUGH, FEW_TURNS = 60, 1e-10, 3


# -- one side ----------------------------------------------------------------------------------------------------------
def fit_side(data: Observed, setting: SideSetting, own: Side, other: Side, smooth: float, turns: int = TURNS) -> Side:
    """Fit the factors and biases of the rows of a matrix while the column factors are fixed.

    Parameters
    ----------
    data : Observed (m, n)
    setting : SideSetting
        With ``setting.biases`` the bias of a row is fitted too, as the coefficient of a factor of ones.
    own : Side
        Factors (m, t) and biases (m,) of the rows at which the fit starts.
    other : Side
        Factors (n, t) and biases (n,) of the columns.
    smooth : float
        ``smoothing`` of all observations of the fit.
    turns : int
        Largest number of Newton steps.
    """
    t, dtype, biased, loss = other.factors.shape[1], data.o.dtype, setting.biases, setting.loss
    out = np.zeros((data.m, t + biased), dtype)
    out[:, :t] = own.factors
    if biased:
        out[:, t] = own.biases
    base = np.full(data.m, setting.level, dtype) if biased else np.asarray(own.biases + setting.level, dtype)
    wide, ridge = widened(other.factors, setting, dtype)
    known = ridge, *data.where, data.o, data.c, base, np.asarray(other.biases, dtype), wide
    fits.fit_rows(loss.number, loss.parameter, smooth, *known, out, turns, ENOUGH)
    return Side(out[:, :t], out[:, t].copy() if biased else np.asarray(own.biases, dtype))


def widened(factors: Array, setting: SideSetting, dtype: np.dtype[Any]) -> tuple[Array, Floats]:
    """Append a column of ones for the biases to a factor matrix, if biases are fitted. Return it with the ridges of its
    columns."""
    m, t = factors.shape
    wide = np.ones((m, t + setting.biases), dtype)
    wide[:, :t] = factors
    return wide, setting.ridges(t)


def fold_in(data: Observed, setting: SideSetting, other: Side) -> Side:
    """Fit the factors and biases of new rows to the fixed columns of a model."""
    dtype = data.o.dtype
    own = Side(np.zeros((data.m, other.factors.shape[1]), dtype), np.zeros(data.m, dtype))
    return fit_side(data, setting, own, other, smoothing(data, setting.loss))


# -- both in turn ------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Factors:
    """A model during a fit: factors, biases and ridges.

    The score of an entry is level + row bias + column bias + the inner product of factors.
    """

    rows: Side
    columns: Side
    level: float
    ridges: Ridges
    learned: Floats | None = None  # (2, 2, t) learned ridges of rows and of columns, as in `SideSetting.ridges`

    @property
    def rank(self) -> int:
        return self.columns.factors.shape[1]


class Sweeps:
    """Alternating fits of the columns and the rows of a model. A transposed copy of the entries is stored."""

    def __init__(self, observations: Entries, setting: SideSetting, *, sweeps: int, noise: NoiseLevel) -> None:
        self.observations, self.setting, self.sweeps, self.noise = observations, setting, sweeps, noise
        self.smooth = smoothing(observations.data, setting.loss)

    @cached_property
    def _flipped(self) -> Observed:
        return self.observations.data.transposed()

    def run(self, rows: Side, columns: Side, coefficients: Floats, ridges: Ridges) -> Factors:
        """Fit columns and rows in turn from initial factors, `sweeps` times, and return the resulting model.

        Parameters
        ----------
        rows, columns : Side
            Where the sweeps start.
        coefficients : (t,) array
            Of the products of their factors; they are divided between both sides (``balance``).
        ridges : Ridges
            A ridge of "learned" is updated during the sweeps, and so is the unit of a number where the noise level
            ``follows`` the model.
        """
        setting, noise = self.setting, self.noise
        model = Factors(*self._balanced(rows, columns, coefficients), setting.level, ridges)
        if ridges.ridge == LEARNED:
            return self._learning(model)
        for k in range(self.sweeps):
            penalty = ridges.penalty or 0.0
            if noise.follows:
                unit = noise.unit_now(model.rows, model.columns, setting.level, penalty)
                ridges = replace(ridges, ridge_unit=unit)
                penalty = ridges.penalty or 0.0
            turns = FEW_TURNS if k < self.sweeps - 1 else TURNS
            model = self._rows(self._columns(model, penalty, turns), penalty, turns)
        return replace(model, ridges=ridges)

    def _learning(self, model: Factors) -> Factors:
        """Fit columns and rows in turn with learned ridge penalties, which are updated after each fit."""
        learned = LearnedRidges(self.observations, self.setting, model.rows, model.columns, self._loss_of(model))
        of_rows = learned.of_rows
        for _ in range(self.sweeps):
            model = self._columns(model, learned.of_columns, TURNS)
            learned.see_columns(model.columns)
            of_rows = learned.of_rows
            model = self._rows(model, of_rows, TURNS)
            learned.see_rows(model.rows, self._loss_of(model))
        both = np.stack([of_rows, learned.of_columns])
        return replace(model, ridges=replace(model.ridges, ridge_unit=learned.unit), learned=both)

    def _loss_of(self, model: Factors) -> float:
        return total_loss(self.observations, self.setting.loss, model)

    def _columns(self, model: Factors, penalty: Any, turns: int) -> Factors:
        """Return a copy of the model with refitted columns."""
        setting = replace(self.setting, penalty=penalty)
        return replace(model, columns=fit_side(self._flipped, setting, model.columns, model.rows, self.smooth, turns))

    def _rows(self, model: Factors, penalty: Any, turns: int) -> Factors:
        """Return a copy of the model with refitted rows."""
        setting = replace(self.setting, penalty=penalty)
        return replace(
            model, rows=fit_side(self.observations.data, setting, model.rows, model.columns, self.smooth, turns)
        )

    def _balanced(self, rows: Side, columns: Side, coefficients: Floats) -> tuple[Side, Side]:
        lengths = np.sqrt((rows.factors * rows.factors).sum(axis=0)), np.linalg.norm(columns.factors, axis=0)
        one, two = balance(*lengths, coefficients, self.observations.m / max(self.observations.n, 1))
        dtype = self.observations.dtype
        return (
            Side((rows.factors * one).astype(dtype), rows.biases),
            Side((columns.factors * two).astype(dtype), columns.biases),
        )


# -- what a model scores -----------------------------------------------------------------------------------------------
def biases_alone(observations: Entries, biases: Biases, ridges: Ridges) -> Factors:
    """Return a model that has biases but no factors."""
    dtype = observations.dtype
    rows = Side(np.zeros((observations.m, 0), dtype), (biases.rows - biases.level).astype(dtype))
    return Factors(rows, Side(np.zeros((observations.n, 0), dtype), biases.columns), biases.level, ridges)


def held_losses(observations: Entries, loss: LossSetting, model: Factors) -> Floats:
    """Return the model's loss at each held-out entry."""
    assert observations.held is not None
    return observations.held.loss_of_each(loss, _scores(observations.held, model))


def held_score(losses: Floats) -> Score:
    """Return the mean of held-out losses and its standard error. Both are infinite if the mean overflows."""
    return _mean_and_error(losses)


def held_gain(one: Floats, other: Floats, unit: float) -> Score:
    """Return the mean difference of the held-out losses of two models, one - other, and its standard error.

    unit: a power of two of about the size of the losses, which are divided by it, because their squares may overflow.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        gain, error = _mean_and_error((one - other) / unit)
    return gain * unit, error * unit


def _mean_and_error(losses: Floats) -> Score:
    with np.errstate(over="ignore", invalid="ignore"):
        mean, error = float(losses.mean()), float(losses.std() / np.sqrt(len(losses)))
    return (mean, error) if np.isfinite(mean) else (np.inf, np.inf)


def total_loss(observations: Entries, loss: LossSetting, model: Factors) -> float:
    """Return the model's total loss over the training entries."""
    return observations.data.loss(loss, _scores(observations.data, model))[0]


def _scores(data: Observed, model: Factors) -> Array:
    rows, columns = model.rows, model.columns
    return data.scores(rows.factors, columns.factors, rows.biases + model.level, columns.biases)
