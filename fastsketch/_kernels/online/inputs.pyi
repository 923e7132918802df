from numpy import float64, int32, int64
from numpy.typing import NDArray

ROWS: int
LENGTHS: int
LONG: int
TOTALS: int

_Floats = NDArray[float64]
_Csr = tuple[_Floats, NDArray[int32], NDArray[int64]]

def append_column(
    data: _Floats, indices: NDArray[int32], indptr: NDArray[int64], column: int, value: float
) -> _Csr: ...
def scale_sparse(
    data: _Floats,
    slots: NDArray[int32],
    indptr: NDArray[int64],
    tail: int,
    squares: _Floats,
    counts: _Floats,
    totals: _Floats,
    joins: bool,
    steady: _Floats | None = None,
    has_joined: bool = False,
) -> tuple[int, bool]: ...
def sizes(squares: _Floats, counts: _Floats, rows: float) -> _Floats: ...
def scale_dense(
    out: _Floats,
    d: int,
    means: _Floats,
    spreads: _Floats,
    totals: _Floats,
    joins: bool,
    steady: _Floats | None = None,
    has_joined: bool = False,
) -> tuple[int, bool]: ...
