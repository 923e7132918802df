"""Leading eigenpairs of an exact matrix of products."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dsymv
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

from fastsketch._kernels.shrink import top_eigh

Matrix = NDArray[np.float64]

# From this side on Lanczos is faster than a tridiagonal form of the whole matrix, where few pairs are wanted
# (bench/README.md); a flat spectrum, on which it does not converge in these many restarts, goes the other way.
LANCZOS_FROM, LANCZOS_SHARE, RESTARTS = 1000, 12, 30


def leading(lower: Matrix, k: int) -> tuple[Matrix, Matrix]:
    """(values (k,) descending, vectors (k, n)) of a symmetric matrix of which the column-major lower triangle is given.

    The array is overwritten.
    """
    n = len(lower)
    if n >= LANCZOS_FROM and k * LANCZOS_SHARE <= n:
        try:
            return _lanczos(lower, k)
        except ArpackError:
            pass
    values, vectors = top_eigh(lower, k)
    return values[::-1][:k], vectors[::-1]


def _lanczos(lower: Matrix, k: int) -> tuple[Matrix, Matrix]:
    n = len(lower)
    matrix: Any = lower.T  # column-major, its lower triangle filled

    def times(v: Matrix) -> Matrix:
        return dsymv(1.0, matrix, v.ravel(), lower=1)

    operator = LinearOperator((n, n), matvec=times, dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(n)
    values, vectors = eigsh(operator, k, ncv=min(n, max(2 * k + 20, 40)), tol=1e-12, maxiter=RESTARTS, v0=start)
    order = np.argsort(-values)
    return values[order], vectors.T[order]
