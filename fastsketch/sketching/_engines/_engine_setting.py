"""Parameters of an engine, made by the model that owns it."""

from dataclasses import dataclass, replace
from math import floor
from typing import Literal, Self

from fastsketch.sketching._engines._tolerance import Tolerance
from fastsketch.sketching._random_maps import Compressor

SolverName = Literal["auto", "gram", "svd", "exact"]


# Accumulating A'A costs d^2 flops a row, a shrink 7 d l and an eigensolver of size 2 l. Up to this d the exact matrix
# is faster (a line through the crossings measured on one core for l = 16 .. 128: bench/README.md), and its only error
# is that of the final read-out.
EXACT_SLOPE, EXACT_OFFSET = 11, 300


def exact_pays(n_features: int, sketch_size: int) -> bool:
    """Return whether accumulating d x d is faster than sketching with l = sketch_size."""
    return n_features <= EXACT_SLOPE * sketch_size + EXACT_OFFSET


@dataclass(frozen=True, slots=True)
class EngineSetting:
    """Checked parameters of an engine; `solver` may still be "auto"."""

    sketch_size: int  # l
    share_lowered: float = 1.0  # of the rows, those that a shrink shortens
    ledger: bool = False  # whether a ledger says which: those that hold most, instead of the longest
    buffer_size: int | None = None  # rows collected between shrinks beyond l
    solver: str = "auto"
    center: bool = False
    decay: float = 1.0
    compressor: Compressor | None = None
    tolerance: Tolerance | None = None  # that sketch_size follows
    shrinks: int = 1  # that a buffer of sparse rows is for, of its own size

    @property
    def rows_spared(self) -> int:
        """Return how many rows keep their length in a shrink."""
        return self.sketch_size - floor(self.share_lowered * self.sketch_size)

    @property
    def grows(self) -> bool:
        """Return whether l follows a tolerance: a sum needs none."""
        return self.tolerance is not None and self.solver != "exact"

    @property
    def keeps_ledger(self) -> bool:
        """Return whether there is a ledger: a sum loses nothing."""
        return self.ledger and self.solver != "exact"

    def of_size(self, sketch_size: int) -> Self:
        """Return the setting with another l."""
        return replace(self, sketch_size=sketch_size)

    def resolved(self, solver: str, buffer_size: int | None = None) -> Self:
        """Return the setting with the solver that is used, and the buffer size if it is known."""
        return replace(self, solver=solver, buffer_size=self.buffer_size if buffer_size is None else buffer_size)
