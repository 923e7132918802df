from collections.abc import Callable
from typing import Any

counts: dict[str, int]
folders: set[str]
# of numba
types: Any
ir: Any
intrinsic: Callable[..., Any]
register_jitable: Callable[..., Any]

class _Address:
    address: int

def c_function(function: Callable[..., Any], signature: object, **options: object) -> _Address: ...
