import numpy as np
from numpy.typing import NDArray

UNIT: int
WEIGHT: int
LOG_LOSS: int
RIGHT: int
ABSOLUTE: int
SQUARED: int
METRIC_SUMS: int
HALF: int
BINS: int

def take_two(
    sums: NDArray[np.float64],
    bins: NDArray[np.float64] | None,
    log_odds: NDArray[np.float64],
    targets: NDArray[np.float64],
    weights: NDArray[np.float64] | None,
    decay: float,
    probable: bool,
) -> None: ...
def take_more(
    sums: NDArray[np.float64],
    shares: NDArray[np.float64],
    classes: NDArray[np.int64],
    weights: NDArray[np.float64] | None,
    decay: float,
    probable: bool,
) -> None: ...
def take_real(
    sums: NDArray[np.float64],
    predicted: NDArray[np.float64],
    targets: NDArray[np.float64],
    weights: NDArray[np.float64] | None,
    decay: float,
) -> None: ...
