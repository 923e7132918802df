"""Exact and sketched Gram matrices X'X, with solvers for the ridge equations (X'X + penalty) W = Z.

A sketch approximates X'X by Z Q Z' + diag(lost). The columns of Z (d, t) are the rows of the sketch. Q removes from
every eigenvalue the amount that the sketch has added to it. lost_j is the part of the sum of squares of column j that
the sketch has lost, known because these sums are kept exactly; or lost is the same number for all columns.

By Woodbury's identity the inverse of Z Q Z' + D, where D = diag(lost) + a penalty, is D^-1 - D^-1 Z M Z' D^-1 with
M = (Q^-1 + Z' D^-1 Z)^-1. No array larger than Z is needed.
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
BLOCK_ROWS = 1024
# Entries of D below this share of their mean are rounding.
MIN_DIAGONAL_SHARE = 1e-12


class GramSum(NamedTuple):
    """Exact Gram matrix X'X of the rows, shape (d, d), and a solver for ridge equations with it."""

    gram: Matrix

    def solver(self, penalty: Matrix) -> Solver:
        """Return a function that solves (X'X + diag(penalty)) W = Z for any right-hand sides Z (d, c).

        `penalty` has shape (d,). For a singular system it returns the solutions of least norm.
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
    """Approximation Z Q Z' + diag(lost) of the Gram matrix X'X, made from a sketch, with a solver of ridge equations.
    No d x d matrix is formed.

    All arrays are in stored units: one of these is `unit` squared units of the rows.
    """

    z: NDArray[Any]  # (d, t), or only the rows of `columns`; all others are 0
    root: Matrix  # (t, r), Q = root root'
    lost: Matrix  # (d,)
    unit: float
    columns: slice | NDArray[np.int64] = slice(None)

    def solver(self, penalty: Matrix) -> Solver:
        """Return a function that solves (approximate X'X + diag(penalty)) W = Z for any right-hand sides Z (d, c).

        The approximation is Z Q Z' + diag(lost). `penalty` (d,) and the solutions are in the units of the rows.
        """
        diagonal, mean_diagonal = scaled_diagonal(self.lost + penalty / self.unit)
        # M of the system divided by the mean of its diagonal
        inner = (
            inner_inverse(inverse_weighted_gram(self.z, diagonal[self.columns]) / mean_diagonal, self.root)
            / mean_diagonal
        )
        diagonal_column = diagonal[:, np.newaxis]

        def solve(right_hand_sides: Matrix) -> Matrix:
            # D^-1 - D^-1 Z M Z' D^-1
            solution = right_hand_sides / diagonal_column
            solution[self.columns] -= (self.z @ (inner @ (self.z.T @ solution[self.columns]))) / diagonal_column[
                self.columns
            ]
            solution /= mean_diagonal * self.unit
            return solution

        return solve


def scaled_diagonal(diagonal: Matrix) -> tuple[Matrix, float]:
    """Return a diagonal divided by its mean, with MIN_DIAGONAL_SHARE as lower limit, and the mean.

    The quotients neither overflow in float32 nor are zero.
    """
    mean = float(diagonal.mean())
    if not mean > 0:
        mean = float(np.finfo(np.float64).tiny)
    return np.maximum(diagonal / mean, MIN_DIAGONAL_SHARE), mean


def inverse_weighted_gram(z: NDArray[Any], diagonal: Matrix | None = None) -> Matrix:
    """Return the matrix Z' diag(1 / diagonal) Z (t, t) in float64, or Z'Z without a diagonal."""
    gram = np.zeros((z.shape[1], z.shape[1]))
    weights = None if diagonal is None else (1.0 / diagonal).astype(z.dtype)
    for start in range(0, len(z), BLOCK_ROWS):
        block = slice(start, start + BLOCK_ROWS)
        block_rows = z[block]
        # G += Z' diag(1 / D) Z
        gram += block_rows.T @ (block_rows if weights is None else block_rows * weights[block, np.newaxis])
    return (gram + gram.T) / 2


def quadratic_forms(z: NDArray[Any], matrix: NDArray[Any], *, squared: bool = False) -> Matrix:
    """Return x' A x for every row x of `z` (d, t), with A = `matrix`, as an array (d,).

    With `squared` compute |x' A|^2 instead.
    """
    forms = np.empty(len(z))
    for start in range(0, len(z), BLOCK_ROWS):
        block = z[start : start + BLOCK_ROWS]
        product = block @ matrix
        forms[start : start + BLOCK_ROWS] = np.einsum("ij,ij->i", product, product if squared else block)
    return forms


def inner_inverse(gram: Matrix, root: Matrix) -> Matrix:
    """Return (Q^-1 + G)^-1, the small inverse in Woodbury's identity, for G = `gram` and Q = root root'.
    Q may be singular.
    """
    # root (I + root' G root)^-1 root'
    inner = root.T @ gram @ root
    inner[np.diag_indices_from(inner)] += 1.0
    root_of_inverse = np.linalg.solve(np.linalg.cholesky((inner + inner.T) / 2), root.T)
    return root_of_inverse.T @ root_of_inverse
