"""Read and check the header of an .npy array: shape, order of entries, and dtype."""

import io
import math
from typing import Any, NamedTuple, Protocol

import numpy as np

MAGIC = b"\x93NUMPY"
# numpy's own limit; it writes 118 bytes for a matrix.
LONGEST_HEADER = 10_000


class Bytes(Protocol):
    """An object with a ``read`` method, such as a file or a member of an archive."""

    def read(self, size: int, /) -> bytes: ...


class Header(NamedTuple):
    """The header of an .npy array: shape, order, dtype, and the position of the first entry."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]
    offset: int  # of the first entry

    @property
    def end(self) -> int:
        """Length of the whole file in bytes, header and entries."""
        return self.offset + math.prod(self.shape) * self.dtype.itemsize


def read_header(file: Bytes) -> Header:
    """Read an .npy header at the current position of a file, and return shape, order, dtype and offset as a Header.
    ValueError if it is invalid.
    """
    start = file.read(8)
    if len(start) < 8 or start[:6] != MAGIC:
        raise ValueError("it does not begin as one")
    if start[6] not in (1, 2, 3) or start[7]:
        raise ValueError(f"its format has the version {start[6]}.{start[7]}")
    width = 2 if start[6] == 1 else 4
    length = int.from_bytes(file.read(width), "little")
    if length > LONGEST_HEADER:
        raise ValueError(f"its header claims {length} bytes")
    content = file.read(length)
    if len(content) < length:
        raise ValueError("it ends within its header")
    shape, fortran, dtype = _parsed(content)
    return Header(shape, fortran, dtype, 8 + width + length)


def _parsed(content: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Parse the text of an .npy header; return (shape, fortran, dtype).

    All versions are parsed as version 2, which differs only in the length field. Any error of numpy becomes ValueError.
    """
    try:
        header = io.BytesIO(len(content).to_bytes(4, "little") + content)
        shape, fortran, dtype = np.lib.format.read_array_header_2_0(header, LONGEST_HEADER)
    except Exception as error:  # Python's parser raises many kinds, RecursionError and MemoryError among them
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ValueError(f"its header is not that of one array: {reason[:100]}") from None
    if dtype.names is not None or dtype.subdtype is not None or any(type(n) is not int or n < 0 for n in shape):
        raise ValueError(f"its header states the shape {shape} of {dtype!s:.40}")
    return shape, fortran, dtype
