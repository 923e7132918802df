"""Ridge penalties learned for each factor of rows and columns, by empirical variational Bayes under the square loss.

The model: an entry of weight w is biases plus a_i'b_j plus noise of variance noise / w. The factors a_iq of all rows i
are normal with variance_q, and those of columns have variances of their own.

The factors b_jq to which a row is fitted are uncertain. Their posterior variance is S_jq = noise / H_jq, where H_jq is
the diagonal of the normal equations of column j. The normal equations of a row contain the expected squares
sum_j w_ij (b_jq^2 + S_jq), and their second part is a ridge that grows with the weight of the row. S_jq is replaced by
its mean over the entries, so that a factor has two numbers:

    ridge of row i = noise / variance_q + weight_i * uncertainty_q.

Without the second one, many ranks would overfit unless the ridge were so large that strong factors are shrunk too.
variance_q is sum_i a_iq^2 / sum_i (1 - share of the ridge in H_iq) (MacKay 1992). noise is the mean squared residual
plus the noise of one entry for each effective parameter. The variance of a useless factor decreases until it vanishes.
The same holds with rows and columns exchanged.

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

# Least noise, and least sum of weights.
TINY = float(np.finfo(np.float64).tiny)
# Least effective number of parameters of a factor, as a share of the rows: a vanished factor would have 0 / 0.
LEAST_EFFECT = 1e-3
# Least variance, as a share of the standard deviation of the noise: products of two factors have the scale of entries.
LEAST_VARIANCE = 1e-9


class SideSums(NamedTuple):
    """Sums over the rows (or the columns) with entries, from which their ridge penalties are learned."""

    size: int  # number of rows
    weight: float  # total weight
    squares: Floats  # (t,) of squared factors
    weighted_squares: Floats  # (t,) of squared factors times the weight of the row
    effect: Floats  # (t,) effective numbers of parameters: of 1 - share of the ridge in the diagonal
    weighted_inverse: Floats  # (t,) of the weight of the row over the diagonal
    bias_effect: float  # effective number of parameters of the biases


class LearnedRidges:
    """Ridge penalties learned for each factor of rows and of columns, and updated after each fit of either side."""

    def __init__(self, observations: Entries, setting: SideSetting, rows: Side, columns: Side, loss: float) -> None:
        """Initialise the ridge penalties from balanced row and column factors, and from the loss of that model."""
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
        """Return the ridge penalties of row factors, shape (2, t): a constant, and a multiple of the weight."""
        return np.stack([self._noise / self._row_variance, self._uncertain_columns])

    @property
    def of_columns(self) -> Floats:
        """Return the ridge penalties of column factors, shape (2, t): a constant, and a multiple of the weight."""
        return np.stack([self._noise / self._column_variance, self._uncertain_rows])

    @property
    def unit(self) -> float:
        """Return the L2 penalty that a given ridge of 1 would stand for at the current noise level."""
        return noise_unit(self._n, self._observations.occurring, self._noise)

    def see_columns(self, columns: Side) -> None:
        """Update the ridge penalties after a fit of the column factors."""
        penalty = self._setting.bias_penalty if self._setting.biases else None
        sums = side_sums(columns, self._column_weights, self._row_squares, self.of_columns, penalty)
        self._column_squares = sums.weighted_squares / max(sums.weight, TINY)
        self._column_variance = self._variance(sums)
        self._uncertain_columns = self._noise * sums.weighted_inverse / max(sums.weight, TINY)
        self._column_effect = float(sums.effect.sum()) + sums.bias_effect

    def see_rows(self, rows: Side, loss: float) -> None:
        """Update the ridge penalties and the noise level after a fit of the row factors.

        loss: total loss of the model after the fit of its rows.
        """
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
    """Compute the sums over rows (or columns) from which ridge penalties are learned, after a fit of their factors.

    Parameters
    ----------
    side : Side
        Factors (m, t).
    weights : (m,) array
        Total weights; rows of weight 0 are not counted.
    known : (t,) array
        Weighted mean squares of the factors of the other side.
    ridges : (2, t) array
        Those of the fit.
    bias_penalty : float or None
        None without biases.
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
