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

def take_two(
    sums: NDArray[np.float64],
    bins: NDArray[np.float64] | None,
    scores: NDArray[np.float64],
    targets: NDArray[np.float64],
    weights: NDArray[np.float64] | None,
    decay: float,
    how: int,
) -> None: ...
def take_one(
    sums: NDArray[np.float64],
    bins: NDArray[np.float64] | None,
    score: float,
    target: float,
    weight: float,
    decay: float,
    how: int,
) -> None: ...
def take_more(
    sums: NDArray[np.float64],
    scores: NDArray[np.float64],
    signs: NDArray[np.float64],
    classes: NDArray[np.int64],
    weights: NDArray[np.float64] | None,
    decay: float,
    how: int,
    is_new: bool,
) -> None: ...
def take_real(
    sums: NDArray[np.float64],
    predicted: NDArray[np.float64],
    targets: NDArray[np.float64],
    weights: NDArray[np.float64] | None,
    decay: float,
) -> None: ...
