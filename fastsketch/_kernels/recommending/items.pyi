from typing import Any

import numpy as np
from numpy.typing import NDArray

_Values = NDArray[Any]  # float32 or float64

def project(
    indptr: NDArray[np.int64], indices: NDArray[np.int32], data: _Values, known: _Values, turn: _Values
) -> _Values: ...
def scores(own: _Values, known: _Values, scale: _Values) -> _Values: ...
def add_walks(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    data: _Values,
    to_ptr: NDArray[np.int64],
    to_users: NDArray[np.int32],
    to_data: _Values,
    from_ptr: NDArray[np.int64],
    from_items: NDArray[np.int32],
    from_data: _Values,
    out: _Values,
) -> None: ...
