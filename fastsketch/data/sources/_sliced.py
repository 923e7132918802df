"""A source that reads objects with a shape and slicing, such as Zarr arrays, in chunks of rows."""

from collections.abc import Iterator
from typing import Any

from fastsketch._core.validation import as_rows, is_sparse
from fastsketch.data.files._input import SourceError
from fastsketch.data.sources._identity import fingerprint_of_ends
from fastsketch.data.sources._source import RowSource, rows_of_chunk


def has_slices(x: Any) -> bool:
    """Return True if x has a shape and supports indexing."""
    return isinstance(getattr(x, "shape", None), tuple) and callable(getattr(x, "__getitem__", None))


class SlicedSource(RowSource):
    """A source that reads rows from any object with a shape by slicing, x[start:stop].

    Parts are pickled with the object. `step` is the number of rows that the object stores together; chunks are
    multiples of it.
    """

    waits = False  # the object may not be thread-safe

    def __init__(self, x: Any, *, name: str | None = None, step: int = 1) -> None:
        self._x: Any = x
        self.name = f"the {type(x).__name__}" if name is None else name
        if len(x.shape) != 2:
            raise SourceError(f"{self.name} must be two-dimensional, got shape {tuple(x.shape)}")
        self.size, self.n_features = (int(size) for size in x.shape)
        self.n_rows = self.size
        if self.n_features == 0:
            raise SourceError(f"{self.name} must have at least one column, got shape {tuple(x.shape)}")
        first = self._slice(0, 0)
        self.dtype, self.sparse = first.dtype, is_sparse(first)
        self._step = step

    def _slice(self, start: int, stop: int) -> Any:
        return as_rows(self._x[start:stop], name=self.name)

    def _chunks(self, start: int) -> Iterator[Any]:
        step = -(-rows_of_chunk(self) // self._step) * self._step
        while start < self._stop:
            stop = min(start + step - start % self._step, self._stop)
            rows = self._slice(start, stop)
            if rows.shape != (stop - start, self.n_features):
                wanted = f"{stop - start} rows of {self.n_features} columns were asked for"
                where = self.where(start - self.first_row)
                raise SourceError(f"{where}: {wanted}, the slice has shape {rows.shape}")
            yield rows
            start = stop

    def identity(self) -> dict[str, Any]:
        """Return JSON values that identify the rows: the shape, and a digest of the first and the last rows."""
        return {**fingerprint_of_ends(self, type(self._x).__name__), **super().identity()}
