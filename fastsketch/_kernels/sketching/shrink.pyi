from typing import Any

from numpy.typing import NDArray

def top_eigh(lower: NDArray[Any], k: int) -> tuple[NDArray[Any], NDArray[Any]]: ...
