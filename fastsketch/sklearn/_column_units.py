"""Units of the columns of a table with gaps: where they differ, a low-rank model would see the largest alone."""

# scikit-learn has no types.
# pyright: basic

import warnings
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.validation import is_sparse

# Columns have units of their own if the largest standard deviation and the largest root mean square are so many times
# the smallest, of those that at least a fifth of the rows, and ten, have. The latter of stars differ up to five times.
APART = 8.0
SHARE, LEAST = 0.2, 10
# Of its root mean square: below that a column is constant.
ROUNDING = 1e-6


@dataclass(frozen=True)
class ColumnUnits:
    """What is subtracted from each column, and what it is then divided by, (n_features,) each."""

    mean: NDArray[np.float64]
    scale: NDArray[np.float64]

    @classmethod
    def of(cls, rows: Any) -> Self | None:
        """Return the means and standard deviations of what is observed, or None where columns have one unit.

        Parameters
        ----------
        rows : array (n_samples, n_features) with NaN for what is missing, or CSR
        """
        entries, columns = _observed(rows)
        n_features = rows.shape[1]
        counts = np.bincount(columns, minlength=n_features)
        if not len(entries):
            return None
        top = np.zeros(n_features)  # squares of entries over it stay within the range of numbers
        np.maximum.at(top, columns, np.abs(entries))
        top[top == 0] = 1.0
        entries = entries / top[columns]
        n = np.maximum(counts, 1)
        mean, length = (np.bincount(columns, each, n_features) / n for each in (entries, entries**2))
        length = np.sqrt(length)
        scale = np.sqrt(np.bincount(columns, (entries - mean[columns]) ** 2, n_features) / n)
        varies = (counts >= LEAST) & (scale > ROUNDING * length)
        known = varies & (counts >= SHARE * rows.shape[0])
        if not any(known) or min(_ratio((each * top)[known]) for each in (scale, length)) <= APART:
            return None
        if not counts.all():
            empty = np.flatnonzero(counts == 0)
            warnings.warn(f"column {empty[0]} has no observed entry; it is filled with numbers near 0", stacklevel=5)
        # what hardly varies, or is hardly seen, is in units of its own length
        return cls(mean * top, np.where(varies, scale, np.where(length > 0, length, 1.0)) * top)

    def into(self, rows: Any) -> Any:
        """Return rows in these units, in their dtype and form."""
        if not is_sparse(rows):
            return ((rows - self.mean) / self.scale).astype(rows.dtype)
        out = rows.copy()
        out.data = ((rows.data - self.mean[rows.indices]) / self.scale[rows.indices]).astype(rows.dtype)
        return out

    def back(self, rows: NDArray[Any], clip: tuple[float, float] | None) -> NDArray[Any]:
        """Return rows as the columns were, within `clip`."""
        out = (rows * self.scale + self.mean).astype(rows.dtype)
        return out if clip is None else np.clip(out, *clip)


def _ratio(lengths: NDArray[np.float64]) -> float:
    return float(np.exp(np.ptp(np.log(lengths))))


def _observed(rows: Any) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Return the observed entries and their columns."""
    if is_sparse(rows):
        return rows.data.astype(np.float64), rows.indices
    there = ~np.isnan(rows)
    return rows[there].astype(np.float64), np.nonzero(there)[1]
