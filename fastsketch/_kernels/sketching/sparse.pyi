from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.sketching.sparse_state import SparseState

def scan(indptr: NDArray[np.int64], data: NDArray[Any]) -> tuple[int, float]: ...
def largest_weighted(indptr: NDArray[np.int64], data: NDArray[Any], root: NDArray[np.float64]) -> float: ...
def largest_block(indptr: NDArray[np.int64], first: int, later: int) -> int: ...
def absorb(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    data: NDArray[Any],
    weights: NDArray[np.float64] | None,
    scale: float,
    state: SparseState,
) -> None: ...
def flush_now(z: NDArray[Any], state: SparseState) -> None: ...
