"""Units of ridge and loss parameters that make fits equivariant: the model of c X is c times the model of X.

The objective is  sum_k loss(z_k, o_k) + penalty / 2 (|A|^2 + |B|^2) + bias_penalty / 2 (|row|^2 + |column|^2)  with
z = level + row_i + column_j + a_i'b_j. Let the observations be multiplied by c. Scores and biases should then be
multiplied by c too, and factors by sqrt(c).

- The square loss, and the Huber loss with delta multiplied by c, are multiplied by c^2. The same minimum needs the same
  bias_penalty, and penalty multiplied by c.
- The absolute, the quantile and the epsilon-insensitive loss (with epsilon multiplied by c) are multiplied by c. They
  need bias_penalty divided by c, and the same penalty.

The parameters `ridge` and `bias_ridge` are numbers that do not depend on c. They are converted as follows.

- The bias of a row of n observations is about sum(slopes) / (n curvature + bias_penalty). With
  bias_penalty = bias_ridge * curvature it is shrunk by n / (n + bias_ridge). So **bias_ridge is a number of
  observations** for every loss. `mean_curvature` has the scale of slope / residual, which is 1 and 1 / c in the two
  cases above. For the logistic loss it is p (1 - p) at the best constant score.
- A factor is nonzero if its singular value in the gradient is larger than penalty. A gradient of pure noise has a
  largest singular value of about s (sqrt(N / m) + sqrt(N / n)), where s is the root mean square of the slopes
  (`NoiseLevel`). With penalty = ridge * that value, **factors of pure noise vanish at ridge = 1**. It has the scale of
  the slopes, c and 1 in the two cases.

Labels and counts have no scale. The same units are used for them. For a correct model mean(slope^2) = mean(curvature),
so that both units measure curvature.

A given delta or epsilon is in units of X. Otherwise it is a multiple of the robust standard deviation of the residuals
of the biases (`parameter_from_data`). Kinks are smoothed over a share of the standard deviation of X (`_biases.py`).
"""

from math import pi, sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack
from scipy.special import ndtri

from fastsketch._core.losses import LOSSES
from fastsketch._core.threads import one_blas_thread
from fastsketch.lowrank._data import Array, Observed
from fastsketch.lowrank._entries import Entries
from fastsketch.lowrank._fitted import Side
from fastsketch.lowrank._setting import LossSetting

Floats = NDArray[np.float64]

# Default of bias_ridge by kind of target, chosen on validation parts of training entries (docs/defaults.md).
BIAS_OBSERVATIONS = {"real": 3.0, "label": 2.0, "count": 3.0}
# Lower limit of a robust deviation, as a share of the deviation that the mean implies: more than half of the residuals
# can be almost zero.
MIN_SPREAD_SHARE = 0.1
# Least sum of curvatures, far below that of any scale of X.
TINY = 1e-290
# Losses whose noise level is estimated again before each sweep. For labels and counts it follows from the targets, and
# the slopes of losses with kinks have a fixed size.
REAL_NOISE = ("square", "huber")
# Number of entries, in complete rows, that determine the noise level to half a per cent.
MIN_SAMPLE_ENTRIES = 25_000


# -- the unit of bias_ridge: the curvature of an observation -----------------------------------------------------------
class LossSums(NamedTuple):
    """Sums of a loss and of its derivatives over all observed entries, at one constant score."""

    value: float  # of losses
    squares: float  # of squared slopes
    curvatures: float
    weights: float
    observations: int


def mean_curvature(observations: Entries, loss: LossSetting, level: float) -> float:
    """Return the mean curvature of the loss at a constant score, the unit of the parameter ``bias_ridge``.
    Multiplied by it, the parameter counts observations.

    For smooth losses it is the mean second derivative. That of the Huber loss and of losses with kinks is zero almost
    everywhere, so they have sum(slope^2) / sum(slope * residual): 1 for squares, delta / (mean distance) far beyond
    delta, 1 / (mean distance) for the absolute loss. It is multiplied by the mean weight, so that the scale of the
    weights does not matter.
    """
    if loss.name == "square" and not observations.has_weights:
        return 1.0
    sums = loss_sums(observations.data, loss, level)
    if not sums.weights > 0:
        return 1.0
    weight = sums.weights / sums.observations
    if loss.curved:
        return max(sums.curvatures / sums.weights, 1e-12) * weight
    # slope * residual is the loss plus its distance to the line from the kink
    kink_offset = {"huber": 0.5, "epsilon_insensitive": loss.parameter}.get(loss.name, 0.0)
    slope_residual_sum = sums.value + kink_offset * sums.squares
    return weight * (sums.squares / slope_residual_sum if sums.squares > 0 and slope_residual_sum > 0 else 1.0)


def loss_sums(data: Observed, loss: LossSetting, level: float) -> LossSums:
    """Return the sums of losses, squared slopes and curvatures over all observed entries, at the constant score
    `level`.
    """
    o, c = data.o, data.c
    if not len(o):
        return LossSums(0.0, 0.0, 0.0, 0.0, 0)
    z = np.full(len(o), level, o.dtype)
    value, squares, curvatures = data.loss(loss, z)
    if len(c) and not loss.curved:  # the kernel squares weights too
        slopes = LOSSES[loss.name].slope(z.astype(np.float64), o.astype(np.float64), loss.parameter)
        squares = float((c * slopes**2).sum())
    return LossSums(value, squares, curvatures, float(c.sum(dtype=np.float64)) if len(c) else float(len(o)), len(o))


# -- the unit of delta and epsilon: the spread of residuals ------------------------------------------------------------
def robust_deviation(median: float, mean: float) -> float:
    """Return a robust estimate of the standard deviation of residuals, given the median and the mean of their absolute
    values.
    """
    return max(median / float(ndtri(0.75)), MIN_SPREAD_SHARE * sqrt(pi / 2.0) * mean)


# -- the unit of ridge: the noise --------------------------------------------------------------------------------------
def noise_unit(n_observations: int, n_nonempty: tuple[int, int], mean_square: float) -> float:
    """Return the approximate largest singular value of a gradient of pure noise, the unit of the parameter ``ridge``.

    For N observations in m nonempty rows and n nonempty columns it is s (sqrt(N / m) + sqrt(N / n)), where s^2 is
    `mean_square`.
    """
    m, n = n_nonempty
    return float((np.sqrt(n_observations / max(m, 1)) + np.sqrt(n_observations / max(n, 1))) * np.sqrt(mean_square))


Sample = tuple[Observed, NDArray[np.int64] | None]  # some entries, and their positions among all; None for all


class NoiseLevel:
    """Estimate of the noise in the data, the unit of the parameter `ridge`: at ridge=1 factors of pure noise vanish.

    ``unit`` is the first estimate, from the residuals of the biases. If ``is_updated`` is True, ``current_unit``
    estimates it again from the model before each sweep.
    """

    def __init__(
        self,
        observations: Entries,
        loss: LossSetting,
        state: Any,
        *,
        objective: float,
        bias_ridge: float,
        updates: bool,
    ) -> None:
        """Estimate the noise from the residuals of the biases, before any rank is added.

        ``state.z`` are the scores of the biases, and `objective` is their total loss. `updates` states whether the
        caller runs sweeps with a given ridge, for which the estimate is repeated.
        """
        self._observations, self._loss, self._bias_ridge, n = (
            observations,
            loss,
            bias_ridge,
            observations.n_observations,
        )
        # for squares the loss is half the squared slope
        is_square = loss.name == "square" and not observations.has_weights
        mean_square = 2.0 * objective / n if is_square else self._mean_square((observations.data, None), state)
        self.unit = noise_unit(n, observations.n_nonempty, mean_square)  # before any rank
        self.is_updated = updates and loss.name in REAL_NOISE and mean_square > 0
        if not self.is_updated:
            return
        stride = n // MIN_SAMPLE_ENTRIES if n > 2 * MIN_SAMPLE_ENTRIES else 1
        self._sample: Sample = (observations.data, None) if stride == 1 else observations.data.every_nth_row(stride)
        self._first_mean_square = mean_square if stride == 1 else self._mean_square(self._sample, state)
        self.is_updated = self._first_mean_square > 0

    def _mean_square(self, sample: Sample, state: Any) -> float:
        data, positions = sample
        _, squares, _ = data.loss(self._loss, state.z if positions is None else state.z[positions])
        return squares / max(len(data.o), 1)

    def current_unit(self, rows: Side, columns: Side, level: float, penalty: float) -> float:
        """Return a new estimate of the noise from the residuals of the present model, at most the first estimate.

        The noise is estimated by generalised cross-validation: the mean square of the slopes divided by the square of
        the remaining share of degrees of freedom, of which at least one is left. `penalty` is the L2 penalty of the
        factors.
        """
        observations, n = self._observations, self._observations.n_observations
        data, _ = self._sample
        z = data.scores(rows.factors, columns.factors, rows.biases + level, columns.biases)
        _, squares, curvatures = data.loss(self._loss, z)
        n_sample = len(data.o)
        row_counts, column_counts = observations.data.counts
        spectra = gram_eigenvalues(columns.factors, column_counts / n), gram_eigenvalues(rows.factors, row_counts / n)
        n_parameters, curvature = 0.0, curvatures / max(n_sample, 1)
        for (row_sizes, multiplicity), eigenvalues in zip(observations.count_distribution, spectra, strict=True):
            # effective number of parameters: the trace of the ridge fit of each row, and its bias; rows with the same
            # number of observations have the same trace
            curvature_terms = curvature * np.outer(row_sizes, eigenvalues.clip(0.0))
            traces = (curvature_terms / (curvature_terms + max(penalty, TINY))).sum(axis=1)
            n_parameters += float((multiplicity * (traces + row_sizes / (row_sizes + self._bias_ridge))).sum())
        noise = squares / max(n_sample, 1) / max(1.0 - n_parameters / n, 1.0 / n) ** 2
        return float(self.unit * min(noise / self._first_mean_square, 1.0))


@one_blas_thread
def gram_eigenvalues(factors: Array, shares: Floats) -> Floats:
    """Return the ascending eigenvalues (t,) of sum_i shares_i a_i a_i', where a_i are the rows of `factors` (n, t)."""
    scaled = (factors.astype(np.float64) * np.sqrt(shares)[:, None]).T
    product = blas.dgemm(1.0, scaled, scaled, trans_b=True)
    values, _, info = lapack.dsyevd(product, compute_v=False, lwork=2 * len(product) + 1, liwork=1)
    if info:
        raise np.linalg.LinAlgError("the eigenvalues of a Gram matrix of factors did not converge")
    return values
