from numpy import float64, int32, int64
from numpy.typing import NDArray

ROWS: int
LENGTHS: int
LONG: int
TOTALS: int

def append_column(
    data: NDArray[float64], indices: NDArray[int32], indptr: NDArray[int64], column: int, value: float
) -> tuple[NDArray[float64], NDArray[int32], NDArray[int64]]: ...
def scale_sparse(
    data: NDArray[float64],
    slots: NDArray[int32],
    indptr: NDArray[int64],
    tail: int,
    squares: NDArray[float64],
    counts: NDArray[float64],
    totals: NDArray[float64],
    joins: bool,
    steady: NDArray[float64] | None = None,
    has_joined: bool = False,
) -> tuple[int, bool]: ...
def sizes(squares: NDArray[float64], counts: NDArray[float64], rows: float) -> NDArray[float64]: ...
def scale_dense(
    out: NDArray[float64],
    d: int,
    means: NDArray[float64],
    spreads: NDArray[float64],
    totals: NDArray[float64],
    joins: bool,
    steady: NDArray[float64] | None = None,
    has_joined: bool = False,
) -> tuple[int, bool]: ...
