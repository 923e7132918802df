from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import disjoint_base

ADD: int
IGNORE: int
HASH: int

@disjoint_base
class Columns:
    @property
    def mixed(self) -> tuple[int, str, bool] | None: ...
    def __init__(
        self,
        columns: dict[str, int],
        pairs: dict[str, dict[str, int]],
        unknown: int,
        hash_bits: int = 0,
    ) -> None: ...

def encode(
    rows: Sequence[Any], columns: Columns
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float64]]: ...
def murmur3(text: bytes | memoryview, seed: int = 0) -> int: ...
