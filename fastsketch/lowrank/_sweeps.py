"""Sweeps: alternating fits of column and row factors after the last rank, and the fit of new rows (fold-in)."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.lowrank import fits
from fastsketch.lowrank._biases import Biases, kink_half_width
from fastsketch.lowrank._data import Array, Observed
from fastsketch.lowrank._entries import Entries
from fastsketch.lowrank._fitted import Score, Side, balance
from fastsketch.lowrank._learned import LearnedRidges
from fastsketch.lowrank._setting import LEARNED, LossSetting, Ridges, SideSetting
from fastsketch.lowrank._units import NoiseLevel

Floats = NDArray[np.float64]

# Largest number of Newton steps of a row in the last sweep. They stop when one lowers the objective of the row by less
# than STEP_TOLERANCE of it. Earlier sweeps make fewer steps, since later sweeps improve their results.
MAX_STEPS, STEP_TOLERANCE, MAX_STEPS_EARLY_SWEEP = 60, 1e-10, 3


# -- one side ----------------------------------------------------------------------------------------------------------
def fit_side(
    data: Observed, setting: SideSetting, initial: Side, fixed: Side, kink_half_width: float, max_steps: int = MAX_STEPS
) -> Side:
    """Fit the factors and biases of the rows by Newton steps, with fixed column factors, and return a new Side.

    Parameters
    ----------
    data : Observed (m, n)
    setting : SideSetting
        With ``setting.biases`` the bias of a row is fitted too, as the coefficient of a factor of ones.
    initial : Side
        Factors (m, t) and biases (m,) of the rows at which the fit starts.
    fixed : Side
        Factors (n, t) and biases (n,) of the columns.
    kink_half_width : float
        ``kink_half_width`` of all observations of the fit.
    max_steps : int
        Largest number of Newton steps.
    """
    t, dtype, has_biases, loss = fixed.factors.shape[1], data.o.dtype, setting.biases, setting.loss
    coefficients = np.zeros((data.m, t + has_biases), dtype)
    coefficients[:, :t] = initial.factors
    if has_biases:
        coefficients[:, t] = initial.biases
    base = np.full(data.m, setting.level, dtype) if has_biases else np.asarray(initial.biases + setting.level, dtype)
    fixed_factors, ridge = append_bias_column(fixed.factors, setting, dtype)
    arguments = ridge, *data.index_arrays, data.o, data.c, base, np.asarray(fixed.biases, dtype), fixed_factors
    fits.fit_rows(loss.number, loss.parameter, kink_half_width, *arguments, coefficients, max_steps, STEP_TOLERANCE)
    return Side(coefficients[:, :t], coefficients[:, t].copy() if has_biases else np.asarray(initial.biases, dtype))


def append_bias_column(factors: Array, setting: SideSetting, dtype: np.dtype[Any]) -> tuple[Array, Floats]:
    """Return factors (n, t) and their L2 penalties, both with another column for the bias if biases are fitted.

    The new column of the factors has ones.
    """
    m, t = factors.shape
    extended = np.ones((m, t + setting.biases), dtype)
    extended[:, :t] = factors
    return extended, setting.ridges(t)


def fold_in(data: Observed, setting: SideSetting, fixed: Side) -> Side:
    """Fit the factors and biases of new rows to the fixed columns of a model, and return them as a Side."""
    dtype = data.o.dtype
    initial = Side(np.zeros((data.m, fixed.factors.shape[1]), dtype), np.zeros(data.m, dtype))
    return fit_side(data, setting, initial, fixed, kink_half_width(data, setting.loss))


# -- both in turn ------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class FactorModel:
    """Low-rank model during a fit: factors and biases of rows and columns, and the ridges that they were fitted with.

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
    """Alternating fits: all columns are refitted with the rows fixed, then all rows with the columns fixed.

    A transposed copy of the entries is stored.
    """

    def __init__(self, observations: Entries, setting: SideSetting, *, sweeps: int, noise: NoiseLevel) -> None:
        self.observations, self.setting, self.sweeps, self.noise = observations, setting, sweeps, noise
        self.kink_half_width = kink_half_width(observations.data, setting.loss)

    @cached_property
    def _transposed(self) -> Observed:
        return self.observations.data.transpose()

    def run(self, rows: Side, columns: Side, coefficients: Floats, ridges: Ridges) -> FactorModel:
        """Refit columns and rows in turn, `sweeps` times, starting from the given factors. Return the resulting model.

        Parameters
        ----------
        rows, columns : Side
            Where the sweeps start.
        coefficients : (t,) array
            Of the products of their factors; they are divided between both sides (``balance``).
        ridges : Ridges
            A ridge of "learned" is updated during the sweeps, and so is the unit of a number where the noise level
            ``is_updated`` the model.
        """
        setting, noise = self.setting, self.noise
        model = FactorModel(*self._balanced(rows, columns, coefficients), setting.level, ridges)
        if ridges.ridge == LEARNED:
            return self._run_with_learned_ridges(model)
        for k in range(self.sweeps):
            penalty = ridges.penalty or 0.0
            if noise.is_updated:
                unit = noise.current_unit(model.rows, model.columns, setting.level, penalty)
                ridges = replace(ridges, ridge_unit=unit)
                penalty = ridges.penalty or 0.0
            max_steps = MAX_STEPS_EARLY_SWEEP if k < self.sweeps - 1 else MAX_STEPS
            model = self._refit_rows(self._refit_columns(model, penalty, max_steps), penalty, max_steps)
        return replace(model, ridges=ridges)

    def _run_with_learned_ridges(self, model: FactorModel) -> FactorModel:
        """Refit columns and rows in turn, and learn the ridge penalties again after each fit. Return the resulting
        model.
        """
        learned = LearnedRidges(self.observations, self.setting, model.rows, model.columns, self._total_loss(model))
        row_ridges = learned.row_ridges
        for _ in range(self.sweeps):
            model = self._refit_columns(model, learned.column_ridges, MAX_STEPS)
            learned.update_from_columns(model.columns)
            row_ridges = learned.row_ridges
            model = self._refit_rows(model, row_ridges, MAX_STEPS)
            learned.update_from_rows(model.rows, self._total_loss(model))
        both_ridges = np.stack([row_ridges, learned.column_ridges])
        return replace(model, ridges=replace(model.ridges, ridge_unit=learned.unit), learned=both_ridges)

    def _total_loss(self, model: FactorModel) -> float:
        return total_loss(self.observations, self.setting.loss, model)

    def _refit_columns(self, model: FactorModel, penalty: Any, max_steps: int) -> FactorModel:
        """Return a copy of the model in which the columns are fitted again, with the rows fixed."""
        setting = replace(self.setting, penalty=penalty)
        return replace(
            model,
            columns=fit_side(self._transposed, setting, model.columns, model.rows, self.kink_half_width, max_steps),
        )

    def _refit_rows(self, model: FactorModel, penalty: Any, max_steps: int) -> FactorModel:
        """Return a copy of the model in which the rows are fitted again, with the columns fixed."""
        setting = replace(self.setting, penalty=penalty)
        return replace(
            model,
            rows=fit_side(self.observations.data, setting, model.rows, model.columns, self.kink_half_width, max_steps),
        )

    def _balanced(self, rows: Side, columns: Side, coefficients: Floats) -> tuple[Side, Side]:
        norms = np.sqrt((rows.factors * rows.factors).sum(axis=0)), np.linalg.norm(columns.factors, axis=0)
        row_multipliers, column_multipliers = balance(
            *norms, coefficients, self.observations.m / max(self.observations.n, 1)
        )
        dtype = self.observations.dtype
        return (
            Side((rows.factors * row_multipliers).astype(dtype), rows.biases),
            Side((columns.factors * column_multipliers).astype(dtype), columns.biases),
        )


# -- what a model scores -----------------------------------------------------------------------------------------------
def biases_only_model(observations: Entries, biases: Biases, ridges: Ridges) -> FactorModel:
    """Return a low-rank model of rank 0: biases, without factors."""
    dtype = observations.dtype
    rows = Side(np.zeros((observations.m, 0), dtype), (biases.rows - biases.level).astype(dtype))
    return FactorModel(rows, Side(np.zeros((observations.n, 0), dtype), biases.columns), biases.level, ridges)


def held_out_losses(observations: Entries, loss: LossSetting, model: FactorModel) -> Floats:
    """Return the model's weighted loss at each held-out entry, as an array."""
    assert observations.held_out is not None
    return observations.held_out.entry_losses(loss, model_scores(observations.held_out, model))


def mean_held_out_loss(losses: Floats) -> Score:
    """Return (mean, standard error) of held-out losses, both infinite if the mean overflows."""
    return mean_and_standard_error(losses)


def mean_held_out_gain(losses: Floats, other_losses: Floats, loss_unit: float) -> Score:
    """Return (mean, standard error) of the difference between the held-out losses of two models.

    The difference is losses - other_losses, for the same entries. Losses are divided by `loss_unit`, a power of two of
    about their size, since their squares may overflow.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        gain, error = mean_and_standard_error((losses - other_losses) / loss_unit)
    return gain * loss_unit, error * loss_unit


def mean_and_standard_error(losses: Floats) -> Score:
    with np.errstate(over="ignore", invalid="ignore"):
        mean, error = float(losses.mean()), float(losses.std() / np.sqrt(len(losses)))
    return (mean, error) if np.isfinite(mean) else (np.inf, np.inf)


def total_loss(observations: Entries, loss: LossSetting, model: FactorModel) -> float:
    """Return the model's total loss over the training entries."""
    return observations.data.loss(loss, model_scores(observations.data, model))[0]


def model_scores(data: Observed, model: FactorModel) -> Array:
    rows, columns = model.rows, model.columns
    return data.scores(rows.factors, columns.factors, rows.biases + model.level, columns.biases)
