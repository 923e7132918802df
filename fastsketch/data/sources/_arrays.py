"""Sources of arrays and sparse matrices in memory."""

from collections.abc import Iterator
from typing import Any

from fastsketch._core.validation import as_rows, is_sparse
from fastsketch.data.sources._identity import of_rows
from fastsketch.data.sources._source import RowSource, Source


class ArraySource(RowSource):
    """A source that reads its rows from an array or CSR matrix in memory. Chunks of an array are views."""

    waits = False

    def __init__(self, rows: Any, *, name: str = "the rows") -> None:
        self._rows: Any = as_rows(rows)
        self.name = name
        self.sparse = is_sparse(self._rows)
        self.dtype = self._rows.dtype
        self.size, self.n_features = self._rows.shape
        self.n_rows = self.size

    @property
    def n_bytes(self) -> int:
        """Approximate size of the rows in memory, in bytes."""
        return 16 * self._rows.nnz if self.sparse else self._rows.nbytes

    def _chunks(self, start: int) -> Iterator[Any]:
        for first, stop in self._steps(start):
            yield self._rows[first - self.first_row : stop - self.first_row]

    def between(self, start: int, stop: int) -> Source:
        """Return rows [start, stop) as a source; dense rows are a view."""
        return self.varied(
            _rows=self._rows[start:stop], first_row=self.first_row + start, n_rows=stop - start, size=stop - start
        )

    def identity(self) -> dict[str, Any]:
        """Return JSON values that identify the array: shape, dtype and a digest of sampled rows."""
        rows = self._rows
        arrays = (rows.indptr, rows.indices, rows.data) if self.sparse else (rows,)
        return {"format": "array", "shape": list(rows.shape), "dtype": str(rows.dtype), "digest": of_rows(*arrays)}
