"""Sums of squares and variances of the columns of a stream of rows, without a copy of the batch."""

# pyright: basic

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.validation import natural_dtype
from fastsketch._kernels.linalg.products import add_spread, column_sums
from fastsketch.data.files import _checks as checks
from fastsketch.sketching._plain_rows import plain_rows

# Rows shifted at a time; for a thousand columns they fit in the cache.
ROWS_IN_CACHE = 256

# Sum of the squares of all rows beyond which products overflow. The total is only computed for batches above SOON_MOST.
MOST_SQUARES, SOON_MOST = 1e306, 1e290

Floats = NDArray[np.float64]


def squared(rows: Any) -> Any:
    """Return CSR rows whose entries are the squares of the given ones, in float64."""
    data = rows.data.astype(np.float64)
    return type(rows)((data * data, rows.indices, rows.indptr), shape=rows.shape)


def squared_lengths(rows: Any) -> Floats:
    """Return the squared Euclidean norm of each CSR row."""
    return squared(rows) @ np.ones(rows.shape[1])


def check_squares(total: float, most: float) -> None:
    """Raise ValueError if the sum of squares of all rows exceeds `most`, because products would overflow."""
    if not total <= most:
        raise ValueError(
            f"the squares of the rows, weighted, must not sum up to more than {most:g}: scale the rows down"
        )


def differ(rows: Any, weights: Floats | None, center: Floats) -> bool:
    """Return True if rows of positive weight differ from `center` by more than rounding errors."""
    some = rows if weights is None else rows[weights > 0]
    if not isinstance(some, np.ndarray):
        some = np.stack([side(axis=0).toarray().ravel() for side in (some.min, some.max)])
    # the mean of equal rows may have a few units of rounding
    return bool((np.abs(some - center) > 1e-9 * np.abs(center)).any())


def _blocks(rows: NDArray[Any], weights: Floats | None) -> Iterator[tuple[NDArray[Any], Floats | None]]:
    """Yield (block of dense rows, its weights), in blocks that the compiled kernels can read."""
    dtype = natural_dtype(rows.dtype)
    for start in range(0, len(rows), ROWS_IN_CACHE):
        part = slice(start, start + ROWS_IN_CACHE)
        yield plain_rows(rows[part], dtype), None if weights is None else weights[part]


@dataclass(eq=False)
class FeatureVariance:
    """Running mean and population variance of each column. Objects are immutable; learning returns a new one.

    Sums are float64, around the mean of the first batch.
    """

    weight: float = 0.0
    _shift: Any = None
    _sum: Any = None
    _square: Any = None

    @classmethod
    def from_sums(cls, weight: float, mean: Floats, squares: Floats) -> Self:
        """Make a running variance from the total weight, column means and sums of squares.

        `mean` and `squares` have shape (d,); the squares are around these means.
        """
        return cls(weight, mean.copy(), np.zeros(len(mean)), squares.copy())

    @property
    def squares(self) -> float:
        """Return the sum of squares of all rows, summed over all columns, around the mean of the first batch."""
        return float(self._square.sum()) if self.weight else 0.0

    def after(self, rows: Any, weights: Floats | None = None) -> Self:
        """Return a new running variance after one more batch, dense or CSR; this object does not change.

        It must not change: a batch may still be refused, and the sums of an estimator that joblib has mapped from a
        file are read-only.
        """
        n, d = rows.shape
        sparse = not isinstance(rows, np.ndarray)
        weight = float(n if weights is None else weights.sum())
        if self.weight:
            shift, total, square = self._shift, self._sum.copy(), self._square.copy()
        else:
            # sparse rows are summed around zero, as a shift would fill them
            shift = np.zeros(d)
            for block, _ in [] if sparse else _blocks(rows, None):
                shift += column_sums(block, None) / n
            total, square = np.zeros(d), np.zeros(d)
        if sparse:
            counts = np.ones(n) if weights is None else weights
            plain = rows.T @ counts
            total += plain - weight * shift
            square += squared(rows).T @ counts - 2 * shift * plain + weight * shift**2
        else:
            for block, part in _blocks(rows, weights):
                add_spread(block, shift, part, total, square)
        return type(self)(self.weight + weight, shift, total, square)

    def merged(self, other: Self) -> Self:
        """Return a running variance of the rows of both objects."""
        # around this shift: x - a = (x - b) + (b - a)
        move = other._shift - self._shift
        return type(self)(
            self.weight + other.weight,
            self._shift,
            self._sum + other._sum + other.weight * move,
            self._square + other._square + 2 * move * other._sum + other.weight * move**2,
        )

    def arrays(self) -> dict[str, Floats]:
        """Return the sums as named arrays, for a state file."""
        return {"shift": self._shift, "sum": self._sum, "square": self._square, "weight": np.array([self.weight])}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]], d: int) -> Self:
        """Restore the running variance from a state file; ValueError if an array is inconsistent."""
        shift, total, square = (checks.finite(arrays, name, (d,)) for name in ("shift", "sum", "square"))
        return cls(float(checks.not_negative(arrays, "weight", (1,))[0]), shift, total, square)

    def mean(self) -> Floats:
        """Return the mean of each column, shape (d,)."""
        return self._shift + self._sum / self.weight

    def value(self) -> Floats:
        """Return the population variance of each column, shape (d,)."""
        if not self.weight:
            return self._sum
        mean = self._sum / self.weight
        return np.maximum(self._square / self.weight - mean * mean, 0.0)


def check_batch(rows: Any, weights: Floats | None, before: FeatureVariance | None) -> None:
    """Raise ValueError if the squares of a batch, added to those of earlier batches, may overflow.

    The squares are taken around zero and multiplied by the largest weight, which may overestimate them.
    """
    entries = rows.ravel(order="K") if isinstance(rows, np.ndarray) else rows.data
    largest = float(np.finfo(entries.dtype).max) if entries.dtype == np.float32 else np.inf
    if largest * largest * entries.size * (1.0 if weights is None else float(weights.max(initial=0.0))) <= SOON_MOST:
        return
    squares = float(np.vdot(entries, entries))
    if squares == np.inf and entries.dtype != np.float64:
        squares = float(np.einsum("i,i->", entries, entries, dtype=np.float64))
    if weights is not None:
        squares *= float(weights.max(initial=0.0))
    if not squares <= SOON_MOST:
        check_squares(squares + (0.0 if before is None else before.squares), MOST_SQUARES)


def squares_around(rows: Any, weights: Floats | None, center: Floats) -> float:
    """Return the weighted sum of squared distances of rows, dense or CSR, from a point."""
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        if isinstance(rows, np.ndarray):
            parts = (rows[start : start + ROWS_IN_CACHE] - center for start in range(0, len(rows), ROWS_IN_CACHE))
            lengths = np.concatenate([np.einsum("ij,ij->i", y, y) for y in parts])
        else:  # a difference, which rounding may make negative
            lengths = np.maximum(squared_lengths(rows) + center @ center - 2 * (rows @ center), 0.0)
        return float(lengths.sum() if weights is None else weights @ lengths)
