"""Arrays of dask: their blocks of rows are computed one after another, and are the parts."""

from collections.abc import Iterator
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from fastsketch._core.validation import as_rows, is_sparse
from fastsketch.data.files._input import SourceError
from fastsketch.data.sources._formats import Options
from fastsketch.data.sources._select import Derived
from fastsketch.data.sources._source import RowSource, Source, rows_of_chunk


def open_dask(x: Any, options: Options) -> Source:
    """Return the rows of a dask array."""
    if x.ndim != 2 or (x.shape[1] == x.shape[1] and x.shape[1] < 1):
        raise SourceError(f"the dask array must be a matrix with at least one column, got shape {x.shape}")
    if x.shape[1] != x.shape[1]:
        raise SourceError("the dask array does not know how many columns it has: x.compute_chunk_sizes() finds out")
    if x.dtype.kind not in "fiub":
        raise SourceError(f"the dask array must hold real numbers, got dtype {x.dtype}")
    if len(x.chunks[1]) > 1:
        x = x.rechunk({1: -1})
    return DaskSource(x)


class _Shape(NamedTuple):
    """Chunks of an array whose blocks are elsewhere."""

    chunks: Any

    @property
    def numblocks(self) -> tuple[int, ...]:
        return tuple(map(len, self.chunks))


class DaskSource(RowSource):
    """The rows of blocks; a part computes its own in the thread that reads it."""

    name = "the dask array"

    def __init__(self, x: Any) -> None:
        self._x: Any = x
        self.dtype = np.dtype(x.dtype)
        self.sparse = is_sparse(getattr(x, "_meta", None))
        self.n_features = int(x.shape[1])
        self._count(0)
        self._alone = False
        self._given: list[Any] | None = None

    def _count(self, first_row: int) -> None:
        rows = self._x.chunks[0]
        known = all(n == n for n in rows)  # nan: not known before it is computed
        self.n_rows: int | None = int(sum(rows)) if known else None
        self.size, self.first_row = self.n_rows or 0, first_row

    def between(self, start: int, stop: int) -> Source:
        """See Source; blocks that are cut are computed for each part."""
        part = self.varied(_x=self._x[start:stop], _alone=True)
        part._count(self.first_row + start)
        return part

    def parts(self, n_bytes: int, *, multiple: int = 1) -> list[Source]:
        """See Source: blocks, small ones together; with a multiple, or of blocks that are too large, any rows."""
        blocks: tuple[Any, ...] = self._x.chunks[0]
        if self.n_rows is None:
            ends = list(range(1, len(blocks) + 1))
            return [self._blocks(end - 1, end, 0) for end in ends] or [self]
        row_bytes = self.n_features * np.dtype(self.dtype).itemsize
        if multiple > 1 or max(blocks, default=0) * row_bytes > 2 * n_bytes:
            return super().parts(n_bytes, multiple=multiple)
        parts: list[Source] = []
        first = row = rows = 0
        for k, n in enumerate(blocks):
            if k > first and (rows + n) * row_bytes > n_bytes:
                parts.append(self._blocks(first, k, row))
                first, row, rows = k, row + rows, 0
            rows += n
        return [*parts, self._blocks(first, len(blocks), row)]

    def _blocks(self, first: int, stop: int, row: int) -> Source:
        part = self.varied(_x=self._x.blocks[first:stop], _alone=True)
        part._count(self.first_row + row)
        return part

    def _chunks(self, start: int) -> Iterator[Any]:
        row, chunk = self.first_row, rows_of_chunk(self)
        for k in range(self._x.numblocks[0]):
            n = self._x.chunks[0][k]
            if n == n and row + n <= start:
                row += n
                continue
            rows = as_rows(self._computed(k), self.n_features, name=self.name)
            for first in range(max(0, start - row), rows.shape[0], chunk):
                yield rows[first : first + chunk]
            row += rows.shape[0]

    def _computed(self, k: int) -> Any:
        """Return the rows of a block."""
        if self._given is not None:
            return self._given[k]
        compute: Any = import_module("dask").compute
        block = self._x.blocks[k]
        # a part is read beside others: its tasks run in the thread that reads it
        (rows,) = compute(block, scheduler="synchronous") if self._alone else compute(block)
        return rows

    # -- for a cluster, which computes the blocks of all parts together ------------------------------------------------
    def delayed_blocks(self) -> list[Any]:
        """Return the delayed blocks, in their order."""
        return list(self._x.to_delayed(optimize_graph=False).ravel())

    def without_blocks(self) -> "DaskSource":
        """Return the same without what computes the blocks: to be ``given`` them."""
        return self.varied(_x=_Shape(self._x.chunks))

    def given(self, blocks: list[Any]) -> "DaskSource":
        """Return the same with the rows of its blocks."""
        return self.varied(_given=blocks)

    def identity(self) -> dict[str, Any]:
        """See Source: the name that dask gives to what it would compute."""
        return {
            "format": "dask",
            "name": str(self._x.name),
            "shape": [self.n_rows, self.n_features],
            "dtype": str(self.dtype),
            **super().identity(),
        }


def array_in(source: Any) -> DaskSource | None:
    """Return the dask array that a source is, or is made of row by row; None for any other."""
    while isinstance(source, Derived):
        source = source.made_of
    return source if isinstance(source, DaskSource) else None


def with_array(source: Source, array: DaskSource) -> Source:
    """Return the same made of another array."""
    return source.like(with_array(source.made_of, array)) if isinstance(source, Derived) else array
