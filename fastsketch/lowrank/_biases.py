"""Row and column biases, fitted before the first rank, and loss parameters that are estimated from the data."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.losses import LOSSES
from fastsketch._kernels.lowrank import fits
from fastsketch.lowrank._data import Array, Observed
from fastsketch.lowrank._entries import Entries
from fastsketch.lowrank._quantile import weighted_quantile
from fastsketch.lowrank._setting import DEVIATION_MULTIPLES, LossSetting
from fastsketch.lowrank._units import TINY, mean_curvature, robust_deviation

Floats = NDArray[np.float64]

MAX_SWEEPS = 20
# Longest Newton step of a bias for labels and counts, in units of the score. Their curvature falls with the score, so
# that Newton steps overshoot: without a limit a fit of signed links ended at 1.2 times the smallest objective.
MAX_BIAS_STEP = 2.0
# Sweeps stop when one lowers the objective by less than this share of it.
RELATIVE_TOLERANCE = 1e-4
# A bias that is larger than this many robust standard deviations of the residuals is not shrunk: the three deviations
# of Hampel's identifier (Davies and Gather 1993). Such offsets are searched in at most MAX_OFFSET_ROUNDS rounds, since
# each round leaves some hundredths of them.
MAX_SHRUNK_DEVIATIONS, MAX_OFFSET_ROUNDS = 3.0, 10
# Distance from the kink within which a loss with kinks is replaced by a parabola, as a share of the spread of X.
KINK_SHARE = 1e-2


@dataclass(frozen=True)
class Biases:
    """Row and column biases of a model: without factors, the score of entry (i, j) is rows[i] + columns[j]."""

    level: float
    rows: Array  # (m,) with the level added
    columns: Array  # (n,)


# -- a constant score, and the spread around it ------------------------------------------------------------------------
def constant_score(observations: Entries, loss: LossSetting) -> float:
    """Return the constant score that minimises the loss over all observed entries, as a start for the biases. It is
    approximate for "huber" and "epsilon_insensitive".
    """
    weight, total = weighted_value_sums(observations.data)
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
    if not observations.has_weights:  # the rank of an order statistic
        target = min(max(float(np.ceil(target)), 1.0), observations.n_observations)
    data = observations.data
    weights = data.c.astype(np.float64) if observations.has_weights else None
    return weighted_quantile(data.o.astype(np.float64), weights, target)


def weighted_value_sums(data: Observed) -> tuple[float, float]:
    """Return (total weight, weighted sum) of the observed values."""
    o, c = data.o, data.c
    if not len(c):
        return float(len(o)), float(o.sum(dtype=np.float64))
    # not a dot product: the result of BLAS depends on its number of threads
    return float(c.sum(dtype=np.float64)), float((c * o.astype(np.float64)).sum())


def parameter_from_data(observations: Entries, loss: LossSetting, level: float, bias_ridge: float | None) -> float:
    """Return the default of the Huber or epsilon-insensitive loss's parameter, computed from the residuals of biases.
    It is a multiple of their robust standard deviation.

    The biases are fitted roughly, under the loss whose parameter is taken from the residuals of the constant score
    `level`, so that few wrong entries cannot spoil them. With bias_ridge=None there are no biases, and the residuals of
    `level` decide.
    """
    multiple, first_deviation = DEVIATION_MULTIPLES[loss.name], robust_residual_deviation(observations, level)
    if not first_deviation > 0:
        return LOSSES[loss.name].parameter or 1.0  # all values are equal: there is no scale
    if bias_ridge is None:
        return multiple * first_deviation
    rough_loss = replace(loss, parameter=multiple * first_deviation)
    penalty = bias_ridge * mean_curvature(observations, rough_loss, level)
    residual_deviation = robust_residual_deviation(
        observations, fit_biases(observations, rough_loss, ridge=penalty, level=level)
    )
    return multiple * (residual_deviation if residual_deviation > 0 else first_deviation)


def robust_residual_deviation(observations: Entries, centre: float | Biases) -> float:
    """Return a robust estimate of the standard deviation of the residuals of a constant score, or of biases: a multiple
    of their median magnitude.
    """
    data = observations.data
    z: Any = centre
    if isinstance(centre, Biases):
        z = data.scores(np.zeros((data.m, 0)), np.zeros((data.n, 0)), centre.rows, centre.columns)
    absolute_residuals = np.abs(np.asarray(data.o - z, np.float64))
    if not len(absolute_residuals):
        return 0.0
    with np.errstate(over="ignore"):
        mean = float(absolute_residuals.mean())
    return robust_deviation(weighted_quantile(absolute_residuals, None, len(absolute_residuals) // 2 + 1.0), mean)


# -- biases ------------------------------------------------------------------------------------------------------------
def zero_biases(observations: Entries) -> Biases:
    """Return biases that are all zero, for a fit without biases."""
    return Biases(0.0, np.zeros(observations.m, observations.dtype), np.zeros(observations.n, observations.dtype))


def fit_biases(observations: Entries, loss: LossSetting, *, ridge: float, level: float) -> Biases:
    """Fit global, row and column biases by alternating Newton steps with an L2 penalty, and return them as Biases.

    Losses without curvature are replaced by a parabola that touches them from above (``kink_half_width``).

    Parameters
    ----------
    observations : Entries
    loss : LossSetting
    ridge : float
        L2 penalty of the biases in units of the loss. The level has none.
    level : float
        Where the level starts.
    """
    max_step, loss_arguments = (
        np.inf if loss.definition.targets == "real" else MAX_BIAS_STEP,
        (loss, kink_half_width(observations.data, loss)),
    )
    column: Floats = np.zeros(observations.n)
    columns = column.astype(observations.dtype)
    rows: Floats = np.zeros(observations.m)
    objective, *_, slopes, curvatures = _bias_sums(observations.data, *loss_arguments, rows, level, columns)
    for _ in range(MAX_SWEEPS):
        column -= newton_step(slopes, curvatures, column, ridge, max_step)
        columns = column.astype(observations.dtype)
        _, slopes, curvatures, *_ = _bias_sums(observations.data, *loss_arguments, rows, level, columns)
        row_steps = newton_step(slopes, curvatures, rows, ridge, max_step)
        rows = rows - row_steps
        # the derivative that is left after the step of the rows moves the level
        slope, curvature = float((slopes - curvatures * row_steps).sum()), float(curvatures.sum())
        if curvature > 0:
            level -= slope / curvature
        new_objective, *_, slopes, curvatures = _bias_sums(observations.data, *loss_arguments, rows, level, columns)
        if not objective - new_objective > RELATIVE_TOLERANCE * abs(objective):
            break
        objective = new_objective
    return Biases(float(level), (level + rows).astype(observations.dtype), columns)


def newton_step(slopes: Floats, curvatures: Floats, bias: Floats, ridge: float, limit: float) -> Floats:
    """Return the Newton step of each bias, clipped to [-limit, limit], which the caller subtracts from the bias.
    Slopes and curvatures are first and second derivatives of the loss.
    """
    step = (slopes + ridge * bias) / np.maximum(curvatures + ridge, TINY)
    return step.clip(-limit, limit) if limit < np.inf else step


def _bias_sums(
    data: Observed, loss: LossSetting, smooth: float, row: Floats, level: float, cb: Array
) -> tuple[float, Floats, Floats, Floats, Floats]:
    """Return the loss at the given biases, and its first and second derivatives summed over each row and each column.

    The order is: loss, first and second derivatives of rows (m,), first and second derivatives of columns (n,).
    """
    rb = (level + row).astype(cb.dtype)
    return fits.bias_sums(loss.number, loss.parameter, smooth, *data.index_arrays, data.o, data.c, rb, cb)


def subtract_outlying_offsets(observations: Entries, bias_ridge: float) -> Entries:
    """Return entries from which the offsets of rows and columns with outlying biases are subtracted.
    The ridge would shrink such biases too much. The new entries store the offsets.

    A ridge shrinks all biases by the same share. The rest of a large offset would be fitted by factors, which spoils
    the predictions of all other entries. Therefore the shrinkage is limited (limited translation: Efron and Morris,
    *Limiting the risk of Bayes and empirical Bayes estimators*, JASA 1972): a bias larger than
    ``MAX_SHRUNK_DEVIATIONS`` robust standard deviations of the residuals is subtracted as a whole before the fit.
    Offsets are fitted under the absolute loss without a ridge, so that few wrong entries cannot move them. The same
    entries are returned if there are no such offsets, or if there are no more than two entries for each bias: a fit
    under the absolute loss passes through as many entries as there are biases, so that the median residual is zero.
    """
    if observations.n_observations <= 2 * (observations.m + observations.n - 1):
        return observations
    loss = LossSetting("absolute", 0.0)
    outlying = [np.zeros(observations.m, bool), np.zeros(observations.n, bool)]
    shrinkage = [counts / (counts + bias_ridge) if bias_ridge else 1.0 for counts in observations.data.counts]
    for _ in range(MAX_OFFSET_ROUNDS):
        level = constant_score(observations, loss)
        biases = fit_biases(observations, loss, ridge=0.0, level=level)
        threshold = MAX_SHRUNK_DEVIATIONS * robust_residual_deviation(observations, biases)
        offsets = [biases.rows.astype(np.float64) - biases.level, biases.columns.astype(np.float64)]
        is_beyond = [share * np.abs(each) > threshold for share, each in zip(shrinkage, offsets, strict=True)]
        outlying = [previous | new for previous, new in zip(outlying, is_beyond, strict=True)]
        if not (outlying[0].any() or outlying[1].any()):
            break
        rows, columns = (np.where(flags, each, 0.0) for flags, each in zip(outlying, offsets, strict=True))
        observations = observations.subtract_offsets(rows, columns)
        if not (is_beyond[0].any() or is_beyond[1].any()):
            break
    return observations


def kink_half_width(observations: Observed, loss: LossSetting) -> float:
    """Return the half-width of the parabola that replaces the kink of a nonsmooth loss; smooth losses ignore it.
    Newton steps need this replacement.
    """
    return (
        KINK_SHARE
        if loss.curved
        else KINK_SHARE * max(observations.standard_deviation, 1e-12 * observations.max_abs_value, TINY)
    )
