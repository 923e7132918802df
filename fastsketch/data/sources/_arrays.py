"""Rows that are in memory: arrays and sparse matrices."""

from collections.abc import Iterator
from typing import Any

from fastsketch._core.validation import as_rows, is_sparse
from fastsketch.data.sources import _source
from fastsketch.data.sources._identity import of_rows
from fastsketch.data.sources._source import Source, rows_of_part


class ArraySource(Source):
    """An array or a CSR matrix; chunks are parts of it, and nothing is copied."""

    waits = False

    def __init__(self, rows: Any, *, name: str = "the rows", first_row: int = 0) -> None:
        self._rows: Any = as_rows(rows)
        self.name, self.first_row = name, first_row
        self.sparse = is_sparse(self._rows)
        self.dtype = self._rows.dtype
        self.size, self.n_features = self._rows.shape
        self.n_rows = self.size

    @property
    def n_bytes(self) -> int:
        """See Source."""
        return 16 * self._rows.nnz if self.sparse else self._rows.nbytes

    def read(self, start_row: int = 0) -> Iterator[tuple[Any, int]]:
        """See Source."""
        step = rows_of_part(self, _source.CHUNK_BYTES, 1)
        for start in range(start_row, self.size, step):
            stop = min(start + step, self.size)
            yield self._rows[start:stop], stop

    def between(self, start: int, stop: int) -> Source:
        """See Source."""
        part = ArraySource(self._rows[start:stop], name=self.name, first_row=self.first_row + start)
        part.feature_names = self.feature_names
        return part

    def identity(self) -> dict[str, Any]:
        """See Source."""
        rows = self._rows
        arrays = (rows.indptr, rows.indices, rows.data) if self.sparse else (rows,)
        return {"format": "array", "shape": list(rows.shape), "dtype": str(rows.dtype), "digest": of_rows(*arrays)}
