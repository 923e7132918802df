from collections.abc import Callable
from typing import Any

counts: dict[str, int]
folders: set[str]

class Address:
    address: int

def compiled(function: Callable[..., Any] | None = None, **options: object) -> Callable[..., Any]: ...
def c_function(function: Callable[..., Any], signature: object) -> Address: ...
