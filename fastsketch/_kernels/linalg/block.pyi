from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCK: int

def gram_block(
    indptr: NDArray[np.uint32],
    indices: NDArray[np.uint32],
    a: NDArray[Any],
    v: NDArray[Any],
    u: NDArray[Any],
    w: NDArray[Any],
) -> NDArray[np.float64]: ...
def leading_of_block(
    indptr: NDArray[np.uint32],
    indices: NDArray[np.uint32],
    a: NDArray[Any],
    v: NDArray[Any],
    iterations: int,
    turned: float,
    left: NDArray[Any],
    right: NDArray[Any],
) -> float: ...
