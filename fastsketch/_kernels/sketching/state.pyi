from typing import ClassVar, Final

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
    @property
    def capacity(self) -> int: ...
    @property
    def n_features(self) -> int: ...
    @property
    def center(self) -> bool: ...
    @property
    def decay(self) -> float: ...
    @property
    def lam(self) -> Buffer: ...
    @property
    def gain(self) -> Buffer: ...
    @property
    def mean(self) -> Buffer: ...
    ledger: Ledger | None
    @property
    def mean_low(self) -> Buffer: ...
    @property
    def root(self) -> Buffer: ...
    def __init__(
        self, sketch_size: int, capacity: int, n_features: int, *, n_spare: int, center: bool, decay: float
    ) -> None: ...
