from typing import Any, ClassVar, Final

from typing_extensions import Buffer, disjoint_base

from fastsketch._kernels.sketching.ledger import Ledger

GRAM: Final[int]
SVD: Final[int]
EXACT: Final[int]
REFRESH: Final[int]
ROUNDING_PER_SHRINK: Final[int]
ROUNDING_PER_SVD: Final[int]
NOTHING_SEEN: Final[int]

@disjoint_base
class SketchState:
    SUMS: ClassVar[tuple[str, ...]]
    COUNTS: ClassVar[tuple[str, ...]]
    shrinkage: float
    squared_norm: float
    weight: float
    settled_weight: float
    rounding: float
    fill: int
    kept: int
    age: int
    n_rows: int
    exponent: int
    top: int
    n_keep: int
    n_spare: int
    capacity: Final[int]
    n_features: Final[int]
    center: Final[bool]
    decay: Final[float]
    lam: Final[Buffer]
    gain: Final[Buffer]
    mean: Final[Buffer]
    ledger: Ledger | None
    mean_low: Final[Buffer]
    root: Final[Buffer]
    def __init__(self, setting: Any, capacity: int, n_features: int) -> None: ...
