import numpy as np
from numpy.typing import NDArray
from typing_extensions import disjoint_base

from fastsketch._kernels.online.numbers import StateArrays

@disjoint_base
class NewtonRounds(StateArrays):
    def __init__(self, state: object, setting: object) -> None: ...
    def fade(self, factor: float) -> None: ...

def learn(
    rounds: list[NewtonRounds],
    data: NDArray[np.float64],
    indices: NDArray[np.int32] | None,
    indptr: NDArray[np.int64] | None,
    targets: NDArray[np.float64],
    sample_weight: NDArray[np.float64],
    scores: NDArray[np.float64],
) -> None: ...
