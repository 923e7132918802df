"""Covariance matrices in two forms, out of a sketch, shrunk, and distances of rows under a Gaussian with them.

Matrices and rows are in standard units: ``_column_scales.py`` brings them there and back.

``SpikedCovariance`` is V' diag(values - rest) V + rest I: a few directions with eigenvalues of their own, one
eigenvalue for all others; everything but the matrix itself takes O(k d). ``DenseCovariance`` is a d x d matrix.
"""

# pyright: basic

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fastsketch.sketching import FrequentDirections
from fastsketch.sketching._leading_pairs import leading
from fastsketch.sketching._methods import METHODS
from fastsketch.sketching._spectrum import seen_of
from fastsketch.sklearn._moments import ROWS_IN_CACHE, squared, squared_lengths

Matrix = NDArray[np.float64]

# Units of rounding, of the dtype of a sketch, below which what is left of the trace counts as none.
NOTHING_LEFT = 64


def centred_blocks(rows: Any, mean: Matrix) -> Any:
    """Yield (slice, float64 rows - mean) of a few rows of an array or CSR container at a time."""
    for start in range(0, rows.shape[0], ROWS_IN_CACHE):
        part = rows[start : start + ROWS_IN_CACHE]
        yield slice(start, start + ROWS_IN_CACHE), (part if isinstance(part, np.ndarray) else part.toarray()) - mean


def projected(rows: Any, mean: Matrix, vectors: Matrix) -> tuple[Matrix, Matrix]:
    """Return (V (x - mean), squared distance of x - mean to the span of V) of every row; sparse rows stay sparse."""
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


def column_distances(rows: Any, mean: Matrix, variances: Matrix) -> Matrix:
    """Compute sums of (x - mean)^2 / variance over the columns of every row; sparse rows stay sparse.

    Variances that are rounding beside the largest one count as infinite.
    """
    known = variances > len(variances) * np.finfo(np.float64).eps * variances.max(initial=0.0)
    scales = np.where(known, 1 / np.where(known, variances, 1.0), 0.0)
    out = np.empty(rows.shape[0])
    if isinstance(rows, np.ndarray):
        for part, moved in centred_blocks(rows, mean):
            out[part] = (moved * moved) @ scales
        return out
    # x'Dx - 2 x'Dm + m'Dm
    return np.maximum(squared(rows) @ scales - 2 * (rows @ (scales * mean)) + mean @ (scales * mean), 0.0)


@dataclass(frozen=True)
class SpikedCovariance:
    """Matrix V' diag(values - rest) V + rest I with orthonormal V (k, d) and values >= rest >= 0."""

    values: Matrix
    vectors: Matrix
    rest: float

    @classmethod
    def pooled(cls, values: Matrix, vectors: Matrix, *, certain: Matrix, trace: float, rounding: float) -> Self:
        """Spread what the trace leaves over the directions that are not kept.

        Kept directions of which no more is certain than the mean of the rest are pooled with it. Parts of the trace
        below `rounding` are none. The vectors may be orthonormal to the rounding of float32.
        """
        k, d = vectors.shape
        rest = 0.0
        while k:
            left = trace - float(values[:k].sum())
            rest = left / (d - k) if k < d and left > rounding else 0.0
            # all directions kept, and something left: it belongs to the last
            whole = k < d or left <= rounding
            if whole and min(values[k - 1], certain[k - 1]) > max(rest, rounding):
                break
            k -= 1
        else:
            rest = trace / d if trace > rounding else 0.0
        kept = vectors[:k].astype(np.float64)
        # one Newton step to the nearest orthonormal rows: V <- V + (I - V V') V / 2
        kept += 0.5 * (np.eye(k) - kept @ kept.T) @ kept
        return cls(values[:k], kept, rest)

    @property
    def n_features(self) -> int:
        """Return the number of columns d."""
        return self.vectors.shape[1]

    @property
    def trace(self) -> float:
        """Sum of all eigenvalues."""
        return float(self.values.sum()) + (self.n_features - len(self.values)) * self.rest

    def times(self, v: Matrix) -> Matrix:
        """Multiply by a vector (d,)."""
        return (self.values - self.rest) * (self.vectors @ v) @ self.vectors + self.rest * v

    def tail_sums(self, values: Matrix, vectors: Matrix) -> tuple[float, float]:
        """Return (sum, squares over its square) of all eigenvalues but the leading `values` (kept,) with `vectors`."""
        others, tail = self.n_features - len(self.values), self.values[len(values) :]
        total = float(tail.sum()) + others * self.rest
        tail, rest = (tail / total, self.rest / total) if total > 0 else (np.zeros(0), 0.0)
        return total, float(tail @ tail) + others * rest * rest

    def shrunk(self, values: Matrix, vectors: Matrix, share: float, mean: float, ridge: float) -> Self:
        """Return it with (1 - share) lambda + share mean for all eigenvalues but the leading ones, plus ridge I."""
        tail = (1 - share) * np.append(self.values[len(values) :], self.rest) + share * mean
        return type(self)(np.append(values, tail[:-1]) + ridge, self.vectors, float(tail[-1]) + ridge)

    @property
    def log_determinant(self) -> float:
        """Return the logarithm of the determinant, -inf if the matrix is singular."""
        others = self.n_features - len(self.values)
        with np.errstate(divide="ignore"):
            return float(np.log(self.values).sum() + (others * np.log(self.rest) if others else 0.0))

    def matrix(self) -> Matrix:
        """Return the matrix, (d, d)."""
        return self._dense(self.values, self.rest)

    def inverse(self) -> Matrix:
        """Return the inverse, or pseudo-inverse, (d, d)."""
        return self._dense(1 / self.values, 1 / self.rest if self.rest else 0.0)

    def _dense(self, values: Matrix, rest: float) -> Matrix:
        out = (self.vectors.T * (values - rest)) @ self.vectors
        out[np.diag_indices_from(out)] += rest
        return out

    def diagonal(self) -> Matrix:
        """Return the variances of the columns, (d,)."""
        return (self.values - self.rest) @ self.vectors**2 + self.rest

    def distances(self, rows: Any, mean: Matrix) -> Matrix:
        """Compute squared Mahalanobis distances of rows, array or CSR (n, d)."""
        inside, outside = projected(rows, mean, self.vectors)
        distances = np.einsum("ij,ij,j->i", inside, inside, 1 / self.values)
        return distances + outside / self.rest if self.rest else distances


class DenseCovariance:
    """Positive semi-definite matrix (d, d) float64; factored when that is first needed."""

    def __init__(self, matrix: Matrix) -> None:
        self._matrix = matrix

    @property
    def n_features(self) -> int:
        """Return the number of columns d."""
        return len(self._matrix)

    @property
    def trace(self) -> float:
        """Sum of all eigenvalues."""
        return float(np.trace(self._matrix))

    def times(self, v: Matrix) -> Matrix:
        """Multiply by a vector (d,)."""
        return self._matrix @ v

    def tail_sums(self, values: Matrix, vectors: Matrix) -> tuple[float, float]:
        """Return (sum, squares over its square) of all eigenvalues but the leading `values` (kept,) with `vectors`."""
        tail = self._matrix - (vectors.T * values) @ vectors
        total = float(np.trace(tail))
        if not total > 0:
            return total, 0.0
        tail /= total
        return total, float(np.einsum("ij,ij->", tail, tail))

    def shrunk(self, values: Matrix, vectors: Matrix, share: float, mean: float, ridge: float) -> "DenseCovariance":
        """Return it with (1 - share) lambda + share mean for all eigenvalues but the leading ones, plus ridge I."""
        if not share and not ridge:
            return self
        # (1 - share) S + share V' diag(values - mean) V + (share mean + ridge) I
        out = (1 - share) * self._matrix
        out += (vectors.T * (share * (values - mean))) @ vectors
        out[np.diag_indices_from(out)] += share * mean + ridge
        return DenseCovariance(out)

    @cached_property
    def _factor(self) -> "Matrix | SpikedCovariance":
        """Return the lower Cholesky factor; of a singular matrix its eigenvalues above 0 with their directions."""
        from scipy.linalg import LinAlgError, cholesky, eigh
        from scipy.linalg.lapack import dpocon

        # as pinvh counts: a smaller share of the largest eigenvalue is rounding
        least = self.n_features * np.finfo(np.float64).eps
        try:
            lower: Matrix = cholesky(self._matrix, lower=True, check_finite=False)
            if dpocon(lower, float(np.abs(self._matrix).sum(axis=0).max()), uplo="L")[0] > least:
                return lower
        except LinAlgError:
            pass
        values, vectors = eigh(self._matrix, check_finite=False)
        kept = values > least * np.abs(values).max()
        return SpikedCovariance(values[kept], vectors[:, kept].T, 0.0)

    @property
    def log_determinant(self) -> float:
        """Return the logarithm of the determinant, -inf if the matrix is singular."""
        factor = self._factor
        if isinstance(factor, SpikedCovariance):
            return factor.log_determinant
        return 2 * float(np.log(factor.diagonal()).sum())

    def matrix(self) -> Matrix:
        """Return a copy of the matrix, (d, d)."""
        return self._matrix.copy()

    def diagonal(self) -> Matrix:
        """Return the variances of the columns, (d,)."""
        return self._matrix.diagonal()

    def inverse(self) -> Matrix:
        """Return the inverse, or pseudo-inverse, (d, d)."""
        if isinstance(self._factor, SpikedCovariance):
            return self._factor.inverse()
        from scipy.linalg.lapack import dpotri

        lower = dpotri(self._factor, lower=1)[0]
        return np.tril(lower) + np.tril(lower, -1).T

    def distances(self, rows: Any, mean: Matrix) -> Matrix:
        """Compute squared Mahalanobis distances of rows, array or CSR (n, d)."""
        from scipy.linalg import solve_triangular

        if isinstance(self._factor, SpikedCovariance):
            return self._factor.distances(rows, mean)
        out = np.empty(rows.shape[0])
        for part, moved in centred_blocks(rows, mean):
            z = solve_triangular(self._factor, moved.T, lower=True, check_finite=False)
            out[part] = np.einsum("ji,ji->i", z, z)
        return out


# -- shrinkage towards a multiple of I, from a few sums ----------------------------------------------------------------
def ledoit_wolf(trace: float, squares: float, fourth: float, *, n: float, d: int) -> float:
    """Compute the share of Ledoit and Wolf 2004, Lemma 3.4, from trace(S), ||S||_F^2 and the sum of ||x - mean||^4."""
    if d == 1 or n <= 0:
        return 0.0
    distance = (squares - trace * trace / d) / d
    error = min((fourth / n - squares) / (n * d), distance)
    return min(error / distance, 1.0) if error > 0 else 0.0


def oracle_approximating(squares: float, *, n: float, size: int) -> float:
    """Compute the share of Chen, Wiesel, Eldar and Hero 2010, equation 23, without 2 / size as in scikit-learn.

    Of `size` eigenvalues by their sum of squares, in units of the square of their sum: 1 where they differ no more than
    n rows of one variance make them, whatever n is; 0 where all are.
    """
    if size <= 1 or squares <= 0:
        return 0.0
    below = (n + 1) * (squares - 1 / size)
    return min((squares + 1) / below, 1.0) if below > 0 else 1.0


def beyond_noise(values: Matrix, *, trace: float, n: float, d: int) -> int:
    """Count the leading eigenvalues larger than n rows of one variance, the mean of the others, would make them.

    The edge is that of Marchenko and Pastur 1967: mean (1 + sqrt(size / n))^2 for `size` eigenvalues of one variance.
    """
    size = d - np.arange(1, len(values) + 1)
    mean = np.maximum(trace - np.cumsum(values), 0.0) / np.maximum(size, 1)
    beyond = np.flatnonzero(values > mean * (1 + np.sqrt(size / n)) ** 2)
    return int(beyond[-1]) + 1 if len(beyond) else 0


# -- out of a sketch ---------------------------------------------------------------------------------------------------
class ShrunkCovariance(NamedTuple):
    """Covariance matrix as it is given out, and how it was shrunk."""

    matrix: SpikedCovariance | DenseCovariance
    share: float
    kept: int  # leading eigenvalues that were left as they are
    mean: float  # to which the others were shrunk
    floor: float  # no eigenvalue is below it: share * mean, and the ridge

    def as_much(
        self, matrix: "SpikedCovariance | DenseCovariance", pairs: tuple[Matrix, Matrix]
    ) -> "SpikedCovariance | DenseCovariance":
        """Return another matrix, of leading pairs that are given, shrunk by as much as this was."""
        values, vectors = pairs
        ridge = self.floor - self.share * self.mean
        return matrix.shrunk(values[: self.kept], vectors[: self.kept], self.share, self.mean, ridge)

    def without_share(self, matrix: "DenseCovariance", least: float) -> "ShrunkCovariance":
        """Return a matrix with the ridge of this, or `least` if that is more, and no shrinkage."""
        floor = max(self.floor - self.share * self.mean, least)
        none = np.empty((0, matrix.n_features))
        return ShrunkCovariance(matrix.shrunk(none[:, 0], none, 0.0, 0.0, floor), 0.0, 0, 0.0, floor)


def exact_products(sketch: FrequentDirections) -> tuple[Matrix, Matrix | None]:
    """Return the d x d products of an exact sketch and the mean (d,) that was subtracted, None if none was."""
    engine: Any = sketch._seen_engine().clone()
    unit = np.ldexp(1.0, engine.exponent)
    with np.errstate(over="ignore", under="ignore"):
        gram: Matrix = engine.gram() * unit * unit  # which settles the mean
    return gram, engine.mean * unit if sketch.center else None


def empirical_covariance(sketch: FrequentDirections, total: float) -> SpikedCovariance:
    """Return the covariance that a sketch has which is not exact, nothing shrunk and nothing added."""
    if METHODS[sketch.method].tracks:
        values, vectors = seen_of(sketch._seen_engine())
        certain = values
    else:
        spectrum = sketch.spectrum()
        values, vectors, certain = spectrum.values, spectrum.vectors, spectrum.low
    trace = sketch.squared_norm / total
    return SpikedCovariance.pooled(
        values / total, vectors, certain=certain / total, trace=trace, rounding=least_trace(sketch, trace)
    )


def leading_pairs(matrix: SpikedCovariance | DenseCovariance, size: int) -> tuple[Matrix, Matrix]:
    """Return (values (k,) descending, directions (k, d)) of a covariance: of a dense one `size` at most."""
    if isinstance(matrix, SpikedCovariance):
        return matrix.values, matrix.vectors
    dense = matrix.matrix()
    values, vectors = leading(dense, min(len(dense), size), overwrite=True)
    known = values > len(dense) * np.finfo(np.float64).eps * max(float(values[0]), 0.0)
    return values[known], np.ascontiguousarray(vectors[known])


def shrink_tail(
    matrix: SpikedCovariance | DenseCovariance,
    pairs: tuple[Matrix, Matrix],
    *,
    most: int,
    n: float,
    least: float,
    ridge: float,
) -> ShrunkCovariance:
    """Keep `most` leading eigenvalues at most, and shrink the others to their mean by their oracle approximating share.

    A tail whose sum is below `least` is rounding, and stays as it is.
    """
    d, values = matrix.n_features, pairs[0]
    kept = beyond_noise(values[:most], trace=matrix.trace, n=n, d=d)
    first, share, mean = (values[:kept], pairs[1][:kept]), 0.0, 0.0
    trace, squares = matrix.tail_sums(*first)
    if kept < len(values) and trace > least:
        share, mean = oracle_approximating(squares, n=n, size=d - kept), trace / (d - kept)
    return ShrunkCovariance(matrix.shrunk(*first, share, mean, ridge), share, kept, mean, share * mean + ridge)


def sketch_size_of(sketch: FrequentDirections) -> int:
    """Return the rows of the sketch that are in use."""
    return int(sketch.resolved["sketch_size"])


def least_trace(sketch: FrequentDirections, trace: float) -> float:
    """Return the part of a trace of which less is rounding."""
    return NOTHING_LEFT * float(np.finfo(sketch.resolved["dtype"]).eps) * trace


def rounding_of(sketch: FrequentDirections) -> float:
    """Return the part of the certificate that is not Delta."""
    return max(0.0, sketch.error_bound - METHODS[sketch.method].error_bound(sketch.shrinkage))
