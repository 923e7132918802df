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

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.lowrank import entries
from fastsketch._losses import LOSSES
from fastsketch.lowrank._biases import fit_biases
from fastsketch.lowrank._data import Array, Observed
from fastsketch.lowrank._noise import scores
from fastsketch.lowrank._setting import FROM_SPREAD, LossSetting

# Observations that a bias is shrunk by, where the model is not told, by kind of target: on validation parts of training
# entries (docs/defaults.md).
BIAS_OBSERVATIONS = {"real": 3.0, "label": 2.0, "count": 3.0}
# Sweeps of the biases that the spread is taken from: of kinks two are far off, the rest of the way changes little.
ROUGH_SWEEPS = 5
# Half of the residuals may be next to zero, as of labels in numbers: the spread is at least this share of their mean.
LEAST_SPREAD = 0.1


def mean_curvature(data: Observed, loss: LossSetting, level: float) -> float:
    """Of an observation of weight 1 at the constant score `level`: what one observation weighs against a ridge.

    The mean second derivative; of the Huber loss and of losses with kinks, whose second derivative says nothing, the
    parabola that touches the loss where it is steep: sum(slope^2) / sum(slope * residual). That is 1 for squares,
    delta / (mean distance) far outside of delta, and 1 / (mean distance) of the absolute loss.
    """
    if loss.name == "square":
        return 1.0
    o, c = data.o, data.c
    if len(c) and not c.all():  # of weight zero: not there
        o, c = o[c > 0], c[c > 0]
    if not len(o):
        return 1.0
    z = np.full(len(o), level, o.dtype)
    value, squares, curvatures = entries.objective(loss.number, loss.parameter, z, o, c)
    total = float(c.sum(dtype=np.float64)) if len(c) else float(len(o))
    if loss.about.smooth and loss.name != "huber":
        return max(curvatures / total, 1e-12)
    if len(c):  # the kernel squares weights too
        slopes = LOSSES[loss.name].slope(z.astype(np.float64), o.astype(np.float64), loss.parameter)
        squares = float((c * slopes**2).sum())
    # slope * residual = loss + what the loss has below the line from its kink
    lift = {"huber": 0.5, "epsilon_insensitive": loss.parameter}.get(loss.name, 0.0)
    steep = value + lift * squares
    return squares / steep if squares > 0 and steep > 0 else 1.0


def robust_spread(residuals: NDArray[np.float64]) -> float:
    """The standard deviation if they are normal, from their median size."""
    size = np.abs(residuals)
    if not len(size):
        return 0.0
    middle = len(size) // 2
    return max(1.4826 * float(np.partition(size, middle)[middle]), LEAST_SPREAD * 1.2533 * float(size.mean()))


def parameter_from_data(data: Observed, loss: LossSetting, level: float, *, biases: bool, bias_ridge: float) -> float:
    """The delta or epsilon of a loss that was given none: a multiple of the spread of what biases leave.

    Biases are fitted roughly, under the loss with the spread around `level`, which no few wrong entries can spoil.
    """
    share = FROM_SPREAD[loss.name]

    def spread(z: Array | float) -> float:
        left: NDArray[np.float64] = np.asarray(data.o - z, np.float64)
        return robust_spread(left[data.c > 0] if len(data.c) else left)

    first = spread(level)
    if not first > 0:
        return LOSSES[loss.name].parameter or 1.0  # one number everywhere: nothing to measure by
    if not biases:
        return share * first
    rough = replace(loss, parameter=share * first)
    penalty = bias_ridge * mean_curvature(data, rough, level)
    found = fit_biases(data, rough, ridge=penalty, level=level, sweeps=ROUGH_SWEEPS)
    nothing = np.zeros((data.m, 0), data.o.dtype), np.zeros((data.n, 0), data.o.dtype)
    left = spread(scores(data, *nothing, found.rows, found.columns))
    return share * (left if left > 0 else first)
