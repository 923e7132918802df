"""The unit of `ridge`: as much as pure noise would need to be left out, estimated from the data.

The gradient of the losses at a matrix of pure noise has a largest singular value of about
s (sqrt(observations of a row) + sqrt(observations of a column)), s the root mean square slope of an observation. With
penalty / 2 (|A|^2 + |B|^2) a direction enters the model only if its singular value in the gradient exceeds `penalty`:
at that level, ridge = 1, noise does not, on any scale of the data and under any loss. The spread of real noise is not
known beforehand: it is estimated from the residuals of the biases, and again before every sweep from those of the
model. docs/defaults.md has ridge = 1 beside others.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.lowrank import dense, entries
from fastsketch.lowrank._biases import TINY
from fastsketch.lowrank._data import Array, Observed
from fastsketch.lowrank._fitted import Fitted, Side
from fastsketch.lowrank._setting import LossSetting

# Losses whose noise level is estimated again from the model of the moment: that of the others follows from their
# targets (labels, counts), or their slopes have one size (kinks).
REAL_NOISE = ("square", "huber")
# The share of freedom that is left is at least this: small data with many ranks fit next to all of the noise.
LEAST_FREEDOM = 0.03
# Entries, in whole rows, that show the noise of the moment to half a per cent.
ENOUGH = 25_000

Alike = tuple[NDArray[np.int64], NDArray[np.int64]]


class NoiseLevel:
    """s (sqrt(N / rows) + sqrt(N / columns)), N observations in the rows and columns that occur.

    A subclass has the entries. ``first`` is the mean squared slope before any rank, ``some_first`` that of the entries
    which ``_left`` reads.
    """

    follows: bool  # whether `unit_now` differs from `unit`

    def __init__(
        self, n_observations: int, occurring: Sequence[int], *, first: float, some_first: float, bias_ridge: float
    ) -> None:
        """occurring: how many rows, and columns; they are shrunk by `bias_ridge` observations."""
        self._n, self._first, self._some_first, self._bias_ridge = n_observations, first, some_first, bias_ridge
        self._size = sum(np.sqrt(n_observations / max(many, 1)) for many in occurring)

    def unit(self) -> float:
        """Before any rank."""
        return float(self._size * np.sqrt(self._first))

    def unit_now(self, rows: Any, columns: Side, level: float, penalty: float) -> float:
        """With the factors and biases of the moment, and the penalty of their fit.

        The slopes that are left, over the square of the share of freedom that is left (generalised cross-validation),
        estimate the noise.
        """
        if not self.follows:
            return self.unit()
        square, curvature = self._left(rows, columns, level)
        freedom = max(1.0 - self._parameters(rows, columns, curvature, penalty) / self._n, LEAST_FREEDOM)
        left = square / freedom**2
        return float(self.unit() * min(left / self._some_first, 1.0))

    def _left(self, rows: Any, columns: Side, level: float) -> tuple[float, float]:
        """Mean of the squared slopes and of the curvatures that the model leaves."""
        raise NotImplementedError

    def _alike(self, axis: int) -> Alike:
        """Of rows, or of columns: the numbers of observations that occur, and how many have each."""
        raise NotImplementedError

    def _spectrum(self, axis: int, rows: Any, columns: Side) -> NDArray[np.float64]:
        """Eigenvalues of sum_i count_i / N f_i f_i' over the factors f_i of rows, or of columns."""
        raise NotImplementedError

    def _parameters(self, rows: Any, columns: Side, curvature: float, penalty: float) -> float:
        """Effective number of parameters of both sides: the trace of each row's ridge fit, and its bias."""
        total = 0.0
        for own, other in ((0, 1), (1, 0)):
            observations, many = self._alike(own)  # rows of as many observations are alike
            part = curvature * np.outer(observations, self._spectrum(other, rows, columns).clip(0.0))
            each = (part / (part + max(penalty, TINY))).sum(axis=1) + observations / (observations + self._bias_ridge)
            total += float((many * each).sum())
        return total


class NoiseOfEntries(NoiseLevel):
    """Of the entries of one process."""

    def __init__(
        self, data: Observed, loss: LossSetting, z: Array, *, bias_ridge: float, objective: float, follow: bool
    ) -> None:
        """z: scores (nnz,) of the biases alone; their sum of losses. `follow`: whether `unit_now` will be asked for."""
        self._data, self._loss = data, loss
        occurring = [int(np.count_nonzero(count)) for count in data.counts]
        # of squares, losses are slopes
        plain = loss.name == "square" and not len(data.c)
        first = 2.0 * objective / len(data.o) if plain else mean_slopes(data, loss, z)[0]
        self.follows = follow and loss.name in REAL_NOISE and first > 0
        self._some, some_first = data, first  # what the level of the moment is measured by
        if self.follows and (step := stride(len(data.o))) > 1:
            self._some, chosen = data.every(step)
            some_first = mean_slopes(self._some, loss, z[chosen])[0]
            self.follows = some_first > 0
        super().__init__(len(data.o), occurring, first=first, some_first=some_first, bias_ridge=bias_ridge)

    def _left(self, rows: Side, columns: Side, level: float) -> tuple[float, float]:
        z = scores(self._some, rows.factors, columns.factors, rows.biases + level, columns.biases)
        return mean_slopes(self._some, self._loss, z)

    def _alike(self, axis: int) -> Alike:
        return self._of_counts[axis]

    @cached_property
    def _of_counts(self) -> list[Alike]:
        return [np.unique(count[count > 0], return_counts=True) for count in self._data.counts]

    def _spectrum(self, axis: int, rows: Side, columns: Side) -> NDArray[np.float64]:
        factors = (rows, columns)[axis].factors
        weights = np.sqrt(self._data.counts[axis] / self._n)
        return dense.spectrum(factors.astype(np.float64) * weights[:, None])


def stride(n_observations: int) -> int:
    """Every how many rows show the noise of the moment."""
    return n_observations // ENOUGH if n_observations > 2 * ENOUGH else 1


def mean_slopes(data: Observed, loss: LossSetting, z: Array) -> tuple[float, float]:
    """Mean of the squared slopes and of the curvatures, weighted, at the scores z."""
    n = max(len(data.o), 1)
    _, squares, curvatures = entries.objective(loss.number, loss.parameter, z, data.o, data.c)
    return squares / n, curvatures / n


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
