"""The header of an .npy array, read by a grammar: numpy's own reader hands it to Python's, which fails in many ways."""

import math
import re
from typing import Any, NamedTuple, Protocol

import numpy as np

MAGIC = b"\x93NUMPY"
# numpy's own limit; it writes 118 bytes for a matrix.
LONGEST_HEADER = 10_000

_ITEM = re.compile(
    r"""\s*(?P<quote>['"])(?P<key>descr|fortran_order|shape)(?P=quote)\s*:\s*
    (?:(?P<mark>['"])(?P<descr>[^'"]*)(?P=mark)
     |(?P<order>True|False)
     |\((?P<shape>\s*(?:[0-9]{1,19}L?\s*(?:,\s*[0-9]{1,19}L?\s*){0,31},?\s*)?)\))
    \s*(?P<comma>,?)""",
    re.VERBOSE,
)
_DTYPE = re.compile(r"[<>|=]?[bBiufcSUVO?][0-9]{0,6}")


class Bytes(Protocol):
    """Bytes to read: of a file, or of a member of an archive."""

    def read(self, size: int, /) -> bytes: ...


class Header(NamedTuple):
    """Header of an array."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]
    offset: int  # of the first entry

    @property
    def end(self) -> int:
        """Bytes of header and entries together."""
        return self.offset + math.prod(self.shape) * self.dtype.itemsize


def read_header(file: Bytes) -> Header:
    """Return the header at the start of a file; ValueError says what is wrong with it."""
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
    text = content.decode("latin-1").strip()
    damaged = ValueError("its header is not that of one array of numbers")
    if text[:1] != "{" or text[-1:] != "}":
        raise damaged
    inner, at = text[1:-1], 0
    items: dict[str, re.Match[str]] = {}
    while inner[at:].strip():
        item = _ITEM.match(inner, at)
        if item is None or item["key"] in items or (not item["comma"] and inner[item.end() :].strip()):
            raise damaged
        items[item["key"]] = item
        at = item.end()
    if len(items) != 3:
        raise damaged
    name, order, sizes = items["descr"]["descr"], items["fortran_order"]["order"], items["shape"]["shape"]
    if name is None or order is None or sizes is None:  # a value that belongs to another key
        raise damaged
    try:
        if not _DTYPE.fullmatch(name):
            raise TypeError
        dtype = np.dtype(name)
    except (TypeError, ValueError):
        raise ValueError(f"its header names the dtype {name[:40]!r}") from None
    return tuple(int(size) for size in re.findall("[0-9]+", sizes)), order == "True", dtype
