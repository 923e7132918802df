import numpy as np
from numpy.typing import NDArray

ORDERED: int
LOOSE: int
START: int
BACKWARD: int
END: int
INDEX: int

def check_32(indptr: NDArray[np.int32], indices: NDArray[np.int32], width: int) -> tuple[int, int]: ...
def check_64(indptr: NDArray[np.int64], indices: NDArray[np.int64], width: int) -> tuple[int, int]: ...
