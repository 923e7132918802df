import numpy as np
from numpy.typing import NDArray
from typing_extensions import disjoint_base

def space_sizes(most: int, cap: int, width: int, points: int) -> tuple[int, int]: ...
def extra_size(d: int, most: int, cap: int, phi: int) -> int: ...

@disjoint_base
class AdaptiveRounds:
    def __init__(self, state: object, setting: object) -> None: ...
    def dense(
        self,
        rows: NDArray[np.float64],
        targets: NDArray[np.float64],
        sample_weight: NDArray[np.float64],
        scores: NDArray[np.float64],
    ) -> int: ...
    def sparse(
        self,
        data: NDArray[np.float64],
        indices: NDArray[np.int32],
        indptr: NDArray[np.int64],
        first: int,
        targets: NDArray[np.float64],
        sample_weight: NDArray[np.float64],
        scores: NDArray[np.float64],
    ) -> tuple[int, bool]: ...
