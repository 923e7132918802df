from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import disjoint_base

_Words = NDArray[np.float32]

def tiles_of(matrix: NDArray[np.float32]) -> NDArray[np.float32]: ...
def halves_of(words: list[_Words], weights: NDArray[np.float32]) -> NDArray[np.float32]: ...

@disjoint_base
class Quantizer:
    n_features: int
    n_directions: int
    width: int
    def __init__(
        self,
        mean: ArrayLike,
        basis: ArrayLike,
        *,
        length: float,
        groups: Sequence[tuple[int, list[_Words]]],
        factor: tuple[int, int, float],
        offset: ArrayLike,
        weights: ArrayLike,
        slope: ArrayLike,
    ) -> None: ...

def dense(
    quantizer: Quantizer,
    rows: NDArray[Any],
    *,
    codes: NDArray[np.uint8] | None = None,
    z: NDArray[np.float32] | None = None,
    square: NDArray[np.float64] | None = None,
) -> int: ...
def csr(
    quantizer: Quantizer,
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    data: NDArray[Any],
    *,
    codes: NDArray[np.uint8] | None = None,
    z: NDArray[np.float32] | None = None,
    square: NDArray[np.float64] | None = None,
) -> int: ...
def decode(quantizer: Quantizer, codes: NDArray[np.uint8], out: NDArray[np.float32]) -> None: ...
