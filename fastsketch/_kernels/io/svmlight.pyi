import numpy as np
from numpy.typing import NDArray

LEAST: int

def parse_block(
    text: bytes | memoryview, *, zero_based: bool = False, first_line: int = 1, least: int = ...
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int32], NDArray[np.float64], int, int]: ...
