"""Choice of the ridge penalty by generalised cross-validation or by exact leave-one-out cross-validation.

Both compute the error of every ridge of a grid from one eigendecomposition.
"""

from typing import Any

import numpy as np

from fastsketch._core.validation import is_sparse
from fastsketch.ridge._gram_model import Matrix
from fastsketch.ridge._moments import EPS, TINY, Moments, times
from fastsketch.ridge._path import RIDGES_PER_DECADE
from fastsketch.ridge._read_out import Rows, Scorer

# If 1 - leverage is at most this, it is regarded as rounding: the other rows do not determine the row's prediction.
MIN_LEVERAGE_COMPLEMENT = 1e-12


def ridge_grid(smallest_value: float, largest_value: float, n: int) -> Matrix:
    """Return the ridge penalties to try: a logarithmic grid (p,) in ascending order, with RIDGES_PER_DECADE values per
    factor of ten.

    It begins at n eps times the eigenvalue `smallest_value`, the threshold of ``numpy.linalg.matrix_rank`` for zero. It
    ends at n times the eigenvalue `largest_value`, where coefficients are an n-th of those of regressions on single
    columns. n is the larger dimension of the matrix of rows. If `largest_value` is not positive, the grid is [1].
    """
    if not largest_value > 0:  # all columns are constant: every ridge predicts the mean
        return np.ones(1)
    first_exponent, last_exponent = np.log10(n * EPS) + np.log10(smallest_value), np.log10(n) + np.log10(largest_value)
    return 10.0 ** (
        last_exponent - np.arange(int(RIDGES_PER_DECADE * (last_exponent - first_exponent)), -1, -1) / RIDGES_PER_DECADE
    )


class GeneralisedCrossValidation:
    """Generalised cross-validation (GCV) of a ridge regression: scores of a grid of penalties.
    All of them are computed from one eigendecomposition of X'X.

    If a sample of rows is available, its leverages can correct the scores.

    Golub, Heath and Wahba (1979, Technometrics 21:215, equation 1.4): with the hat matrix H(r) of a ridge r,

        V(r) = n |(I - H(r)) y|^2 / tr(I - H(r))^2.

    The numerator is y'y - sum_j z_j^2 / s_j + sum_j (z_j^2 / s_j) (r / (s_j + r))^2, and the trace is n - 1 - sum_j s_j
    / (s_j + r). Here s_j are the eigenvalues of X'X of centred columns in units of the penalty, z_j are the coordinates
    of X'y, and 1 is for the intercept. With weights n is Kish's effective number of rows: for rows of equal noise the
    weighted residuals then lose the share tr H / n to the fit. V is relative to the variance of the target.

    V equals the leave-one-out error if all rows have the mean leverage. ``leave_one_out`` uses the leverages of a
    sample.
    """

    def __init__(self, gram: Matrix, moments: Moments, penalty: Matrix, *, n: int, center: bool) -> None:
        """Compute the eigendecomposition of the scaled Gram matrix X'X, from which all scores follow, and choose the
        grid ``ridges`` of penalties.

        `gram` (d, d) is of all n rows. It is divided by the square roots of `penalty` (d,) on both sides.
        """
        inverse_root = inverse_root_penalty(moments, penalty)
        system = gram * inverse_root * inverse_root[:, np.newaxis]
        # in units of the longest column and of the targets, so that squares cannot overflow
        self._unit = float(system.diagonal().max(initial=0.0)) or 1.0
        values, vectors = np.linalg.eigh(system / self._unit)
        largest, longer_side = float(values.max(initial=0.0)), max(n, len(values))
        nonzero = values > longer_side * EPS * largest
        self._values: Matrix = values[nonzero]
        self._scaled_vectors: Matrix = (inverse_root / self._unit**0.5)[:, np.newaxis] * vectors[:, nonzero]
        self._target_norms = np.maximum(np.sqrt(moments.target_squares), TINY)
        self._cross: Matrix = self._scaled_vectors.T @ (moments.cross / self._target_norms)
        self._moments, self._center = moments, center
        self.ridges = ridge_grid(self._unit * largest, self._unit * largest, longer_side)

    def scores(self, target_weights: Matrix) -> Matrix:
        """Return the generalised cross-validation (GCV) score of every ridge penalty in the grid, shape (p,); the
        smallest is best.

        The scores (p,) are summed over targets with the weights `target_weights` (c,). The score is infinite for a
        ridge that leaves no degrees of freedom.
        """
        free_dimensions = self._moments.n_effective - self._center - float(len(self._values))
        trace = free_dimensions + self._left().sum(axis=1)
        residual_squares = self._residual_squares(target_weights)
        scores = np.full(len(residual_squares), np.inf)
        return np.divide(residual_squares, (trace / self._moments.n_effective) ** 2, out=scores, where=trace > 0)

    def leave_one_out(self, target_weights: Matrix, rows: Rows) -> Matrix:
        """Return an estimate (p,) of the leave-one-out error of every ridge penalty in the grid.
        It corrects the GCV scores by the leverages of a sample of rows.

        The errors are summed over targets with the weights `target_weights` (c,).

        This is a ratio estimate (Cochran 1977, Sampling Techniques, chapter 6): the mean squared residual of all rows,
        known exactly, times the ratio of leave-one-out errors to residuals in the sample. It is exact for a sample of
        all rows.
        """
        mean, target_mean = self._moments.mean @ self._scaled_vectors, self._moments.target_mean
        x, y = times(rows.x, self._scaled_vectors) - mean, (rows.y - target_mean) / self._target_norms
        inverse_values = self._left() * self._unit / self.ridges[:, np.newaxis]  # 1 / (s + r)
        leverage = rows.weight[:, np.newaxis] * (x**2 @ inverse_values.T)
        if self._center:
            leverage += (rows.weight / self._moments.weight)[:, np.newaxis]
        ratios = np.ones(len(inverse_values))
        for k, inverse_values_of_ridge in enumerate(inverse_values):
            squares = rows.weight * (
                (y - x @ (inverse_values_of_ridge[:, np.newaxis] * self._cross)) ** 2 @ target_weights
            )
            total = float(squares.sum())
            if total > 0:
                ratios[k] = (
                    float((squares / np.maximum(1.0 - leverage[:, k], MIN_LEVERAGE_COMPLEMENT) ** 2).sum()) / total
                )
        return self._residual_squares(target_weights) * ratios

    def _left(self) -> Matrix:
        """Return penalty / (eigenvalue + penalty) for p penalties and k eigenvalues, shape (p, k).

        It is the fraction of each component of the targets that the fit leaves as residual.
        """
        ridges = self.ridges[:, np.newaxis] / self._unit
        return ridges / (self._values + ridges)

    def _residual_squares(self, target_weights: Matrix) -> Matrix:
        """Return the relative sum of squared residuals of all rows at every ridge penalty in the grid, shape (p,).

        Each target's sum is divided by the target's sum of squares. The quotients are summed over targets with the
        weights `target_weights` (c,).
        """
        explained = self._cross**2 / self._values[:, np.newaxis]
        residual = np.maximum(1.0 - explained.sum(axis=0), 0.0) + self._left() ** 2 @ explained
        residual_squares: Matrix = residual @ target_weights
        return residual_squares


class LeaveOneOut:
    """Exact leave-one-out predictions of a ridge regression at any penalty, from one decomposition of all rows.

    X are the weighted, centred rows, D is the diagonal penalty, U are the eigenvectors of X D^-1 X' that are orthogonal
    to the mean, and S are their eigenvalues. At ridge r the leave-one-out residual of row i is its residual
    (U r / (S + r) U'y)_i divided by 1 - leverage = (U r / (S + r) U')_ii (Allen 1974, Technometrics 16:125). With more
    rows than columns U are the left singular vectors; the components of targets and leverages outside their span are
    the same at every ridge.
    """

    def __init__(self, rows: Rows, moments: Moments, penalty: Matrix, *, center: bool) -> None:
        n, d = rows.x.shape
        root_weights, column_factors = np.sqrt(rows.weight)[:, np.newaxis], inverse_root_penalty(moments, penalty)
        y = root_weights * (rows.y - moments.target_mean)
        if n <= d + 1:
            orthogonal_to_mean = np.linalg.qr(root_weights, mode="complete")[0][:, 1:] if center else np.eye(n)
            row_products = root_weights * centred_row_products(rows.x, moments.mean, column_factors) * root_weights.T
            values, vectors = np.linalg.eigh(orthogonal_to_mean.T @ row_products @ orthogonal_to_mean)
            vectors = orthogonal_to_mean @ vectors
            self._left, self._leverage_complement = np.zeros_like(y), np.zeros(n)
        else:
            x: Any = rows.x
            x = x.toarray() if hasattr(x, "toarray") else x
            vectors, values, _ = np.linalg.svd(root_weights * (x - moments.mean) * column_factors, full_matrices=False)
            values = values**2
            nonzero = values > (n * EPS) ** 2 * values.max(initial=0.0)
            values, vectors = values[nonzero], vectors[:, nonzero]
            self._left = y - vectors @ (vectors.T @ y)
            mean_leverage = rows.weight / rows.weight.sum() if center else 0.0
            self._leverage_complement = np.maximum(1.0 - mean_leverage - (vectors**2).sum(axis=1), 0.0)
        self._values: Matrix = np.maximum(values, 0.0)
        self._vectors: Matrix = vectors
        self._y, self._root = rows.y, root_weights
        self._rotated_targets: Matrix = vectors.T @ y
        # if columns have different units, small ridges matter to the shortest column
        column_squares, largest = moments.variance / penalty * moments.weight, float(self._values.max(initial=0.0))
        smallest_value = float(np.min(column_squares, where=column_squares > 0, initial=largest))
        self.ridges = ridge_grid(max(smallest_value, max(n, d) * EPS * largest), largest, max(n, d))

    def predict(self, ridge: float) -> Matrix:
        """Return predictions (n, c) of every row's targets by the ridge regression on all other rows.

        Predictions that the other rows do not determine are infinite, which can happen at ridge 0 only.
        """
        if ridge > 0:
            shrinkage = 1.0 / (self._values / ridge + 1.0)
        else:  # least squares
            shrinkage = (self._values <= MIN_LEVERAGE_COMPLEMENT * self._values.max(initial=0.0)).astype(np.float64)
        target_residual = self._left + self._vectors @ (shrinkage[:, np.newaxis] * self._rotated_targets)
        leverage_complement = self._leverage_complement + self._vectors**2 @ shrinkage
        leave_one_out_residual = target_residual / (np.maximum(leverage_complement, TINY)[:, np.newaxis] * self._root)
        if not ridge > 0:
            leave_one_out_residual[leverage_complement <= MIN_LEVERAGE_COMPLEMENT] = (
                np.inf
            )  # the other rows do not determine the prediction
        return self._y - leave_one_out_residual

    def errors(self, scorer: Scorer, rows: Rows) -> Matrix:
        """Return the leave-one-out error of every row at every ridge penalty of the grid, shape (n_penalties,
        n_rows).
        """
        return np.stack([scorer.errors(self.predict(float(ridge)), rows) for ridge in self.ridges])

    def residuals(self, scorer: Scorer, rows: Rows) -> Matrix:
        """Return leave-one-out residuals (n, c) for prediction intervals.
        The residual of a row is measured at the ridge penalty that is best for the other rows.

        If a row took part in the choice of the ridge, its residual would be too small: for ten rows, prediction
        intervals would cover a tenth less.
        """
        errors, residuals = self.errors(scorer, rows), np.empty_like(rows.y)
        best_ridge = (errors.sum(axis=1, keepdims=True) - errors).argmin(axis=0)
        for index in np.unique(best_ridge):
            rows_of_ridge = best_ridge == index
            residuals[rows_of_ridge] = (rows.y - self.predict(float(self.ridges[index])))[rows_of_ridge]
        return residuals


def inverse_root_penalty(moments: Moments, penalty: Matrix) -> Matrix:
    """Return 1 / sqrt(penalty) for each column (d,). It is 0 for constant columns, whose deviations are only
    rounding.
    """
    return np.where(moments.variance > 0, penalty**-0.5, 0.0)


def centred_row_products(x: Any, mean: Matrix, column_factors: Matrix) -> Matrix:
    """Return the Gram matrix (n, n) of centred rows, dense or CSR, after their columns are multiplied by
    `column_factors`.
    """
    if not is_sparse(x):
        scaled: Matrix = (x - mean) * column_factors
        return scaled @ scaled.T
    sparse, mean = x * column_factors, mean * column_factors
    mean_products: Matrix = sparse @ mean
    products: Matrix = (sparse @ sparse.T).toarray()
    return products - mean_products - mean_products[:, np.newaxis] + mean @ mean
