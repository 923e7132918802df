from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

LEAST: int

def parse_block(
    text: bytes | memoryview, *, zero_based: bool = False, first_line: int = 1, least: int = ...
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int32], NDArray[np.float64], int, int]: ...
def join_blocks(
    blocks: Sequence[tuple[Any, ...]],
) -> tuple[NDArray[np.float64], NDArray[Any], NDArray[Any], NDArray[np.float64]]: ...
