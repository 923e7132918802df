"""Standardisation of columns with missing entries, for low-rank models."""

# scikit-learn has no types.
# pyright: basic

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.validation import is_sparse
from fastsketch.lowrank._gap_moments import column_means_and_deviations, raise_for_empty_column


@dataclass(frozen=True)
class ColumnUnits:
    """Means and standard deviations by which columns with missing entries are standardised for a low-rank model.

    Constant columns have scale 0.
    """

    mean: NDArray[np.float64]
    scale: NDArray[np.float64]

    @classmethod
    def of(cls, rows: Any, names: Any = None) -> Self:
        """Return the mean and standard deviation of the observed entries of each column.

        A column of CSR rows of which nothing is stored has the mean of all entries, and the scale 0.

        Parameters
        ----------
        rows : array (n_samples, n_features) with NaN for what is missing, or CSR
        names : sequence of str, optional
            Of the columns, for the error.

        Raises
        ------
        ValueError
            If a column of an array has no observed entry.
        """
        mean, scale, counts = column_means_and_deviations(rows)
        empty = counts == 0
        if empty.any():
            if not is_sparse(rows):
                raise_for_empty_column(int(np.flatnonzero(empty)[0]), names)
            mean = np.where(empty, mean @ counts / max(counts.sum(), 1.0), mean)
        return cls(mean, scale)

    def into(self, rows: Any) -> Any:
        """Return rows, dense or CSR, in standardised units.

        Missing entries stay missing, and the dtype is kept.
        """
        divisor = np.where(self.scale > 0, self.scale, np.where(self.mean != 0, np.abs(self.mean), 1.0))
        if not is_sparse(rows):
            return ((rows - self.mean) / divisor).astype(rows.dtype)
        out = rows.copy()
        out.data = ((rows.data - self.mean[rows.indices]) / divisor[rows.indices]).astype(rows.dtype)
        return out

    def back(self, rows: NDArray[Any], clip: tuple[float, float] | None) -> NDArray[Any]:
        """Convert standardised rows to the original units, clipped to the interval `clip`, and return them."""
        out = (rows * self.scale + self.mean).astype(rows.dtype)
        return out if clip is None else np.clip(out, *clip)
