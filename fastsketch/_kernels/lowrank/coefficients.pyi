from typing import Any

import numpy as np
from numpy.typing import NDArray

_Indices = NDArray[np.uint32]
_Values = NDArray[Any]  # float32 or float64
_Sums = NDArray[np.float64]

def newton_terms(
    loss: int,
    p: float,
    lipschitz: float,
    indptr: _Indices,
    indices: _Indices,
    o: _Values,
    c: _Values,
    rb: _Values,
    cb: _Values,
    left: _Values,
    right: _Values,
    theta: _Sums,
    gradient: _Sums,
    bound: _Sums,
    curvature: _Sums,
) -> float: ...
def solve(h: _Sums, g: _Sums) -> bool: ...
