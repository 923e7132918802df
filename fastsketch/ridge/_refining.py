"""Ridge regression by conjugate gradients over rows that are read again, with a sketch as its preconditioner."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from fastsketch.ridge._gram_model import Matrix, Solver
from fastsketch.ridge._moments import ROUNDING, Moments
from fastsketch.sketching._rows_again import Product, StoredForm

# Of a column's standard deviation: as far may its mean and this be from those seen, as sums in another order are.
SAME = 1e-6
TINY = float(np.finfo(np.float64).tiny)


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


@dataclass(frozen=True)
class MeasuredForm(StoredForm):
    """Rows as they are multiplied, which are measured while they are read for the first time."""

    center: bool
    measured: list[Moments]  # of the rows so far; none once they have been compared

    def multiply(self, rows: Any, weights: Matrix | None, q: Matrix, *, offset: int = 0) -> Product:
        """Return the product of ``StoredForm``, of a block of rows that is measured too."""
        out, n = super().multiply(rows, weights, q, offset=offset), int(rows.shape[0])
        if self.measured:
            block = Moments.of(rows, np.zeros((n, 1)), np.ones(n) if weights is None else weights, center=self.center)
            self.measured[0] = self.measured[0].plus(block)
        return out

    def require(self, known: Moments, n_rows: int, n_read: int) -> None:
        """Raise ValueError unless what was read for the first time are n_rows rows of known moments."""
        if not self.measured:
            return
        read, weight = self.measured.pop(), max(known.weight, TINY)
        columns = (known.mean, read.mean), (np.sqrt(known.squares / weight), np.sqrt(read.squares / weight))
        allowed = SAME * columns[1][0] + ROUNDING * np.abs(known.mean)
        for what, (own, other) in zip(("mean", "standard deviation"), columns, strict=True):
            wrong = np.abs(own - other) > allowed
            if n_read != n_rows or wrong.any():
                j = int(wrong.argmax())
                raise ValueError(
                    f"refine has read {n_read} rows, whose column {j} has a {what} of {other[j]:.9g}, and the model "
                    f"has seen {n_rows}, of {own[j]:.9g}: these are not the same rows with their weights"
                )


def column_lengths(matrix: Matrix) -> Matrix:
    """Return the length of each column (m,), of entries whose squares leave the range of numbers too."""
    top = np.maximum(np.abs(matrix).max(axis=0, initial=0.0), TINY)
    return top * np.linalg.norm(matrix / top, axis=0)


def _ratio(above: Matrix, below: Matrix) -> Matrix:
    """Return above / below, 0 where a column has converged to nothing."""
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)
