from collections.abc import Callable

SIGNATURES: dict[Callable[..., object], object]

def addresses(*functions: str) -> list[int]: ...
