import numpy as np
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

def learn(
    sums: NDArray[np.float64],
    bins: NDArray[np.float64] | None,
    scores: NDArray[np.float64],
    targets: NDArray[np.float64],
    signs: NDArray[np.float64] | None,
    classes: NDArray[np.int64] | None,
    weights: NDArray[np.float64] | None,
    decay: float,
    how: int,
    is_new: bool,
) -> None: ...
