"""Rows fitted to given factors of the columns (fold-in), and both sides in turn (sweeps)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.lowrank import fits
from fastsketch.lowrank._biases import smoothing
from fastsketch.lowrank._data import Array, Observed
from fastsketch.lowrank._fitted import Fitted, Side
from fastsketch.lowrank._noise import NoiseLevel
from fastsketch.lowrank._setting import Ridges, SideSetting

# Newton steps of a row, and the share of its objective that a step must gain for another; steps of all sweeps but the
# last, which the next ones improve on.
TURNS, ENOUGH, FEW_TURNS = 60, 1e-10, 3


def fit_side(
    data: Observed, setting: SideSetting, *, own: Side, other: Side, turns: int = TURNS, smooth: float | None = None
) -> Side:
    """The rows of `data` fitted to the columns `other`, beginning with `own`.

    smooth: ``smoothing`` of all observations, where `data` is a part of them. With setting.biases the row
    biases are fitted too, as the coefficient of a factor of ones.
    """
    t, dtype, biased = other.factors.shape[1], data.o.dtype, setting.biases
    wide = widened(other.factors, setting, dtype)
    out = np.zeros((data.m, t + biased), dtype)
    out[:, :t] = own.factors
    if biased:
        out[:, t] = own.biases
    base = np.full(data.m, setting.level, dtype) if biased else np.asarray(own.biases + setting.level, dtype)
    fits.fit_rows(
        setting.loss.number,
        setting.loss.parameter,
        smoothing(data, setting.loss) if smooth is None else smooth,
        penalties(setting, t),
        *data.where,
        data.o,
        data.c,
        base,
        np.asarray(other.biases, dtype),
        wide,
        out,
        turns,
        ENOUGH,
    )
    return Side(out[:, :t], out[:, t].copy() if biased else np.asarray(own.biases, dtype))


def widened(factors: Array, setting: SideSetting, dtype: np.dtype[Any]) -> Array:
    """Factors (m, t), and those of the biases of the other side: ones."""
    wide = np.ones((len(factors), factors.shape[1] + setting.biases), dtype)
    wide[:, : factors.shape[1]] = factors
    return wide


def penalties(setting: SideSetting, t: int) -> NDArray[np.float64]:
    """Of the coefficients of `widened` factors."""
    out = np.full(t + setting.biases, float(setting.penalty))
    out[t:] = setting.bias_penalty
    return out


def fold_in(data: Observed, setting: SideSetting, other: Side) -> Side:
    """New rows fitted to known columns."""
    dtype = data.o.dtype
    nothing = Side(np.zeros((data.m, other.factors.shape[1]), dtype), np.zeros(data.m, dtype))
    return fit_side(data, setting, own=nothing, other=other)


class Steps(NamedTuple):
    """Fits of one side to the other; what a side of rows is, only they know."""

    fit_columns: Callable[[Side, Any, SideSetting, int], Side]
    fit_rows: Callable[[Any, Side, SideSetting, int], Any]


def in_turn(
    rows: Any, columns: Side, ridges: Ridges, setting: SideSetting, *, sweeps: int, noise: NoiseLevel, steps: Steps
) -> tuple[Any, Side, Ridges]:
    """Both sides after so many sweeps, and the ridges of the last."""
    for k in range(sweeps):
        if noise.follows:
            unit = noise.unit_now(rows, columns, setting.level, ridges.penalty)
            ridges = replace(ridges, ridge_unit=unit)
            setting = replace(setting, penalty=ridges.penalty)
        turns = FEW_TURNS if k < sweeps - 1 else TURNS
        columns = steps.fit_columns(columns, rows, setting, turns)
        rows = steps.fit_rows(rows, columns, setting, turns)
    return rows, columns, ridges


def swept(data: Observed, found: Fitted, setting: SideSetting, *, sweeps: int, noise: NoiseLevel) -> Fitted:
    """The selected rank with columns and rows fitted in turn: after it every row is what fold-in gives.

    The unit of the ridge follows what the model leaves.
    """
    a, b = found.factors(found.selected_rank)
    rows, columns = Side(a, found.row), Side(b, found.column)
    flipped = data.transposed()

    def fit_columns(columns: Side, rows: Side, setting: SideSetting, turns: int) -> Side:
        return fit_side(flipped, setting, own=columns, other=rows, turns=turns)

    def fit_rows(rows: Side, columns: Side, setting: SideSetting, turns: int) -> Side:
        return fit_side(data, setting, own=rows, other=columns, turns=turns)

    steps = Steps(fit_columns, fit_rows)
    rows, columns, ridges = in_turn(rows, columns, found.ridges, setting, sweeps=sweeps, noise=noise, steps=steps)
    return Fitted(
        left=rows.factors,
        right=columns.factors,
        path=None,
        row=rows.biases,
        column=columns.biases,
        level=found.level,
        history=found.history,
        selected_rank=found.selected_rank,
        ridges=ridges,
        loss_parameter=found.loss_parameter,
        n_observations=found.n_observations,
    )
