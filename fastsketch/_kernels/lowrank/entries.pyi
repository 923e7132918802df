from typing import Any

import numpy as np
from numpy.typing import NDArray

_Indices = NDArray[np.uint32]
_Values = NDArray[Any]  # float32 or float64
_Sums = NDArray[np.float64]

def objective(loss: int, p: float, z: _Values, o: _Values, c: _Values) -> tuple[float, float, float]: ...
def scores(
    indptr: _Indices, indices: _Indices, left: _Values, right: _Values, rb: _Values, cb: _Values, out: _Values
) -> None: ...
def five_dots(
    loss: int,
    p: float,
    indptr: _Indices,
    indices: _Indices,
    z: _Values,
    o: _Values,
    c: _Values,
    rb: _Values,
    cb: _Values,
    mu: float,
    rho: float,
    u: _Values,
    v: _Values,
    out: _Sums,
) -> None: ...
def slope_along(loss: int, p: float, z: _Values, o: _Values, c: _Values, d: _Values, eta: float) -> float: ...
