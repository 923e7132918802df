"""A covariance matrix in one of two forms, and what a Gaussian with it says of rows.

``Spiked`` is V' diag(values - rest) V + rest I: a few directions with eigenvalues of their own, one eigenvalue for all
others; everything but the matrix itself takes O(k d). ``Whole`` is a d x d matrix.
"""

# pyright: basic

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]

# Rows that are moved to the mean, or made dense, at a time: small enough to stay in the cache at a thousand columns.
ROWS = 256

# Units of rounding, of the dtype of a sketch, below which what is left of the trace counts as none.
NOTHING_LEFT = 64


def centred_blocks(rows: Any, mean: Matrix) -> Any:
    """(slice, float64 rows - mean) of a few rows of an array or CSR container at a time."""
    for start in range(0, rows.shape[0], ROWS):
        part = rows[start : start + ROWS]
        yield slice(start, start + ROWS), (part if isinstance(part, np.ndarray) else part.toarray()) - mean


def squared_lengths(rows: Any) -> Matrix:
    """||x||^2 of the rows of a CSR container, (n,), each square in float64."""
    data = rows.data.astype(np.float64)
    return type(rows)((data * data, rows.indices, rows.indptr), shape=rows.shape) @ np.ones(rows.shape[1])


def projected(rows: Any, mean: Matrix, vectors: Matrix) -> tuple[Matrix, Matrix]:
    """(V (x - mean), squared distance of x - mean to the span of V) of every row; sparse rows stay sparse."""
    inside, outside = np.empty((rows.shape[0], len(vectors))), np.empty(rows.shape[0])
    if isinstance(rows, np.ndarray):
        for part, moved in centred_blocks(rows, mean):
            inside[part] = moved @ vectors.T
            moved -= inside[part] @ vectors
            outside[part] = np.einsum("ij,ij->i", moved, moved)
        return inside, outside
    # V (x - m) = V x - V m;  ||x - m||^2 = ||x||^2 - 2 x'm + ||m||^2
    inside[:] = rows @ vectors.T - vectors @ mean
    squares = squared_lengths(rows) + mean @ mean - 2 * (rows @ mean)
    outside[:] = np.maximum(squares - np.einsum("ij,ij->i", inside, inside), 0.0)
    return inside, outside


@dataclass(frozen=True)
class Spiked:
    """V' diag(values - rest) V + rest I with orthonormal V (k, d) and values >= rest >= 0."""

    values: Matrix
    vectors: Matrix
    rest: float

    @classmethod
    def pooled(cls, values: Matrix, vectors: Matrix, *, certain: Matrix, trace: float, rounding: float) -> Self:
        """Share what the trace leaves over the directions that are not kept.

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
        """Columns d."""
        return self.vectors.shape[1]

    @property
    def trace(self) -> float:
        """Sum of all eigenvalues."""
        return float(self.values.sum()) + (self.n_features - len(self.values)) * self.rest

    @property
    def squares(self) -> float:
        """Sum of their squares: the squared Frobenius norm."""
        return float(self.values @ self.values) + (self.n_features - len(self.values)) * self.rest**2

    def times(self, v: Matrix) -> Matrix:
        """The product with a vector (d,)."""
        return (self.values - self.rest) * (self.vectors @ v) @ self.vectors + self.rest * v

    def shrunk(self, share: float, ridge: float) -> Self:
        """(1 - share) S + share trace(S) / d I + ridge I."""
        add = share * self.trace / self.n_features + ridge
        return type(self)((1 - share) * self.values + add, self.vectors, (1 - share) * self.rest + add)

    def tail_sums(self, kept: int) -> tuple[float, float]:
        """(sum, sum of squares) of all eigenvalues but the leading ones."""
        others, tail = self.n_features - len(self.values), self.values[kept:]
        return float(tail.sum()) + others * self.rest, float(tail @ tail) + others * self.rest**2

    def tail_shrunk(self, kept: int, share: float, mean: float, ridge: float) -> Self:
        """With (1 - share) lambda + share mean for all eigenvalues but the leading ones, plus ridge I."""
        values = self.values.copy()
        values[kept:] = (1 - share) * values[kept:] + share * mean
        rest = (1 - share) * self.rest + share * mean if kept < len(values) else self.rest
        return type(self)(values + ridge, self.vectors, rest + ridge)

    @property
    def log_determinant(self) -> float:
        """-inf if it is singular."""
        others = self.n_features - len(self.values)
        with np.errstate(divide="ignore"):
            return float(np.log(self.values).sum() + (others * np.log(self.rest) if others else 0.0))

    def matrix(self) -> Matrix:
        """The matrix, (d, d)."""
        return self._dense(self.values, self.rest)

    def inverse(self) -> Matrix:
        """Its inverse, or pseudo-inverse, (d, d)."""
        return self._dense(1 / self.values, 1 / self.rest if self.rest else 0.0)

    def _dense(self, values: Matrix, rest: float) -> Matrix:
        out = (self.vectors.T * (values - rest)) @ self.vectors
        out[np.diag_indices_from(out)] += rest
        return out

    def distances(self, rows: Any, mean: Matrix) -> Matrix:
        """Squared Mahalanobis distances of rows, array or CSR (n, d)."""
        inside, outside = projected(rows, mean, self.vectors)
        found = np.einsum("ij,ij,j->i", inside, inside, 1 / self.values)
        return found + outside / self.rest if self.rest else found


class Whole:
    """A positive semi-definite matrix as it is, (d, d) float64; factored when that is first needed."""

    def __init__(self, matrix: Matrix) -> None:
        self._matrix = matrix
        self._factor: tuple[Matrix, Matrix | None] | None = None

    @property
    def n_features(self) -> int:
        """Columns d."""
        return len(self._matrix)

    @property
    def trace(self) -> float:
        """Sum of all eigenvalues."""
        return float(np.trace(self._matrix))

    @property
    def squares(self) -> float:
        """Sum of their squares: the squared Frobenius norm."""
        return float(np.einsum("ij,ij->", self._matrix, self._matrix))

    def times(self, v: Matrix) -> Matrix:
        """The product with a vector (d,)."""
        return self._matrix @ v

    def shrunk(self, share: float, ridge: float) -> "Whole":
        """(1 - share) S + share trace(S) / d I + ridge I."""
        add = share * self.trace / self.n_features + ridge
        if not share and not add:
            return self
        out = (1 - share) * self._matrix
        out[np.diag_indices_from(out)] += add
        return Whole(out)

    def without(self, values: Matrix, vectors: Matrix) -> Matrix:
        """S - V' diag(values) V for leading eigenpairs, (d, d)."""
        return self._matrix - (vectors.T * values) @ vectors

    def tail_shrunk(self, tail: Matrix, vectors: Matrix, share: float, mean: float, ridge: float) -> "Whole":
        """S - share (tail - mean (I - V'V)) + ridge I, where tail = S - V' diag(values) V, which is overwritten."""
        tail *= -share
        tail += self._matrix
        tail -= share * mean * (vectors.T @ vectors)
        tail[np.diag_indices_from(tail)] += share * mean + ridge
        return Whole(tail)

    def _factored(self) -> tuple[Matrix, Matrix | None]:
        """(lower Cholesky factor, None), or of a singular matrix (eigenvalues > 0, their vectors (d, r))."""
        if self._factor is None:
            from scipy.linalg import LinAlgError, cholesky, eigh
            from scipy.linalg.lapack import dpocon

            # as pinvh counts: a smaller share of the largest eigenvalue is rounding
            least = self.n_features * np.finfo(np.float64).eps
            try:
                lower: Matrix = cholesky(self._matrix, lower=True, check_finite=False)
                norm = float(np.abs(self._matrix).sum(axis=0).max())
                if dpocon(lower, norm, uplo="L")[0] > least:
                    self._factor = lower, None
                    return self._factor
            except LinAlgError:
                pass
            values, vectors = eigh(self._matrix, check_finite=False)
            kept = values > least * np.abs(values).max()
            self._factor = values[kept], vectors[:, kept]
        return self._factor

    @property
    def log_determinant(self) -> float:
        """-inf if it is singular."""
        found, vectors = self._factored()
        if vectors is None:
            return 2 * float(np.log(np.diag(found)).sum())
        return float(np.log(found).sum()) if len(found) == self.n_features else -np.inf

    def matrix(self) -> Matrix:
        """A copy of the matrix, (d, d)."""
        return self._matrix.copy()

    def inverse(self) -> Matrix:
        """Its inverse, or pseudo-inverse, (d, d)."""
        found, vectors = self._factored()
        if vectors is not None:
            return (vectors / found) @ vectors.T
        from scipy.linalg.lapack import dpotri

        lower = dpotri(found, lower=1)[0]
        return np.tril(lower) + np.tril(lower, -1).T

    def distances(self, rows: Any, mean: Matrix) -> Matrix:
        """Squared Mahalanobis distances of rows, array or CSR (n, d)."""
        from scipy.linalg import solve_triangular

        found, vectors = self._factored()
        out = np.empty(rows.shape[0])
        for part, moved in centred_blocks(rows, mean):
            if vectors is None:
                z = solve_triangular(found, moved.T, lower=True, check_finite=False)
                out[part] = np.einsum("ji,ji->i", z, z)
            else:
                inside = moved @ vectors
                out[part] = np.einsum("ij,ij,j->i", inside, inside, 1 / found)
        return out
