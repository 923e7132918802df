"""Objects with a shape whose slices are rows: read a chunk at a time, never whole."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from fastsketch._core.validation import as_rows, is_sparse
from fastsketch.data.files._input import SourceError
from fastsketch.data.sources import _source
from fastsketch.data.sources._source import Source, rows_of_part


def has_slices(x: Any) -> bool:
    """Return whether x has a shape and can be sliced."""
    return isinstance(getattr(x, "shape", None), tuple) and callable(getattr(x, "__getitem__", None))


class SlicedSource(Source):
    """Rows x[start:stop] of an object; parts pickle as the object does.

    A subclass may know a better number of rows of a chunk (`step`): those that the object stores together.
    """

    waits = False  # it is not known whether the object may be used in another thread

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
        rows = self._x[start:stop]
        return as_rows(rows if is_sparse(rows) else np.asarray(rows), name=self.name)

    def read(self, start_row: int = 0) -> Iterator[tuple[Any, int]]:
        """See Source."""
        step = -(-rows_of_part(self, _source.CHUNK_BYTES, 1) // self._step) * self._step
        place = start_row
        while place < self.size:
            stop = min(place + step - (self.first_row + place) % self._step, self.size)
            rows = self._slice(self.first_row + place, self.first_row + stop)
            if rows.shape != (stop - place, self.n_features):
                raise SourceError(
                    f"{self.where(place)}: {stop - place} rows of {self.n_features} columns were asked for, the slice "
                    f"has shape {rows.shape}"
                )
            yield rows, stop
            place = stop

    def between(self, start: int, stop: int) -> Source:
        """See Source."""
        return self.varied(first_row=self.first_row + start, n_rows=stop - start, size=stop - start)

    def identity(self) -> dict[str, Any]:
        """See Source: the shape, and a digest of its first and its last rows."""
        from fastsketch.data.sources._identity import of_rows

        found = {"format": type(self._x).__name__, "shape": list(self._x.shape), "dtype": str(self.dtype)}
        ends = [self._slice(self.first_row, self.first_row + min(self.size, 16))]
        ends.append(self._slice(max(self.first_row, self.first_row + self.size - 16), self.first_row + self.size))
        dense = [end.toarray() if is_sparse(end) else end for end in ends]
        return {**found, "rows": [self.first_row, self.size], "digest": of_rows(*dense)}
