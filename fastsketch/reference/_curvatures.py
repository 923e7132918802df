"""Matrices H of online Newton methods in plain NumPy: Frequent Directions sketches, and those of competing methods."""

import itertools
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]

# Eigenvalues of H below this share of the largest are zero, while alpha = 0.
RANK = 1e-10


class Normals(Protocol):
    """Protocol of a random generator that draws standard normal numbers."""

    def standard_normal(self, size: int | tuple[int, int], /) -> Array: ...


def solve(a: Array, v: Array) -> Array:
    """Return the solution x of a x = v for a positive definite matrix a, in the precision of a.

    Gaussian elimination replaces LAPACK for long double.
    """
    if a.dtype != np.longdouble:
        return np.linalg.solve(a, v)
    a, v = a.copy(), v.copy()
    for i in range(len(a)):  # Gauss; a positive definite matrix needs no pivots
        factors = a[i + 1 :, i] / a[i, i]
        a[i + 1 :] -= np.outer(factors, a[i])
        v[i + 1 :] -= factors * v[i]
    for i in reversed(range(len(a))):
        v[i] = (v[i] - a[i, i + 1 :] @ v[i + 1 :]) / a[i, i]
    return v


def singular_values(a: Array) -> tuple[Array, Array]:
    """Return (singular values, descending; right singular vectors as rows) of a matrix, in its precision."""
    if a.dtype != np.longdouble:
        return np.linalg.svd(a, full_matrices=False)[1:]
    rows, rotated = a.copy(), True
    rounding, square = a.shape[1] * np.finfo(a.dtype).eps, (a * a).sum()
    while rotated:  # one-sided Jacobi (Hestenes): rotations of two rows until all are orthogonal
        rotated = False
        for i, j in itertools.combinations(range(len(rows)), 2):
            one, two = rows[i], rows[j]
            p, q, r = one @ one, two @ two, one @ two
            if abs(r) <= rounding * max(np.sqrt(p) * np.sqrt(q), rounding * square):
                continue
            rotated = True
            zeta = (q - p) / (2 * r)
            t = (1 if zeta >= 0 else -1) / (abs(zeta) + np.hypot(1, zeta))
            c = 1 / np.hypot(1, t)
            rows[i], rows[j] = c * (one - t * two), c * (t * one + two)
    lengths = np.sqrt((rows * rows).sum(axis=1))
    order = np.argsort(-lengths, kind="stable")[: min(a.shape)]
    with np.errstate(invalid="ignore"):
        return lengths[order], np.nan_to_num(rows[order] / lengths[order, None])


class Curvature:
    """Base class of the matrices H = B'B + alpha I of online Newton methods; by default H does not decay."""

    b: Array
    alpha: float

    def append(self, row: Array) -> None:
        raise NotImplementedError

    def fade(self, decay: float) -> None:
        assert decay == 1.0

    def h(self) -> Array:
        return self.b.T @ self.b + self.alpha * np.eye(self.b.shape[1], dtype=self.b.dtype)


class Shrinking(Curvature):
    """Matrix H of a Frequent Directions sketch (FD, RFD or PFD), which shrinks when it has `limit` rows.

    The limit is m for Algorithm 3, 2 m for Algorithm 6.
    """

    def __init__(self, d: int, m: int, *, limit: int, method: str, alpha0: float, beta: float) -> None:
        self.b: Array = np.zeros((0, d))
        self.alpha, self.m, self.limit, self.method = alpha0, m, limit, method
        self.alpha0 = alpha0
        self.spared = m - int(np.floor(beta * m)) if method == "pfd" else 0

    def append(self, row: Array) -> None:
        self.b = np.vstack([self.b, row]).astype(row.dtype)
        if len(self.b) < self.limit:
            return
        s, vt = singular_values(self.b)
        squares = np.zeros(self.m, self.b.dtype)
        squares[: min(self.m, len(s))] = s[: self.m] ** 2
        delta = squares[self.m - 1] if squares[self.m - 1] > RANK * squares[0] else 0.0  # not rounding
        kept = squares[: self.m - 1].copy()
        kept[self.spared :] -= delta
        k = min(self.m - 1, len(vt))
        some = (squares[:k] > RANK * squares[0]) & (kept[:k] > RANK * squares[0])  # none of rounding alone
        self.b = np.sqrt(kept[:k][some])[:, None] * vt[:k][some]
        if self.method == "rfd":
            self.alpha += delta / 2

    def fade(self, decay: float) -> None:
        """Multiply H by `decay`. If alpha falls below half of alpha0, it is reset to alpha0."""
        if len(self.b) == 0 and self.alpha <= self.alpha0:
            return
        self.b, self.alpha = np.sqrt(decay) * self.b, decay * self.alpha
        if self.alpha < self.alpha0 / 2:
            self.alpha = self.alpha0


class Full(Curvature):
    """The exact d x d matrix H of FULL-ON, without a sketch."""

    def __init__(self, d: int, alpha0: float) -> None:
        self.alpha, self._h = alpha0, alpha0 * np.eye(d)

    def append(self, row: Array) -> None:
        self._h = self._h + np.outer(row, row)

    def h(self) -> Array:
        return self._h


class RandomProjection(Curvature):
    """Matrix H of RP-SON, from a Gaussian random projection of all gradients (Luo et al. 2016).

    B = R' A with Gaussian R, of which every round draws one row.
    """

    def __init__(self, d: int, m: int, *, alpha0: float, rng: Normals) -> None:
        self.b, self.alpha, self.rng = np.zeros((m, d)), alpha0, rng

    def append(self, row: Array) -> None:
        self.b = self.b + np.outer(self.rng.standard_normal(len(self.b)) / np.sqrt(len(self.b)), row)


class Oja(Curvature):
    """Matrix H of Oja-SON, from m eigenvectors that Oja's rule updates (Luo et al. 2016, Algorithm 3).

    The step size in round t is 1 / t.
    """

    def __init__(self, d: int, m: int, *, alpha0: float, rng: Normals) -> None:
        self.v = np.linalg.qr(rng.standard_normal((d, m)))[0].T
        self.lam, self.alpha, self.t = np.zeros(m), alpha0, 0

    def append(self, row: Array) -> None:
        self.t += 1
        inner = self.v @ row
        self.lam = (1 - 1 / self.t) * self.lam + inner**2 / self.t
        self.v = np.linalg.qr((self.v + np.outer(inner, row) / self.t).T)[0].T

    def h(self) -> Array:
        return (self.v.T * (self.t * self.lam)) @ self.v + self.alpha * np.eye(self.v.shape[1])
