"""Engines of dense rows: the buffer of solvers "gram" and "svd", and the exact sum A'A."""

from math import ldexp, sqrt
from operator import attrgetter
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastsketch._frame.model import Arrays
from fastsketch._kernels.sketching import dense as kernel
from fastsketch._kernels.sketching.shrink import top_eigh
from fastsketch._kernels.sketching.state import ROUNDING_PER_SHRINK
from fastsketch.data.files import _checks as checks
from fastsketch.sketching._decompose import leading
from fastsketch.sketching._engines._base import SHARED_ARRAYS, AnyBuffer, SketchEngine, check_gains
from fastsketch.sketching._engines._ledger import LEDGER_ARRAYS, SketchSummary
from fastsketch.sketching._engines._setting import EngineSetting
from fastsketch.sketching._plain_rows import is_readable_in_place, plain_rows


class DenseEngine(SketchEngine[kernel.DenseState, NDArray[Any]]):
    """Sketch engine for dense rows. New rows fill the buffer from its end to its start; a full buffer is shrunk by
    Frequent Directions.

    The `kept` rows of the last shrink come last, the longest at the very end. Before them are the new rows, the newest
    first.
    """

    kind = "dense"
    OWN: ClassVar[tuple[str, ...]] = ("buffer",)  # the names of ``own_arrays``

    buffer = property(attrgetter("state.buffer"))

    @classmethod
    def capacity_for(cls, setting: EngineSetting) -> int:
        return setting.sketch_size + (setting.sketch_size if setting.buffer_size is None else setting.buffer_size)

    @classmethod
    def validate_own(
        cls, arrays: Arrays, count: dict[str, int], setting: EngineSetting, width: int, *, dtype: np.dtype[Any]
    ) -> None:
        # rows that are not centred yet are not weighted either: their squares may overflow
        check = checks.finite if setting.center else checks.rows_of
        rows = check(arrays, "buffer", (count["fill"], width), dtype)
        check_gains(arrays["gain"], rows[::-1][: count["kept"]])
        checks.only(arrays, *SHARED_ARRAYS, *(LEDGER_ARRAYS if setting.keeps_ledger else ()), *cls.OWN)

    def make_state(self) -> kernel.DenseState:
        return kernel.DenseState(self.setting, self.capacity_for(self.setting), self.n_features, self.dtype)

    def measure(self, rows: Any) -> tuple[bool, int]:
        return is_readable_in_place(rows, self.dtype), self.n_features * self.dtype.itemsize

    def cut(self, rows: Any) -> NDArray[Any]:
        return plain_rows(rows, self.dtype)  # a slice of sparse rows, made dense, is no longer than the buffer

    def scan(self, piece: NDArray[Any]) -> tuple[int, float]:
        return kernel.scan(piece)

    def largest_weighted(self, piece: NDArray[Any], root: NDArray[np.float64]) -> float:
        by_row = np.maximum(piece.max(axis=1), -piece.min(axis=1)).astype(np.float64)
        return float((by_row * root).max())

    def absorb(self, piece: NDArray[Any], weights: NDArray[np.float64] | None) -> None:
        """Add a slice of validated rows to the buffer, in place. The buffer is shrunk by Frequent Directions each time
        it is full.
        """
        kernel.absorb(piece, weights, ldexp(1.0, -self.state.exponent), self.state)

    def part_of(self, piece: NDArray[Any], start: int, stop: int) -> NDArray[Any]:
        return piece[start:stop]

    def flush(self) -> None:
        """Empty the buffer of new rows, in place: apply their weights, decay and centring, then shrink the buffer, or
        with solver "exact" add the rows to A'A.
        """
        kernel.flush_now(self.buffer, self.state)

    def new_rows(self) -> slice:
        """Return the slice of the buffer (and of ``root``) at which the rows added since the last shrink are stored."""
        return slice(self.capacity - self.state.fill, self.capacity - self.state.kept)

    def own_arrays(self) -> Arrays:
        return {"buffer": self.buffer[self.capacity - self.state.fill :]}

    def put_arrays(self, own: Arrays) -> None:
        self.buffer[self.capacity - self.state.fill :] = own["buffer"]

    def settled_rows(self) -> NDArray[Any]:
        """Return a view of all rows of the buffer with their final values. Weights, decay, centring and scale factors
        that were postponed are applied to the buffer first, in place.
        """
        kernel.settle_now(self.buffer, self.state)
        kept = self.state.kept
        self.buffer[self.capacity - kept :] *= self.gain[:kept][::-1, np.newaxis].astype(self.dtype)
        self.gain[:] = 1.0
        return self.buffer[self.capacity - self.state.fill :]

    def absorb_engine(self, other: "DenseEngine") -> None:
        """Add the rows and sums of another engine of equal settings and scale to this one, in place.
        This is the fast path of ``merge_engines``.

        For engines without decay, centring and log of removed mass; the other engine does not change.
        """
        kernel.absorb_buffer(other.buffer, other.state, self.state)

    def replace_rows(self, rows: NDArray[Any], *, kept: bool = True) -> None:
        """Overwrite the buffer with other rows. With `kept` they count as retained by a shrink, otherwise as new rows.

        Rows left by a shrink are at most sketch_size.
        """
        self.buffer[self.capacity - len(rows) :] = rows
        self.state.fill = len(rows)
        self.state.kept = len(rows) if kept else 0
        self.state.age = -1  # the rows need not be orthogonal
        self.gain[:] = 1.0

    def new_values(self) -> NDArray[Any]:
        return self.buffer[self.new_rows()]

    def joint_rounding(self, other: float) -> float:
        """Return the bound on the squared rounding error after a merge with an engine whose bound is `other`.

        In float32 with solver "gram" the squares are added, as within a stream.
        """
        if self.setting.solver == "gram" and self.dtype == np.float32:
            return self.state.rounding + other
        return super().joint_rounding(other)


# Rows that are collected for one rank-k update; with fewer dsyrk is slow.
EXACT_BLOCK = 256

# Eigenvectors that are computed before it is known how many a tolerance needs: they cost little in addition to the
# eigenvalues, while a second call costs as much again.
FIRST_VECTORS = 64


class ExactEngine(DenseEngine):
    """Sketch engine that accumulates the exact d x d matrix A'A. Rows are buffered and added to the matrix in blocks.

    Rows are never shrunk.
    """

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
        """Return True if rows have been added to A'A, and False if the buffer still has all rows seen."""
        return self.state.age > 0

    @property
    def is_settled_sum(self) -> bool:
        """Return True if results can be read without a copy of the engine, because reading changes nothing.
        This is so if the buffer is empty and there is no tolerance.
        """
        return self.accumulated and not self.state.fill and self.setting.tolerance is None

    def gram(self) -> NDArray[np.float64]:
        """Return the matrix A'A of all rows seen, shape (d, d). Buffered rows are added to the stored sum first."""
        if self.state.fill:
            self.flush()
        lower = self.cov.T  # the kernel's column-major is this array transposed
        return np.tril(lower) + np.tril(lower, -1).T

    def reduce(self) -> NDArray[Any]:
        """Return the rows of a sketch of A'A, at most sketch_size or as many as a tolerance requires. A shrink is
        applied if A'A has higher rank. The state changes.

        Callers work on a clone.
        """
        state = self.state
        if not self.accumulated:
            rows = self.settled_rows()
            if self.setting.tolerance is None and len(rows) <= self.setting.sketch_size:
                return rows
            state.kept = state.fill  # so that settled rows are not settled again
        # One shrink of the exact matrix; with l >= d nothing is removed.
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
        """Return all eigenvalues of A'A, ascending, and the k leading eigenvectors as rows.

        The state's rounding error bound is increased by that of the computation.
        """
        state = self.state
        values, vectors = top_eigh(self.cov.copy(), k)
        values = np.maximum(values, 0.0)
        allowance = sqrt(state.rounding) + ROUNDING_PER_SHRINK * float(np.finfo(np.float64).eps) * float(values[-1])
        state.rounding = allowance * allowance
        return values, vectors

    def _top_of_sum(self) -> tuple[NDArray[np.float64], NDArray[np.float64], EngineSetting]:
        """Return the eigenvalues of A'A in ascending order, its leading eigenvectors, and the settings for the sketch.

        There are as many eigenvectors as the sketch has rows. With a tolerance the settings have the smallest sketch
        size that meets it.
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

    def summary(self, most: int | None = None, *, reduced: bool = True) -> SketchSummary:
        """Return the leading eigenvalues and eigenvectors of A'A, and the trace outside of them, in the form of a
        sketch summary.

        Rows of the buffer are added to A'A first, unless all rows are in the buffer and fit into the sketch.

        `most`: number of pairs, by default as many as the sketch keeps.
        """
        if not self.accumulated and self.state.fill <= self.setting.sketch_size:
            return super().summary(most, reduced=reduced)
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
        return SketchSummary(squares, vectors, np.diag(squares), none, lost, self.n_features)

    def add(self, other: AnyBuffer) -> None:
        """Add the rows of another engine of the same scale to A'A, in place, for a merge. The other engine may change
        too.

        C += C', or R'R of the other's settled rows.
        """
        if self.state.fill:
            self.flush()
        if isinstance(other, ExactEngine) and other.accumulated:
            if other.state.fill:
                other.flush()
            self.cov += other.cov
            rows = np.empty((0, self.n_features), self.dtype)
        else:
            rows = other.settled_rows()
        correction = self.add_sums(other)
        if correction is not None:
            rows = np.vstack([rows, correction])
        for start in range(0, len(rows), self.capacity):
            self.replace_rows(rows[start : start + self.capacity])
            self.flush()
        self.state.age = 1


def dense_form(setting: EngineSetting) -> type[DenseEngine]:
    """Return the engine class for dense rows under these settings: ExactEngine for solver "exact", else DenseEngine."""
    return ExactEngine if setting.solver == "exact" else DenseEngine
