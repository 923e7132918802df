"""Rows fitted to given factors of the columns (fold-in), and both sides in turn (sweeps)."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fastsketch._kernels.lowrank import fits
from fastsketch.lowrank._biases import smoothing
from fastsketch.lowrank._data import Array, Observed
from fastsketch.lowrank._fitted import Fitted
from fastsketch.lowrank._noise import NoiseLevel
from fastsketch.lowrank._setting import SideSetting

# Newton steps of a row, and the share of its objective that a step must gain for another; steps of all sweeps but the
# last, which the next ones improve on.
TURNS, ENOUGH, FEW_TURNS = 60, 1e-10, 3


class Side(NamedTuple):
    """What the scores have of the rows, or of the columns."""

    factors: Array  # (m, t)
    biases: Array  # (m,), without the level


def fit_side(data: Observed, setting: SideSetting, *, own: Side, other: Side, turns: int = TURNS) -> Side:
    """The rows of `data` fitted to the columns `other`, beginning with `own`.

    With setting.biases the row biases are fitted too, as the coefficient of a factor of ones.
    """
    t, dtype, biased = other.factors.shape[1], data.o.dtype, setting.biases
    wide = np.ones((data.n, t + biased), dtype)
    wide[:, :t] = other.factors
    out = np.zeros((data.m, t + biased), dtype)
    out[:, :t] = own.factors
    if biased:
        out[:, t] = own.biases
    base = np.full(data.m, setting.level, dtype) if biased else np.asarray(own.biases + setting.level, dtype)
    penalty = np.full(t + biased, float(setting.penalty))
    penalty[t:] = setting.bias_penalty
    fits.fit_rows(
        setting.loss.number,
        setting.loss.parameter,
        smoothing(data, setting.loss),
        penalty,
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


def fold_in(data: Observed, setting: SideSetting, other: Side) -> Side:
    """New rows fitted to known columns."""
    dtype = data.o.dtype
    nothing = Side(np.zeros((data.m, other.factors.shape[1]), dtype), np.zeros(data.m, dtype))
    return fit_side(data, setting, own=nothing, other=other)


def swept(data: Observed, found: Fitted, setting: SideSetting, *, sweeps: int, noise: NoiseLevel) -> Fitted:
    """The selected rank with columns and rows fitted in turn: after it every row is what fold-in gives.

    The unit of the ridge follows what the model leaves.
    """
    a, b = found.factors(found.selected_rank)
    rows, columns = Side(a, found.row), Side(b, found.column)
    flipped, ridges = data.transposed(), found.ridges
    for k in range(sweeps):
        if noise.follows:
            sides = rows.factors, columns.factors, rows.biases + setting.level, columns.biases
            ridges = replace(ridges, ridge_unit=noise.unit_now(*sides, ridges.penalty))
            setting = replace(setting, penalty=ridges.penalty)
        turns = FEW_TURNS if k < sweeps - 1 else TURNS
        columns = fit_side(flipped, setting, own=columns, other=rows, turns=turns)
        rows = fit_side(data, setting, own=rows, other=columns, turns=turns)
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
