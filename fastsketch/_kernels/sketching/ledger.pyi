from typing import Final

from typing_extensions import Buffer, disjoint_base

@disjoint_base
class Ledger:
    n_spare: int
    lost: float
    seen: Final[Buffer]
    leaked: Final[Buffer]
    def __init__(self, n_keep: int, capacity: int, *, n_spare: int) -> None: ...
