from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer, disjoint_base

SRHT_LOOP: Final[int]
SCATTER_LOOP: Final[int]
GEMM_LOOP: Final[int]

@disjoint_base
class BlockState:
    SUMS: ClassVar[tuple[str, ...]]
    COUNTS: ClassVar[tuple[str, ...]]
    weight: float
    largest: float
    n_rows: int
    pending_rows: int
    shifted: bool
    loop: Final[int]
    p: Final[int]
    d: Final[int]
    q: Final[int]
    s: Final[int]
    center: Final[bool]
    out: Final[NDArray[Any]]
    pending: Final[NDArray[Any]]
    shift: Final[NDArray[Any]]
    root: Final[Buffer]
    sums: Final[Buffer]
    ones: Final[Buffer]
    def __init__(
        self, loop: int, *, p: int, d: int, q: int, center: bool, space: int, dtype: np.dtype[Any]
    ) -> None: ...
    def set_numbers(self, value: NDArray[Any], target: NDArray[np.int32], hi: NDArray[np.int64], s: int) -> None: ...

def srht_space(q: int, p: int, dtype: np.dtype[Any]) -> int: ...
def absorb(rows: NDArray[Any], weights: NDArray[np.float64] | None, limit: int, b: BlockState) -> tuple[int, int]: ...
def finish(out: NDArray[Any], b: BlockState) -> None: ...
