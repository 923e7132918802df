"""What ridges and loss parameters are counted in, so that a model of c X is c times the model of X.

The objective is  sum_k loss(z_k, o_k) + penalty / 2 (|A|^2 + |B|^2) + bias_penalty / 2 (|row|^2 + |column|^2),
z = level + row_i + column_j + a_i'b_j. Let observations, scores and biases be multiplied by c, factors by sqrt(c).

- The square and the Huber loss (delta times c too) grow by c^2, so bias_penalty must stay and penalty must grow by c.
- Losses that grow like |z - o| (absolute, quantile, epsilon-insensitive with epsilon times c) grow by c, so
  bias_penalty must fall by 1 / c and penalty must stay.

Neither is so for a number that the user writes once. But:

- A bias of a row of n observations is near sum(slopes) / (n curvature + bias_penalty). With
  bias_penalty = bias_ridge * curvature that is shrinkage by n / (n + bias_ridge): **bias_ridge is a number of
  observations**, of mean curvature, whatever the loss (`mean_curvature`). Curvature has the scale of slope / residual:
  1, 1 and 1 / c in the two cases above. The logistic loss has p (1 - p) at the best constant score, at most 1/4.
- A direction enters A B' if its singular value in the gradient exceeds penalty, and pure noise of the same slopes has
  one of s (sqrt(N / m) + sqrt(N / n)) (`_noise.py`). With penalty = ridge * that, **ridge = 1 is what noise needs to
  be left out**. It has the scale of the slopes: c, and 1, as it must be.

Labels and counts have no scale to be free of; there the same two units are of curvature and of slopes, and for a model
that is right, mean(slope^2) = mean(curvature): both units are then of curvature alone.

A delta or an epsilon that is given is in units of X. One that is not is a multiple of a robust spread of what biases
leave (`parameter_from_data`), and so are kinks smoothed over a share of the spread of X (`_biases.py`).
"""

from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.lowrank import entries
from fastsketch._losses import LOSSES
from fastsketch.lowrank._data import Observed
from fastsketch.lowrank._setting import FROM_SPREAD, LossSetting

# Observations that a bias is shrunk by, where the model is not told, by kind of target: on validation parts of training
# entries (docs/defaults.md).
BIAS_OBSERVATIONS = {"real": 3.0, "label": 2.0, "count": 3.0}
# Sweeps of the biases that the spread is taken from: of kinks two are far off, the rest of the way changes little.
ROUGH_SWEEPS = 5
# Half of the residuals may be next to zero, as of labels in numbers: the spread is at least this share of their mean.
LEAST_SPREAD = 0.1


class Steepness(NamedTuple):
    """Sums over observations at a constant score; of partitions they are added."""

    value: float  # losses
    squares: float  # of slopes
    curvatures: float
    weights: float


def mean_curvature(data: Observed, loss: LossSetting, level: float) -> float:
    """Of an observation of weight 1 at the constant score `level`: what one observation weighs against a ridge."""
    return 1.0 if loss.name == "square" else curvature_of(steepness(data, loss, level), loss)


def steepness(data: Observed, loss: LossSetting, level: float) -> Steepness:
    """At the score `level`, of the observations whose weight is not zero."""
    o, c = data.o, data.c
    if len(c) and not c.all():  # of weight zero: not there
        o, c = o[c > 0], c[c > 0]
    if not len(o):
        return Steepness(0.0, 0.0, 0.0, 0.0)
    z = np.full(len(o), level, o.dtype)
    value, squares, curvatures = entries.objective(loss.number, loss.parameter, z, o, c)
    if len(c) and not _curved(loss):  # the kernel squares weights too
        slopes = LOSSES[loss.name].slope(z.astype(np.float64), o.astype(np.float64), loss.parameter)
        squares = float((c * slopes**2).sum())
    return Steepness(value, squares, curvatures, float(c.sum(dtype=np.float64)) if len(c) else float(len(o)))


def curvature_of(found: Steepness, loss: LossSetting) -> float:
    """The mean second derivative; of the Huber loss and of losses with kinks, whose second derivative says nothing, the
    parabola that touches the loss where it is steep: sum(slope^2) / sum(slope * residual). That is 1 for squares,
    delta / (mean distance) far outside of delta, and 1 / (mean distance) of the absolute loss.
    """
    if not found.weights > 0:
        return 1.0
    if _curved(loss):
        return max(found.curvatures / found.weights, 1e-12)
    # slope * residual = loss + what the loss has below the line from its kink
    lift = {"huber": 0.5, "epsilon_insensitive": loss.parameter}.get(loss.name, 0.0)
    steep = found.value + lift * found.squares
    return found.squares / steep if found.squares > 0 and steep > 0 else 1.0


def _curved(loss: LossSetting) -> bool:
    return loss.about.smooth and loss.name != "huber"


def robust_spread(residuals: NDArray[np.float64]) -> float:
    """The standard deviation if they are normal, from their median size."""
    size = np.abs(residuals)
    if not len(size):
        return 0.0
    middle = len(size) // 2
    return spread_from(float(np.partition(size, middle)[middle]), float(size.mean()))


def spread_from(median: float, mean: float) -> float:
    """From the median and the mean size of residuals."""
    return max(1.4826 * median, LEAST_SPREAD * 1.2533 * mean)


class Surroundings(Protocol):
    """What the parameter is taken from: see Ground."""

    def spread_around(self, centre: Any) -> float: ...
    def mean_curvature(self, loss: LossSetting, level: float) -> float: ...
    def fit_biases(self, loss: LossSetting, *, ridge: float, level: float, sweeps: int) -> Any: ...


def parameter_from_data(
    ground: Surroundings, loss: LossSetting, level: float, *, biases: bool, bias_ridge: float
) -> float:
    """The delta or epsilon of a loss that was given none: a multiple of the spread of what biases leave.

    Biases are fitted roughly, under the loss with the spread around `level`, which no few wrong entries can spoil.
    """
    share, first = FROM_SPREAD[loss.name], ground.spread_around(level)
    if not first > 0:
        return LOSSES[loss.name].parameter or 1.0  # one number everywhere: nothing to measure by
    if not biases:
        return share * first
    rough = replace(loss, parameter=share * first)
    penalty = bias_ridge * ground.mean_curvature(rough, level)
    left = ground.spread_around(ground.fit_biases(rough, ridge=penalty, level=level, sweeps=ROUGH_SWEEPS))
    return share * (left if left > 0 else first)
