from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer, disjoint_base

from fastsketch._kernels.sketching.state import SketchState

@disjoint_base
class DenseState(SketchState):
    solver: Final[int]
    buffer: Final[NDArray[Any]]
    cov: Final[Buffer]
    def __init__(self, setting: Any, capacity: int, n_features: int, dtype: np.dtype[Any]) -> None: ...

def scan(rows: NDArray[Any]) -> tuple[int, float]: ...
def work_sizes(m: int, d: int, n_keep: int, solver: int, dtype: np.dtype[Any]) -> tuple[int, int, int]: ...
def absorb(rows: NDArray[Any], weights: NDArray[np.float64] | None, scale: float, state: DenseState) -> None: ...
def absorb_buffer(other: NDArray[Any], theirs: DenseState, state: DenseState) -> None: ...
def flush_now(buffer: NDArray[Any], state: DenseState) -> None: ...
def settle_now(buffer: NDArray[Any], state: DenseState) -> None: ...
def move_mean(
    mean: NDArray[np.float64],
    low: NDArray[np.float64],
    weight: float,
    *,
    base: NDArray[np.float64],
    shift: NDArray[np.float64],
    block_weight: float,
) -> None: ...
