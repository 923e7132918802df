"""Refinement of a ridge regression in further passes, by conjugate gradients, with a new choice of the penalty."""

from dataclasses import dataclass
from math import sqrt
from typing import Any, NamedTuple, Self

import numpy as np

from fastsketch._core.validation import check_finite, is_sparse
from fastsketch.ridge._gram_model import Matrix, Solver
from fastsketch.ridge._moments import ROUNDING, TINY, Moments, column_lengths, times, transposed_times
from fastsketch.ridge._path import RIDGE_RATIO
from fastsketch.ridge._read_out import MAX_RIDGE_RATIO, MIN_RIDGE_RATIO, Choice
from fastsketch.sketching._rereading import Product, StoredForm

# A further pass must read the rows that were learned. It is refused if the mean or the standard deviation of a column
# differs from the learned one by more than this share of the standard deviation.
COLUMN_TOLERANCE = 1e-6
# Largest residual of the normal equations, relative to Z, at which the error of a ridge can be judged.
MAX_RESIDUAL = 0.03


class Refinement(NamedTuple):
    """Residuals and error bounds of refined coefficients, compared with an exact fit to all rows.

    Attributes
    ----------
    passes : int
        Passes over the rows since the last update.
    residual : ndarray (c,)
        ||Z - (X'X + ridge) W|| of each target relative to ||Z||, by the recursion of conjugate gradients.
    bound : ndarray (c,)
        Upper bound on the length of W - W* in the norm of X'X + ridge: the residual plus an allowance for rounding
        (``residual_gap``), divided by sqrt(ridge). Infinite at ridge 0.
    converged : bool
        Whether all residuals are within the tolerance.
    """

    passes: int
    residual: Matrix
    bound: Matrix
    converged: bool


class ConjugateGradients(NamedTuple):
    """State of preconditioned conjugate gradients for the ridge equations (X'X + penalty) W = Z with m right-hand
    sides.

    Each of the m columns of Z has step lengths of its own.
    """

    solution: Matrix  # (d, m)
    residual: Matrix  # (d, m)
    direction: Matrix  # (d, m)
    product: Matrix  # (m,) inner products of the residual and the preconditioned residual
    travelled: Matrix  # (m,) sum of the lengths of all steps
    passes: int

    @classmethod
    def start(cls, right_hand_sides: Matrix, solve: Solver) -> Self:
        """Return the initial state for right-hand sides (d, m): the solution is 0, and the first direction comes from
        the preconditioner `solve`.
        """
        direction = solve(right_hand_sides)
        return cls(
            np.zeros_like(right_hand_sides),
            right_hand_sides,
            direction,
            np.einsum("ij,ij->j", right_hand_sides, direction),
            np.zeros(right_hand_sides.shape[1]),
            0,
        )

    def step(self, image: Matrix, solve: Solver) -> Self:
        """Return the state after one more conjugate gradient step. This object is not changed.

        `image` is the product of X'X + penalty with ``direction``, and `solve` is the preconditioner.
        """
        # alpha = r'z / p'Hp; x += alpha p; r -= alpha H p; p = z + (r'z after / before) p
        alpha = divide_or_zero(self.product, np.einsum("ij,ij->j", self.direction, image))
        residual = self.residual - alpha * image
        preconditioned = solve(residual)
        new_product = np.einsum("ij,ij->j", residual, preconditioned)
        direction = preconditioned + divide_or_zero(new_product, self.product) * self.direction
        step = alpha * self.direction
        travelled = self.travelled + column_lengths(step)
        return type(self)(self.solution + step, residual, direction, new_product, travelled, self.passes + 1)


def residual_gap(steps: ConjugateGradients, moments: Moments, n_rows: int, largest_penalty: float) -> Matrix:
    """Return a bound (c,) on how far the residual that conjugate gradients update is from the true one by rounding.

    Greenbaum (1997, SIAM J. Matrix Anal. Appl. 18:535): conjugate gradients update the solution and the residual
    separately, and the two drift apart by the rounding of every update and of every product with A = X'X + penalty. A
    product rounds by gamma ||X||_F^2 times the length of its vector. All steps together therefore add gamma ||X||_F^2
    times the sum of their lengths, and a few units of rounding of what is updated. X'Y itself rounds by gamma ||X||_F
    ||Y||. For a sum of m products gamma is at most m units of rounding, and exceeds 10 sqrt(m) units with a probability
    below 2 m e^-50 (Higham and Mary 2019, SIAM J. Sci. Comput. 41:A2815, with lambda = 10). ||X||_F and ||Y|| are those
    of the rows before the mean is subtracted, since the mean is subtracted from rounded numbers.
    """
    c = len(moments.target_mean)
    rows = float(moments.squares.sum() + moments.weight * (moments.mean @ moments.mean))
    targets = moments.target_squares + moments.weight * moments.target_mean**2
    unit_roundoff = float(np.finfo(np.float64).eps) / 2
    row_rounding, column_rounding = (unit_roundoff * min(m, 10.0 * sqrt(m)) for m in (n_rows, len(moments.mean)))
    rounded_size = (rows + largest_penalty) * steps.travelled[:c] + column_lengths(moments.cross)
    return (
        row_rounding + column_rounding + 8 * (steps.passes + 1) * unit_roundoff
    ) * rounded_size + row_rounding * sqrt(rows) * np.sqrt(targets)


class Refined(NamedTuple):
    """Result of refining a ridge regression: the chosen penalty, and conjugate gradients with the coefficients."""

    steps: ConjugateGradients
    choice: Choice
    to_choose: int  # passes that chose the ridge

    @property
    def passes(self) -> int:
        """Return the number of passes over the rows so far."""
        return self.to_choose + self.steps.passes


class LanczosIteration:
    """Lanczos iteration on X'X that predicts held-out rows at every ridge penalty, so that one can be chosen.
    Each step takes one product with X'X.

    Let D be the diagonal penalty, S = D^(-1/2), and z a target's column of X'Y. Each step adds a vector to the
    orthonormal basis V of a Krylov space of S H S, which starts with S z. In this basis S H S is a tridiagonal matrix
    T, and S V (T + ridge)^-1 V'S z are the coefficients after as many steps of conjugate gradients, for any ridge. V
    itself is not stored: its products with the held-out rows are enough to choose a ridge.
    """

    def __init__(self, moments: Moments, penalty: Matrix, rows: Any) -> None:
        self._moments, self._rows, self._root = moments, rows, penalty[:, np.newaxis] ** -0.5
        start = self._root * moments.cross
        self._length = column_lengths(start)
        self._previous_v, self._v = np.zeros_like(start), start / np.maximum(self._length, TINY)
        self._diagonal: list[Matrix] = []
        self._off_diagonal: list[Matrix] = [np.zeros(start.shape[1])]
        self._row_products: list[Matrix] = []

    @property
    def direction(self) -> Matrix:
        """Return the vectors (d, c), one for each target, whose product with X'X the next call of ``step`` takes."""
        return self._root * self._v

    def step(self, image: Matrix) -> None:
        """Make one Lanczos step, in place, given `image`, the product of X'X with ``direction``."""
        # r = S H S v - b v_before; a = v'r; r -= a v; b = |r|; v = r / b
        self._row_products.append(times(self._rows, self.direction) - self._moments.mean @ self.direction)
        remainder = self._root * image - self._off_diagonal[-1] * self._previous_v
        self._diagonal.append(np.einsum("ij,ij->j", self._v, remainder))
        remainder -= self._diagonal[-1] * self._v
        self._off_diagonal.append(column_lengths(remainder))
        self._previous_v, self._v = self._v, remainder / np.maximum(self._off_diagonal[-1], TINY)

    def solutions(self) -> "LanczosSolutions":
        """Return the ridge solutions after the steps so far: an object that predicts held-out rows at any penalty."""
        k, off_diagonal = len(self._diagonal), np.array(self._off_diagonal[1:])
        tridiagonal = np.zeros((self._v.shape[1], k, k))
        index = np.arange(k)
        tridiagonal[:, index, index] = np.array(self._diagonal).T
        tridiagonal[:, index[1:], index[:-1]] = tridiagonal[:, index[:-1], index[1:]] = off_diagonal[:-1].T
        values, vectors = np.linalg.eigh(tridiagonal)
        row_products = np.einsum("knc,ckj->ncj", np.array(self._row_products), vectors)
        return LanczosSolutions(
            np.maximum(values, 0.0), vectors, row_products, self._length, off_diagonal[-1], self._moments.target_mean
        )


class LanczosSolutions(NamedTuple):
    """Ridge solutions of c targets after k Lanczos steps, for any penalty, with predictions of n held-out rows.

    They are stored in the eigenvector basis of the tridiagonal matrices T (k, k), in which a penalty only changes a
    diagonal.
    """

    values: Matrix  # (c, k) eigenvalues of T
    vectors: Matrix  # (c, k, k) eigenvectors of T
    row_products: Matrix  # (n, c, k) products of the held-out rows with the basis
    length: Matrix  # (c,) |S z|
    next_off_diagonal: Matrix  # (c,) the next off-diagonal entry of T
    target_mean: Matrix

    def predict(self, ridge: float) -> Matrix:
        """Predict the targets (n, c) of the held-out rows at a ridge penalty."""
        return self.target_mean + np.einsum("ncj,cj->nc", self.row_products, self._solution(ridge))

    def residual(self, ridge: float) -> float:
        """Return the relative norm of the residual of the normal equations at a penalty, averaged over targets.

        It is relative to the norm of the right-hand side.
        """
        last_component = np.einsum("cj,cj->c", self.vectors[:, -1], self._solution(ridge))
        return float((np.abs(last_component) * (self.next_off_diagonal / np.maximum(self.length, TINY))).mean())

    def smallest_accurate_ridge(self, first_ridge: float) -> float:
        """Return the smallest penalty at which the solutions are accurate: the relative residual is at most
        MAX_RESIDUAL.

        It is searched downwards from `first_ridge` times MAX_RIDGE_RATIO, by factors of RIDGE_RATIO.
        """
        ridge = first_ridge * MAX_RIDGE_RATIO
        while ridge > first_ridge * MIN_RIDGE_RATIO and self.residual(ridge / RIDGE_RATIO) <= MAX_RESIDUAL:
            ridge /= RIDGE_RATIO
        return ridge

    def _solution(self, ridge: float) -> Matrix:
        """Return the coefficients at a ridge penalty in the eigenvector basis, shape (c, k)."""
        return self.vectors[:, 0] / (self.values + ridge) * self.length[:, np.newaxis]


@dataclass(frozen=True)
class MomentCheckingProduct(StoredForm):
    """Products of X'X with vectors, computed while the rows are read again.

    The moments of the rows are computed during the first pass, and compared with those of the rows learned.
    """

    center: bool
    moments_read: list[Moments]  # moments of the rows so far; empty once they have been compared

    def multiply(
        self, rows: Any, weights: Matrix | None, q: Matrix, *, offset: int = 0, out: Matrix | None = None
    ) -> Product:
        """Return the Product X'W X q for a block X of rows, centred, with weights W (n,) or none, and vectors q (d, m).
        During the first pass the block's moments are added to ``moments_read``.

        Sparse rows stay sparse.
        """
        n = int(rows.shape[0])
        if is_sparse(rows):
            check_finite(rows, offset=offset)
            # X'W (X - 1 mu') q, then the mean is subtracted: no dense copy of the rows
            z: Matrix = times(rows, q) - self.mean @ q
            z = z if weights is None else weights[:, np.newaxis] * z
            product: Matrix = transposed_times(rows, z)
            np.subtract(product, np.outer(self.mean, z.sum(axis=0)), out=product)
            result = Product(product, 0.0, n, 0.0)
        else:
            result = super().multiply(rows, weights, q, offset=offset, out=out)
        if self.moments_read:
            block = Moments.of(rows, np.zeros((n, 1)), np.ones(n) if weights is None else weights, center=self.center)
            self.moments_read[0] = self.moments_read[0].plus(block)
        return result

    def check_same_rows(self, learned: Moments, n_rows: int, n_read: int) -> None:
        """Raise ValueError if the rows read in the first pass differ from those learned in number or moments.

        `learned` are the moments of the n_rows rows learned, and n_read is the number of rows read. The moments of the
        first pass are then discarded, so that later calls check nothing.
        """
        if not self.moments_read:
            return
        moments_read, weight = self.moments_read.pop(), max(learned.weight, TINY)
        statistics = (
            (learned.mean, moments_read.mean),
            (np.sqrt(learned.squares / weight), np.sqrt(moments_read.squares / weight)),
        )
        allowed = COLUMN_TOLERANCE * statistics[1][0] + ROUNDING * np.abs(learned.mean)
        for statistic, (learned_values, read_values) in zip(("mean", "standard deviation"), statistics, strict=True):
            differs = np.abs(learned_values - read_values) > allowed
            if n_read != n_rows or differs.any():
                j = int(differs.argmax())
                raise ValueError(
                    f"refine has read {n_read} rows, whose column {j} has a {statistic} of {read_values[j]:.9g}, and "
                    f"the model has seen {n_rows}, of {learned_values[j]:.9g}: these are not the same rows with their "
                    "weights"
                )


def divide_or_zero(numerator: Matrix, denominator: Matrix) -> Matrix:
    """Return numerator / denominator elementwise, with 0 where `denominator` is not positive.
    The denominator of a column that has converged is 0.
    """
    return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0)
