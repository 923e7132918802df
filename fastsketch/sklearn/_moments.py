"""Variance of every feature of a stream, in one pass and without a copy of the batch."""

import numpy as np

# Rows shifted at a time: small enough to stay in the cache.
ROWS = 256


class FeatureVariance:
    """Running population variance per feature, summed in float64 around the mean of the first batch."""

    def __init__(self):
        self.count = 0

    def update(self, rows):
        sparse = not isinstance(rows, np.ndarray)
        if not self.count:
            # Sparse rows are summed around zero: a shift would fill them.
            self._shift = np.zeros(rows.shape[1]) if sparse else rows.mean(axis=0, dtype=np.float64)
            self._sum = np.zeros(rows.shape[1])
            self._square = np.zeros(rows.shape[1])
        if sparse:
            self._sum += np.asarray(rows.sum(axis=0, dtype=np.float64)).ravel() - rows.shape[0] * self._shift
            squares = np.asarray(rows.multiply(rows).sum(axis=0, dtype=np.float64)).ravel()
            plain = np.asarray(rows.sum(axis=0, dtype=np.float64)).ravel()
            self._square += squares - 2 * self._shift * plain + rows.shape[0] * self._shift**2
        else:
            for start in range(0, rows.shape[0], ROWS):
                moved = rows[start : start + ROWS] - self._shift
                self._sum += moved.sum(axis=0)
                self._square += np.einsum("ij,ij->j", moved, moved)
        self.count += rows.shape[0]

    def value(self):
        mean = self._sum / self.count
        return np.maximum(self._square / self.count - mean * mean, 0.0)
