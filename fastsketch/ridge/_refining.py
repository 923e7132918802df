"""Refinement of a ridge regression in further passes, by conjugate gradients, with a new choice of the penalty."""

from dataclasses import dataclass
from math import sqrt
from typing import Any, NamedTuple, Self

import numpy as np

from fastsketch._core.validation import check_finite, is_sparse
from fastsketch.ridge._gram_model import Matrix, Solver
from fastsketch.ridge._moments import ROUNDING, TINY, Moments, column_lengths, times, turned_times
from fastsketch.ridge._path import STEP
from fastsketch.ridge._read_out import LEAST, MOST, Choice
from fastsketch.sketching._rereading import Product, StoredForm

# Largest difference of a column's mean and standard deviation, in standard deviations, between passes over equal rows.
SAME = 1e-6
# Largest residual, relative to Z, at a ridge that may be chosen.
KNOWN = 0.03


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
    """State of preconditioned conjugate gradients for ridge equations (X'X + penalty) W = Z.

    Each column has step lengths of its own.
    """

    solution: Matrix  # (d, m)
    residual: Matrix  # (d, m)
    direction: Matrix  # (d, m)
    product: Matrix  # (m,) inner products of the residual and the preconditioned residual
    travelled: Matrix  # (m,) sum of the lengths of all steps
    passes: int

    @classmethod
    def start(cls, right: Matrix, solve: Solver) -> Self:
        """Return the initial state, with the solution 0."""
        first = solve(right)
        return cls(np.zeros_like(right), right, first, np.einsum("ij,ij->j", right, first), np.zeros(right.shape[1]), 0)

    def step(self, image: Matrix, solve: Solver) -> Self:
        """Return the state after one conjugate gradient step; the old one is unchanged.

        `image` is the product of X'X + penalty with the direction.
        """
        # alpha = r'z / p'Hp; x += alpha p; r -= alpha H p; p = z + (r'z after / before) p
        alpha = _ratio(self.product, np.einsum("ij,ij->j", self.direction, image))
        residual = self.residual - alpha * image
        better = solve(residual)
        after = np.einsum("ij,ij->j", residual, better)
        direction = better + _ratio(after, self.product) * self.direction
        step = alpha * self.direction
        travelled = self.travelled + column_lengths(step)
        return type(self)(self.solution + step, residual, direction, after, travelled, self.passes + 1)


def residual_gap(steps: ConjugateGradients, moments: Moments, n_rows: int, largest_penalty: float) -> Matrix:
    """Bound the difference between recursive and true residuals of conjugate gradients, for each target.

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
    unit = float(np.finfo(np.float64).eps) / 2
    of_rows, of_columns = (unit * min(m, 10.0 * sqrt(m)) for m in (n_rows, len(moments.mean)))
    updated = (rows + largest_penalty) * steps.travelled[:c] + column_lengths(moments.cross)
    return (of_rows + of_columns + 8 * (steps.passes + 1) * unit) * updated + of_rows * sqrt(rows) * np.sqrt(targets)


class Refined(NamedTuple):
    """Result of a refinement: the conjugate gradient state and the chosen ridge penalty."""

    steps: ConjugateGradients
    choice: Choice
    to_choose: int  # passes that chose the ridge

    @property
    def passes(self) -> int:
        """Return the number of passes over the rows so far."""
        return self.to_choose + self.steps.passes


class Krylov:
    """Lanczos iteration on X'X for each target, which predicts held-out rows at every ridge penalty.

    With S = D^(-1/2) of the penalty D, each step on S H S adds a direction to V, which starts at S z. In the basis V, S
    H S is a tridiagonal matrix T, and S V (T + ridge)^-1 V'S z are the coefficients after as many steps of conjugate
    gradients, at every ridge. V itself is not kept: its products with the held-out rows are enough to choose a ridge.
    """

    def __init__(self, moments: Moments, penalty: Matrix, rows: Any) -> None:
        self._moments, self._rows, self._root = moments, rows, penalty[:, np.newaxis] ** -0.5
        start = self._root * moments.cross
        self._length = column_lengths(start)
        self._old, self._v = np.zeros_like(start), start / np.maximum(self._length, TINY)
        self._diagonal: list[Matrix] = []
        self._beside: list[Matrix] = [np.zeros(start.shape[1])]
        self._seen: list[Matrix] = []

    @property
    def direction(self) -> Matrix:
        """Return the vectors (d, c) to be multiplied by X'X for the next step."""
        return self._root * self._v

    def take(self, image: Matrix) -> None:
        """Make one Lanczos step, given `image`, the product of X'X with ``direction``.

        The state is changed in place.
        """
        # r = S H S v - b v_before; a = v'r; r -= a v; b = |r|; v = r / b
        self._seen.append(times(self._rows, self.direction) - self._moments.mean @ self.direction)
        rest = self._root * image - self._beside[-1] * self._old
        self._diagonal.append(np.einsum("ij,ij->j", self._v, rest))
        rest -= self._diagonal[-1] * self._v
        self._beside.append(column_lengths(rest))
        self._old, self._v = self._v, rest / np.maximum(self._beside[-1], TINY)

    def path(self) -> "KrylovPath":
        """Return an object that predicts the held-out rows at any ridge penalty, from the steps made so far."""
        k, beside = len(self._diagonal), np.array(self._beside[1:])
        tridiagonal = np.zeros((self._v.shape[1], k, k))
        at = np.arange(k)
        tridiagonal[:, at, at] = np.array(self._diagonal).T
        tridiagonal[:, at[1:], at[:-1]] = tridiagonal[:, at[:-1], at[1:]] = beside[:-1].T
        values, vectors = np.linalg.eigh(tridiagonal)
        seen = np.einsum("knc,ckj->ncj", np.array(self._seen), vectors)
        return KrylovPath(np.maximum(values, 0.0), vectors, seen, self._length, beside[-1], self._moments.target_mean)


class KrylovPath(NamedTuple):
    """Lanczos solutions for each target, as eigenvalues and eigenvectors, which predict held-out rows.

    Eigenvalues are (c, k), eigenvectors (c, k, k), and rows (n, c, k) after k steps.
    """

    values: Matrix
    vectors: Matrix
    seen: Matrix
    length: Matrix  # (c,) |S z|
    beyond: Matrix  # (c,) the next off-diagonal entry of T
    target_mean: Matrix

    def predict(self, ridge: float) -> Matrix:
        """Predict the targets (n, c) of the held-out rows at a ridge penalty."""
        return self.target_mean + np.einsum("ncj,cj->nc", self.seen, self._solution(ridge))

    def residual(self, ridge: float) -> float:
        """Return the residual of the normal equations relative to their right-hand side, averaged over targets."""
        last = np.einsum("cj,cj->c", self.vectors[:, -1], self._solution(ridge))
        return float((np.abs(last) * (self.beyond / np.maximum(self.length, TINY))).mean())

    def least(self, first: float) -> float:
        """Return the smallest ridge penalty at which the equations are solved accurately enough to judge it.

        Ridges are reduced by factors of STEP; the residual must be at most KNOWN.
        """
        ridge = first * MOST
        while ridge > first * LEAST and self.residual(ridge / STEP) <= KNOWN:
            ridge /= STEP
        return ridge

    def _solution(self, ridge: float) -> Matrix:
        """Return the coefficients at a ridge penalty in the eigenvector basis, shape (c, k)."""
        return self.vectors[:, 0] / (self.values + ridge) * self.length[:, np.newaxis]


@dataclass(frozen=True)
class MeasuredForm(StoredForm):
    """Multiplication of the rows in a further pass, which in the first one also sums up their moments.

    So they can be compared with the rows learned.
    """

    center: bool
    measured: list[Moments]  # moments of the rows so far; empty once they have been compared

    def multiply(self, rows: Any, weights: Matrix | None, q: Matrix, *, offset: int = 0) -> Product:
        """Multiply a block of rows: return X'X q, where X are these rows, and their number.

        In the first pass this also adds the block's moments to ``measured``; sparse rows stay sparse.
        """
        n = int(rows.shape[0])
        if is_sparse(rows):
            check_finite(rows, offset=offset)
            # X'W (X - 1 mu') q, then the mean is subtracted: no dense copy of the rows
            z: Matrix = times(rows, q) - self.mean @ q
            z = z if weights is None else weights[:, np.newaxis] * z
            of_q: Matrix = turned_times(rows, z)
            np.subtract(of_q, np.outer(self.mean, z.sum(axis=0)), out=of_q)
            out = Product(of_q, 0.0, n, 0.0)
        else:
            out = super().multiply(rows, weights, q, offset=offset)
        if self.measured:
            block = Moments.of(rows, np.zeros((n, 1)), np.ones(n) if weights is None else weights, center=self.center)
            self.measured[0] = self.measured[0].plus(block)
        return out

    def require(self, known: Moments, n_rows: int, n_read: int) -> None:
        """Raise ValueError if the rows read in the first pass differ from those learned, by number or moments.

        The measured moments are discarded, so later calls check nothing.
        """
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


def _ratio(above: Matrix, below: Matrix) -> Matrix:
    """Divide elementwise, with the result 0 where `below` is 0 because a column has converged."""
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)
