"""The settings of a sketch engine, and the rule by which the sketch size l follows a tolerance.

With a tolerance, a shrink to l - 1 rows removes the l-th eigenvalue of the rows in the buffer. If Delta then exceeds a
share of what the rows so far allow, the shrink is rolled back, and the sketch continues with a larger l; nothing is
lost. The rest of the tolerance is left to the read-out, which reduces the buffer to the fewest rows that meet it.
"""

from dataclasses import dataclass, replace
from math import ceil, floor, sqrt
from typing import Any, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.threads import one_blas_thread
from fastsketch._kernels.sketching.shrink import top_eigh
from fastsketch._kernels.sketching.state import ROUNDING_PER_SVD, SketchState
from fastsketch.sketching._random_maps import Compressor

Reference = Literal["squared_norm", "largest_eigenvalue"]

# Share of the tolerance that shrinks may use. More makes l smaller; less leaves more to the read-out (bench/README.md).
SHARE: Final = 0.9
# Smallest factor by which l grows: each growth costs a shrink that is rolled back.
STEP: Final = 1.15
# Rounding that a last shrink and the read-out may add to the certificate, in units of the largest eigenvalue, by
# itemsize of the dtype: see sketching/_read_out.py.
ALLOWANCE: Final = {4: ROUNDING_PER_SVD + 8.0, 8: ROUNDING_PER_SVD + 128.0}


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Precision of a sketch that the user requires, and limits on the sketch size that may reach it."""

    value: float
    relative_to: Reference = "squared_norm"
    counts: float = 1.0  # share of Delta that the certificate counts: a half for rfd
    largest: int | None = None  # bound on l
    chooses: bool = False  # whether the solver may become "exact" where that is faster

    def allowed(self, squared_norm: float, top: float) -> float:
        """Return the largest spectral norm of A'A - B'B that the tolerance allows.

        `top` is a lower bound of the largest eigenvalue of A'A.
        """
        return self.value * (squared_norm if self.relative_to == "squared_norm" else max(top, 0.0))

    def spent(self, state: SketchState, share: float) -> bool:
        """Return True if the error caused by shrinks exceeds the fraction `share` of the allowed error.
        Then the sketch must grow.
        """
        top = float(np.asarray(state.lam)[: state.kept].max(initial=0.0))
        return self.counts * state.shrinkage > share * self.allowed(state.squared_norm, top)

    def bounded(self, size: int, n_features: int) -> int:
        """Return a sketch size limited to the range from 2 to the largest useful and allowed size.

        With more rows than columns nothing is ever removed.
        """
        size = max(2, min(size, n_features + 1))
        return size if self.largest is None else min(size, self.largest)

    def smallest(self, squares: NDArray[np.float64], state: SketchState, *, rounding: float, share: float = 1.0) -> int:
        """Return the smallest sketch size that meets the tolerance, given the rows' squared singular values.

        `squares` are in descending order. `state`: has what shrinks have removed so far; `rounding`: the allowance that
        the certificate is to include.
        """
        if len(squares) < 2:
            return 2
        delta = np.append(squares[1:], 0.0)  # of l = 2 .. r + 1
        if self.relative_to == "squared_norm":
            allowed: Any = self.allowed(state.squared_norm, 0.0)
        else:
            allowed = self.value * np.maximum(squares[0] - delta - rounding, 0.0)
        fits = self.counts * (state.shrinkage + delta) + rounding <= share * allowed
        return 2 + int(fits.argmax()) if fits.any() else len(squares) + 1

    def smallest_to_read(self, squares: NDArray[np.float64], state: SketchState, dtype: np.dtype[Any]) -> int:
        """Return the smallest sketch size that meets the tolerance, including the rounding error of its eigenvalues."""
        allowance = ALLOWANCE[dtype.itemsize] * float(np.finfo(dtype).eps) * float(squares.max(initial=0.0))
        return self.smallest(squares, state, rounding=sqrt(state.rounding) + allowance)

    def next_size(self, size: int) -> int:
        """Return the next larger sketch size to try, when a shrink at the given size would remove too much."""
        return max(ceil(STEP * size), size + 1)


@one_blas_thread
def squares_of(rows: NDArray[Any]) -> NDArray[np.float64]:
    """Return the squared singular values of a matrix in double precision, in descending order."""
    wide = rows.astype(np.float64)
    gram = wide @ wide.T if len(wide) <= wide.shape[1] else wide.T @ wide
    if not gram.size:
        return np.zeros(0)
    values, _ = top_eigh(gram, 1)
    return np.maximum(values[::-1], 0.0)


SolverName = Literal["auto", "gram", "svd", "exact"]


# Accumulating A'A costs d^2 flops a row, a shrink 7 d l and an eigensolver of size 2 l. Up to this d the exact matrix
# is faster (a line through the crossings measured on one core for l = 16 .. 128: bench/README.md), and its only error
# is that of the final read-out.
EXACT_SLOPE, EXACT_OFFSET = 11, 300


def exact_pays(n_features: int, sketch_size: int) -> bool:
    """Return True if accumulating the exact d x d matrix A'A takes less time than sketching with this sketch size."""
    return n_features <= EXACT_SLOPE * sketch_size + EXACT_OFFSET


@dataclass(frozen=True, slots=True)
class EngineSetting:
    """Parameters of a sketch engine, already validated. `solver` may still be "auto" until the first rows are known."""

    sketch_size: int  # l
    share_lowered: float = 1.0  # share of the rows that a shrink shortens
    ledger: bool = False  # whether a log of removed mass selects the others, instead of the longest
    buffer_size: int | None = None  # rows collected between shrinks beyond l
    solver: str = "auto"
    center: bool = False
    decay: float = 1.0
    compressor: Compressor | None = None
    tolerance: Tolerance | None = None  # the precision that sketch_size follows
    shrinks: int = 1  # number of shrinks that a buffer of sparse rows has capacity for

    @property
    def rows_spared(self) -> int:
        """Return how many of the retained rows keep their length in a shrink."""
        return self.sketch_size - floor(self.share_lowered * self.sketch_size)

    @property
    def grows(self) -> bool:
        """Return True if the sketch size must grow to meet a tolerance. Solver "exact" has no such need."""
        return self.tolerance is not None and self.solver != "exact"

    @property
    def keeps_ledger(self) -> bool:
        """Return True if the engine logs the sum of squares that shrinks remove along each direction. Solver "exact"
        removes nothing.
        """
        return self.ledger and self.solver != "exact"

    def of_size(self, sketch_size: int) -> Self:
        """Return a copy of the settings with another sketch size."""
        return replace(self, sketch_size=sketch_size)

    def resolved(self, solver: str, buffer_size: int | None = None) -> Self:
        """Return a copy of the settings with the given solver, and with the given buffer size unless it is None."""
        return replace(self, solver=solver, buffer_size=self.buffer_size if buffer_size is None else buffer_size)
