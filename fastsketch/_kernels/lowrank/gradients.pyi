from typing import Any

import numpy as np
from numpy.typing import NDArray

_Indices = NDArray[np.uint32]
_Values = NDArray[Any]  # float32 or float64

def gradient(
    loss: int,
    p: float,
    indptr: _Indices,
    indices: _Indices,
    z: _Values,
    o: _Values,
    c: _Values,
    left: _Values,
    right: _Values,
    a: _Values,
) -> tuple[float, float]: ...
def multiply_parts(
    function: int, indptr: _Indices, indices: _Indices, a: _Values, v: _Values, u: _Values
) -> _Values: ...
