"""Conversion of rows to dense arrays of a dtype and memory layout that the compiled kernels can read."""

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.validation import in_place


def is_readable_in_place(rows: Any, dtype: np.dtype[Any]) -> bool:
    """Return True if the compiled kernels can read rows without a copy: they are an aligned array of the given dtype,
    with each row contiguous.
    """
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
    """Convert validated rows, dense or CSR, to a dense array that the compiled kernels can read. The rows themselves
    are returned if that is possible.
    """
    if is_readable_in_place(rows, dtype):
        return rows
    if not isinstance(rows, np.ndarray):
        rows = rows.toarray()
    with np.errstate(over="ignore"):
        return in_place(rows, dtype)
