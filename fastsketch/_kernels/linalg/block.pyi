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
) -> None: ...
