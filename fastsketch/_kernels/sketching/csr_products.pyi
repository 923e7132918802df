from typing import Any

import numpy as np
from numpy.typing import NDArray

def rows_times(
    indptr: NDArray[np.int64], indices: NDArray[np.int32], data: NDArray[np.float64], q: NDArray[np.float64]
) -> NDArray[np.float64]: ...
def turned_rows_times(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    data: NDArray[np.float64],
    a: NDArray[np.float64],
    n_features: int,
) -> NDArray[np.float64]: ...
def add_csr_gram(
    indptr_in: NDArray[Any],
    indices_in: NDArray[Any],
    data: NDArray[np.float64],
    rank: NDArray[np.int32],
    dense: NDArray[np.float64],
    out: NDArray[np.float64],
) -> None: ...
def csr_gram_times(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    data: NDArray[Any],
    weights: NDArray[np.float64] | None,
    mean: NDArray[np.float64],
    scale: float,
    q: NDArray[np.float64],
    *,
    ascending: bool,
) -> NDArray[np.float64]: ...
