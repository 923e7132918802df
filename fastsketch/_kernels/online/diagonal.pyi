import numpy as np
from numpy.typing import NDArray
from typing_extensions import disjoint_base

from fastsketch._kernels.online.numbers import StateArrays

@disjoint_base
class DiagonalRounds(StateArrays):
    def __init__(self, state: object, setting: object) -> None: ...
    def coef(self) -> NDArray[np.float64]: ...
