import numpy as np
from numpy.typing import NDArray

SKIP: int
BESIDE: int
LEAST: int

class BadCell(ValueError):
    cell: str | None

def parse_block(
    text: bytes | memoryview,
    delimiter: int,
    places: NDArray[np.int32],
    n: int,
    *,
    beside: bool = False,
    decimal: int = ...,
    least: int = ...,
) -> tuple[NDArray[np.float64], NDArray[np.int64] | None, int, int]: ...
