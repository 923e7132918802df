"""The unit of `ridge`: as much as pure noise would need to be left out, estimated from the data.

The gradient of the losses at a matrix of pure noise has a largest singular value of about
s (sqrt(observations of a row) + sqrt(observations of a column)), s the root mean square slope of an observation. With
penalty / 2 (|A|^2 + |B|^2) a direction enters the model only if its singular value in the gradient exceeds `penalty`:
at that level, ridge = 1, noise does not, on any scale of the data and under any loss. The spread of real noise is not
known beforehand: it is estimated from the residuals of the biases, and again before every sweep from those of the
model. docs/defaults.md has ridge = 1 beside others.
"""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.lowrank import dense, entries
from fastsketch.lowrank._biases import TINY
from fastsketch.lowrank._data import Array, Observed
from fastsketch.lowrank._fitted import Fitted
from fastsketch.lowrank._setting import LossSetting

# Losses whose noise level is estimated again from the model of the moment: that of the others follows from their
# targets (labels, counts), or their slopes have one size (kinks).
REAL_NOISE = ("square", "huber")
# The share of freedom that is left is at least this: small data with many ranks fit next to all of the noise.
LEAST_FREEDOM = 0.03
# Entries, in whole rows, that show the noise of the moment to half a per cent.
ENOUGH = 25_000


class NoiseLevel:
    """s (sqrt(N / rows) + sqrt(N / columns)), N observations in the rows and columns that occur."""

    def __init__(
        self, data: Observed, loss: LossSetting, z: Array, *, bias_ridge: float, objective: float, follow: bool
    ) -> None:
        """z: scores (nnz,) of the biases alone, which are shrunk by `bias_ridge` observations; their sum of losses.

        `follow`: whether `unit_now` will be asked for.
        """
        self._data, self._loss, self._bias_ridge = data, loss, bias_ridge
        occurring = [max(int(np.count_nonzero(count)), 1) for count in data.counts]
        self._size = sum(np.sqrt(len(data.o) / many) for many in occurring)
        # of squares, losses are slopes
        plain = loss.name == "square" and not len(data.c)
        self._first = 2.0 * objective / len(data.o) if plain else self._mean_slopes(data, z)[0]
        self.follows = follow and loss.name in REAL_NOISE and self._first > 0  # whether `unit_now` differs from `unit`
        self._some, self._some_first = data, self._first  # what the level of the moment is measured by
        if self.follows and len(data.o) > 2 * ENOUGH:
            self._some, chosen = data.every(len(data.o) // ENOUGH)
            self._some_first = self._mean_slopes(self._some, z[chosen])[0]
            self.follows = self._some_first > 0

    @cached_property
    def _alike(self) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Of rows, and of columns: the numbers of observations that occur, and how many have each."""
        return [np.unique(count[count > 0], return_counts=True) for count in self._data.counts]

    def unit(self) -> float:
        """Before any rank."""
        return float(self._size * np.sqrt(self._first))

    def unit_now(self, a: Array, b: Array, row: Array, column: Array, penalty: float) -> float:
        """With the factors a (m, t), b (n, t) of the moment, biases (level in those of rows) and penalty of their fit.

        The slopes that are left, over the square of the share of freedom that is left (generalised cross-validation),
        estimate the noise.
        """
        if not self.follows:
            return self.unit()
        square, curvature = self._mean_slopes(self._some, scores(self._some, a, b, row, column))
        freedom = max(1.0 - self._parameters(a, b, curvature, penalty) / len(self._data.o), LEAST_FREEDOM)
        left = square / freedom**2
        return float(self.unit() * min(left / self._some_first, 1.0))

    def _mean_slopes(self, data: Observed, z: Array) -> tuple[float, float]:
        """Mean of the squared slopes and of the curvatures, weighted."""
        n = max(len(data.o), 1)
        _, squares, curvatures = entries.objective(self._loss.number, self._loss.parameter, z, data.o, data.c)
        return squares / n, curvatures / n

    def _parameters(self, a: Array, b: Array, curvature: float, penalty: float) -> float:
        """Effective number of parameters of both sides: the trace of each row's ridge fit, and its bias."""
        n, total = len(self._data.o), 0.0
        for own, other, factors in ((0, 1, b), (1, 0, a)):
            observations, many = self._alike[own]  # rows of as many observations are alike
            weighted = factors.astype(np.float64) * np.sqrt(self._data.counts[other] / n)[:, None]
            spread = dense.spectrum(weighted).clip(0.0)
            part = curvature * np.outer(observations, spread)
            each = (part / (part + max(penalty, TINY))).sum(axis=1) + observations / (observations + self._bias_ridge)
            total += float((many * each).sum())
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
