"""The buffer of dense rows, for solvers gram and svd."""

from math import ldexp
from operator import attrgetter
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastsketch._frame.model import Arrays
from fastsketch._kernels.sketching import dense as kernel
from fastsketch._kernels.sketching.state import EXACT, GRAM, SVD
from fastsketch.data.files import _checks as checks
from fastsketch.sketching._engines._base import SHARED_ARRAYS, SketchEngine, check_gains
from fastsketch.sketching._engines._engine_setting import EngineSetting
from fastsketch.sketching._engines._ledger import LEDGER_ARRAYS
from fastsketch.sketching._plain_rows import lies_well, plain_rows

_SOLVERS = {"gram": GRAM, "svd": SVD, "exact": EXACT}


class DenseEngine(SketchEngine[kernel.DenseState, NDArray[Any]]):
    """Buffer of `capacity` rows, used from its end: last the `kept` rows of the last shrink (longest at the very end),
    before them the new rows, the newest first."""

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
        # rows that wait to be centred are not weighted yet: their squares may be beyond what they will be
        check = checks.finite if setting.center else checks.rows_of
        rows = check(arrays, "buffer", (count["fill"], width), dtype)
        check_gains(arrays["gain"], rows[::-1][: count["kept"]])
        checks.only(arrays, *SHARED_ARRAYS, *(LEDGER_ARRAYS if setting.keeps_ledger else ()), *cls.OWN)

    def make_state(self) -> kernel.DenseState:
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

    def measure(self, rows: Any) -> tuple[bool, int]:
        return lies_well(rows, self.dtype), self.n_features * self.dtype.itemsize

    def cut(self, rows: Any) -> NDArray[Any]:
        return plain_rows(rows, self.dtype)  # of a sparse batch one slice, no longer than the buffer

    def scan(self, piece: NDArray[Any]) -> tuple[int, float]:
        return kernel.scan(piece)

    def largest_weighted(self, piece: NDArray[Any], root: NDArray[np.float64]) -> float:
        by_row = np.maximum(piece.max(axis=1), -piece.min(axis=1)).astype(np.float64)
        return float((by_row * root).max())

    def absorb(self, piece: NDArray[Any], weights: NDArray[np.float64] | None) -> None:
        """Put a checked slice through the buffer."""
        kernel.absorb(piece, weights, ldexp(1.0, -self.state.exponent), self.state)

    def part_of(self, piece: NDArray[Any], start: int, stop: int) -> NDArray[Any]:
        return piece[start:stop]

    def flush(self) -> None:
        """Settle and shrink all that the buffer holds."""
        kernel.flush_now(self.buffer, self.state)

    def new_rows(self) -> slice:
        """Return the slice of the new rows in ``root`` and in the buffer."""
        return slice(self.capacity - self.state.fill, self.capacity - self.state.kept)

    def own_arrays(self) -> Arrays:
        return {"buffer": self.buffer[self.capacity - self.state.fill :]}

    def put_arrays(self, own: Arrays) -> None:
        self.buffer[self.capacity - self.state.fill :] = own["buffer"]

    def settled_rows(self) -> NDArray[Any]:
        """Return the rows of the buffer after decay and centring, at their true length, a view."""
        kernel.settle_now(self.buffer, self.state)
        kept = self.state.kept
        self.buffer[self.capacity - kept :] *= self.gain[:kept][::-1, np.newaxis].astype(self.dtype)
        self.gain[:] = 1.0
        return self.buffer[self.capacity - self.state.fill :]

    def absorb_engine(self, other: "DenseEngine") -> None:
        """Put the rows of another engine of this setting and scale through the buffer, and add its sums.

        Of engines without decay, mean and ledger; the other stays as it is.
        """
        kernel.absorb_buffer(other.buffer, other.state, self.state)

    def replace_rows(self, rows: NDArray[Any], *, kept: bool = True) -> None:
        """Make these settled rows the whole buffer: as kept ones (at most sketch_size), or as new ones."""
        self.buffer[self.capacity - len(rows) :] = rows
        self.state.fill = len(rows)
        self.state.kept = len(rows) if kept else 0
        self.state.age = -1  # the rows need not be orthogonal
        self.gain[:] = 1.0

    def new_values(self) -> NDArray[Any]:
        return self.buffer[self.new_rows()]

    def joint_rounding(self, other: float) -> float:
        """Add allowances; in float32 that of solver "gram" is a sum of squares, as within a stream."""
        if self.setting.solver == "gram" and self.dtype == np.float32:
            return self.state.rounding + other
        return super().joint_rounding(other)
