"""Leading directions of rows that can be read again: a block Krylov method that begins with those of a sketch."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr

from fastsketch._core.threads import one_blas_thread
from fastsketch._kernels.linalg.products import product
from fastsketch.sketching._rows_again import Product

Matrix = NDArray[np.float64]


class KrylovSpace(NamedTuple):
    """A space that the rows have been multiplied with."""

    basis: Matrix  # (r, d) orthonormal; it begins with the directions of the sketch
    products: Product  # A'A V' (d, r) of all of it
    passes: int
    residual: float  # the largest of the leading pairs, as a share of its eigenvalue


@one_blas_thread
def block_krylov(
    multiply: Callable[[Matrix], Product], start: Matrix, k: int, *, width: int, most_passes: int, accuracy: float
) -> KrylovSpace:
    """Multiply A'A with directions, a block in each pass, until the residuals of k Ritz pairs are small.

    The next block are the residuals of the leading Ritz pairs, orthogonal to all before. The Ritz values lie below the
    eigenvalues, as near as those of any space that these passes can reach (Musco and Musco 2015, Algorithm 2), and an
    eigenvalue lies within the residual of each (Parlett 1998, 4.5).

    Parameters
    ----------
    multiply : function
        Of Q (d, b) the product A'A Q of all rows: one pass over them.
    start : ndarray (r, d)
        Orthonormal directions.
    k : int
        Leading pairs that are wanted.
    width : int
        Directions of a block after the first, k or more.
    most_passes : int
    accuracy : float
        The residual, as a share of the Ritz value, at which a pair is accepted: the test of ARPACK.
    """
    block: Any = np.ascontiguousarray(start)
    basis: Any = block
    whole: Product | None = None
    passes = 0
    while True:
        part = multiply(block.T)
        whole = part if whole is None else part._replace(product=np.hstack([whole.product, part.product]))
        passes += 1
        core = product(basis, np.ascontiguousarray(whole.product))
        values, vectors = np.linalg.eigh((core + core.T) / 2)
        values, vectors = values[::-1][:width], np.ascontiguousarray(vectors[:, ::-1][:, :width])
        left = whole.product @ vectors - product(basis, vectors * values, turned=True)
        sizes = np.sqrt((left**2).sum(axis=0))
        wanted = values[:k] > 0.0
        residual = float((sizes[:k][wanted] / values[:k][wanted]).max(initial=0.0))
        if residual <= accuracy or passes == most_passes:
            return KrylovSpace(basis, whole, passes, residual)
        for _ in range(2):  # once more against rounding
            left -= product(basis, product(basis, np.ascontiguousarray(left)), turned=True)
        directions, triangle, _ = qr(left, mode="economic", pivoting=True, check_finite=False)
        tiny = max(left.shape) * float(np.finfo(np.float64).eps) * float(values[0])
        block = np.ascontiguousarray(directions[:, np.abs(np.diag(triangle)) > tiny].T)
        if not len(block):
            return KrylovSpace(basis, whole, passes, residual)
        basis = np.vstack([basis, block])
