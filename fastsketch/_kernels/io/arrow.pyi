from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import disjoint_base

def fields(capsule: Any) -> list[tuple[str, str, str | None, bool]]: ...

@disjoint_base
class Batch:
    @property
    def n_rows(self) -> int: ...
    def __init__(self, schema: Any, array: Any) -> None: ...
    def first_width(self, column: int) -> int: ...
    def to_rows(
        self,
        first: int,
        columns: NDArray[np.intp],
        places: NDArray[np.intp],
        widths: NDArray[np.intp],
        out: NDArray[Any],
    ) -> tuple[int, int, int] | None: ...

@disjoint_base
class Stream:
    def __init__(self, capsule: Any) -> None: ...
    def fields(self) -> list[tuple[str, str, str | None, bool]]: ...
    def next(self) -> Batch | None: ...
