from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer, disjoint_base

from fastsketch._kernels.sketching.state import SketchState

@disjoint_base
class SparseState(SketchState):
    z: Final[NDArray[Any]]
    indptr: Final[Buffer]
    indices: Final[Buffer]
    data: Final[NDArray[Any]]
    seen: int
    block: Final[int]
    wide: Final[int]
    @property
    def enough(self) -> int: ...
    @property
    def n_stored(self) -> int: ...
    def __init__(
        self, setting: Any, capacity: int, n_features: int, dtype: np.dtype[Any], block: int, wide: int
    ) -> None: ...
    def make_slots(self, n: int) -> None: ...
    def make_room(self, nnz: int) -> None: ...
