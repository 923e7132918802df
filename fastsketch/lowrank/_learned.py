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
MIN_EFFECT_SHARE = 1e-3
# Least variance, as a share of the standard deviation of the noise: products of two factors have the scale of entries.
MIN_VARIANCE_SHARE = 1e-9


class SideSums(NamedTuple):
    """Sums over the rows (or the columns) of the matrix, from which their ridge penalties are learned."""

    size: int  # number of rows
    weight: float  # total weight
    squares: Floats  # (t,) of squared factors
    weighted_squares: Floats  # (t,) of squared factors times the weight of the row
    effect: Floats  # (t,) effective numbers of parameters: of 1 - share of the ridge in the diagonal
    weighted_inverse: Floats  # (t,) of the weight of the row over the diagonal
    bias_effect: float  # effective number of parameters of the biases


class LearnedRidges:
    """Ridge penalties that are learned from the data, one for each row factor and each column factor.
    They are updated after every fit of rows or columns.
    """

    def __init__(self, observations: Entries, setting: SideSetting, rows: Side, columns: Side, loss: float) -> None:
        """Set the first ridge penalties from the sizes of balanced factors, and the noise level from the loss."""
        self._observations, self._setting = observations, setting
        self._n = observations.n_observations
        self._column_weights = _column_weights(observations.data)
        self._mean_weight = max(float(self._column_weights.sum()) / self._n, TINY)  # of an entry
        self._noise = self._initial_noise = max(2.0 * loss / self._n, TINY)
        t = columns.factors.shape[1]
        self._row_uncertainty = self._column_uncertainty = zeros = np.zeros(t)
        initial_ridges = np.stack([np.ones(t), zeros])
        row_sums = self._row_sums(rows, zeros, initial_ridges)
        column_sums = side_sums(columns, self._column_weights, zeros, initial_ridges, 0.0)
        self._row_squares = row_sums.weighted_squares / max(row_sums.weight, TINY)
        self._row_variance = self._with_lower_limit(row_sums.squares / max(row_sums.size, 1))
        self._column_variance = self._with_lower_limit(column_sums.squares / max(column_sums.size, 1))
        self._column_effect = 0.0  # parameters of the columns in effect

    @property
    def row_ridges(self) -> Floats:
        """Return the present ridge penalties of the t row factors, as an array (2, t). A row of weight w has the
        penalties ridges[0] + w * ridges[1].
        """
        return np.stack([self._noise / self._row_variance, self._column_uncertainty])

    @property
    def column_ridges(self) -> Floats:
        """Return the present ridge penalties of the t column factors, as an array (2, t). A column of weight w has the
        penalties ridges[0] + w * ridges[1].
        """
        return np.stack([self._noise / self._column_variance, self._row_uncertainty])

    @property
    def unit(self) -> float:
        """Return the L2 penalty that ridge=1 stands for at the present noise level."""
        return noise_unit(self._n, self._observations.n_nonempty, self._noise)

    def update_from_columns(self, columns: Side) -> None:
        """Update the ridge penalties, in place, after the column factors were fitted."""
        penalty = self._setting.bias_penalty if self._setting.biases else None
        sums = side_sums(columns, self._column_weights, self._row_squares, self.column_ridges, penalty)
        self._column_squares = sums.weighted_squares / max(sums.weight, TINY)
        self._column_variance = self._variance(sums)
        self._column_uncertainty = self._noise * sums.weighted_inverse / max(sums.weight, TINY)
        self._column_effect = float(sums.effect.sum()) + sums.bias_effect

    def update_from_rows(self, rows: Side, loss: float) -> None:
        """Update the ridge penalties and the noise level, in place, after the row factors were fitted.

        `loss` is the total loss of the model after that fit.
        """
        sums = self._row_sums(rows, self._column_squares, self.row_ridges)
        self._row_squares = sums.weighted_squares / max(sums.weight, TINY)
        self._row_variance = self._variance(sums)
        self._row_uncertainty = self._noise * sums.weighted_inverse / max(sums.weight, TINY)
        effect = float(sums.effect.sum()) + sums.bias_effect + self._column_effect
        noise = (2.0 * loss + self._noise * effect) / self._n
        self._noise = max(noise, float(np.finfo(self._observations.dtype).eps) ** 2 * self._initial_noise, TINY)

    def _row_sums(self, rows: Side, column_squares: Floats, ridges: Floats) -> SideSums:
        penalty = self._setting.bias_penalty if self._setting.biases else None
        return side_sums(rows, self._observations.data.row_weights, column_squares, ridges, penalty)

    def _variance(self, sums: SideSums) -> Floats:
        return self._with_lower_limit(sums.squares / np.maximum(sums.effect, MIN_EFFECT_SHARE * max(sums.size, 1)))

    def _with_lower_limit(self, variance: Floats) -> Floats:
        return np.maximum(variance, MIN_VARIANCE_SHARE * (self._noise / self._mean_weight) ** 0.5)


def side_sums(
    side: Side, weights: Floats, other_squares: Floats, ridges: Floats, bias_penalty: float | None
) -> SideSums:
    """Return sums over rows (or columns), from which their ridge penalties are learned after a fit of their factors.

    Parameters
    ----------
    side : Side
        Factors (m, t).
    weights : (m,) array
        Total weights; rows of weight 0 are not counted.
    other_squares : (t,) array
        Weighted mean squares of the factors of the other side.
    ridges : (2, t) array
        Those of the fit.
    bias_penalty : float or None
        None without biases.
    """
    nonempty = weights > 0
    squares, weight = np.square(side.factors[nonempty], dtype=np.float64), weights[nonempty]
    ridge, uncertainty = ridges
    inverse_diagonal = 1.0 / (ridge + weight[:, None] * (other_squares + uncertainty))
    bias_effect = 0.0 if bias_penalty is None else float((weight / (weight + bias_penalty)).sum())
    return SideSums(
        size=len(weight),
        weight=float(weight.sum()),
        squares=squares.sum(axis=0),
        weighted_squares=(squares * weight[:, None]).sum(axis=0),
        effect=(1.0 - ridge * inverse_diagonal).sum(axis=0),
        weighted_inverse=(inverse_diagonal * weight[:, None]).sum(axis=0),
        bias_effect=bias_effect,
    )


def _column_weights(data: Observed) -> Floats:
    return np.bincount(data.indices, data.c if len(data.c) else None, data.n).astype(np.float64)
