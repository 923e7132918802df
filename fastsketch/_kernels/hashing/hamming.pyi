import numpy as np
from numpy.typing import NDArray

def distances(queries: NDArray[np.uint8], codes: NDArray[np.uint8]) -> NDArray[np.int32]: ...
def topk(
    queries: NDArray[np.uint8],
    codes: NDArray[np.uint8],
    k: int,
    *,
    allow: NDArray[np.uint8] | None = None,
    ids: NDArray[np.int64] | None = None,
) -> tuple[NDArray[np.int32], NDArray[np.int64]]: ...
