import numpy as np
from numpy.typing import NDArray

def parse_block(
    text: bytes, *, zero_based: bool = False, first_line: int = 1
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int32], NDArray[np.float64], int, int]: ...
