"""Arrays that other libraries keep on disk in chunks (HDF5, Zarr): rows of a dataset, by whole chunks of it."""

from collections.abc import Callable, Iterator
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastsketch.data.files._input import SourceError, most_unpacked
from fastsketch.data.sources import _source
from fastsketch.data.sources._pieces import OfArray, Piece, chunks_of
from fastsketch.data.sources._source import Source, rows_of_part

# A chunk of rows with more bytes than these is decompressed for every chunk that is made of it, and not held.
HELD_BYTES = 112 << 20


def check_matrix(shape: tuple[int, ...], dtype: Any, name: str) -> np.dtype[Any]:
    """Return the dtype of the rows of a dataset; SourceError if it is no matrix of real numbers."""
    kind = getattr(dtype, "kind", "O")
    if kind not in "fiub":
        raise SourceError(f"{name} must hold real numbers, got dtype {dtype}")
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


def rows_at_a_time(n_features: int, dtype: np.dtype[Any], chunk_rows: int) -> int:
    """Return rows that are read together: whole chunks of the dataset where these can be held."""
    row_bytes = n_features * dtype.itemsize
    step = max(1, _source.CHUNK_BYTES // row_bytes)
    if chunk_rows * row_bytes > HELD_BYTES:
        return step
    return max(1, step // chunk_rows) * chunk_rows


def read_dataset(
    get: Callable[[int, int], NDArray[Any]],
    first: int,
    n_rows: int,
    chunk_rows: int,
    *,
    n_features: int,
    dtype: np.dtype[Any],
    name: str,
) -> Iterator[NDArray[Any]]:
    """Yield chunks of rows first .. first + n_rows - 1; get(start, stop) reads some."""
    step = rows_at_a_time(n_features, dtype, chunk_rows)

    def stretches() -> Iterator[NDArray[Any]]:
        start = first
        while start < first + n_rows:
            stop = min((start // step + 1) * step, first + n_rows)
            yield get(start, stop)
            start = stop

    if step * n_features * dtype.itemsize <= _source.CHUNK_BYTES:
        yield from stretches()
        return

    def pieces() -> Iterator[Piece]:
        for rows in stretches():
            yield OfArray(rows)

    yield from chunks_of(pieces(), skip=0, n_rows=n_rows, n_features=n_features, dtype=dtype, name=name, first=first)


def cut(place: int, step: int, multiple: int, chunk_rows: int) -> int:
    """Return the end of a part that begins at a row: after about `step` rows, at the end of a chunk of the dataset.

    Parts are multiples of `multiple` rows: where that has no multiple at the end of a chunk, it is before it.
    """
    stop = place + max(step, multiple)
    if chunk_rows > 1 and step >= chunk_rows:
        stop = stop // chunk_rows * chunk_rows
    return max(place + multiple, stop - (stop - place) % multiple)


class InChunks(Source):
    """Rows of an array whose rows are stored some at a time."""

    _chunk_rows: int

    def between(self, start: int, stop: int) -> Self:
        """See Source."""
        return self.varied(first_row=self.first_row + start, n_rows=stop - start, size=stop - start)

    def parts(self, n_bytes: int, *, multiple: int = 1) -> list[Source]:
        """See Source: cut at the ends of chunks of the dataset."""
        step, found, place = rows_of_part(self, n_bytes, multiple), list[Source](), 0
        while place < self.size:
            stop = min(self.size, cut(self.first_row + place, step, multiple, self._chunk_rows) - self.first_row)
            found.append(self.between(place, stop))
            place = stop
        return found or [self]
