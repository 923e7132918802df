"""Gaussian covariance matrices, dense or low-rank plus isotropic: inverses, Mahalanobis distances, shrinkage.

Matrices and rows are in standard units; ``_column_scales.py`` converts them.

``SpikedCovariance`` is V' diag(values - rest) V + rest I: k directions with separate eigenvalues, and one eigenvalue
for all others. Its methods take O(k d), except those that return a d x d matrix. ``DenseCovariance`` is a d x d matrix.
"""

# pyright: basic

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fastsketch.covariance._moments import ROWS_IN_CACHE, squared_lengths
from fastsketch.sketching import FrequentDirections
from fastsketch.sketching._decompose import leading
from fastsketch.sketching._methods import METHODS
from fastsketch.sketching._spectrum import observed_spectrum

Matrix = NDArray[np.float64]

# A remainder of the trace below this many units of rounding (of the sketch's dtype) counts as zero.
ROUNDING_UNITS = 64
# Minimum variance of a direction when rows are scored, relative to that of a column. A pseudo-inverse would ignore a
# linear relation that always held; with this floor a row that violates it is far away. Far above rounding errors, far
# below any measured variance.
MIN_VARIANCE_SHARE = 1e-9


def centred_blocks(rows: Any, mean: Matrix) -> Any:
    """Yield (slice, block) for consecutive blocks of rows, dense or CSR, converted to centred float64 arrays."""
    for start in range(0, rows.shape[0], ROWS_IN_CACHE):
        part = rows[start : start + ROWS_IN_CACHE]
        yield slice(start, start + ROWS_IN_CACHE), (part if isinstance(part, np.ndarray) else part.toarray()) - mean


def projected(rows: Any, mean: Matrix, vectors: Matrix) -> tuple[Matrix, Matrix]:
    """Return the coordinates V (x - mean) of rows x along orthonormal directions V, (n, k), and squared distances (n,).
    These are the squared distances of x - mean to the span of V. Sparse rows are not made dense.
    """
    inside, outside = np.empty((rows.shape[0], len(vectors))), np.empty(rows.shape[0])
    if isinstance(rows, np.ndarray):
        for part, moved in centred_blocks(rows, mean):
            inside[part] = moved @ vectors.T
            moved -= inside[part] @ vectors
            outside[part] = np.einsum("ij,ij->i", moved, moved)
        return inside, outside
    # V (x - m) = V x - V m, and ||x - m||^2 = ||x||^2 - 2 x'm + ||m||^2
    inside[:] = rows @ vectors.T - vectors @ mean
    lengths = squared_lengths(rows) + mean @ mean - 2 * (rows @ mean)
    return inside, np.maximum(lengths - np.einsum("ij,ij->i", inside, inside), 0.0)


@dataclass(frozen=True)
class SpikedCovariance:
    """Covariance matrix, low-rank plus isotropic: k directions have their own eigenvalues, all others share one.

    It is V' diag(values - rest) V + rest I with orthonormal V (k, d) and values >= rest >= 0.

    `vectors` is V; `rest` is the eigenvalue of all directions orthogonal to it.
    """

    values: Matrix
    vectors: Matrix
    rest: float

    @classmethod
    def pooled(cls, values: Matrix, vectors: Matrix, *, certain: Matrix, trace: float, rounding: float) -> Self:
        """Return a spiked covariance made from leading eigenpairs and the trace.
        Eigenvalues that are too uncertain are pooled with those of the other directions.

        The remainder of the trace is shared equally by the directions that have no eigenpair. From the last pair on,
        pairs whose eigenvalue, or whose lower bound `certain`, does not exceed that share are pooled with them. A
        remainder below `rounding` counts as zero. Vectors that are orthonormal only up to float32 rounding are
        orthonormalised.
        """
        k, d = vectors.shape
        rest = 0.0
        while k:
            left = trace - float(values[:k].sum())
            rest = left / (d - k) if k < d and left > rounding else 0.0
            # With k = d nothing can share the remainder: pool the last direction, so that it takes it.
            whole = k < d or left <= rounding
            if whole and min(values[k - 1], certain[k - 1]) > max(rest, rounding):
                break
            k -= 1
        else:
            rest = trace / d if trace > rounding else 0.0
        kept = vectors[:k].astype(np.float64)
        # One Newton step towards the nearest orthonormal rows: V <- V + (I - V V') V / 2
        kept += 0.5 * (np.eye(k) - kept @ kept.T) @ kept
        return cls(values[:k], kept, rest)

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return self.vectors.shape[1]

    @property
    def trace(self) -> float:
        """Sum of all eigenvalues."""
        return float(self.values.sum()) + (self.n_features - len(self.values)) * self.rest

    @property
    def squares(self) -> float:
        """Squared Frobenius norm divided by the squared trace, as shrinkage formulas need it; 0 for a matrix of
        zeros.
        """
        total = self.trace
        values, rest = (self.values / total, self.rest / total) if total > 0 else (np.zeros(0), 0.0)
        return float(values @ values) + (self.n_features - len(self.values)) * rest * rest

    def shrunk(self, share: float, floor: float) -> Self:
        """Return (1 - share) times the matrix plus `floor` times the identity, as a new object."""
        return type(self)((1 - share) * self.values + floor, self.vectors, (1 - share) * self.rest + floor)

    @property
    def log_determinant(self) -> float:
        """Logarithm of the determinant; -inf if the matrix is singular."""
        others = self.n_features - len(self.values)
        with np.errstate(divide="ignore"):
            return float(np.log(self.values).sum() + (others * np.log(self.rest) if others else 0.0))

    def matrix(self) -> Matrix:
        """Compute the dense (d, d) matrix."""
        return self._dense(self.values, self.rest)

    def inverse(self) -> Matrix:
        """Compute the dense inverse, or the pseudo-inverse if the matrix is singular."""
        return self._dense(1 / self.values, 1 / self.rest if self.rest else 0.0)

    def _dense(self, values: Matrix, rest: float) -> Matrix:
        out = (self.vectors.T * (values - rest)) @ self.vectors
        out[np.diag_indices_from(out)] += rest
        return out

    def inverse_columns(self, columns: NDArray[np.intp]) -> Matrix:
        """Compute selected columns of the inverse.

        The result has shape (d, n_columns); the matrix must not be singular.
        """
        spread = (1 / self.values - 1 / self.rest)[:, np.newaxis] if self.rest else 1 / self.values[:, np.newaxis]
        out: Matrix = self.vectors.T @ (spread * self.vectors[:, columns])
        if self.rest:
            out[columns, np.arange(len(columns))] += 1 / self.rest
        return out

    def distances(self, rows: Any, mean: Matrix) -> Matrix:
        """Compute the squared Mahalanobis distances of rows, dense or CSR, from the mean.

        If the matrix is singular, only directions of nonzero variance count.
        """
        inside, outside = projected(rows, mean, self.vectors)
        distances = np.einsum("ij,ij,j->i", inside, inside, 1 / self.values)
        return distances + outside / self.rest if self.rest else distances


class DenseCovariance:
    """Covariance matrix as a dense array, whose Cholesky factor is computed at the first use and cached.

    It is float64 (d, d), positive semi-definite, and not copied.
    """

    def __init__(self, matrix: Matrix) -> None:
        self._matrix = matrix

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return len(self._matrix)

    @property
    def trace(self) -> float:
        """Sum of all eigenvalues."""
        return float(np.trace(self._matrix))

    @property
    def squares(self) -> float:
        """Squared Frobenius norm divided by the squared trace, as shrinkage formulas need it; 0 for a matrix of
        zeros.
        """
        total = self.trace
        return float(np.einsum("ij,ij->", self._matrix / total, self._matrix / total)) if total > 0 else 0.0

    def shrunk(self, share: float, floor: float) -> "DenseCovariance":
        """Return (1 - share) times the matrix plus `floor` times the identity, as a new object.

        This object itself if both are 0.
        """
        if not share and not floor:
            return self
        out = (1 - share) * self._matrix
        out[np.diag_indices_from(out)] += floor
        return DenseCovariance(out)

    @cached_property
    def _factor(self) -> "Matrix | SpikedCovariance":
        """The lower Cholesky factor, or the nonzero eigenvalues with eigenvectors if the matrix is singular."""
        from scipy.linalg import LinAlgError, cholesky, eigh
        from scipy.linalg.lapack import dpocon

        # As scipy's pinvh: eigenvalues below this share of the largest are rounding errors.
        rounding = self.n_features * np.finfo(np.float64).eps
        try:
            lower: Matrix = cholesky(self._matrix, lower=True, check_finite=False)
            if dpocon(lower, float(np.abs(self._matrix).sum(axis=0).max()), uplo="L")[0] > rounding:
                return lower
        except LinAlgError:
            pass
        values, vectors = eigh(self._matrix, check_finite=False)
        kept = values > rounding * np.abs(values).max()
        return SpikedCovariance(values[kept], vectors[:, kept].T, 0.0)

    @property
    def log_determinant(self) -> float:
        """Logarithm of the determinant; -inf if the matrix is singular up to rounding."""
        factor = self._factor
        if isinstance(factor, SpikedCovariance):
            return factor.log_determinant
        return 2 * float(np.log(factor.diagonal()).sum())

    def matrix(self) -> Matrix:
        """Return a copy of the dense (d, d) matrix."""
        return self._matrix.copy()

    def inverse(self) -> Matrix:
        """Compute the inverse, or the pseudo-inverse if the matrix is singular."""
        if isinstance(self._factor, SpikedCovariance):
            return self._factor.inverse()
        from scipy.linalg.lapack import dpotri

        lower = dpotri(self._factor, lower=1)[0]
        return np.tril(lower) + np.tril(lower, -1).T

    @cached_property
    def _inverse(self) -> Matrix:
        return self.inverse()

    def inverse_columns(self, columns: NDArray[np.intp]) -> Matrix:
        """Return selected columns of the inverse, which is computed and cached at the first call."""
        return self._inverse[:, columns]

    def distances(self, rows: Any, mean: Matrix) -> Matrix:
        """Compute the squared Mahalanobis distances of rows, dense or CSR, from the mean.

        If the matrix is singular, only directions of nonzero variance count.
        """
        from scipy.linalg import solve_triangular

        if isinstance(self._factor, SpikedCovariance):
            return self._factor.distances(rows, mean)
        out = np.empty(rows.shape[0])
        for part, moved in centred_blocks(rows, mean):
            z = solve_triangular(self._factor, moved.T, lower=True, check_finite=False)
            out[part] = np.einsum("ji,ji->i", z, z)
        return out


# -- intensity of linear shrinkage, from sums over the rows ------------------------------------------------------------
def ledoit_wolf(trace: float, squares: float, fourth: float, *, n: float, d: int) -> float:
    """Return the Ledoit-Wolf shrinkage intensity, in [0, 1] (Ledoit and Wolf 2004, Lemma 3.4).

    `trace` is that of the covariance S, `squares` is ||S||_F^2, `fourth` the sum of ||x - mean||^4 over n rows.
    """
    if d == 1 or n <= 0:
        return 0.0
    distance = (squares - trace * trace / d) / d
    error = min((fourth / n - squares) / (n * d), distance)
    return min(error / distance, 1.0) if error > 0 else 0.0


def oracle_approximating(squares: float, *, n: float, size: int) -> float:
    """Return the oracle approximating shrinkage (OAS) intensity, in [0, 1] (Chen, Wiesel, Eldar, Hero 2010, equation
    23).

    The terms in 2 / d are left out, as in scikit-learn's OAS. `squares` is ||S||_F^2 / trace(S)^2 of a matrix of `size`
    columns that vary. The result is 1 if the eigenvalues differ no more than those of n rows of equal variance would,
    and 0 for a single column and for a matrix of zeros.
    """
    if size <= 1 or squares <= 0:
        return 0.0
    below = (n + 1) * (squares - 1 / size)
    return min((squares + 1) / below, 1.0) if below > 0 else 1.0


def effective_rows(weights: Matrix) -> float:
    """Return Kish's effective sample size of weights, (sum of weights)^2 / sum of squared weights."""
    weights = weights / weights.max()
    return float(weights.sum() ** 2 / (weights @ weights))


def sum_of_squares(weights: Matrix) -> float:
    """Return the sum of squared weights; ValueError if the squares of positive weights underflow."""
    squares = float(weights @ weights)
    if squares < np.finfo(np.float64).tiny and weights.any():
        raise ValueError(
            f"sample_weight must not be so small that its squares underflow, but the largest weight is "
            f"{weights.max():g}: multiply all weights by a constant"
        )
    return squares


# -- covariance of a sketch --------------------------------------------------------------------------------------------
class ShrunkCovariance(NamedTuple):
    """Shrunk covariance matrix (1 - share) S + floor I, with its shrinkage intensity `share` and its `floor`."""

    matrix: SpikedCovariance | DenseCovariance
    share: float
    floor: float  # share times the mean variance of the columns, plus the ridge


def exact_products(sketch: FrequentDirections) -> tuple[Matrix, Matrix | None]:
    """Return (d x d matrix of products of an exact sketch's columns, mean that was subtracted from rows before).

    The mean is None if rows are not centred.
    """
    engine: Any = sketch._seen_engine().clone()
    unit = np.ldexp(1.0, engine.exponent)
    with np.errstate(over="ignore", under="ignore"):
        gram: Matrix = engine.gram() * unit * unit  # gram() also updates engine.mean
    return gram, engine.mean * unit if sketch.center else None


def empirical_covariance(sketch: FrequentDirections, total: float) -> SpikedCovariance:
    """Return the covariance matrix of a sketch's rows before shrinkage, as a SpikedCovariance.

    `total` is the sum of the row weights.
    """
    if METHODS[sketch.method].tracks:
        values, vectors = observed_spectrum(sketch._seen_engine())
        certain = values
    else:
        spectrum = sketch.spectrum()
        values, vectors, certain = spectrum.values, spectrum.vectors, spectrum.low
    trace = sketch.squared_norm / total
    return SpikedCovariance.pooled(
        values / total, vectors, certain=certain / total, trace=trace, rounding=least_trace(sketch, trace)
    )


def leading_pairs(matrix: SpikedCovariance | DenseCovariance, size: int) -> tuple[Matrix, Matrix]:
    """Return the leading eigenvalues of a covariance, in descending order, and their eigenvectors, at most `size`.

    Shapes (k,) and (k, d); of a dense matrix at most `size`.
    """
    if isinstance(matrix, SpikedCovariance):
        return matrix.values, matrix.vectors
    dense = matrix.matrix()
    values, vectors = leading(dense, min(len(dense), size), overwrite=True)
    known = values > len(dense) * np.finfo(np.float64).eps * max(float(values[0]), 0.0)
    return values[known], np.ascontiguousarray(vectors[known])


def sketch_size_of(sketch: FrequentDirections) -> int:
    """Return the number of rows that a sketch keeps, with the default resolved."""
    return int(sketch.resolved["sketch_size"])


def least_trace(sketch: FrequentDirections, trace: float) -> float:
    """Return the size of rounding errors in the trace of a covariance; what is smaller counts as zero."""
    return ROUNDING_UNITS * float(np.finfo(sketch.resolved["dtype"]).eps) * trace


def rounding_of(sketch: FrequentDirections) -> float:
    """Return the part of a sketch's error bound that is due to rounding.

    The other part is that of the shrinkage Delta.
    """
    return max(0.0, sketch.error_bound - METHODS[sketch.method].error_bound(sketch.shrinkage))
