"""Leading eigenpairs of an exact matrix of products."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.threads import one_blas_thread
from fastsketch._kernels.linalg.products import product, symmetric_product
from fastsketch._kernels.sketching.shrink import top_eigh
from fastsketch._kernels.sketching.state import ROUNDING_PER_SHRINK

Matrix = NDArray[np.float64]

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
