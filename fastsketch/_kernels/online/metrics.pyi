from numpy import float64, int64
from numpy.typing import NDArray

UNIT: int
WEIGHT: int
LOG_LOSS: int
RIGHT: int
ABSOLUTE: int
SQUARED: int
METRIC_SUMS: int
LOG_ODDS: int
HALVES: int
REAL: int
CALIBRATED: int
HALF: int
BINS: int

_Floats = NDArray[float64]

def learn(
    sums: _Floats,
    bins: _Floats | None,
    scores: _Floats,
    targets: _Floats,
    signs: _Floats | None,
    classes: NDArray[int64] | None,
    weights: _Floats | None,
    decay: float,
    how: int,
    is_new: bool,
) -> None: ...
