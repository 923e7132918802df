"""An .npy file whose rows come one batch after the other."""

import contextlib
from collections.abc import Callable, Generator
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray


@contextlib.contextmanager
def npy_rows(file: BinaryIO, dtype: Any, *width: int) -> Generator[Callable[[NDArray[Any]], None]]:
    """A function that appends rows (n, *width) to an .npy of as yet unknown length.

    The header is right when the block ends.
    """
    n = 0
    descr = np.lib.format.dtype_to_descr(np.dtype(dtype))

    def header() -> int:
        about: dict[str, Any] = {"descr": descr, "fortran_order": False, "shape": (n, *width)}
        np.lib.format.write_array_header_1_0(file, about)
        return file.tell()

    start = header()

    def append(rows: NDArray[Any]) -> None:
        nonlocal n
        file.write(np.ascontiguousarray(rows, dtype).tobytes())
        n += len(rows)

    yield append
    file.seek(0)
    if header() != start:  # numpy leaves room for 21 digits
        raise OSError("the header of the rows did not fit its place")
