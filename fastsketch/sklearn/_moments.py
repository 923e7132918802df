"""Variance of every feature of a stream, in one pass and without a copy of the batch."""

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastsketch.io import _checks as checks

# Rows shifted at a time: small enough to stay in the cache.
ROWS = 256

Floats = NDArray[np.float64]


class FeatureVariance:
    """Running population variance per feature, summed in float64 around the mean of the first batch."""

    def __init__(self) -> None:
        self.weight = 0.0
        self._shift = self._sum = self._square = np.zeros(0)

    @classmethod
    def of(cls, weight: float, mean: Floats, squares: Floats) -> Self:
        """Of rows whose weighted mean and sums of squares around it, (d,) each, are known."""
        out = cls()
        out.weight, out._shift = weight, mean.copy()
        out._sum, out._square = np.zeros(len(mean)), squares.copy()
        return out

    def update(self, rows: Any, weights: Floats | None = None) -> None:
        """Take a batch in, array or CSR (n, d), with weights (n,)."""
        n, d = rows.shape
        sparse = not isinstance(rows, np.ndarray)
        weight = float(n) if weights is None else float(weights.sum())
        if not self.weight:
            # Sparse rows are summed around zero: a shift would fill them.
            self._shift = np.zeros(d) if sparse else _array(rows.mean(axis=0, dtype=np.float64))
            self._sum, self._square = np.zeros(d), np.zeros(d)
        if sparse:
            data = rows.data.astype(np.float64, copy=False)
            times = data if weights is None else data * np.repeat(weights, np.diff(rows.indptr))
            plain = np.bincount(rows.indices, weights=times, minlength=d)
            squares = np.bincount(rows.indices, weights=times * data, minlength=d)
            self._sum += plain - weight * self._shift
            self._square += squares - 2 * self._shift * plain + weight * self._shift**2
        else:
            for start in range(0, n, ROWS):
                moved: Floats = rows[start : start + ROWS] - self._shift
                if weights is None:
                    self._sum += moved.sum(axis=0)
                    self._square += np.einsum("ij,ij->j", moved, moved)
                else:
                    part = weights[start : start + ROWS]
                    self._sum += part @ moved
                    self._square += np.einsum("i,ij,ij->j", part, moved, moved)
        self.weight += weight

    def joined(self, other: Self) -> Self:
        """Of the rows of both, which have one width."""
        out = type(self)()
        out.weight = self.weight + other.weight
        # around this shift: x - a = (x - b) + (b - a)
        move = other._shift - self._shift
        out._shift = self._shift
        out._sum = self._sum + other._sum + other.weight * move
        out._square = self._square + other._square + 2 * move * other._sum + other.weight * move**2
        return out

    def arrays(self) -> dict[str, Floats]:
        """All of it, by name."""
        return {"shift": self._shift, "sum": self._sum, "square": self._square, "weight": np.array([self.weight])}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]], d: int) -> Self:
        """The inverse; ValueError names an array that cannot be one of these."""
        out = cls()
        for name in ("shift", "sum", "square"):
            checks.finite(arrays, name, (d,))
            setattr(out, f"_{name}", arrays[name])
        checks.not_negative(arrays, "weight", (1,))
        out.weight = float(arrays["weight"][0])
        return out

    def value(self) -> Floats:
        """The variances (d,)."""
        if not self.weight:
            return np.zeros(len(self._sum))
        mean = self._sum / self.weight
        return np.maximum(self._square / self.weight - mean * mean, 0.0)


def _array(sums: Any) -> Floats:
    return np.asarray(sums, np.float64).ravel()
