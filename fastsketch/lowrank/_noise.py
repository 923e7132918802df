"""How much ridge the data ask for, where the model is given none: as much as pure noise would need to be left out.

The gradient of the losses at a matrix of pure noise has a largest singular value of about
s (sqrt(observations of a row) + sqrt(observations of a column)), s the root mean square slope of an observation. With
ridge / 2 (|A|^2 + |B|^2) a direction enters the model only if its singular value in the gradient exceeds `ridge`: at
that level noise does not, on any scale of the data and under any loss. The spread of real noise is not known
beforehand: it is estimated from the residuals of the biases, and again before every sweep from those of the model.

docs/defaults.md has it beside constant ridges on validation splits: level with the best one of each set of ratings,
links and counts, which lie between 1 and 20, and ahead on small data of exact rank; behind a ridge of 1 on small noisy
data under the Huber loss. 0.8 times it overfits small data, 1.2 times it loses on large ones.
"""

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.lowrank import dense, entries
from fastsketch._losses import LOSSES
from fastsketch.lowrank._biases import constant_score
from fastsketch.lowrank._data import Array, Observed
from fastsketch.lowrank._fitted import Fitted
from fastsketch.lowrank._setting import LossSetting

# Observations of average curvature that a bias is shrunk by: on stars 1 and 10 are no better (validation splits).
BIAS_OBSERVATIONS = 3.0
# Losses whose noise level is estimated again from the model of the moment: that of the others follows from their
# targets (labels, counts), or their slopes have one size (kinks).
REAL_NOISE = ("square", "huber")
# The share of freedom that is left is at least this: small data with many ranks fit next to all of the noise.
LEAST_FREEDOM = 0.03


def default_bias_ridge(data: Observed, loss: LossSetting) -> float:
    """Three observations of the mean curvature at the best constant score (1 for losses with kinks)."""
    about = LOSSES[loss.name]
    if not about.smooth or loss.name in REAL_NOISE:
        return BIAS_OBSERVATIONS
    o = data.o.astype(np.float64)
    level = np.full(len(o), constant_score(data, loss))
    return BIAS_OBSERVATIONS * max(float(about.curvature(level, o, loss.parameter).mean()), 1e-12)


class NoiseLevel:
    """The ridge of a fit: s (sqrt(N / rows) + sqrt(N / columns)), N observations in the rows and columns that occur."""

    def __init__(self, data: Observed, loss: LossSetting, z: Array) -> None:
        """z: scores (nnz,) of the biases alone."""
        self._data, self._loss = data, loss
        self._counts = data.counts()
        occurring = [max(int(np.count_nonzero(count)), 1) for count in self._counts]
        self._size = sum(np.sqrt(len(data.o) / many) for many in occurring)
        self._first = self._mean_slopes(z)[0]

    def ridge(self) -> float:
        """Before any rank."""
        return float(self._size * np.sqrt(self._first))

    def ridge_now(self, a: Array, b: Array, z: Array, ridge: float) -> float:
        """With the factors a (m, t), b (n, t) of the moment, their scores z and the ridge that they were fitted with.

        The slopes that are left, over the square of the share of freedom that is left (generalised cross-validation),
        estimate the noise.
        """
        if self._loss.name not in REAL_NOISE or not self._first > 0:
            return self.ridge()
        square, curvature = self._mean_slopes(z)
        freedom = max(1.0 - self._parameters(a, b, curvature, ridge) / len(self._data.o), LEAST_FREEDOM)
        left = square / freedom**2
        return self.ridge() * min(left / self._first, 1.0)

    def _mean_slopes(self, z: Array) -> tuple[float, float]:
        """Mean of the squared slopes and of the curvatures, weighted."""
        data, n = self._data, len(self._data.o)
        _, squares, curvatures = entries.objective(self._loss.number, self._loss.parameter, z, data.o, data.c)
        return squares / n, curvatures / n

    def _parameters(self, a: Array, b: Array, curvature: float, ridge: float) -> float:
        """Effective number of parameters of both sides: the trace of each row's ridge fit, and its bias."""
        n, total = len(self._data.o), 0.0
        for own, other, factors in ((0, 1, b), (1, 0, a)):
            count: NDArray[np.float64] = self._counts[own].astype(np.float64)
            weighted = factors.astype(np.float64) * np.sqrt(self._counts[other] / n)[:, None]
            spread = dense.spectrum(weighted).clip(0.0)
            part = curvature * np.outer(count[count > 0], spread)
            total += float((part / (part + max(ridge, 1e-9))).sum() + (count / (count + BIAS_OBSERVATIONS)).sum())
        return total


def total_loss(data: Observed, fitted: Fitted, loss: LossSetting) -> float:
    """Sum of the losses of a fitted model at these entries."""
    left, right, coefficients = fitted.sides(fitted.selected_rank)
    z = scores(data, left * coefficients, right, fitted.row + fitted.level, fitted.column)
    return entries.objective(loss.number, loss.parameter, z, data.o, data.c)[0]


def scores(data: Observed, a: Array, b: Array, row_biases: Array, column_biases: Array) -> Array:
    """Scores (nnz,) of the observed entries; the level is in the row biases."""
    z, dtype = np.empty_like(data.o), data.o.dtype
    if not a.shape[1]:
        a, b = np.zeros((data.m, 1), dtype), np.zeros((data.n, 1), dtype)
    left, right, rb, cb = (np.ascontiguousarray(side, dtype) for side in (a, b, row_biases, column_biases))
    entries.scores(*data.where, left, right, rb, cb, z)
    return z
