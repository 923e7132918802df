"""Variance of every feature of a stream, in one pass and without a copy of the batch."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.guard import Guard

# Rows shifted at a time: small enough to stay in the cache.
ROWS = 256


class FeatureVariance:
    """Running population variance per feature, summed in float64 around the mean of the first batch."""

    def __init__(self) -> None:
        self.guard = Guard()
        self.count = 0
        self._shift = self._sum = self._square = np.zeros(0)

    def update(self, rows: Any) -> None:
        """Take a batch in, array or CSR (n, d)."""
        n, d = rows.shape
        sparse = not isinstance(rows, np.ndarray)
        if not self.count:
            # Sparse rows are summed around zero: a shift would fill them.
            self._shift = np.zeros(d) if sparse else _array(rows.mean(axis=0, dtype=np.float64))
            self._sum, self._square = np.zeros(d), np.zeros(d)
        if sparse:
            plain = _array(rows.sum(axis=0, dtype=np.float64))
            squares = _array(rows.multiply(rows).sum(axis=0, dtype=np.float64))
            self._sum += plain - n * self._shift
            self._square += squares - 2 * self._shift * plain + n * self._shift**2
        else:
            for start in range(0, n, ROWS):
                moved: NDArray[np.float64] = rows[start : start + ROWS] - self._shift
                self._sum += moved.sum(axis=0)
                self._square += np.einsum("ij,ij->j", moved, moved)
        self.count += n

    def value(self) -> NDArray[np.float64]:
        """The variances (d,)."""
        mean = self._sum / self.count
        return np.maximum(self._square / self.count - mean * mean, 0.0)


def _array(sums: Any) -> NDArray[np.float64]:
    return np.asarray(sums, np.float64).ravel()
