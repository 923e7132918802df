from typing import Any

import numpy as np
from numpy.typing import NDArray

_Values = NDArray[Any]  # float32 or float64
_Sums = NDArray[np.float64]

def scores(own: _Values, known: _Values, base: _Sums, column: _Sums, out: _Values) -> None: ...
def gram(factors: _Sums) -> _Sums: ...
def eigenvalues(matrix: _Sums) -> _Sums: ...
