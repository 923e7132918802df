"""How far a covariance matrix S is shrunk towards (trace(S) / d) I: from a few sums, in one pass over the rows."""

# pyright: basic

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastsketch.sklearn._gaussian import ROWS, squared_lengths

Matrix = NDArray[np.float64]


def ledoit_wolf(trace: float, squares: float, fourth: float, *, n: float, d: int) -> float:
    """Ledoit and Wolf 2004, Lemma 3.4: from trace(S), ||S||_F^2 and the sum of ||x - mean||^4."""
    if d == 1 or n <= 0:
        return 0.0
    distance = (squares - trace * trace / d) / d
    error = min((fourth / n - squares) / (n * d), distance)
    return min(error / distance, 1.0) if error > 0 else 0.0


def oracle_approximating(trace: float, squares: float, *, n: float, d: int) -> float:
    """Chen, Wiesel, Eldar and Hero 2010, equation 23 (without the factor 2 / d, as scikit-learn has it)."""
    if d == 1:
        return 0.0
    mean_square, squared_mean = squares / d**2, (trace / d) ** 2
    below = (n + 1) * (mean_square - squared_mean / d)
    return min((mean_square + squared_mean) / below, 1.0) if below > 0 else 1.0


def tail_share(trace: float, squares: float, *, n: float, size: int) -> tuple[float, float]:
    """(share, mean) of the shrinkage of all but the leading eigenvalues to their mean, from their sums.

    The oracle approximating share, of the `size` eigenvalues alone: 1 where they differ no more than n rows of one
    variance make them, whatever n is.
    """
    if size <= 1 or trace <= 0:
        return 0.0, 0.0
    below = (n + 1) * (squares - trace * trace / size)
    return (min((squares + trace * trace) / below, 1.0) if below > 0 else 1.0), trace / size


def beyond_noise(values: Matrix, *, trace: float, n: float, d: int) -> int:
    """How many leading eigenvalues are larger than n rows of one variance, the mean of the others, would make them.

    The edge is that of Marchenko and Pastur 1967: mean (1 + sqrt(size / n))^2 for `size` eigenvalues of one variance.
    """
    kept, rest = len(values), trace - float(values.sum())
    while kept:
        size = d - kept
        mean = max(rest, 0.0) / size if size else 0.0
        if values[kept - 1] > mean * (1 + np.sqrt(size / n)) ** 2:
            break
        kept -= 1
        rest += float(values[kept])
    return kept


class FourthMoment:
    """What the sum of ||x - mean||^4 needs, summed around the mean c of the first batch, y = x - c.

    Weighted sums of 1, y, ||y||^2, ||y||^4 and ||y||^2 y. The mean that the rows have in the end, and products with
    their matrix of squares, complete it: those come from the sketch.
    """

    ARRAYS = ("shift", "first", "third", "sums")

    def __init__(self, shift: Matrix) -> None:
        self.shift = shift
        self.first, self.third = np.zeros_like(shift), np.zeros_like(shift)
        self.sums = np.zeros(3)  # of 1, ||y||^2, ||y||^4

    @classmethod
    def beginning(cls, rows: Any, weights: Matrix | None, *, centered: bool) -> Self:
        """Nothing seen yet; `centered`: the mean is known to be zero."""
        n, d = rows.shape
        total = float(n) if weights is None else float(weights.sum())
        if centered or not total:
            return cls(np.zeros(d))
        return cls(np.asarray(rows.T @ (np.ones(n) if weights is None else weights), np.float64).ravel() / total)

    def after(self, rows: Any, weights: Matrix | None) -> Self:
        """The sums with a batch more, array or CSR (n, d); these stay as they are."""
        out = type(self)(self.shift)
        out.first, out.third, out.sums = self.first.copy(), self.third.copy(), self.sums.copy()
        weights = np.ones(rows.shape[0]) if weights is None else weights
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            if isinstance(rows, np.ndarray):
                for start in range(0, len(rows), ROWS):
                    y: Matrix = rows[start : start + ROWS] - self.shift
                    out._add(np.einsum("ij,ij->i", y, y), y, weights[start : start + ROWS])
            else:
                q = squared_lengths(rows) + self.shift @ self.shift - 2 * (rows @ self.shift)
                q = np.maximum(q, 0.0)  # a difference: rounding may leave it below
                out._add(q, rows, weights)
                out.first -= self.shift * weights.sum()
                out.third -= self.shift * (weights @ q)
        return out

    def _add(self, q: Matrix, y: Any, weights: Matrix) -> None:
        self.sums += weights.sum(), weights @ q, weights @ (q * q)
        both = np.asarray(y.T @ np.column_stack([weights, weights * q]), np.float64)
        self.first += both[:, 0]
        self.third += both[:, 1]

    def value(self, times: Callable[[Matrix], Matrix] | None) -> float:
        """Sum of w ||x - mean||^4; `times` multiplies the covariance matrix with a vector (None: the mean is zero)."""
        total, mass, fourth = self.sums
        if not total or times is None:
            return float(fourth)
        e = self.first / total
        square = e @ e
        # sum of w (||y||^2 - 2 e'y + ||e||^2)^2 with sum of w y y' = total (S + e e')
        spread = mass - total * square
        return float(
            fourth + total * (4 * e @ times(e) + 3 * square * square) + 2 * square * spread - 4 * e @ self.third
        )

    def joined(self, other: Self, times: Callable[[Matrix], Matrix]) -> Self:
        """Both; `times` multiplies the covariance matrix of the other's rows with a vector."""
        f = self.shift - other.shift  # y - f is the other's y around this shift
        total, mass, fourth = other.sums
        first, third = other.first, other.third
        out = self.after(np.empty((0, len(f))), None)
        if not total:
            return out
        e = first / total
        along = total * (times(f) + e * (e @ f))
        square, at = f @ f, f @ first
        out.sums += (
            total,
            mass - 2 * at + square * total,
            fourth + 4 * f @ along + square**2 * total - 4 * f @ third + 2 * square * mass - 4 * square * at,
        )
        out.sums = np.maximum(out.sums, 0.0)  # sums of differences: rounding may leave them below
        out.first += first - total * f
        out.third += third - 2 * along + square * first - f * (mass - 2 * at + square * total)
        return out

    @property
    def is_finite(self) -> bool:
        """Whether no power has left the range of numbers."""
        return all(np.isfinite(array).all() for array in self.arrays().values())

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The sums by name."""
        return {name: getattr(self, name) for name in self.ARRAYS}

    @classmethod
    def of(cls, arrays: dict[str, NDArray[Any]], n_features: int) -> Self:
        """The inverse of ``arrays``; ValueError for what none could be."""
        for name in cls.ARRAYS:
            shape = (3,) if name == "sums" else (n_features,)
            if name not in arrays or arrays[name].shape != shape or arrays[name].dtype != np.float64:
                raise ValueError(f"array {name!r} must be float64 of shape {shape}")
        out = cls(arrays["shift"])
        out.first, out.third, out.sums = arrays["first"], arrays["third"], arrays["sums"]
        if not out.is_finite or (out.sums < 0).any():
            raise ValueError("its moments are not finite, or sums of squares below zero")
        return out
