"""Read matrices that are stored contiguously in a file: .npy files and memory maps.

A memory map is read as the file that it maps. Parts reopen the file by name, and no mapped pages accumulate in memory.
"""

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.escaping import escaped
from fastsketch.data.files._input import SourceError
from fastsketch.data.files._npy import Header, read_header
from fastsketch.data.sources._arrays import ArraySource
from fastsketch.data.sources._formats import Options
from fastsketch.data.sources._source import RowSource, Source
from fastsketch.data.sources._stamped_file import StampedFile, reading
from fastsketch.data.sources._stored import check_matrix, check_numbers


def read_npy_header(path: Path) -> Header:
    """Read the header of an .npy file, and return shape, order, dtype and offset as a Header.
    SourceError unless the file is exactly as long as the header states.

    Extra bytes are an error like missing ones, since either the header or the length is damaged.
    """
    with path.open("rb") as file:
        try:
            header = read_header(file)
        except ValueError as error:
            raise SourceError(f"{path} is no .npy file ({error})") from error
        length = path.stat().st_size
    check_numbers(header.dtype, str(path))
    if length < header.end:
        raise SourceError(f"{path} is cut short: {length} bytes of {header.end}")
    if length > header.end:
        raise SourceError(f"{path} is damaged: its header states {header.end} bytes, there are {length}")
    return header


def open_npy(path: Path, options: Options) -> Source:
    """Open the matrix in an .npy file as a source."""
    with reading(path):
        header = read_npy_header(path)
    check_matrix(header.shape, header.dtype, str(path))
    return StoredMatrix(path, header)


def open_memmap(x: "np.memmap[Any, Any]") -> Source:
    """Open a memory map, or a contiguous part of one, as a source that reads the mapped file.

    Other views of memory maps are read as arrays. Changes to a writable map are flushed to the file.
    """
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


class StoredMatrix(RowSource):
    """A source that reads a matrix stored contiguously in a file, in C or Fortran order."""

    def __init__(self, path: Path, header: Header) -> None:
        self.file, self.name = StampedFile(path), escaped(path)
        self._header, self.dtype = header, header.dtype
        self.n_rows, self.n_features = header.shape
        self.size = self.n_rows

    def _chunks(self, start: int) -> Iterator[NDArray[Any]]:
        (length, width), fortran, dtype, offset = self._header
        # a chunk of a Fortran-ordered matrix is a run of entries of each column
        n_runs, n_entries, run = (width, 1, length) if fortran else (1, width, 0)
        with reading(self.path), self.path.open("rb") as file:
            for first, stop in self._steps(start):
                part = np.empty((n_runs, (stop - first) * n_entries), dtype)
                for k, out in enumerate(part):
                    position = offset + (k * run + first * n_entries) * dtype.itemsize
                    end = position + out.nbytes
                    file.seek(position)
                    if file.readinto(out.view(np.uint8).data) < out.nbytes:
                        raise SourceError(f"{self.name} has been cut short: it ends before byte {end}")
                yield part.T if fortran else part.reshape(-1, width)
