"""Ridges that are learned for each factor of the square loss, and the noise with them: variational Bayes.

Entries of weight w are a_i'b_j and biases, and noise of variance noise / w; the factors a_iq of rows are drawn with a
variance of their own for every q, and so are those of columns. What a row is fitted to is not known exactly: b_jq has
the variance S_jq = noise / H_jq, H_jq what the normal equations of column j have on their diagonal. In those of a row
stand the expected squares, sum_j w_ij (b_jq^2 + S_jq), whose second part is a ridge that grows with the weight of the
row. S is taken alike for all columns, its mean over the entries, so that a ridge is two numbers a factor:

    ridge of row i = noise / variance_q + weight_i * uncertainty_q.

Without the second one a ridge has to be large, or many ranks overfit, and then shrinks what is certain too. variance_q
is sum_i a_iq^2 / sum_i (1 - share of the ridge in H_iq) (MacKay 1992), noise the mean of what is left, to which each
parameter in effect adds one entry's noise; a factor that says nothing fades. Of columns the same.

Lim, Teh, Variational Bayesian Approach to Movie Rating Prediction, KDD Cup 2007; Raiko, Ilin, Karhunen, Principal
Component Analysis for Large Scale Problems with Lots of Missing Values, ECML 2007.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch.lowrank._data import Observed
from fastsketch.lowrank._entries import Entries
from fastsketch.lowrank._fitted import Side
from fastsketch.lowrank._setting import SideSetting
from fastsketch.lowrank._units import noise_unit

Floats = NDArray[np.float64]

# What noise and sums of weights are at least.
TINY = float(np.finfo(np.float64).tiny)
# A factor is at least so much in effect: what has faded would else have 0 / 0 for its variance.
LEAST_EFFECT = 1e-3
# Variances are at least this share of an entry's standard deviation: of the product of two factors it is the variance.
LEAST_VARIANCE = 1e-9


class SideSums(NamedTuple):
    """Sums over the rows with entries; of columns the same."""

    size: int
    weight: float
    squares: Floats  # (t,) of factors
    weighted_squares: Floats  # (t,) each with the weight of its row
    effect: Floats  # (t,) 1 less the share of the ridge in the diagonal
    weighted_inverse: Floats  # (t,) of the diagonal
    bias_effect: float


class LearnedRidges:
    """The ridges of both sides, learned of each after its fit."""

    def __init__(self, observations: Entries, setting: SideSetting, rows: Side, columns: Side, loss: float) -> None:
        """Begin with both sides, balanced, and the sum of the losses that they leave."""
        self._observations, self._setting = observations, setting
        self._n = observations.n_observations
        self._column_weights = _column_weights(observations.data)
        self._weight = max(float(self._column_weights.sum()) / self._n, TINY)  # of an entry
        self._noise = self._first = max(2.0 * loss / self._n, TINY)
        t = columns.factors.shape[1]
        self._uncertain_rows = self._uncertain_columns = nothing = np.zeros(t)
        ones = np.stack([np.ones(t), nothing])
        of_rows = self._row_sums(rows, nothing, ones)
        of_columns = side_sums(columns, self._column_weights, nothing, ones, 0.0)
        self._row_squares = of_rows.weighted_squares / max(of_rows.weight, TINY)
        self._row_variance = self._at_least(of_rows.squares / max(of_rows.size, 1))
        self._column_variance = self._at_least(of_columns.squares / max(of_columns.size, 1))
        self._column_effect = 0.0  # parameters of the columns in effect

    @property
    def of_rows(self) -> Floats:
        """Return the ridges of rows, (2, t): of a row, and each unit of its weight."""
        return np.stack([self._noise / self._row_variance, self._uncertain_columns])

    @property
    def of_columns(self) -> Floats:
        """Return the ridges of columns, (2, t)."""
        return np.stack([self._noise / self._column_variance, self._uncertain_rows])

    @property
    def unit(self) -> float:
        """Return the noise level of the moment, the unit of ridges that are given."""
        return noise_unit(self._n, self._observations.occurring, self._noise)

    def see_columns(self, columns: Side) -> None:
        """Learn from columns that were fitted with `of_columns`."""
        penalty = self._setting.bias_penalty if self._setting.biases else None
        sums = side_sums(columns, self._column_weights, self._row_squares, self.of_columns, penalty)
        self._column_squares = sums.weighted_squares / max(sums.weight, TINY)
        self._column_variance = self._variance(sums)
        self._uncertain_columns = self._noise * sums.weighted_inverse / max(sums.weight, TINY)
        self._column_effect = float(sums.effect.sum()) + sums.bias_effect

    def see_rows(self, rows: Side, loss: float) -> None:
        """Learn from rows that were fitted with `of_rows`, and from the sum of the losses that are left."""
        sums = self._row_sums(rows, self._column_squares, self.of_rows)
        self._row_squares = sums.weighted_squares / max(sums.weight, TINY)
        self._row_variance = self._variance(sums)
        self._uncertain_rows = self._noise * sums.weighted_inverse / max(sums.weight, TINY)
        effect = float(sums.effect.sum()) + sums.bias_effect + self._column_effect
        noise = (2.0 * loss + self._noise * effect) / self._n
        self._noise = max(noise, float(np.finfo(self._observations.dtype).eps) ** 2 * self._first, TINY)

    def _row_sums(self, rows: Side, known: Floats, ridges: Floats) -> SideSums:
        penalty = self._setting.bias_penalty if self._setting.biases else None
        return side_sums(rows, self._observations.data.row_weights, known, ridges, penalty)

    def _variance(self, sums: SideSums) -> Floats:
        return self._at_least(sums.squares / np.maximum(sums.effect, LEAST_EFFECT * max(sums.size, 1)))

    def _at_least(self, variance: Floats) -> Floats:
        return np.maximum(variance, LEAST_VARIANCE * (self._noise / self._weight) ** 0.5)


def side_sums(side: Side, weights: Floats, known: Floats, ridges: Floats, bias_penalty: float | None) -> SideSums:
    """Return the sums of a side of these weights (m,) that was fitted with ridges (2, t).

    known: (t,) weighted mean squares of the factors that it was fitted to; bias_penalty: None without biases.
    """
    there = weights > 0
    own, weight = np.square(side.factors[there], dtype=np.float64), weights[there]
    ridge, uncertain = ridges
    inverse = 1.0 / (ridge + weight[:, None] * (known + uncertain))
    bias_effect = 0.0 if bias_penalty is None else float((weight / (weight + bias_penalty)).sum())
    return SideSums(
        size=len(weight),
        weight=float(weight.sum()),
        squares=own.sum(axis=0),
        weighted_squares=(own * weight[:, None]).sum(axis=0),
        effect=(1.0 - ridge * inverse).sum(axis=0),
        weighted_inverse=(inverse * weight[:, None]).sum(axis=0),
        bias_effect=bias_effect,
    )


def _column_weights(data: Observed) -> Floats:
    return np.bincount(data.indices, data.c if len(data.c) else None, data.n).astype(np.float64)
