"""Read sparse matrices in scipy's .npz files whole, without converting them to dense arrays."""

import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fastsketch._core.escaping import escaped
from fastsketch._core.validation import is_sparse
from fastsketch.data.files._npz import read_matrix
from fastsketch.data.sources._formats import Options
from fastsketch.data.sources._source import RowSource
from fastsketch.data.sources._stamped_file import StampedFile, reading


class SparseMatrix(RowSource):
    """A source of a matrix file that is read as a whole: a file of scipy.sparse.save_npz.

    Subclasses read other formats.
    """

    waits = False
    _transpose = False
    _sent = False  # unpickled in a worker, which may get more parts of the same file

    def __init__(self, path: Path, options: Options) -> None:
        self.file, self.name = StampedFile(path), escaped(path)
        self._most = options.max_unpacked
        matrix = self._matrix()
        self.dtype, self.sparse = matrix.dtype, is_sparse(matrix)
        self.n_rows, self.n_features = matrix.shape
        self.size = matrix.shape[0]
        self._bytes_of_row = max(1, (16 * matrix.nnz if self.sparse else matrix.nbytes) // max(1, self.size))

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in {**state, "_sent": True}.items():
            setattr(self, name, value)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_held"}

    def load(self) -> Any:
        """Read and return the matrix."""
        with reading(self.path):
            return read_matrix(self.path, self._most)

    def _matrix(self) -> Any:
        """Return the matrix of the file, which is read at the first call. All parts in one process share it."""
        if "_held" not in self.__dict__:
            self._held = _LAST.get(
                (self.path.absolute(), self.open_file.stamp, self._transpose), self.load, keep=self._sent
            )
        return self._held

    @property
    def n_bytes(self) -> int:
        """Approximate size of the rows in memory, in bytes."""
        return self._bytes_of_row * self.size

    def _chunks(self, start: int) -> Iterator[Any]:
        matrix = self._matrix()
        for first, stop in self._steps(start):
            yield matrix[first:stop]


class _Last:
    """Cache of the matrix that was read last, so that a process reads a file only once for several parts of a job."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: weakref.WeakValueDictionary[Any, Any] = weakref.WeakValueDictionary()  # at most one
        self._kept: Any = None  # a strong reference, in workers only

    def get(self, key: tuple[Any, ...], load: Callable[[], Any], *, keep: bool) -> Any:
        """Return the matrix with the key `key` from the cache; if another one is cached, `load` reads the matrix first.

        With keep=True the cache holds the matrix even if nothing else refers to it.
        """
        with self._lock:
            if (held := self._held.get(key)) is None:
                self._kept = None
                self._held.clear()
                held = self._held[key] = load()
            if keep:
                self._kept = held
            return held


_LAST = _Last()
