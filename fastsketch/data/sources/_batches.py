"""A source that reads batches from an iterator; it can be read only once."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np

from fastsketch.data.files._input import SourceError
from fastsketch.data.sources._column_names import check_names
from fastsketch.data.sources._source import Place, RowSource, Source


class BatchSource(RowSource):
    """A source of the arrays, sparse matrices or data frames that an iterator yields, all of one width and dtype.

    The first batch is taken from the iterator at construction, because it determines width and dtype. `opened` makes a
    source of a batch. With any_dtype=True the dtypes may differ, because the caller converts all rows to one.
    """

    repeatable = waits = False
    n_rows: int | None = None

    def __init__(self, batches: Iterable[Any], opened: Callable[[Any], Source], *, any_dtype: bool = False) -> None:
        self.name = f"the {type(batches).__name__}"
        self._opened, self._any_dtype = opened, any_dtype
        rest = iter(batches)
        first = next(rest, None)
        if first is None:
            raise SourceError(f"{self.name} gives no batches of rows")
        self._batches = chain([first], rest)
        source = self._source(first, 0)
        self.n_features, self.feature_names = source.n_features, source.feature_names
        self.dtype, self.sparse = source.dtype, source.sparse
        self._starts: list[int] = []  # rows before each batch that has been read

    def _source(self, batch: Any, number: int) -> Source:
        if isinstance(batch, tuple):
            raise SourceError(f"{self.name}: batch {number} is a tuple: give the rows alone")
        try:
            return self._opened(batch)
        except (ValueError, TypeError) as error:
            raise SourceError(f"{self.name}: batch {number}: {error}") from error

    def _chunks(self, start: int) -> Iterator[Any]:
        row = 0
        for number, batch in enumerate(self._batches):
            source = self._source(batch, number)
            self._check(source, number)
            self._starts.append(row)
            for rows, _ in source.read():
                row += rows.shape[0]
                skipped = max(0, start - (row - rows.shape[0]))
                if skipped < rows.shape[0]:
                    kept = rows[skipped:] if skipped else rows
                    yield kept if self.dtype is None or self._any_dtype else kept.astype(self.dtype, copy=False)

    def _check(self, source: Source, number: int) -> None:
        of = f"{self.name}: batch {number}"
        if source.n_features != self.n_features:
            raise SourceError(f"{of} has {source.n_features} columns, those before {self.n_features}")
        if source.feature_names is not None and self.feature_names is not None:
            check_names(source.feature_names, self.feature_names, of, "those before")
        if self._any_dtype or self.dtype is None or source.dtype is None:
            return
        if not np.can_cast(source.dtype, self.dtype, "safe"):
            raise SourceError(f"{of} holds {source.dtype}, those before {self.dtype}: give the dtype of all")

    def place(self, row: int) -> Place:
        """Return the position of a row for messages: the number of its batch, and the row within that batch."""
        number = max(0, sum(start <= row for start in self._starts) - 1)
        start = self._starts[number] if self._starts else 0
        return Place(f"{self.name}, batch {number}", row - start, None)
