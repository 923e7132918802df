"""Columns in standard units: what is subtracted from each, what it is divided by, and the rule for constant columns."""

# pyright: basic

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.validation import is_sparse

Floats = NDArray[np.float64]

# A deviation of at most this share of the mean is rounding: a column of equal numbers may show it where some of them
# were filled in by their mean.
CONSTANT = 64 * float(np.finfo(np.float64).eps)


class Standardization(NamedTuple):
    """Means and scales of columns, by which rows are brought to standard units.

    A column whose scale is 0 has been constant, and has no unit. A row that differs from it there counts as if it had
    been one of the rows learned from, the only one that differs: by (n + 1) / sqrt(n) deviations, however large the
    difference is. Rows that were left out of a fold, the only ones to differ in some column, are measured alike.
    """

    mean: Floats  # (d,)
    scale: Floats  # (d,) 0 for a constant column
    total: float  # weight n of all rows learned from

    @classmethod
    def of_products(cls, gram: Floats, mean: Floats | None, total: float) -> "Standardization":
        """Return means and standard deviations of rows whose products around the mean (None: zero) are `gram`."""
        mean = np.zeros(len(gram)) if mean is None else mean
        scale = np.sqrt(np.maximum(gram.diagonal(), 0.0) / total)
        return cls(mean, np.where(scale > CONSTANT * np.abs(mean), scale, 0.0), total)

    def apply(self, rows: Any) -> tuple[Any, Floats]:
        """Return rows (n, d), array or CSR, in standard units, and their mean (d,), not subtracted from CSR rows."""
        divisor, constant = np.where(self.scale > 0, self.scale, 1.0), self.scale == 0
        jump = (self.total + 1) / np.sqrt(self.total)
        if not is_sparse(rows):
            moved = rows - self.mean
            if constant.any():
                moved[:, constant] = jump * self._signs(moved[:, constant], self.mean[constant])
            moved /= divisor
            return moved, np.zeros(len(divisor))
        # absent entries of a constant column are zeros, too: they differ unless it is 0
        mean = np.where(constant, jump * np.sign(self.mean), self.mean / divisor)
        data = rows.data / divisor[rows.indices]
        if constant.any():
            some = constant[rows.indices]
            at = self.mean[rows.indices[some]]
            data[some] = jump * (np.sign(at) + self._signs(rows.data[some] - at, at))
        return type(rows)((data, rows.indices, rows.indptr), shape=rows.shape), mean

    @staticmethod
    def _signs(differences: Floats, mean: Floats) -> Floats:
        return np.where(np.abs(differences) > CONSTANT * np.abs(mean), np.sign(differences), 0.0)

    def of_matrix(self, gram: Floats) -> Floats:
        """Divide products (d, d) by the scales of both columns, in place; those with a constant column become 0."""
        inverse = np.divide(1.0, self.scale, out=np.zeros_like(self.scale), where=self.scale > 0)
        gram *= inverse[:, np.newaxis]  # one after the other: a product of scales may leave the range of numbers
        gram *= inverse
        return gram

    @property
    def log_volume(self) -> float:
        """Return the logarithm of the product of all scales but those of constant columns."""
        return float(np.log(self.scale[self.scale > 0]).sum())
