from numpy import float64, int32, int64
from numpy.typing import NDArray
from typing_extensions import disjoint_base

RANK: int
ROWS: int
ROUND: int
MISTAKES: int
SEEN: int
OLD: int
TURNS: int
COUNTS: int
LOSS: int
THEIRS: int
BEFORE: int
RESIDUALS: int
WEIGHTS: int
DELTA: int
SCALE: int
CLOCK: int
FADED: int
ALPHA: int
SHRINKAGE: int
FLOOR: int
BUFFERED: int
SCALARS: int
UNCONSTRAINED: int
CURRENT: int
NEXT: int
BOTH: int
EVERY_ROUND: int
WHEN_FULL: int
NEVER: int
DIAGONAL: int
GRADIENT: int
ADAM: int

_Floats = NDArray[float64]
_Indices = NDArray[int32] | None
_Starts = NDArray[int64] | None

@disjoint_base
class StateArrays: ...

@disjoint_base
class Snapshot:
    def __init__(
        self, rounds: list[StateArrays], data: _Floats, indices: _Indices, indptr: _Starts, n: int, n_slots: int
    ) -> None: ...
    def restore(self) -> None: ...

def learn(
    rounds: list[StateArrays],
    data: _Floats,
    indices: _Indices,
    indptr: _Starts,
    targets: _Floats,
    sample_weight: _Floats,
    scores: _Floats,
) -> bool: ...
