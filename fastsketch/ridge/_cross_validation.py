"""Choice of the ridge penalty by generalised cross-validation or by exact leave-one-out cross-validation.

Both compute the error of every ridge of a grid from one eigendecomposition.
"""

from typing import Any

import numpy as np

from fastsketch._core.validation import is_sparse
from fastsketch.ridge._gram_model import Matrix
from fastsketch.ridge._moments import EPS, TINY, Moments, times
from fastsketch.ridge._read_out import Rows, Scorer

# Number of ridges of the grid in each decade.
PER_DECADE = 4
# One less a leverage that is at most this is rounding.
ROUNDING = 1e-12


def grid(least: float, largest: float, n: int) -> Matrix:
    """Return a logarithmic grid of ridge penalties, in ascending order.

    It has PER_DECADE ridges in each decade, shape (p,).

    It begins at n eps times the eigenvalue `least`; below that ``numpy.linalg.matrix_rank`` regards values as rounding.
    It ends at n times the largest eigenvalue, where coefficients are an n-th of those of regressions on single columns.
    n is the larger side of the matrix of rows.
    """
    if not largest > 0:  # all columns are constant: every ridge predicts the mean
        return np.ones(1)
    first, last = np.log10(n * EPS) + np.log10(least), np.log10(n) + np.log10(largest)
    return 10.0 ** (last - np.arange(int(PER_DECADE * (last - first)), -1, -1) / PER_DECADE)


class GeneralisedCrossValidation:
    """Generalised cross-validation (GCV) scores of a grid of ridge penalties.

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
        """Compute the eigendecomposition of the scaled Gram matrix X'X, and the grid of ridge penalties.

        `gram` (d, d) is of all n rows. It is divided by the square roots of `penalty` (d,) on both sides.
        """
        root = _root_of_inverse(moments, penalty)
        system = gram * root * root[:, np.newaxis]
        # in units of the longest column and of the targets, so that squares cannot overflow
        self._unit = float(system.diagonal().max(initial=0.0)) or 1.0
        values, vectors = np.linalg.eigh(system / self._unit)
        largest, side = float(values.max(initial=0.0)), max(n, len(values))
        some = values > side * EPS * largest
        self._values: Matrix = values[some]
        self._turn: Matrix = (root / self._unit**0.5)[:, np.newaxis] * vectors[:, some]
        self._lengths = np.maximum(np.sqrt(moments.target_squares), TINY)
        self._cross: Matrix = self._turn.T @ (moments.cross / self._lengths)
        self._moments, self._center = moments, center
        self.ridges = grid(self._unit * largest, self._unit * largest, side)

    def scores(self, shares: Matrix) -> Matrix:
        """Compute the generalised cross-validation (GCV) score of every ridge penalty in the grid.

        The scores (p,) are summed over targets with the weights `shares` (c,). A ridge that leaves no degrees of
        freedom scores infinity.
        """
        free = self._moments.n_effective - self._center - float(len(self._values))
        trace = free + self._left().sum(axis=1)
        squares = self._residual(shares)
        out = np.full(len(squares), np.inf)
        return np.divide(squares, (trace / self._moments.n_effective) ** 2, out=out, where=trace > 0)

    def leave_one_out(self, shares: Matrix, rows: Rows) -> Matrix:
        """Estimate the leave-one-out error of every ridge penalty in the grid, from a sample of rows.

        The errors (p,) are summed over targets with the weights `shares` (c,).

        This is a ratio estimate (Cochran 1977, Sampling Techniques, chapter 6): the mean squared residual of all rows,
        known exactly, times the ratio of leave-one-out errors to residuals in the sample. It is exact for a sample of
        all rows.
        """
        mean, level = self._moments.mean @ self._turn, self._moments.target_mean
        x, y = times(rows.x, self._turn) - mean, (rows.y - level) / self._lengths
        by = self._left() * self._unit / self.ridges[:, np.newaxis]  # 1 / (s + r)
        leverage = rows.weight[:, np.newaxis] * (x**2 @ by.T)
        if self._center:
            leverage += (rows.weight / self._moments.weight)[:, np.newaxis]
        ratios = np.ones(len(by))
        for k, of_ridge in enumerate(by):
            squares = rows.weight * ((y - x @ (of_ridge[:, np.newaxis] * self._cross)) ** 2 @ shares)
            total = float(squares.sum())
            if total > 0:
                ratios[k] = float((squares / np.maximum(1.0 - leverage[:, k], ROUNDING) ** 2).sum()) / total
        return self._residual(shares) * ratios

    def _left(self) -> Matrix:
        """Return the factors penalty / (eigenvalue + penalty) for all ridge penalties and eigenvalues.

        Shape (p, k) for p penalties and k eigenvalues.
        """
        ridges = self.ridges[:, np.newaxis] / self._unit
        return ridges / (self._values + ridges)

    def _residual(self, shares: Matrix) -> Matrix:
        """Return the relative sum of squared residuals of all rows at every ridge penalty in the grid.

        Shape (p,), summed over targets with the weights `shares`. Each target's residuals are relative to its sum of
        squares.
        """
        explained = self._cross**2 / self._values[:, np.newaxis]
        residual = np.maximum(1.0 - explained.sum(axis=0), 0.0) + self._left() ** 2 @ explained
        out: Matrix = residual @ shares
        return out


class LeaveOneOut:
    """Exact leave-one-out predictions of a ridge regression, at any penalty, from one decomposition.

    X are weighted, centred rows, D a penalty, U the eigenvectors of X D^-1 X' that are orthogonal to the mean, S their
    eigenvalues. At ridge r the leave-one-out residual of row i is (U r / (S + r) U'y)_i, the residual of its target,
    divided by (U r / (S + r) U')_ii, one less its leverage (Allen 1974, Technometrics 16:125). With more rows than
    columns U are the left singular vectors; the parts of targets and leverages outside their span are the same at every
    ridge.
    """

    def __init__(self, rows: Rows, moments: Moments, penalty: Matrix, *, center: bool) -> None:
        n, d = rows.x.shape
        root, by = np.sqrt(rows.weight)[:, np.newaxis], _root_of_inverse(moments, penalty)
        y = root * (rows.y - moments.target_mean)
        if n <= d + 1:
            free = np.linalg.qr(root, mode="complete")[0][:, 1:] if center else np.eye(n)
            kernel = root * _kernel(rows.x, moments.mean, by) * root.T
            values, vectors = np.linalg.eigh(free.T @ kernel @ free)
            vectors = free @ vectors
            self._left, self._own = np.zeros_like(y), np.zeros(n)
        else:
            x: Any = rows.x
            x = x.toarray() if hasattr(x, "toarray") else x
            vectors, values, _ = np.linalg.svd(root * (x - moments.mean) * by, full_matrices=False)
            values = values**2
            some = values > (n * EPS) ** 2 * values.max(initial=0.0)
            values, vectors = values[some], vectors[:, some]
            self._left = y - vectors @ (vectors.T @ y)
            of_mean = rows.weight / rows.weight.sum() if center else 0.0
            self._own = np.maximum(1.0 - of_mean - (vectors**2).sum(axis=1), 0.0)
        self._values: Matrix = np.maximum(values, 0.0)
        self._vectors: Matrix = vectors
        self._y, self._root = rows.y, root
        self._turned: Matrix = vectors.T @ y
        # if columns have different units, small ridges matter to the shortest column
        squares, largest = moments.variance / penalty * moments.weight, float(self._values.max(initial=0.0))
        least = float(np.min(squares, where=squares > 0, initial=largest))
        self.ridges = grid(max(least, max(n, d) * EPS * largest), largest, max(n, d))

    def predict(self, ridge: float) -> Matrix:
        """Predict the targets of each row by a ridge regression on all other rows.

        The result has shape (n, c), and is infinite where the other rows do not determine it.
        """
        if ridge > 0:
            by = 1.0 / (self._values / ridge + 1.0)
        else:  # least squares
            by = (self._values <= ROUNDING * self._values.max(initial=0.0)).astype(np.float64)
        left = self._left + self._vectors @ (by[:, np.newaxis] * self._turned)
        own = self._own + self._vectors**2 @ by
        off = left / (np.maximum(own, TINY)[:, np.newaxis] * self._root)
        if not ridge > 0:
            off[own <= ROUNDING] = np.inf  # the other rows do not determine the prediction
        return self._y - off

    def errors(self, scorer: Scorer, rows: Rows) -> Matrix:
        """Compute the leave-one-out error of each row at every ridge penalty, shape (n_penalties, n_rows)."""
        return np.stack([scorer.errors(self.predict(float(ridge)), rows) for ridge in self.ridges])

    def residuals(self, scorer: Scorer, rows: Rows) -> Matrix:
        """Compute leave-one-out residuals, each at the ridge penalty that is best for the other rows.

        Shape (n, c).

        A ridge that a row has helped to choose makes its residual too small: for ten rows, intervals would cover a
        tenth less.
        """
        errors, out = self.errors(scorer, rows), np.empty_like(rows.y)
        best = (errors.sum(axis=1, keepdims=True) - errors).argmin(axis=0)
        for place in np.unique(best):
            chosen = best == place
            out[chosen] = (rows.y - self.predict(float(self.ridges[place])))[chosen]
        return out


def _root_of_inverse(moments: Moments, penalty: Matrix) -> Matrix:
    """Return penalty^(-1/2) for each column, and 0 for constant columns.

    The deviations of a constant column are only rounding.
    """
    return np.where(moments.variance > 0, penalty**-0.5, 0.0)


def _kernel(x: Any, mean: Matrix, by: Matrix) -> Matrix:
    """Compute the Gram matrix (n, n) of centred rows, dense or CSR, with columns multiplied by `by`."""
    if not is_sparse(x):
        scaled: Matrix = (x - mean) * by
        return scaled @ scaled.T
    sparse, mean = x * by, mean * by
    level: Matrix = sparse @ mean
    products: Matrix = (sparse @ sparse.T).toarray()
    return products - level - level[:, np.newaxis] + mean @ mean
