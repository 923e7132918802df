"""The beginning of a fit: a constant score, the parameter of the loss where none is given, and the biases."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.losses import LOSSES
from fastsketch._kernels.lowrank import fits
from fastsketch.lowrank._data import Array, Observed
from fastsketch.lowrank._entries import Entries
from fastsketch.lowrank._quantile import weighted_quantile
from fastsketch.lowrank._setting import FROM_SPREAD, LossSetting
from fastsketch.lowrank._units import TINY, mean_curvature, spread_from

Floats = NDArray[np.float64]

SWEEPS = 20
# Sweeps of the biases that the spread is taken from: of kinks two are far off, the rest of the way changes little.
ROUGH_SWEEPS = 5
# Longest step of a bias under losses of labels and counts, in units of their scores. Newton steps overshoot where the
# curvature falls: without a limit the fit of signed links ended at 1.2 times the least objective.
LIMIT = 2.0
# Stop when a sweep lowers the objective by less than this share of it.
ENOUGH = 1e-4
# Robust standard deviations of the residuals beyond which a bias is not shrunk: the three deviations of Hampel's
# identifier (Davies and Gather 1993). The rounds in which such offsets are looked for: each one leaves some hundredths.
MOST_OFFSET, MOST_ROUNDS = 3.0, 10
# Distance from its kink within which a loss without curvature is treated as a parabola, as share of the spread of X.
SMOOTH = 1e-2


@dataclass(frozen=True)
class Biases:
    """The score without any rank is rows[i] + columns[j]."""

    level: float
    rows: Array  # (m,) with the level in it
    columns: Array  # (n,)


# -- a constant score, and the spread around it ------------------------------------------------------------------------
def constant_score(observations: Entries, loss: LossSetting) -> float:
    """Return the best constant score, or one near it."""
    weight, total = _value_sums(observations.data)
    if not weight > 0:
        return 0.0
    mean = total / weight
    if loss.name == "logistic":
        share = np.clip((mean + 1) / 2, 1e-6, 1 - 1e-6)
        return float(np.log(share / (1 - share)))
    if loss.name == "poisson":
        return float(np.log(max(mean, 1e-12)))
    if loss.name == "hinge":
        return 1.0 if mean >= 0 else -1.0
    if loss.name in ("square", "squared_hinge"):
        return mean
    target = weight * (loss.parameter if loss.name == "quantile" else 0.5)
    if not observations.weighted:  # a place among all
        target = min(max(float(np.ceil(target)), 1.0), observations.n_observations)
    data = observations.data
    weights = data.c.astype(np.float64) if observations.weighted else None
    return weighted_quantile(data.o.astype(np.float64), weights, target)


def _value_sums(data: Observed) -> tuple[float, float]:
    """Return the sum of the weights, and of the weighted values."""
    o, c = data.o, data.c
    if not len(c):
        return float(len(o)), float(o.sum(dtype=np.float64))
    # no product of BLAS: its bits depend on its threads
    return float(c.sum(dtype=np.float64)), float((c * o.astype(np.float64)).sum())


def parameter_from_data(observations: Entries, loss: LossSetting, level: float, bias_ridge: float | None) -> float:
    """Return delta or epsilon of a loss that was given none: a multiple of the spread of what biases leave.

    Biases (none if bias_ridge is None) are fitted roughly, under the loss with the spread around `level`, which no few
    wrong entries can spoil.
    """
    share, first = FROM_SPREAD[loss.name], _spread_around(observations, level)
    if not first > 0:
        return LOSSES[loss.name].parameter or 1.0  # one number everywhere: nothing to measure by
    if bias_ridge is None:
        return share * first
    rough = replace(loss, parameter=share * first)
    penalty = bias_ridge * mean_curvature(observations, rough, level)
    left = _spread_around(
        observations, fit_biases(observations, rough, ridge=penalty, level=level, sweeps=ROUGH_SWEEPS)
    )
    return share * (left if left > 0 else first)


def _spread_around(observations: Entries, centre: float | Biases) -> float:
    """Return the robust spread of the observations around a constant score, or around biases."""
    data = observations.data
    z: Any = centre
    if isinstance(centre, Biases):
        z = data.scores(np.zeros((data.m, 0)), np.zeros((data.n, 0)), centre.rows, centre.columns)
    sizes = np.abs(np.asarray(data.o - z, np.float64))
    if not len(sizes):
        return 0.0
    with np.errstate(over="ignore"):
        mean = float(sizes.mean())
    return spread_from(weighted_quantile(sizes, None, len(sizes) // 2 + 1.0), mean)


# -- biases ------------------------------------------------------------------------------------------------------------
def no_biases(observations: Entries) -> Biases:
    """Return biases that are zero."""
    return Biases(0.0, np.zeros(observations.m, observations.dtype), np.zeros(observations.n, observations.dtype))


def fit_biases(observations: Entries, loss: LossSetting, *, ridge: float, level: float, sweeps: int = SWEEPS) -> Biases:
    """Fit level, row and column biases by Newton steps (or of a parabola above, for losses without curvature).

    All columns move at once and then all rows. Each bias is shrunk to the level, which begins at `level`, by `ridge`,
    in units of the loss.
    """
    limit, known = np.inf if loss.about.targets == "real" else LIMIT, (loss, smoothing(observations.data, loss))
    column: Floats = np.zeros(observations.n)
    columns = column.astype(observations.dtype)
    rows: Floats = np.zeros(observations.m)
    before, *_, slopes, curvatures = _bias_sums(observations.data, *known, rows, level, columns)
    for _ in range(sweeps):
        column -= newton_step(slopes, curvatures, column, ridge, limit)
        columns = column.astype(observations.dtype)
        _, slopes, curvatures, *_ = _bias_sums(observations.data, *known, rows, level, columns)
        moved = newton_step(slopes, curvatures, rows, ridge, limit)
        rows = rows - moved
        # what the rows leave of the common slope is the level's
        slope, curvature = float((slopes - curvatures * moved).sum()), float(curvatures.sum())
        if curvature > 0:
            level -= slope / curvature
        after, *_, slopes, curvatures = _bias_sums(observations.data, *known, rows, level, columns)
        if not before - after > ENOUGH * abs(before):
            break
        before = after
    return Biases(float(level), (level + rows).astype(observations.dtype), columns)


def newton_step(slopes: Floats, curvatures: Floats, bias: Floats, ridge: float, limit: float) -> Floats:
    """Return what to subtract from each bias."""
    step = (slopes + ridge * bias) / np.maximum(curvatures + ridge, TINY)
    return step.clip(-limit, limit) if limit < np.inf else step


def _bias_sums(
    data: Observed, loss: LossSetting, smooth: float, row: Floats, level: float, cb: Array
) -> tuple[float, Floats, Floats, Floats, Floats]:
    """Return the sum of the losses; slopes and curvatures of every row (m,) and of every column (n,)."""
    rb = (level + row).astype(cb.dtype)
    return fits.bias_sums(loss.number, loss.parameter, smooth, *data.where, data.o, data.c, rb, cb)


def without_outlying_offsets(observations: Entries, bias_ridge: float) -> Entries:
    """Subtract the offsets of the rows and columns that are far from all others.

    A ridge shrinks every bias by the same share, and what it leaves of a large offset would be fitted by factors, at
    the cost of all other entries. The shrinkage is therefore limited (Efron and Morris 1972): a bias that would be more
    than ``MOST_OFFSET`` robust standard deviations of the residuals is not shrunk. Medians of rows and columns, in
    turn, are the offsets, which no few wrong entries can move.
    """
    loss = LossSetting("absolute", 0.0)
    outlying = [np.zeros(observations.m, bool), np.zeros(observations.n, bool)]
    shares = [counts / (counts + bias_ridge) if bias_ridge else 1.0 for counts in observations.data.counts]
    for _ in range(MOST_ROUNDS):
        level = constant_score(observations, loss)
        biases = fit_biases(observations, loss, ridge=0.0, level=level, sweeps=ROUGH_SWEEPS)
        limit = MOST_OFFSET * _spread_around(observations, biases)
        offsets = [biases.rows.astype(np.float64) - biases.level, biases.columns.astype(np.float64)]
        beyond = [share * np.abs(each) > limit for share, each in zip(shares, offsets, strict=True)]
        outlying = [one | other for one, other in zip(outlying, beyond, strict=True)]
        if not (outlying[0].any() or outlying[1].any()):
            break
        observations = observations.shifted(*(np.where(*each, 0.0) for each in zip(outlying, offsets, strict=True)))
        if not (beyond[0].any() or beyond[1].any()):
            break
    return observations


def smoothing(observations: Observed, loss: LossSetting) -> float:
    """Return the distance from a kink that counts as curved; of losses with curvature nothing asks for it."""
    return SMOOTH if loss.curved else SMOOTH * max(observations.spread, 1e-12 * observations.largest, TINY)
