from typing import Any

import numpy as np
from numpy.typing import NDArray

_Indices = NDArray[np.uint32]
_Values = NDArray[Any]  # float32 or float64
_Sums = NDArray[np.float64]

def side_terms(
    loss: int,
    p: float,
    smooth: float,
    indptr: _Indices,
    indices: _Indices,
    o: _Values,
    c: _Values,
    own: _Values,
    other: _Values,
    factors: _Values,
    which: NDArray[np.int64],
    a: _Sums,
    widths: _Sums,
    values: _Sums,
    gradients: _Sums,
    curvatures: _Sums,
) -> None: ...
def side_solve(curvatures: _Sums, ridge: _Sums, moves: _Sums) -> NDArray[np.uint8]: ...
