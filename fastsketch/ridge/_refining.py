"""Ridge regression by conjugate gradients over rows that are read again, with a sketch as its preconditioner."""

from collections.abc import Callable
from typing import NamedTuple, Self

import numpy as np

from fastsketch.ridge._gram_model import Matrix, Solver


class Refinement(NamedTuple):
    """How far coefficients are from those of all rows, W*.

    Attributes
    ----------
    passes : int
        Over the rows, since the last update.
    residual : ndarray (c,)
        ||Z - (X'X + ridge) W|| of each target over ||Z||.
    bound : ndarray (c,)
        At least the length of W - W* in the norm of X'X + ridge: ||Z - (X'X + ridge) W|| / sqrt(ridge). Infinite at
        ridge 0.
    converged : bool
        Whether no residual is above the tolerance.
    """

    passes: int
    residual: Matrix
    bound: Matrix
    converged: bool


class ConjugateGradients(NamedTuple):
    """Solutions W of (H + penalty) W = Z so far, all columns side by side: each has its own steps."""

    solution: Matrix  # (d, m)
    residual: Matrix  # (d, m)
    direction: Matrix  # (d, m)
    product: Matrix  # (m,) of residual and what the preconditioner makes of it
    passes: int

    @classmethod
    def start(cls, right: Matrix, solve: Solver) -> Self:
        """Begin at zero."""
        first = solve(right)
        return cls(np.zeros_like(right), right, first, np.einsum("ij,ij->j", right, first), 0)

    def step(self, multiply: Callable[[Matrix], Matrix], solve: Solver) -> Self:
        """Return the state after one product with H + penalty."""
        # alpha = r'z / p'Hp; x += alpha p; r -= alpha H p; p = z + (r'z after / before) p
        image = multiply(self.direction)
        alpha = _ratio(self.product, np.einsum("ij,ij->j", self.direction, image))
        residual = self.residual - alpha * image
        better = solve(residual)
        after = np.einsum("ij,ij->j", residual, better)
        direction = better + _ratio(after, self.product) * self.direction
        return type(self)(self.solution + alpha * self.direction, residual, direction, after, self.passes + 1)


def _ratio(above: Matrix, below: Matrix) -> Matrix:
    """Return above / below, 0 where a column has converged to nothing."""
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)
