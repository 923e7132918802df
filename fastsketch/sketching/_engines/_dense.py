"""The buffer of dense rows, for solvers gram, svd and exact."""

from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.sketching import dense as kernel
from fastsketch._kernels.sketching.groups import scan as scan_by_row
from fastsketch._kernels.sketching.shrink import top_eigh
from fastsketch._kernels.sketching.state import EXACT, GRAM, ROUNDING_PER_SHRINK, SVD
from fastsketch._model import Arrays
from fastsketch.io import _checks as checks
from fastsketch.sketching._engines._base import SHARED_ARRAYS, AnyBuffer, Engine, check_gains
from fastsketch.sketching._engines._growth import ALLOWANCE
from fastsketch.sketching._engines._ledger import LEDGER_ARRAYS, Known
from fastsketch.sketching._engines._setting import EngineSetting, exact_pays
from fastsketch.sketching._leading import leading
from fastsketch.sketching._plain_rows import lies_well, plain_rows

# Rows that the exact accumulator collects for one rank-k update: fewer, and dsyrk runs below its rate.
EXACT_BLOCK = 256

# Eigenvectors of the sum that are asked for before it is known how many a tolerance needs: they cost little beside the
# eigenvalues, a second call as much again.
FIRST_VECTORS = 64

_SOLVERS = {"gram": GRAM, "svd": SVD, "exact": EXACT}


class DenseEngine(Engine[kernel.DenseState, NDArray[Any]]):
    """Buffer of `capacity` rows, used from its end: last the `kept` rows of the last shrink (longest at the very end),
    before them the new rows, the newest first. With solver exact, a d x d sum too."""

    kind = "dense"

    def __init__(self, setting: EngineSetting, n_features: int, *, dtype: np.dtype[Any]) -> None:
        self.exact = setting.solver == "exact"
        super().__init__(setting, n_features, dtype=dtype)
        self.buffer = self.state.buffer
        # of solver exact (d, d), else empty: the kernel's lower triangle, transposed
        self.cov: NDArray[np.float64] = np.asarray(self.state.cov)

    @classmethod
    def capacity_for(cls, setting: EngineSetting) -> int:
        """Rows of the buffer."""
        block = setting.sketch_size if setting.buffer_size is None else setting.buffer_size
        capacity = setting.sketch_size + block
        return max(capacity, EXACT_BLOCK) if setting.solver == "exact" else capacity

    @classmethod
    def validate_own(
        cls, arrays: Arrays, count: dict[str, int], setting: EngineSetting, n_features: int, *, dtype: np.dtype[Any]
    ) -> None:
        """The rows of the buffer, and the exact sum."""
        # rows that wait to be centred are not weighted yet: their squares may be beyond what they will be
        check = checks.finite if setting.center else checks.rows_of
        rows = check(arrays, "buffer", (count["fill"], n_features), dtype)
        check_gains(arrays["gain"], rows[::-1][: count["kept"]])
        own = {"buffer"}
        if setting.solver == "exact":
            own.add("cov")
            checks.number_within(count["kept"], "kept", 0, 0)
            checks.finite(arrays, "cov", (n_features, n_features))
        checks.only(arrays, *SHARED_ARRAYS, *(LEDGER_ARRAYS if setting.keeps_ledger else ()), *own)

    def make_state(self) -> kernel.DenseState:
        """The state of an engine that has seen no rows."""
        setting = self.setting
        return kernel.DenseState(
            setting.sketch_size,
            self.capacity_for(setting),
            self.n_features,
            n_spare=setting.rows_spared,
            center=setting.center,
            decay=setting.decay,
            solver=_SOLVERS[setting.solver],
            dtype=self.dtype,
        )

    def fits(self, rows: Any) -> bool:
        """Right dtype, aligned, columns contiguous."""
        return lies_well(rows, self.dtype)

    def bytes_per_row(self, rows: Any) -> int:
        """Of the batch, as the kernel takes it."""
        return self.n_features * self.dtype.itemsize

    def cut(self, rows: Any) -> NDArray[Any]:
        """A slice of rows as the kernel takes it."""
        return plain_rows(rows, self.dtype)  # of a sparse batch one slice, no longer than the buffer

    def scan(self, piece: NDArray[Any]) -> tuple[int, float]:
        """(index of the first row that is not finite, or -1; largest |entry| before it)."""
        return kernel.scan(piece)

    def largest_weighted(self, piece: NDArray[Any], root: NDArray[np.float64]) -> float:
        """Largest |entry| of a checked slice whose rows are multiplied by these numbers."""
        by_row = np.empty(len(piece))
        scan_by_row(piece, by_row)
        return float((by_row * root).max())

    def absorb(self, piece: NDArray[Any], weights: NDArray[np.float64] | None, *, scale: float) -> None:
        """Put a checked slice through the buffer."""
        kernel.absorb(piece, weights, scale, self.state)

    def length(self, piece: NDArray[Any]) -> int:
        """Rows of a slice."""
        return len(piece)

    def part_of(self, piece: NDArray[Any], start: int, stop: int) -> NDArray[Any]:
        """Some rows of a slice, as the kernel takes them."""
        return piece[start:stop]

    def flush(self) -> None:
        """Settle and shrink all that the buffer holds, or add it to the exact sum."""
        kernel.flush_now(self.buffer, self.state)

    def new_rows(self) -> slice:
        """Entries of ``root``, and rows of the buffer, that are new."""
        return slice(self.capacity - self.state.fill, self.capacity - self.state.kept)

    def own_arrays(self) -> Arrays:
        """The rows of the buffer, and the exact sum."""
        own: Arrays = {"buffer": self.buffer[self.capacity - self.state.fill :]}
        if self.exact:
            own["cov"] = self.cov
        return own

    def put_arrays(self, own: Arrays) -> None:
        """The inverse of ``own_arrays``."""
        self.buffer[self.capacity - self.state.fill :] = own["buffer"]
        if self.exact:
            self.cov[:] = own["cov"]

    def unweighted(self, own: Arrays, root: NDArray[np.float64]) -> Arrays:
        """``own_arrays`` whose new rows are divided by the roots of their weights; rows of weight 0 stay."""
        buffer = own["buffer"].copy()
        buffer[: len(root)] /= np.where(root > 0, root, 1.0)[:, np.newaxis]
        return {"buffer": buffer}

    def settled_rows(self) -> NDArray[Any]:
        """Rows of the buffer after decay and centring, at their true length, a view."""
        kernel.settle_now(self.buffer, self.state)
        kept = self.state.kept
        self.buffer[self.capacity - kept :] *= self.gain[:kept][::-1, np.newaxis].astype(self.dtype)
        self.gain[:] = 1.0
        return self.buffer[self.capacity - self.state.fill :]

    def replace_rows(self, rows: NDArray[Any], *, kept: bool = True) -> None:
        """Make these settled rows the whole buffer: as kept ones (at most sketch_size), or as new ones."""
        self.buffer[self.capacity - len(rows) :] = rows
        self.state.fill = len(rows)
        self.state.kept = len(rows) if kept else 0
        self.state.age = -1  # the rows need not be orthogonal
        self.gain[:] = 1.0

    def multiply_new(self, factor: float) -> None:
        """Multiply the new rows by a factor."""
        self.buffer[self.new_rows()] *= self.dtype.type(factor)

    def multiply(self, factor: float) -> None:
        """Multiply all that is settled by a factor (rows; squares by its square)."""
        self.gain *= factor
        for _ in range(2):  # the square of a factor may leave the range though the product does not
            self.lam *= factor
            self.cov *= factor

    # -- the exact accumulator -------------------------------------------------------------------------------------
    @property
    def accumulated(self) -> bool:
        """Whether cov holds rows already; until then the buffer alone is the whole, exact sketch."""
        return self.exact and self.state.age > 0

    @property
    def is_settled_sum(self) -> bool:
        """Whether there is nothing but the sum, which reading does not change and need not copy."""
        return self.accumulated and not self.state.fill and self.setting.growth is None

    def gram(self) -> NDArray[np.float64]:
        """The full d x d matrix A'A that an exact engine has accumulated; settles the buffer."""
        if self.state.fill:
            self.flush()
        lower = self.cov.T  # the kernel's column-major is this array transposed
        return np.tril(lower) + np.tril(lower, -1).T

    def reduce(self) -> NDArray[Any]:
        """The rows of the sketch, at most sketch_size. Changes the state: callers work on a clone."""
        if not self.exact:
            return super().reduce()
        state = self.state
        if not self.accumulated:
            rows = self.settled_rows()
            if self.setting.growth is None and len(rows) <= self.setting.sketch_size:
                return rows
            state.kept = state.fill  # settled rows are not to be settled again
        # One shrink of the exact matrix; only as many rows as columns: nothing to remove.
        values, vectors = self._top_of_sum()
        state, d, size = self.state, self.n_features, self.setting.sketch_size
        keep = d if d <= size else size - 1
        vectors = vectors[len(vectors) - keep :]
        delta = 0.0 if keep == d else float(values[d - size])
        kept = values[d - keep :][::-1].copy()
        spared = min(self.setting.rows_spared, keep)
        kept[spared:] -= delta
        state.shrinkage += delta
        rows = np.sqrt(np.maximum(kept, 0.0))[:, np.newaxis] * vectors[::-1]
        state.fill = state.kept = 0
        return rows.astype(self.dtype)

    def _top(self, k: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(all eigenvalues of the exact sum, ascending, top k eigenvectors as rows); takes note of their rounding."""
        state = self.state
        values, vectors = top_eigh(self.cov.copy(), k)
        values = np.maximum(values, 0.0)
        allowance = sqrt(state.rounding) + ROUNDING_PER_SHRINK * float(np.finfo(np.float64).eps) * float(values[-1])
        state.rounding = allowance * allowance
        return values, vectors

    def _top_of_sum(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Eigenvalues of the sum (all, ascending) and its top vectors, one for every row of l (largest last).

        With a tolerance, l becomes the smallest that meets it.
        """
        if self.state.fill:
            self.flush()
        state, growth, d = self.state, self.setting.growth, self.n_features
        wanted = min(d, self.setting.sketch_size if growth is None else max(FIRST_VECTORS, self.setting.sketch_size))
        values, vectors = self._top(wanted)
        if growth is not None:
            eps = float(np.finfo(self.dtype).eps)
            size = growth.smallest(
                values[::-1],
                shrinkage=state.shrinkage,
                squared_norm=state.squared_norm,
                rounding=sqrt(state.rounding) + ALLOWANCE[self.dtype.itemsize] * eps * float(values[-1]),
            )
            self.become(self.setting.of_size(growth.bounded(size, d)))
            wanted = min(d, self.setting.sketch_size)
            if wanted > len(vectors):
                vectors = top_eigh(self.cov.copy(), wanted)[1]
        return values, vectors[len(vectors) - wanted :]

    def enlarge(self, sketch_size: int) -> None:
        """Go on with a larger l, or with the exact sum where that is faster; nothing is lost."""
        growth = self.setting.growth
        if growth is None or self.exact or not (growth.chooses and exact_pays(self.n_features, sketch_size)):
            super().enlarge(sketch_size)
            return
        total = DenseEngine(self.setting.of_size(sketch_size).resolved("exact"), self.n_features, dtype=self.dtype)
        total.align(self)
        total.add_exact(self)
        self.__dict__ = total.__dict__

    def known(self, most: int | None = None, *, reduced: bool = True) -> Known:
        """What is known of the rows: with an exact sum, its leading eigenvalues as they are.

        `most`: pairs of an exact sum that are wanted; by default as many as the sketch keeps. Where a tolerance chooses
        that number, the state changes as by ``reduce``.
        """
        if not self.exact or (not self.accumulated and self.state.fill <= self.setting.sketch_size):
            return super().known(most, reduced=reduced)
        if self.state.fill:
            self.flush()
        if most is None and self.setting.growth is not None:
            values, vectors = self._top_of_sum()
            squares, vectors = values[::-1][: len(vectors)], vectors[::-1]
        else:
            values, vectors = leading(self.cov, min(self.n_features, most or self.setting.sketch_size))
            squares = np.maximum(values, 0.0)
        lost = max(0.0, float(np.trace(self.cov)) - float(squares.sum()))
        return Known(squares, vectors, np.diag(squares), np.zeros((len(squares), len(squares))), lost)

    def add_exact(self, other: AnyBuffer) -> None:
        """Add the rows of another engine of the same scale: C += C', or R'R of the other's settled rows."""
        if self.state.fill:
            self.flush()
        if isinstance(other, DenseEngine) and other.accumulated:
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
