from typing import Any

import numpy as np
from numpy.typing import NDArray

_Indices = NDArray[np.uint32]
_Values = NDArray[Any]  # float32 or float64
_Sums = NDArray[np.float64]

def fit_rows(
    loss: int,
    p: float,
    smooth: float,
    ridge: _Sums,  # (2, t)
    indptr: _Indices,
    indices: _Indices,
    o: _Values,
    c: _Values,
    rb: _Values,
    cb: _Values,
    factors: _Values,
    out: _Values,
    turns: int,
    tol: float,
) -> None: ...
def bias_sums(
    loss: int,
    p: float,
    smooth: float,
    indptr: _Indices,
    indices: _Indices,
    o: _Values,
    c: _Values,
    rb: _Values,
    cb: _Values,
) -> tuple[float, _Sums, _Sums, _Sums, _Sums]: ...
