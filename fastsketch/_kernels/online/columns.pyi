from typing import final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import disjoint_base

INTERCEPT: int

@final
@disjoint_base
class ColumnMap:
    def __init__(self, columns: NDArray[np.int64] | None = None) -> None: ...
    def __len__(self) -> int: ...
    def add(self, indices: NDArray[np.int32] | NDArray[np.int64]) -> NDArray[np.int32]: ...
    def find(self, indices: NDArray[np.int32] | NDArray[np.int64], known: int) -> NDArray[np.int32]: ...
    def forget(self, n: int) -> None: ...
    def array(self) -> NDArray[np.int64]: ...

def row_scores(
    data: NDArray[np.float64],
    slots: NDArray[np.int32],
    indptr: NDArray[np.int64],
    coef: NDArray[np.float64],
) -> NDArray[np.float64]: ...
