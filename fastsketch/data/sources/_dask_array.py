"""A source for Dask arrays: computes blocks of rows one after another, and splits between blocks."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fastsketch._core.validation import as_rows, is_sparse, require_array_like
from fastsketch.data.files._input import SourceError
from fastsketch.data.sources._arrays import ArraySource
from fastsketch.data.sources._formats import Options
from fastsketch.data.sources._joined import concatenate
from fastsketch.data.sources._select import Derived
from fastsketch.data.sources._source import RowSource, Source, rows_of_chunk


def open_dask(x: Any, options: Options) -> Source:
    """Open a Dask array as a source. Raise SourceError unless it is a matrix of real numbers of known shape."""
    if any(n != n for n in x.shape):  # NaN: not known before the array is computed
        raise SourceError("the dask array does not know how large it is: x.compute_chunk_sizes() finds out")
    require_array_like(x, "the dask array")
    if x.ndim != 2 or x.shape[1] < 1:
        raise SourceError(f"the dask array must be a matrix with at least one column, got shape {x.shape}")
    if x.dtype.kind not in "fiub":
        raise SourceError(f"the dask array must hold real numbers, got dtype {x.dtype}")
    return DaskSource(x.rechunk({1: -1}) if len(x.chunks[1]) > 1 else x)


class DaskSource(RowSource):
    """A source that reads the rows of a Dask array block by block.

    A part of it computes the blocks in the thread that reads the part.
    """

    name = "the dask array"

    def __init__(self, x: Any) -> None:
        self._x: Any = x
        self.dtype = np.dtype(x.dtype)
        self.sparse = is_sparse(getattr(x, "_meta", None))
        self.n_rows, self.n_features = (int(size) for size in x.shape)
        self.size = self.n_rows
        self._scheduler: str | None = None  # Dask's default

    def between(self, start: int, stop: int) -> Source:
        """Return rows [start, stop) as a source.

        A block that is divided between parts is computed once for each of them.
        """
        n_rows, first_row = stop - start, self.first_row + start
        some = self._x[start:stop]
        return self.varied(_x=some, _scheduler="synchronous", n_rows=n_rows, size=n_rows, first_row=first_row)

    def parts(self, n_bytes: int, *, multiple: int = 1) -> list[Source]:
        """Return a list of sources of consecutive blocks of the array, about n_bytes each.

        With `multiple` > 1, or if a block is too large, parts are ranges of rows instead.
        """
        row_bytes = self.n_features * np.dtype(self.dtype).itemsize
        blocks: tuple[int, ...] = self._x.chunks[0]
        if multiple > 1 or max(blocks, default=0) * row_bytes > 2 * n_bytes:
            return super().parts(n_bytes, multiple=multiple)
        cuts, row = [0], 0
        for n in blocks:
            if row > cuts[-1] and (row - cuts[-1] + n) * row_bytes > n_bytes:
                cuts.append(row)
            row += n
        return [self.between(start, stop) for start, stop in zip(cuts, [*cuts[1:], row], strict=True)]

    def _chunks(self, start: int) -> Iterator[Any]:
        row, step = self.first_row, rows_of_chunk(self)
        for block, n in zip(self._x.blocks, self._x.chunks[0], strict=True) if self.n_rows else ():
            if row + n > start:
                rows = as_rows(block.compute(scheduler=self._scheduler), self.n_features, name=self.name)
                for first in range(max(0, start - row), n, step):
                    yield rows[first : first + step]
            row += n

    def delayed_blocks(self) -> list[Any]:
        """Return the blocks as Dask delayed objects, so that a cluster can compute the blocks of all parts together."""
        return list(self._x.to_delayed(optimize_graph=False).ravel())

    def identity(self) -> dict[str, Any]:
        """Return JSON values that identify the array: shape, dtype, and Dask's name for the computation."""
        about = {"format": "dask", "name": str(self._x.name), "shape": [self.n_rows, self.n_features]}
        return {**about, "dtype": str(self.dtype), **super().identity()}


def array_in(source: Any) -> DaskSource | None:
    """Return the Dask source that a source reads, directly or through derived sources; None if it reads none."""
    while isinstance(source, Derived):
        source = source.made_of
    return source if isinstance(source, DaskSource) else None


def with_blocks(source: Source, blocks: Sequence[Any]) -> Source:
    """Return a source whose Dask array is replaced by its computed blocks."""
    if isinstance(source, Derived):
        return source.like(with_blocks(source.made_of, blocks))
    first, arrays = source.first_row, list[Source]()
    for rows in blocks:
        arrays.append(ArraySource(rows, name=source.name).varied(first_row=first))
        first += rows.shape[0]
    return concatenate(arrays)


def without_blocks(source: Source) -> Source:
    """Return a copy of the source without its Dask array, to be restored by ``with_blocks``."""
    return source.like(without_blocks(source.made_of)) if isinstance(source, Derived) else source.varied(_x=None)
