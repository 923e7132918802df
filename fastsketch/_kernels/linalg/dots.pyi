import numpy as np
from numpy.typing import NDArray

def row_products(
    x: NDArray[np.float64], b: NDArray[np.float64], out: NDArray[np.float64], first: int, lower: bool = False
) -> None: ...
