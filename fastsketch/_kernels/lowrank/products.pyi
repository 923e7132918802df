from collections.abc import Callable, Mapping
from typing import Any

FUNCTIONS: Mapping[Callable[..., Any], tuple[Any, ...]]

def address(name: str, dtype: Any) -> int: ...
