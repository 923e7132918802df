from typing import Any

from typing_extensions import disjoint_base

from fastsketch._kernels.features.columns import INTERCEPT as INTERCEPT
from fastsketch._kernels.online.metrics import REAL as REAL

@disjoint_base
class FewRows:
    def __init__(self, model_state: Any, loss_scale: float, mistakes: int) -> None: ...
    def is_stale(self) -> bool: ...
    def learn(self, model: Any, rows: Any, targets: Any) -> bool: ...
    def learn_named(self, model: Any, csr: Any, targets: Any) -> bool: ...

SINGLE: frozenset[type]
