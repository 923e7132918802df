from typing import Any

from numpy.typing import NDArray

def eigh_tridiagonal_top(d: NDArray[Any], e: NDArray[Any], top: int) -> tuple[NDArray[Any], NDArray[Any]]: ...
