"""The exact sum of solver exact: rows are collected, and added to the d x d matrix A'A."""

from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch._frame.model import Arrays
from fastsketch._kernels.sketching.shrink import top_eigh
from fastsketch._kernels.sketching.state import ROUNDING_PER_SHRINK
from fastsketch.data.files import _checks as checks
from fastsketch.sketching._engines._base import AnyBuffer
from fastsketch.sketching._engines._dense_engine import DenseEngine
from fastsketch.sketching._engines._engine_setting import EngineSetting
from fastsketch.sketching._engines._ledger import Known
from fastsketch.sketching._leading_pairs import leading

# Rows that are collected for one rank-k update: fewer, and dsyrk runs below its rate.
EXACT_BLOCK = 256

# Eigenvectors of the sum that are asked for before it is known how many a tolerance needs: they cost little beside the
# eigenvalues, a second call as much again.
FIRST_VECTORS = 64


class ExactEngine(DenseEngine):
    """The sum, and the buffer of a dense engine for rows that are not in it yet; no shrink ever happens there."""

    OWN = ("buffer", "cov")

    def __init__(self, setting: EngineSetting, n_features: int, *, dtype: np.dtype[Any]) -> None:
        super().__init__(setting, n_features, dtype=dtype)
        # (d, d): the kernel's lower triangle, transposed
        self.cov: NDArray[np.float64] = np.asarray(self.state.cov)

    @classmethod
    def capacity_for(cls, setting: EngineSetting) -> int:
        return max(super().capacity_for(setting), EXACT_BLOCK)

    @classmethod
    def validate_own(
        cls, arrays: Arrays, count: dict[str, int], setting: EngineSetting, width: int, *, dtype: np.dtype[Any]
    ) -> None:
        super().validate_own(arrays, count, setting, width, dtype=dtype)
        checks.number_within(count["kept"], "kept", 0, 0)
        checks.finite(arrays, "cov", (width, width))

    def own_arrays(self) -> Arrays:
        return {**super().own_arrays(), "cov": self.cov}

    def put_arrays(self, own: Arrays) -> None:
        super().put_arrays(own)
        self.cov[:] = own["cov"]

    def multiply(self, factor: float) -> None:
        super().multiply(factor)
        for _ in range(2):
            self.cov *= factor

    # -- reading and merging ---------------------------------------------------------------------------------------
    @property
    def accumulated(self) -> bool:
        """Return whether the sum holds rows already; until then the buffer alone is the whole, exact sketch."""
        return self.state.age > 0

    @property
    def is_settled_sum(self) -> bool:
        """Return whether there is nothing but the sum, which reading does not change and need not copy."""
        return self.accumulated and not self.state.fill and self.setting.tolerance is None

    def gram(self) -> NDArray[np.float64]:
        """Return the full d x d matrix A'A; the buffer is settled."""
        if self.state.fill:
            self.flush()
        lower = self.cov.T  # the kernel's column-major is this array transposed
        return np.tril(lower) + np.tril(lower, -1).T

    def reduce(self) -> NDArray[Any]:
        """Return the rows of the sketch, at most as many as l, or as a tolerance needs. Callers work on a clone."""
        state = self.state
        if not self.accumulated:
            rows = self.settled_rows()
            if self.setting.tolerance is None and len(rows) <= self.setting.sketch_size:
                return rows
            state.kept = state.fill  # settled rows are not to be settled again
        # One shrink of the exact matrix; only as many rows as columns: nothing to remove.
        values, vectors, setting = self._top_of_sum()
        d, size = self.n_features, setting.sketch_size
        keep = d if d <= size else size - 1
        vectors = vectors[len(vectors) - keep :]
        delta = 0.0 if keep == d else float(values[d - size])
        kept = values[d - keep :][::-1].copy()
        spared = min(setting.rows_spared, keep)
        kept[spared:] -= delta
        state.shrinkage += delta
        rows = np.sqrt(np.maximum(kept, 0.0))[:, np.newaxis] * vectors[::-1]
        state.fill = state.kept = 0
        return rows.astype(self.dtype)

    def _top(self, k: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return all eigenvalues of the sum, ascending, and top k eigenvectors as rows; take note of their rounding."""
        state = self.state
        values, vectors = top_eigh(self.cov.copy(), k)
        values = np.maximum(values, 0.0)
        allowance = sqrt(state.rounding) + ROUNDING_PER_SHRINK * float(np.finfo(np.float64).eps) * float(values[-1])
        state.rounding = allowance * allowance
        return values, vectors

    def _top_of_sum(self) -> tuple[NDArray[np.float64], NDArray[np.float64], EngineSetting]:
        """Return all eigenvalues, ascending, a vector for each row of l, the largest last, and the setting with that l.

        With a tolerance it is the smallest l that meets it.
        """
        if self.state.fill:
            self.flush()
        state, setting, tolerance, d = self.state, self.setting, self.setting.tolerance, self.n_features
        wanted = min(d, setting.sketch_size if tolerance is None else max(FIRST_VECTORS, setting.sketch_size))
        values, vectors = self._top(wanted)
        if tolerance is not None:
            size = tolerance.smallest_to_read(values[::-1], state, self.dtype)
            setting = setting.of_size(tolerance.bounded(size, d))
            wanted = min(d, setting.sketch_size)
            if wanted > len(vectors):
                vectors = top_eigh(self.cov.copy(), wanted)[1]
        return values, vectors[len(vectors) - wanted :], setting

    def known(self, most: int | None = None, *, reduced: bool = True) -> Known:
        """Return what is known of the rows: the leading eigenvalues of the sum as they are.

        `most`: pairs that are wanted; by default as many as the sketch keeps.
        """
        if not self.accumulated and self.state.fill <= self.setting.sketch_size:
            return super().known(most, reduced=reduced)
        if self.state.fill:
            self.flush()
        if most is None and self.setting.tolerance is not None:
            values, vectors, _ = self._top_of_sum()
            squares, vectors = values[::-1][: len(vectors)], vectors[::-1]
        else:
            values, vectors = leading(self.cov, min(self.n_features, most or self.setting.sketch_size))
            squares = np.maximum(values, 0.0)
        lost = max(0.0, float(np.trace(self.cov)) - float(squares.sum()))
        none = np.zeros((len(squares), len(squares)))
        return Known(squares, vectors, np.diag(squares), none, lost, self.n_features)

    def add(self, other: AnyBuffer) -> None:
        """Add the rows of another engine of the same scale: C += C', or R'R of the other's settled rows."""
        if self.state.fill:
            self.flush()
        if isinstance(other, ExactEngine) and other.accumulated:
            if other.state.fill:
                other.flush()
            self.cov += other.cov
            rows = np.empty((0, self.n_features), self.dtype)
        else:
            rows = other.settled_rows()
        correction = self.take_over(other)
        if correction is not None:
            rows = np.vstack([rows, correction])
        for start in range(0, len(rows), self.capacity):
            self.replace_rows(rows[start : start + self.capacity])
            self.flush()
        self.state.age = 1


def dense_form(setting: EngineSetting) -> type[DenseEngine]:
    """Return the engine of dense rows for a resolved setting."""
    return ExactEngine if setting.solver == "exact" else DenseEngine
