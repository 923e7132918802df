"""Arrays that other libraries keep on disk in chunks (HDF5, Zarr): rows of a dataset, by whole chunks of it."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch.data.files._input import SourceError, most_unpacked
from fastsketch.data.sources import _source
from fastsketch.data.sources._pieces import OfArray, chunks_of
from fastsketch.data.sources._source import RowSource, Source, rows_of_chunk, rows_of_part

# A chunk of rows with more bytes than these is decompressed for every chunk that is made of it, and not held.
HELD_BYTES = 112 << 20


def check_numbers(dtype: Any, name: str) -> None:
    """Raise SourceError unless a dtype is that of real numbers."""
    if getattr(dtype, "kind", "O") not in "fiub":
        raise SourceError(f"{name} must hold real numbers, got dtype {dtype}")


def check_matrix(shape: tuple[int, ...], dtype: Any, name: str) -> np.dtype[Any]:
    """Return the dtype of the rows of a dataset; SourceError if it is no matrix of real numbers."""
    check_numbers(dtype, name)
    if len(shape) != 2 or shape[1] == 0:
        raise SourceError(f"{name} must be a matrix with at least one column, got shape {tuple(shape)}")
    return np.dtype(dtype).newbyteorder("=")


def check_held(n_bytes: int, stored: int, given: int | None, name: str) -> None:
    """Raise SourceError if what is held at a time takes much more memory than the file has bytes.

    A chunk that nobody has written has none there, so that a few bytes can state any shape.
    """
    if n_bytes > most_unpacked(stored, given):
        raise SourceError(
            f"{name} would take {n_bytes:,} bytes of memory at a time, and {stored:,} are stored: if it is as it "
            "should be, raise max_unpacked of fs.open_rows"
        )


class InChunks(RowSource):
    """Rows of an array whose rows are stored some at a time."""

    def _describe(self, array: Any, chunk_rows: int, stored: int, max_unpacked: int | None) -> None:
        """Set shape and dtype by an array of the library; SourceError if it has no rows that can be read."""
        self.dtype = check_matrix(array.shape or (), array.dtype, self.name)
        self.size, self.n_features = (int(size) for size in array.shape)
        self.n_rows, self._chunk_rows = self.size, chunk_rows
        check_held(self.n_features * self.dtype.itemsize, stored, max_unpacked, f"{self.name}: a row")

    def _by_chunks(self, get: Callable[[int, int], NDArray[Any]], start: int) -> Iterator[NDArray[Any]]:
        """Yield chunks of the rows from `start` on; get(start, stop) reads some."""
        step = rows_of_chunk(self)
        row_bytes = self.n_features * np.dtype(self.dtype).itemsize
        if self._chunk_rows * row_bytes <= HELD_BYTES:  # whole chunks of the dataset, where these can be held
            step = max(1, step // self._chunk_rows) * self._chunk_rows

        def stretches(place: int) -> Iterator[NDArray[Any]]:
            while place < self._stop:
                stop = min((place // step + 1) * step, self._stop)
                yield get(place, stop)
                place = stop

        if step * row_bytes <= _source.CHUNK_BYTES:
            yield from stretches(start)
        else:
            yield from chunks_of(map(OfArray, stretches(start)), self, start)

    def parts(self, n_bytes: int, *, multiple: int = 1) -> list[Source]:
        """See Source: cut at the ends of chunks of the dataset."""
        step, parts, place = rows_of_part(self, n_bytes, multiple), list[Source](), 0
        while place < self.size:
            stop = min(self.size, cut(self.first_row + place, step, multiple, self._chunk_rows) - self.first_row)
            parts.append(self.between(place, stop))
            place = stop
        return parts or [self]


def cut(place: int, step: int, multiple: int, chunk_rows: int) -> int:
    """Return the end of a part that begins at a row: after about `step` rows, at the end of a chunk of the dataset.

    Parts are multiples of `multiple` rows: where that has no multiple at the end of a chunk, it is before it.
    """
    stop = place + max(step, multiple)
    if chunk_rows > 1 and step >= chunk_rows:
        stop = stop // chunk_rows * chunk_rows
    return max(place + multiple, stop - (stop - place) % multiple)
