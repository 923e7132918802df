"""Parameters of an engine, made by the model that owns it."""

from dataclasses import dataclass, replace
from typing import Literal, Self

from fastsketch.sketching._random_maps import Compressor

SolverName = Literal["auto", "gram", "svd", "exact"]


@dataclass(frozen=True, slots=True)
class EngineSetting:
    """Checked parameters of an engine; `solver` may still be "auto"."""

    sketch_size: int  # l
    rows_spared: int = 0  # rows that keep their length in a shrink
    ledger: bool = False  # whether a ledger says which: those that hold most, instead of the longest
    buffer_size: int | None = None  # rows collected between shrinks beyond l
    solver: str = "auto"
    center: bool = False
    decay: float = 1.0
    compressor: Compressor | None = None

    @property
    def keeps_ledger(self) -> bool:
        """Whether there is a ledger: a sum loses nothing."""
        return self.ledger and self.solver != "exact"

    def for_one_shrink(self, buffer_size: int) -> Self:
        """The same shrink for settled rows: neither decay nor centring."""
        return replace(
            self, buffer_size=buffer_size, solver="gram", ledger=False, center=False, decay=1.0, compressor=None
        )

    def behind_map(self, buffer_size: int) -> Self:
        """The engine behind a random map: blocks come centred."""
        return replace(self, buffer_size=buffer_size, center=False, compressor=None)

    def dense(self, buffer_size: int) -> Self:
        """The same with a dense buffer of this size."""
        return replace(self, buffer_size=buffer_size, solver="gram")

    def resolved(self, solver: str, buffer_size: int | None = None) -> Self:
        """The same with the solver that is used, and the buffer size if it is known."""
        return replace(self, solver=solver, buffer_size=self.buffer_size if buffer_size is None else buffer_size)
