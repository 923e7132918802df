"""Memory maps as the files that they map: parts reopen them by name, and no pages pile up."""

import mmap
from pathlib import Path
from typing import Any, cast

import numpy as np

from fastsketch.data.files._npy import Header
from fastsketch.data.sources._arrays import ArraySource
from fastsketch.data.sources._npy_source import StoredMatrix
from fastsketch.data.sources._source import Source


def open_memmap(x: "np.memmap[Any, Any]") -> Source:
    """Return the rows of a memory map, or of a contiguous part of one; of any other view as of an array."""
    root: Any = x
    while isinstance(root.base, np.memmap):
        root = cast("Any", root.base)
    name = root.filename
    if not isinstance(root.base, mmap.mmap) or name is None or root.mode == "c" or x.ndim != 2 or 0 in x.shape:
        return ArraySource(x)
    if x.dtype.kind not in "fiub" or not (x.flags.c_contiguous or x.flags.f_contiguous):
        return ArraySource(x)
    if root.mode in ("r+", "w+"):
        root.flush()
    offset = int(root.offset) + (x.ctypes.data - root.ctypes.data)
    fortran = not x.flags.c_contiguous
    source = StoredMatrix(Path(name), Header(cast("tuple[int, int]", x.shape), fortran, x.dtype, offset))
    source.name = f"the memory map of {name}"
    return source
