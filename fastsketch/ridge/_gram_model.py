"""Exact and sketched Gram matrices X'X, with solvers for the ridge equations (X'X + penalty) W = Z.

A sketch stands for Z Q Z' + diag(lost). The columns of Z (d, t) are its rows; Q removes from every eigenvalue what the
sketch has added to it; and lost_j restores what is missing of the sum of squares of column j, which is known exactly,
or is the same for all columns.

By Woodbury's identity the inverse of Z Q Z' + D, where D = diag(lost) + a penalty, is D^-1 - D^-1 Z M Z' D^-1 with
M = (Q^-1 + Z' D^-1 Z)^-1. Nothing larger than Z is needed.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

Matrix = NDArray[np.float64]
# Maps right-hand sides (d, c) to solutions.
Solver = Callable[[Matrix], Matrix]

# Rows of Z multiplied at a time; such a block fits in the L2 cache.
BLOCK = 1024
# Entries of D below this share of their mean are rounding.
LEAST_SHARE = 1e-12


class GramSum(NamedTuple):
    """Exact Gram matrix X'X of the rows, shape (d, d)."""

    gram: Matrix

    def solver(self, penalty: Matrix) -> Solver:
        """Return a function that solves (X'X + diag(penalty)) W = Z for any right-hand sides Z (d, c).

        A singular system has the shortest solution.
        """
        system = self.gram.copy()
        system[np.diag_indices_from(system)] += penalty
        try:
            factor = cho_factor(system, lower=True, check_finite=False)
        except LinAlgError:
            inverse = np.linalg.pinv(system, rcond=1e-12, hermitian=True)
            return lambda right: inverse @ right
        return lambda right: cho_solve(factor, right, check_finite=False)


class GramModel(NamedTuple):
    """Approximation of the Gram matrix X'X by a low-rank sketch plus a diagonal.

    All arrays are in stored units: one of these is `unit` squared units of the rows.
    """

    z: NDArray[Any]  # (d, t), or only the rows of `columns`; all others are 0
    root: Matrix  # (t, r), Q = root root'
    lost: Matrix  # (d,)
    unit: float
    columns: slice | NDArray[np.int64] = slice(None)

    def solver(self, penalty: Matrix) -> Solver:
        """Return a function that solves (approximate X'X + diag(penalty)) W = Z for any right-hand sides Z (d, c).

        The approximation is Z Q Z' + diag(lost). Solutions are in the units of the rows.
        """
        diagonal, level = scaled_diagonal(self.lost + penalty / self.unit)
        # M of the system divided by its level
        inner = inner_of(gram_of(self.z, diagonal[self.columns]) / level, self.root) / level
        by = diagonal[:, np.newaxis]

        def solve(right: Matrix) -> Matrix:
            # D^-1 - D^-1 Z M Z' D^-1
            out = right / by
            out[self.columns] -= (self.z @ (inner @ (self.z.T @ out[self.columns]))) / by[self.columns]
            out /= level * self.unit
            return out

        return solve


def scaled_diagonal(diagonal: Matrix) -> tuple[Matrix, float]:
    """Divide a diagonal by its mean. Return the result, with a positive lower limit, and the mean.

    So nothing overflows in float32, and nothing is zero.
    """
    level = float(diagonal.mean())
    if not level > 0:
        level = float(np.finfo(np.float64).tiny)
    return np.maximum(diagonal / level, LEAST_SHARE), level


def gram_of(z: NDArray[Any], diagonal: Matrix | None = None) -> Matrix:
    """Compute the matrix Z' diag(1 / diagonal) Z in float64, block by block."""
    out = np.zeros((z.shape[1], z.shape[1]))
    by = None if diagonal is None else (1.0 / diagonal).astype(z.dtype)
    for start in range(0, len(z), BLOCK):
        part = slice(start, start + BLOCK)
        here = z[part]
        # G += Z' diag(1 / D) Z
        out += here.T @ (here if by is None else here * by[part, np.newaxis])
    return (out + out.T) / 2


def quadratic(z: NDArray[Any], turn: NDArray[Any], *, squared: bool = False) -> Matrix:
    """Compute the quadratic form z' A z of every row z of a matrix, where A is `turn`.

    The result has shape (d,). With `squared` it is |z' A|^2 instead.
    """
    out = np.empty(len(z))
    for start in range(0, len(z), BLOCK):
        own = z[start : start + BLOCK]
        turned = own @ turn
        out[start : start + BLOCK] = np.einsum("ij,ij->i", turned, turned if squared else own)
    return out


def inner_of(products: Matrix, root: Matrix) -> Matrix:
    """Compute (Q^-1 + G)^-1 for the Gram matrix G = `products` and Q = root root'."""
    # root (I + root' G root)^-1 root'
    turned = root.T @ products @ root
    turned[np.diag_indices_from(turned)] += 1.0
    half = np.linalg.solve(np.linalg.cholesky((turned + turned.T) / 2), root.T)
    return half.T @ half
