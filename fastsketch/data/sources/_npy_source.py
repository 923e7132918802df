"""Matrices that lie in a file, row after row or column after column: .npy, memory maps."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastsketch.data.files._input import SourceError
from fastsketch.data.files._npy import Header, read_header
from fastsketch.data.sources import _source
from fastsketch.data.sources._ahead import Spaces
from fastsketch.data.sources._file_sources import FileSource, reading
from fastsketch.data.sources._source import Source


def read_npy_header(path: Path) -> Header:
    """Return the header of an .npy file that is exactly as long as it states; SourceError for anything else.

    Bytes beyond the array are an error like missing ones: which of header and length is the damaged one, nobody knows.
    """
    with path.open("rb") as file:
        try:
            header = read_header(file)
        except ValueError as error:
            raise SourceError(f"{path} is no .npy file ({error})") from error
        length = path.stat().st_size
    if header.dtype.kind not in "fiub":
        raise SourceError(f"{path} must hold real numbers, got dtype {header.dtype}")
    if length < header.end:
        raise SourceError(f"{path} is cut short: {length} bytes of {header.end}")
    if length > header.end:
        raise SourceError(f"{path} is damaged: its header states {header.end} bytes, there are {length}")
    return header


def open_npy(path: Path) -> Source:
    """Return the matrix in an .npy file."""
    with reading(path):
        header = read_npy_header(path)
    if len(header.shape) != 2 or header.shape[1] == 0:
        raise SourceError(f"{path} must hold a matrix with at least one column, got shape {header.shape}")
    return StoredMatrix(path, header)


class StoredMatrix(FileSource):
    """A C- or Fortran-ordered matrix in a file, read with readinto: no memory map, so no pages pile up."""

    def __init__(self, path: Path, header: Header) -> None:
        super().__init__(path)
        self._length, self.n_features = header.shape
        self._offset, self._fortran = header.offset, header.fortran
        self._item = self.dtype = header.dtype
        self.n_rows = self.size = self._length

    def between(self, start: int, stop: int) -> Self:
        """See Source."""
        return self.varied(first_row=self.first_row + start, n_rows=stop - start, size=stop - start)

    def read(self, start_row: int = 0) -> Iterator[tuple[NDArray[Any], int]]:
        """See Source."""
        if start_row >= self.size:
            return
        self.check_unchanged()
        dtype, item = self._item, self._item.itemsize
        step = max(1, _source.CHUNK_BYTES // (self.n_features * item))
        spaces = Spaces()
        with reading(self.path), self.path.open("rb", buffering=0) as file:
            for start in range(start_row, self.size, step):
                n, first = min(step, self.size - start), self.first_row + start
                if self._fortran:  # columns lie one after another: the same stretch of every one
                    part = spaces.next((n, self.n_features), dtype, "F")
                    for column in range(self.n_features):
                        place = self._offset + (column * self._length + first) * item
                        self._read_fully(file, place, part[:, column])
                else:
                    part = spaces.next((n, self.n_features), dtype)
                    self._read_fully(file, self._offset + first * self.n_features * item, part)
                yield part, start + n
        self.check_unchanged()

    def _read_fully(self, file: Any, place: int, out: NDArray[Any]) -> None:
        view = out.reshape(-1).view(np.uint8).data
        done = 0
        try:
            file.seek(place)
            while done < len(view):
                count = file.readinto(view[done:])
                if not count:
                    raise SourceError(f"{self.name} has been cut short: it ends before byte {place + len(view)}")
                done += count
        except OSError as error:
            raise SourceError(f"{self.name} cannot be read at byte {place + done}: {error.strerror}") from error

    def identity(self) -> dict[str, Any]:
        """See Source."""
        found = super().identity()
        return found if self.n_rows == self._length else {**found, "rows": [self.first_row, self.n_rows]}
