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
) -> float: ...
def step_gradient(
    loss: int,
    p: float,
    indptr: _Indices,
    indices: _Indices,
    z: _Values,
    o: _Values,
    c: _Values,
    left: _Values,
    right: _Values,
    keep: float,
    theta: float,
    u: _Values,
    v: _Values,
    rb: _Values,
    cb: _Values,
    a: _Values,
) -> float: ...
def gram_product(indptr: _Indices, indices: _Indices, a: _Values, v: _Values, u: _Values, w: _Values) -> None: ...
def times(indptr: _Indices, indices: _Indices, a: _Values, v: _Values, u: _Values) -> None: ...
def transposed_times(indptr: _Indices, indices: _Indices, a: _Values, u: _Values, w: _Values) -> None: ...
