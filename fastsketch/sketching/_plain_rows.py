"""Dense rows as the kernels read them."""

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray


def lies_well(rows: NDArray[Any], dtype: np.dtype[Any]) -> bool:
    """Whether a kernel can read an array (n, d) in place: right dtype, aligned, columns contiguous."""
    size = dtype.itemsize
    return bool(
        rows.dtype == dtype
        and rows.flags.aligned
        and (rows.strides[1] == size or rows.shape[1] == 1)
        and rows.strides[0] % size == 0
    )


def plain_rows(rows: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Checked rows, array or CSR, as a kernel reads them: in place if it can be."""
    dense = cast("NDArray[Any]", rows if isinstance(rows, np.ndarray) else rows.toarray())
    if lies_well(dense, dtype):
        return dense
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(dense, dtype)
