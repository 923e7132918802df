"""Singular values of a sketch's rows, and leading eigenpairs of an exact matrix of products."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.threads import one_blas_thread
from fastsketch._kernels.linalg.products import product, symmetric_product
from fastsketch._kernels.sketching.shrink import top_eigh
from fastsketch._kernels.sketching.state import ROUNDING_PER_SHRINK

Matrix = NDArray[np.float64]

_EPS = float(np.finfo(np.float64).eps)
# Largest squared norms between which no square of a row that counts leaves the range of a double.
_SMALL, _LARGE = 1e-250, 1e300
# The part of a row's square that longer rows do not explain: from here on a Cholesky factor costs no digits.
_APART = 0.8


@one_blas_thread
def decompose(rows: Matrix) -> tuple[Matrix, Matrix]:
    """Return (s, vt) of rows (m, d), without what is rounding.

    Raises
    ------
    LinAlgError
        If an entry is not finite.
    """
    from scipy.linalg import svd

    if not rows.size:  # scipy before 1.14 decomposes no empty matrix
        return np.zeros(0, rows.dtype), np.zeros((0, rows.shape[1]), rows.dtype)
    squares = np.einsum("ij,ij->i", rows, rows)
    straight = None
    if _SMALL < squares.max() < _LARGE:
        straight = _straightened(rows, np.sqrt(squares))
    elif not np.isfinite(rows).all():  # LAPACK may look for the singular values of infinity for ever
        raise np.linalg.LinAlgError("the rows of the sketch have left the range of numbers")
    small, directions = straight or (rows, None)
    try:
        _, s, vt = svd(small, full_matrices=False, check_finite=False)
    except np.linalg.LinAlgError:
        _, s, vt = svd(small, full_matrices=False, check_finite=False, lapack_driver="gesvd")
    rank = _rank(s)
    return s[:rank], vt[:rank] if directions is None else vt[:rank] @ directions


def _rank(s: Matrix) -> int:
    return int(np.count_nonzero(s > s[0] * _EPS)) if s.size else 0


def _straightened(rows: Matrix, lengths: Matrix) -> tuple[Matrix, Matrix] | None:
    """Return a triangular matrix (r, r) and orthonormal rows (r, d) whose product the rows are; None if they are far.

    The longest row keeps its direction, the others give up what lies along longer ones; rows that are rounding beside
    the longest are left out. Six times as fast as an SVD of all of them, and as exact.
    # rows = S V0;  V0 V0' = L L';  V = L^-1 V0;  rows = (S L) V
    """
    from scipy.linalg.blas import dsyrk, dtrsm
    from scipy.linalg.lapack import dpotrf

    order = np.argsort(-lengths, kind="stable")
    s = lengths[order]
    s = s[: _rank(s)]
    base = rows[order[: len(s)]]
    base /= s[:, np.newaxis]
    # BLAS takes a C-ordered matrix for the transposed one
    factor, info = dpotrf(dsyrk(1.0, base.T, trans=1, lower=1), lower=1, clean=1, overwrite_a=1)
    if info or float(factor.diagonal().min()) ** 2 < _APART:
        return None
    return s[:, np.newaxis] * factor, dtrsm(1.0, factor, base.T, side=1, lower=1, trans_a=1, overwrite_b=1).T


# From this side on Lanczos is faster than a tridiagonal form of the whole matrix, where few pairs are wanted
# (bench/README.md); a flat spectrum, on which it does not converge in these many restarts, goes the other way.
LANCZOS_FROM, LANCZOS_SHARE, RESTARTS = 600, 12, 30
# Residual at which a pair has converged, and what the values may be off by, both as shares of the largest.
TOLERANCE, LEADING_ROUNDING = 1e-12, 2e-12
# A pair that Lanczos has missed, a second one of a multiple eigenvalue, is found to this share of its size.
MISSED = 1e-3


def leading(lower: Matrix, k: int, *, overwrite: bool = False) -> tuple[Matrix, Matrix]:
    """Return (values (k,) descending, vectors (k, n)) of a symmetric matrix, its column-major lower triangle given.

    `overwrite`: the array may be used up, which saves a copy where the whole matrix is taken apart.
    """
    n = len(lower)
    pairs = lanczos(lambda v: symmetric_product(lower, v), n, k) if takes_lanczos(n, k) else None
    if pairs is not None:
        return pairs
    values, vectors = top_eigh(lower if overwrite else lower.copy(), k)
    return values[::-1][:k], vectors[::-1]


def takes_lanczos(n: int, k: int) -> bool:
    """Return whether k pairs of a matrix of this side are looked for by Lanczos first."""
    return n >= LANCZOS_FROM and k * LANCZOS_SHARE <= n


@one_blas_thread
def lanczos(times: Callable[[Matrix], Matrix], n: int, k: int) -> tuple[Matrix, Matrix] | None:
    """Return what ``leading`` does for a positive semidefinite matrix of side n that can multiply vectors.

    None where some did not converge or one may have been missed.
    """
    from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh  # slow to import

    def flat(v: Matrix) -> Matrix:
        return times(v.ravel())

    rng = np.random.default_rng(0)
    start = rng.standard_normal(n)
    operator = LinearOperator((n, n), matvec=flat, dtype=np.float64)
    try:
        values, vectors = eigsh(operator, k, ncv=steps(n, k), tol=TOLERANCE, maxiter=RESTARTS, v0=start)
        order = np.argsort(-values)
        values, vectors = values[order], np.ascontiguousarray(vectors.T[order])

        def rest(v: Matrix) -> Matrix:
            v = v.ravel()
            inside = values[:, np.newaxis] * product(vectors, v[:, np.newaxis])
            return times(v) - product(vectors, inside, turned=True).ravel()

        # One start vector has one direction in the space of a multiple eigenvalue: look whether anything was missed.
        left = LinearOperator((n, n), matvec=rest, dtype=np.float64)
        missed = eigsh(left, 1, ncv=20, tol=MISSED, maxiter=RESTARTS, which="LA", v0=rng.standard_normal(n))[0]
    except ArpackError:
        return None
    return None if missed[0] > values[-1] + 1e-9 * abs(values[0]) else (values, vectors)


def steps(n: int, k: int) -> int:
    """Return how many vectors Lanczos keeps."""
    return min(n, max(2 * k + 20, 40))


def leading_rounding(n: int, k: int) -> float:
    """Return what the values of ``leading`` may be off by, as a share of the largest."""
    return LEADING_ROUNDING if takes_lanczos(n, k) else ROUNDING_PER_SHRINK * float(np.finfo(np.float64).eps)
