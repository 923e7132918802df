from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

_Values = NDArray[Any]  # float32 or float64
_Places = NDArray[np.int64]
_Columns = NDArray[np.int32]

def best_columns(
    own: _Values,
    known: _Values,
    found: _Places,
    values: NDArray[np.float64],
    *,
    scale: _Values | None = None,
    base: NDArray[np.float64] | None = None,
    column: NDArray[np.float64] | None = None,
    left_out: Iterable[tuple[_Places, _Columns, _Places | None]] = (),
    allowed: _Columns | None = None,
) -> None: ...
