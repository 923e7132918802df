"""Singular value decomposition of a sketch's rows, and leading eigenpairs of symmetric matrices."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.random import Normal, random_normal
from fastsketch._core.threads import one_blas_thread
from fastsketch._kernels.linalg.products import product, symmetric_product
from fastsketch._kernels.sketching.shrink import top_eigh
from fastsketch._kernels.sketching.state import ROUNDING_PER_SHRINK

Matrix = NDArray[np.float64]

_EPS = float(np.finfo(np.float64).eps)
# If the largest squared norm is between these, no square of a row that matters overflows or underflows.
_SMALL, _LARGE = 1e-250, 1e300
# Share of a row's square that is orthogonal to longer rows; at or above it a Cholesky factor loses no digits.
_APART = 0.8


@one_blas_thread
def decompose(rows: Matrix) -> tuple[Matrix, Matrix]:
    """Return the singular values (r,), descending, and right singular vectors (r, d) of a sketch's rows (m, d).

    Singular values that are only rounding error are left out, with their vectors. The rows of a sketch are nearly
    orthogonal after a shrink, which makes this six times as fast as an SVD.

    Raises
    ------
    LinAlgError
        If an entry is not finite.
    """
    from scipy.linalg import svd

    if not rows.size:  # scipy before 1.14 refuses empty matrices
        return np.zeros(0, rows.dtype), np.zeros((0, rows.shape[1]), rows.dtype)
    squares = np.einsum("ij,ij->i", rows, rows)
    straight = None
    if _SMALL < squares.max() < _LARGE:
        straight = _orthonormalised(rows, np.sqrt(squares))
    elif not np.isfinite(rows).all():  # with an infinity LAPACK may not terminate
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


def _orthonormalised(rows: Matrix, lengths: Matrix) -> tuple[Matrix, Matrix] | None:
    """Return (L, V) with rows = L V, where L is (r, r) and V has orthonormal rows (r, d), to speed up their SVD.
    Return None if the rows are far from orthogonal.

    The rows are sorted by length first, the longest first.

    The longest row keeps its direction, and the others lose their component along longer ones. Rows that are rounding
    relative to the longest are left out. As exact as an SVD of all rows.
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


# From this side on Lanczos is faster than a tridiagonal form of the whole matrix if at most n / LANCZOS_SHARE pairs are
# needed (bench/README.md). If it has not converged after RESTARTS restarts, as on a flat spectrum, the latter is used.
LANCZOS_FROM, LANCZOS_SHARE, RESTARTS = 600, 12, 30
# Residual at which a pair has converged, and the error of the values, both as shares of the largest.
TOLERANCE, LEADING_ROUNDING = 1e-12, 2e-12
# Relative accuracy of the search for a pair that Lanczos has missed, such as the second one of a double eigenvalue.
MISSED = 1e-3


def leading(lower: Matrix, k: int, *, overwrite: bool = False) -> tuple[Matrix, Matrix]:
    """Return the k largest eigenvalues (k,) of a symmetric matrix, in descending order, and their eigenvectors (k, n).

    The Lanczos method is tried first for few pairs of a large matrix. `lower` is the matrix's column-major lower
    triangle.

    `overwrite`: the array may be overwritten, which saves a copy where Lanczos is not used.
    """
    n = len(lower)
    pairs = lanczos(lambda v: symmetric_product(lower, v), n, k) if takes_lanczos(n, k) else None
    if pairs is not None:
        return pairs
    values, vectors = top_eigh(lower if overwrite else lower.copy(), k)
    return values[::-1][:k], vectors[::-1]


def takes_lanczos(n: int, k: int) -> bool:
    """Return True if ``leading`` tries the Lanczos method first, for the k leading eigenpairs of an n x n matrix."""
    return n >= LANCZOS_FROM and k * LANCZOS_SHARE <= n


@one_blas_thread
def lanczos(times: Callable[[Matrix], Matrix], n: int, k: int) -> tuple[Matrix, Matrix] | None:
    """Return (k largest eigenvalues, descending; eigenvectors as rows) of a positive semidefinite matrix, or None.

    They are found by the Lanczos method. The result is None if some pairs did not converge or may have been missed.
    `times` multiplies the n x n matrix by a vector.
    """
    from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh  # slow to import

    def flat(v: Matrix) -> Matrix:
        return times(v.ravel())

    start, check = random_normal(0, Normal.LANCZOS_START, n), random_normal(0, Normal.LANCZOS_CHECK, n)
    operator = LinearOperator((n, n), matvec=flat, dtype=np.float64)
    try:
        values, vectors = eigsh(operator, k, ncv=steps(n, k), tol=TOLERANCE, maxiter=RESTARTS, v0=start)
        order = np.argsort(-values)
        values, vectors = values[order], np.ascontiguousarray(vectors.T[order])

        def rest(v: Matrix) -> Matrix:
            v = v.ravel()
            inside = values[:, np.newaxis] * product(vectors, v[:, np.newaxis])
            return times(v) - product(vectors, inside, turned=True).ravel()

        # One start vector finds one direction of a multiple eigenvalue: search what is left for others.
        left = LinearOperator((n, n), matvec=rest, dtype=np.float64)
        missed = eigsh(left, 1, ncv=20, tol=MISSED, maxiter=RESTARTS, which="LA", v0=check)[0]
    except ArpackError:
        return None
    return None if missed[0] > values[-1] + 1e-9 * abs(values[0]) else (values, vectors)


def steps(n: int, k: int) -> int:
    """Return the number of basis vectors that ``lanczos`` stores, from which memory is estimated."""
    return min(n, max(2 * k + 20, 40))


def leading_rounding(n: int, k: int) -> float:
    """Return a bound on the rounding error of the eigenvalues that ``leading`` computes, relative to the largest
    one.
    """
    return LEADING_ROUNDING if takes_lanczos(n, k) else ROUNDING_PER_SHRINK * float(np.finfo(np.float64).eps)
