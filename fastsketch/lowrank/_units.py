"""Units of ridges and loss parameters, in which a model of c X is c times the model of X.

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
  one of about s (sqrt(N / m) + sqrt(N / n)), s the root mean square slope (`NoiseLevel`). With penalty = ridge * that,
  **ridge = 1 is what noise needs to be left out**. It has the scale of the slopes: c, and 1, as it must be.

Labels and counts have no scale to be free of; there the same two units are of curvature and of slopes, and for a model
that is right, mean(slope^2) = mean(curvature): both units are then of curvature alone.

A delta or an epsilon that is given is in units of X. One that is not is a multiple of a robust spread of what biases
leave (`parameter_from_data`), and so are kinks smoothed over a share of the spread of X (`_biases.py`).
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

from fastsketch._core.losses import LOSSES
from fastsketch._core.threads import one_blas_thread
from fastsketch.lowrank._data import Array, Observed
from fastsketch.lowrank._entries import Entries
from fastsketch.lowrank._fitted import Side
from fastsketch.lowrank._setting import LossSetting

Floats = NDArray[np.float64]

# Observations that a bias is shrunk by, where the model is not told, by kind of target: on validation parts of training
# entries (docs/defaults.md).
BIAS_OBSERVATIONS = {"real": 3.0, "label": 2.0, "count": 3.0}
# Half of the residuals may be next to zero, as of labels in numbers: the spread is at least this share of their mean.
LEAST_SPREAD = 0.1
# What a sum of curvatures is at least: no scale of X may come near it.
TINY = 1e-290
# Losses whose noise level is estimated again from the model of the moment: that of the others follows from their
# targets (labels, counts), or their slopes have one size (kinks).
REAL_NOISE = ("square", "huber")
# The share of freedom that is left is at least this: small data with many ranks fit next to all of the noise.
LEAST_FREEDOM = 0.03
# Entries, in whole rows, that show the noise of the moment to half a per cent.
ENOUGH = 25_000


# -- the unit of bias_ridge: the curvature of an observation -----------------------------------------------------------
class Steepness(NamedTuple):
    """Sums over observations at a constant score."""

    value: float  # losses
    squares: float  # of slopes
    curvatures: float
    weights: float
    observations: int


def mean_curvature(observations: Entries, loss: LossSetting, level: float) -> float:
    """Return what one observation of mean weight weighs against a ridge, at the constant score `level`.

    That is the mean second derivative; of the Huber loss and of losses with kinks, whose second derivative says
    nothing, the parabola that touches the loss where it is steep: sum(slope^2) / sum(slope * residual). That is 1 for
    squares, delta / (mean distance) far outside of delta, and 1 / (mean distance) of the absolute loss; times the mean
    of the weights, so that weights of another scale choose no other ridges.
    """
    if loss.name == "square" and not observations.weighted:
        return 1.0
    sums = steepness(observations.data, loss, level)
    if not sums.weights > 0:
        return 1.0
    weight = sums.weights / sums.observations
    if loss.curved:
        return max(sums.curvatures / sums.weights, 1e-12) * weight
    # slope * residual = loss + what the loss has below the line from its kink
    lift = {"huber": 0.5, "epsilon_insensitive": loss.parameter}.get(loss.name, 0.0)
    steep = sums.value + lift * sums.squares
    return weight * (sums.squares / steep if sums.squares > 0 and steep > 0 else 1.0)


def steepness(data: Observed, loss: LossSetting, level: float) -> Steepness:
    """Return sums over the observations at the score `level`."""
    o, c = data.o, data.c
    if not len(o):
        return Steepness(0.0, 0.0, 0.0, 0.0, 0)
    z = np.full(len(o), level, o.dtype)
    value, squares, curvatures = data.loss(loss, z)
    if len(c) and not loss.curved:  # the kernel squares weights too
        slopes = LOSSES[loss.name].slope(z.astype(np.float64), o.astype(np.float64), loss.parameter)
        squares = float((c * slopes**2).sum())
    return Steepness(value, squares, curvatures, float(c.sum(dtype=np.float64)) if len(c) else float(len(o)), len(o))


# -- the unit of delta and epsilon: the spread of residuals ------------------------------------------------------------
def spread_from(median: float, mean: float) -> float:
    """Return the standard deviation of normal residuals from the median and the mean of their sizes."""
    return max(1.4826 * median, LEAST_SPREAD * 1.2533 * mean)


# -- the unit of ridge: the noise --------------------------------------------------------------------------------------
def noise_unit(n_observations: int, occurring: tuple[int, int], square: float) -> float:
    """Return s (sqrt(N / m) + sqrt(N / n)) for N observations, the rows and columns that occur, and s^2 = square."""
    m, n = occurring
    return float((np.sqrt(n_observations / max(m, 1)) + np.sqrt(n_observations / max(n, 1))) * np.sqrt(square))


Sample = tuple[Observed, NDArray[np.int64] | None]  # some entries, and where they are; None: all


class NoiseLevel:
    """The unit of `ridge`, estimated from the residuals of the biases, and before every sweep from those of the model.

    The spread of real noise is not known beforehand. docs/defaults.md has ridge = 1 beside others.
    """

    def __init__(
        self, observations: Entries, loss: LossSetting, state: Any, *, objective: float, bias_ridge: float, follow: bool
    ) -> None:
        """Take a `state` with the scores of the biases alone, `objective` their losses; follow: sweeps ask."""
        self._observations, self._loss, self._bias_ridge, n = (
            observations,
            loss,
            bias_ridge,
            observations.n_observations,
        )
        # of squares, losses are slopes
        plain = loss.name == "square" and not observations.weighted
        first = 2.0 * objective / n if plain else self._mean_square((observations.data, None), state)
        self.unit = noise_unit(n, observations.occurring, first)  # before any rank
        self.follows = follow and loss.name in REAL_NOISE and first > 0
        if not self.follows:
            return
        stride = n // ENOUGH if n > 2 * ENOUGH else 1
        self._sample: Sample = (
            (observations.data, None) if stride == 1 else observations.data.every(stride)
        )  # what the level of the moment is measured by
        self._first = first if stride == 1 else self._mean_square(self._sample, state)
        self.follows = self._first > 0

    def _mean_square(self, sample: Sample, state: Any) -> float:
        data, chosen = sample
        _, squares, _ = data.loss(self._loss, state.z if chosen is None else state.z[chosen])
        return squares / max(len(data.o), 1)

    def unit_now(self, rows: Side, columns: Side, level: float, penalty: float) -> float:
        """Return the unit with the factors and biases of the moment, and the penalty of their fit.

        The slopes that are left, over the square of the share of freedom that is left (generalised cross-validation),
        estimate the noise.
        """
        observations, n = self._observations, self._observations.n_observations
        data, _ = self._sample
        z = data.scores(rows.factors, columns.factors, rows.biases + level, columns.biases)
        _, squares, curvatures = data.loss(self._loss, z)
        count = len(data.o)
        row_counts, column_counts = observations.data.counts
        spectra = _spectrum(columns.factors, column_counts / n), _spectrum(rows.factors, row_counts / n)
        used, curvature = 0.0, curvatures / max(count, 1)
        for (n_each, many), other in zip(observations.counts, spectra, strict=True):
            # the effective number of parameters: the trace of each row's ridge fit, and its bias; of rows with as many
            # observations these are alike
            part = curvature * np.outer(n_each, other.clip(0.0))
            each = (part / (part + max(penalty, TINY))).sum(axis=1)
            used += float((many * (each + n_each / (n_each + self._bias_ridge))).sum())
        left = squares / max(count, 1) / max(1.0 - used / n, LEAST_FREEDOM) ** 2
        return float(self.unit * min(left / self._first, 1.0))


@one_blas_thread
def _spectrum(factors: Array, shares: Floats) -> Floats:
    """Return the eigenvalues of sum_i share_i a_i a_i', ascending."""
    counted = (factors.astype(np.float64) * np.sqrt(shares)[:, None]).T
    product = blas.dgemm(1.0, counted, counted, trans_b=True)
    values, _, info = lapack.dsyevd(product, compute_v=False, lwork=2 * len(product) + 1, liwork=1)
    if info:
        raise np.linalg.LinAlgError("the eigenvalues of a Gram matrix of factors did not converge")
    return values
