"""Weighted means, sums of squares and cross products of rows and targets, which can be added and subtracted.

Products are of deviations from the means of the same rows, so that digits which all rows share do not cost accuracy.
Sparse rows stay sparse, since X'W(Y - nu) equals (X - mu)'W(Y - nu).
"""

from math import hypot, sqrt
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.validation import in_place, is_sparse
from fastsketch._kernels.linalg.products import product, settled
from fastsketch._kernels.sketching.csr_products import rows_times, turned_rows_times
from fastsketch.sketching._plain_rows import plain_rows

Matrix = NDArray[np.float64]
FLOAT64 = np.dtype(np.float64)

TINY = float(np.finfo(np.float64).tiny)
# A difference of weights below this share of the total weight is regarded as rounding.
MIN_WEIGHT_SHARE = 1e-12
EPS = float(np.finfo(np.float64).eps)
# Mean deviations of at most this share of a mean are regarded as rounding.
ROUNDING = 64 * EPS


def times(rows: Any, right: Matrix) -> Matrix:
    """Return the matrix product X B of rows X (n, d), dense or CSR, and B (d, c)."""
    right = np.ascontiguousarray(right)
    if is_sparse(rows):
        return rows_times(*_csr_arrays(rows), right)
    return product(np.ascontiguousarray(rows, np.float64), right)


def transposed_times(rows: Any, right: Matrix) -> Matrix:
    """Return the matrix product X'B of rows X (n, d), dense or CSR, and B (n, c)."""
    right = np.ascontiguousarray(right)
    if is_sparse(rows):
        return turned_rows_times(*_csr_arrays(rows), right, rows.shape[1])
    return product(np.ascontiguousarray(rows, np.float64), right, turned=True)


def _csr_arrays(rows: Any) -> tuple[Any, Any, Any]:
    """Return the arrays (indptr, indices, data) of a CSR matrix, converted to the dtypes that the compiled kernels
    take.
    """
    return in_place(rows.indptr, np.int64), in_place(rows.indices, np.int32), in_place(rows.data, np.float64)


class Moments(NamedTuple):
    """Weighted means, sums of squares and cross products of rows (n, d) and targets (n, c). Moments of different rows
    can be added and subtracted.

    Sums are of deviations from the means, or from 0 without centring.
    """

    weight: float
    weight_norm: float  # square root of the sum of squared weights
    mean: Matrix  # (d,) mu
    target_mean: Matrix  # (c,) nu
    squares: Matrix  # (d,) sum w (x - mu)^2
    target_squares: Matrix  # (c,) sum w (y - nu)^2
    cross: Matrix  # (d, c) sum w (x - mu)(y - nu)'

    @classmethod
    def of(cls, rows: Any, targets: Matrix, weights: Matrix, *, center: bool) -> Self:
        """Return the moments of rows (n, d), dense or CSR, with targets (n, c) and weights (n,)."""
        total = float(weights.sum())
        mean, target_mean = np.zeros(rows.shape[1]), np.zeros(targets.shape[1])
        if center and total > 0:
            mean, target_mean = transposed_times(rows, weights[:, np.newaxis])[:, 0] / total, weights @ targets / total
            targets = targets - target_mean
        if is_sparse(rows):
            entry_weights = np.repeat(weights, np.diff(rows.indptr))
            # around the mean, entry by entry, and the zeros together: avoids the difference of large sums
            squared_deviations = entry_weights * (rows.data - mean[rows.indices]) ** 2
            squares: Matrix = np.bincount(rows.indices, squared_deviations, rows.shape[1]).astype(
                np.float64, copy=False
            )
            stored_weight = np.bincount(rows.indices, entry_weights, rows.shape[1])
            has_zeros = np.bincount(rows.indices, minlength=rows.shape[1]) < rows.shape[0]
            squares = squares + np.where(has_zeros, np.maximum(total - stored_weight, 0.0), 0.0) * mean * mean
            weighted = weights[:, np.newaxis] * targets
        else:
            root_weights = np.sqrt(weights)
            rows, weighted = (
                settled(plain_rows(rows, FLOAT64), mean, root_weights, 1.0)[0],
                root_weights[:, np.newaxis] * targets,
            )
            squares = np.einsum("ij,ij->j", rows, rows)
        target_squares = weights @ (targets * targets)
        weight_norm = float(column_lengths(weights[:, np.newaxis])[0])
        return cls(total, weight_norm, mean, target_mean, squares, target_squares, transposed_times(rows, weighted))

    def plus(self, other: Self) -> Self:
        """Return the moments of the rows of both objects together. Neither is changed."""
        total = self.weight + other.weight
        if total <= MIN_WEIGHT_SHARE * self.weight:
            return self
        other_share = other.weight / total
        mean_step, target_step = other.mean - self.mean, other.target_mean - self.target_mean
        weight = self.weight * other_share
        cross = np.outer(mean_step, weight * target_step)
        cross += self.cross
        cross += other.cross
        return type(self)(
            total,
            hypot(self.weight_norm, other.weight_norm),
            self.mean + other_share * mean_step,
            self.target_mean + other_share * target_step,
            np.maximum(self.squares + other.squares + weight * mean_step * mean_step, 0.0),
            np.maximum(self.target_squares + other.target_squares + weight * target_step * target_step, 0.0),
            cross,
        )

    def without(self, other: Self) -> Self:
        """Return the moments of this object's rows without those of `other`, which must be among them (a downdate)."""
        weight_norm = sqrt(max(self.weight_norm - other.weight_norm, 0.0) * (self.weight_norm + other.weight_norm))
        return self.plus(other.faded(-1.0))._replace(weight_norm=weight_norm)

    @property
    def n_effective(self) -> float:
        """Return Kish's effective number of rows, (sum of weights)^2 / sum of squared weights.

        It is 0 without rows.
        """
        return (self.weight / self.weight_norm) ** 2 if self.weight_norm > 0 else 0.0

    @property
    def variance(self) -> Matrix:
        """Return the variance of each column, shape (d,).

        It is 0 where it is within the rounding error of the mean.
        """
        return self._variance(self.squares, self.mean)

    @property
    def target_variance(self) -> Matrix:
        """Return the variance of each target, shape (c,).

        It is 0 where it is within the rounding error of the mean.
        """
        return self._variance(self.target_squares, self.target_mean)

    def _variance(self, squares: Matrix, mean: Matrix) -> Matrix:
        variance = squares / max(self.weight, TINY)
        # a mean of n numbers has a rounding error of up to 10 sqrt(n) units (Higham and Mary 2019, SIAM J. Sci. Comput.
        # 41:A2815)
        rounding = max(ROUNDING, 5.0 * EPS * sqrt(self.n_effective))
        return np.where(variance > (rounding * mean) ** 2, variance, 0.0)

    def is_finite(self) -> bool:
        """Return True if all sums are finite."""
        return all(bool(np.isfinite(sums).all()) for sums in self)

    def faded(self, factor: float) -> Self:
        """Return the moments of the same rows with all weights multiplied by a factor."""
        return self._replace(
            weight=self.weight * factor,
            weight_norm=self.weight_norm * abs(factor),
            squares=self.squares * factor,
            target_squares=self.target_squares * factor,
            cross=self.cross * factor,
        )


def column_lengths(matrix: Matrix) -> Matrix:
    """Return the Euclidean norm of each column; squares neither overflow nor underflow."""
    largest = np.maximum(np.abs(matrix).max(axis=0, initial=0.0), TINY)
    return largest * np.linalg.norm(matrix / largest, axis=0)


class ExcludedRowsGram:
    """Linear operator that multiplies by the part of a centred Gram matrix X'X that some rows contribute.
    A fit can thus exclude these rows.

    Let H be X'X of all rows, centred on their mean mu, and let the remaining rows have the mean mu' and the weight W'.
    Their X'X, centred on mu', is H - sum w (x - mu)(x - mu)' - W' (mu' - mu)(mu' - mu)', where the sum is over the
    excluded rows. This class multiplies vectors by the two subtracted terms.
    """

    def __init__(self, all_moments: Moments, remaining_moments: Moments, rows: Any, weights: Matrix) -> None:
        self._rows, self._weights, self._mean = rows, weights[:, np.newaxis], all_moments.mean
        self._weighted_mean_shift: Matrix = remaining_moments.weight**0.5 * (remaining_moments.mean - all_moments.mean)

    def times(self, vectors: Matrix) -> Matrix:
        """Return the product of the excluded rows' part of X'X with vectors (d, c)."""
        weighted_products = self._weights * (times(self._rows, vectors) - self._mean @ vectors)
        out = transposed_times(self._rows, weighted_products)
        out -= self._mean[:, np.newaxis] * weighted_products.sum(axis=0)
        out += self._weighted_mean_shift[:, np.newaxis] * (self._weighted_mean_shift @ vectors)
        return out
