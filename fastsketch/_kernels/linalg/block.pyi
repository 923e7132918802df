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
def orthonormal_block(v: NDArray[Any], out: NDArray[Any]) -> None: ...
def next_block(
    v: NDArray[Any],
    w: NDArray[Any],
    inner: NDArray[np.float64],
    last: bool,
    turned: float,
    right: NDArray[Any],
    out: NDArray[Any],
) -> tuple[float, bool]: ...
