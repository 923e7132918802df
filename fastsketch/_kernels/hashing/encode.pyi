from typing import Any

import numpy as np
from numpy.typing import NDArray

def rows_of_part(d: int, n_bits: int) -> int: ...
def dense(
    rows: NDArray[Any],
    projection: NDArray[Any],
    offsets: NDArray[Any],
    *,
    scores: NDArray[Any] | None = None,
    codes: NDArray[np.uint8] | None = None,
) -> int: ...
def csr(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    data: NDArray[Any],
    projection: NDArray[Any],
    offsets: NDArray[Any],
    *,
    scores: NDArray[Any] | None = None,
    codes: NDArray[np.uint8] | None = None,
) -> int: ...
