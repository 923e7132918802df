from collections.abc import Callable

SIGNATURES: dict[Callable[..., object], object]

def address(function: Callable[..., object]) -> int: ...
