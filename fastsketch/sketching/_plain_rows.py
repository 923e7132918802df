"""Conversion of dense rows to what the kernels read."""

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.validation import in_place


def lies_well(rows: Any, dtype: np.dtype[Any]) -> bool:
    """Return whether a kernel can read rows (n, d) in place: of the right dtype, aligned, columns contiguous."""
    if not isinstance(rows, np.ndarray):
        return False
    array = cast("NDArray[Any]", rows)
    size = dtype.itemsize
    return (
        array.dtype == dtype
        and array.flags.aligned
        and (array.strides[1] == size or array.shape[1] == 1)
        and array.strides[0] % size == 0
    )


def plain_rows(rows: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return checked rows, array or CSR, as a kernel reads them: in place if it can be."""
    if lies_well(rows, dtype):
        return rows
    if not isinstance(rows, np.ndarray):
        rows = rows.toarray()
    with np.errstate(over="ignore"):
        return in_place(rows, dtype)
