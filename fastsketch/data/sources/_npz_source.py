"""Sparse matrices of scipy in .npz files: their arrays are read whole, their rows are never made dense."""

import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

from fastsketch._core.validation import is_sparse
from fastsketch.data.files._npz import read_matrix
from fastsketch.data.sources import _source
from fastsketch.data.sources._file_sources import FileSource, reading
from fastsketch.data.sources._source import Source, rows_of_part


def open_npz(path: Path, max_unpacked: int | None = None) -> Source:
    """Return the matrix in an .npz file."""
    return SparseMatrix(path, max_unpacked)


class SparseMatrix(FileSource):
    """A CSR matrix written by scipy.sparse.save_npz; subclasses read other files whole."""

    waits = False
    _sent = False  # from another process, which may send more parts of the same file

    def __init__(self, path: Path, max_unpacked: int | None) -> None:
        super().__init__(path)
        self._most = max_unpacked
        matrix = self._matrix()
        self.dtype, self.sparse = matrix.dtype, is_sparse(matrix)
        self._length, self.n_features = matrix.shape
        self.n_rows = self.size = self._length
        self._bytes_of_row = max(1, (16 * matrix.nnz if self.sparse else matrix.nbytes) // max(1, self._length))

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in {**state, "_sent": True}.items():
            setattr(self, name, value)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_held"}

    def load(self) -> Any:
        """Return the matrix in the file."""
        with reading(self.path):
            return read_matrix(self.path, self._most)

    def _matrix(self) -> Any:
        """Return the matrix, which all parts in a process share."""
        if "_held" not in self.__dict__:
            self._held = _LAST.get(self.path, self._stamp, self.load, keep=self._sent)
        return self._held

    @property
    def n_bytes(self) -> int:
        """See Source."""
        return self._bytes_of_row * self.size

    def between(self, start: int, stop: int) -> Self:
        """See Source."""
        return self.varied(first_row=self.first_row + start, n_rows=stop - start, size=stop - start)

    def read(self, start_row: int = 0) -> "Iterator[tuple[Any, int]]":
        """See Source."""
        self.check_unchanged()
        matrix, step = self._matrix(), rows_of_part(self, _source.CHUNK_BYTES, 1)
        for start in range(start_row, self.size, step):
            stop = min(start + step, self.size)
            yield matrix[self.first_row + start : self.first_row + stop], stop
        self.check_unchanged()

    def identity(self) -> dict[str, Any]:
        """See Source."""
        found = super().identity()
        return found if self.n_rows == self._length else {**found, "rows": [self.first_row, self.n_rows]}


class _Last:
    """The matrix that was read last: a process that reads a few parts of one file reads it once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: Any = None
        self._matrix: Any = None
        self._kept: Any = None  # by workers alone, where parts come one after another

    def get(self, path: Path, stamp: tuple[int, int], load: Callable[[], Any], *, keep: bool) -> Any:
        """Return the matrix in a file, read where it is another one than before."""
        key = path.absolute(), stamp
        with self._lock:
            held = None if self._matrix is None else self._matrix()
            if held is None or self._of != key:
                self._kept = None
                held = load()
                self._of, self._matrix = key, weakref.ref(held)
            if keep:
                self._kept = held
            return held


_LAST = _Last()
