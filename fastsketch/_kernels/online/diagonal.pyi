from typing import Any

import numpy as np
from numpy.typing import NDArray

def rounds(
    state: object,
    setting: object,
    data: NDArray[np.float64],
    indices: NDArray[np.int32] | None,
    indptr: NDArray[np.int64] | None,
    targets: NDArray[np.float64],
    sample_weight: NDArray[np.float64],
    scores: NDArray[np.float64],
) -> int: ...
def rounds_together(
    states: list[Any],
    setting: object,
    data: NDArray[np.float64],
    indices: NDArray[np.int32] | None,
    indptr: NDArray[np.int64] | None,
    targets: NDArray[np.float64],
    sample_weight: NDArray[np.float64],
    scores: NDArray[np.float64],
) -> list[int]: ...
def coef_now(state: object, setting: object) -> NDArray[np.float64]: ...
