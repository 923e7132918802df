"""Split extra columns (the key of a group, or targets) off the rows of a source.

Tables split one column off themselves, of any type (Options.beside). The columns of other formats are numbers and are
split off here; so are several columns.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.validation import is_sparse
from fastsketch.data.sources._column_names import positions
from fastsketch.data.sources._select import Derived
from fastsketch.data.sources._source import Beside, Source


def split_off_columns(source: Source, columns: Beside) -> Source:
    """Split columns off a source. Return a source of the other columns, whose ``read_beside`` also yields the split
    columns.
    """
    if source.beside is not None:
        if source.beside != columns:
            raise ValueError(f"beside: {source.name} has been opened with {source.beside!r} beside its rows")
        return source
    places = positions(source, columns if isinstance(columns, tuple) else [columns], "beside")
    if source.n_features <= len(set(places)):
        raise ValueError(f"beside: {source.name} has no column but {columns!r}, and none is left for the rows")
    return SplitColumns(source, columns, places)


@contextmanager
def rename_beside_in_errors(argument: str) -> Generator[None]:
    """Replace the word "beside" by `argument` in the ValueErrors that a ``with`` block or function raises.
    For callers whose own argument, for example target, is passed on as `beside`.
    """
    try:
        yield
    except ValueError as error:
        if not str(error).startswith("beside: "):
            raise
        raise type(error)(str(error).replace("beside", argument, 1)) from None


class SplitColumns(Derived):
    """Source that reads another source and separates some of its columns, such as targets, from the rows."""

    def __init__(self, source: Source, columns: Beside, places: Sequence[int]) -> None:
        super().__init__(source)
        self.beside, self._places = columns, list(places)
        self._others = np.delete(np.arange(source.n_features), self._places)
        self.n_features = len(self._others)
        names = source.feature_names
        self.feature_names = None if names is None else tuple(names[k] for k in self._others)

    def like(self, source: Source) -> Source:
        """Return a source that separates the same columns of another source, such as a part of the original."""
        return SplitColumns(source, self.beside or 0, self._places)

    def read(self, start_row: int = 0) -> Iterator[tuple[Any, int]]:
        """Yield (rows without the extra columns, position in the source) for each chunk."""
        for rows, _, position in self.read_beside(start_row):
            yield rows, position

    def read_beside(self, start_row: int = 0) -> Iterator[tuple[Any, NDArray[Any], int]]:
        """Yield (rows without the extra columns, values of the extra columns, position in the source) per chunk."""
        for rows, position in self._of.read(start_row):
            yield *self.split(rows), position

    def split(self, rows: Any) -> tuple[Any, NDArray[Any]]:
        """Split a chunk of rows. Return the rows without the extra columns, and the values of these columns."""
        others, first, d = self._others, int(self._others[0]), self.n_features
        values = rows[:, self._places]
        values = values.toarray() if is_sparse(rows) else values
        # if the extra columns are at either end, the others are a view
        together = int(others[-1]) - first == d - 1 and not is_sparse(rows)
        left = rows[:, first : first + d] if together else rows[:, others]
        return left, values if isinstance(self.beside, tuple) else values[:, 0].copy()

    def identity(self) -> dict[str, Any]:
        """Return JSON values that identify the rows and the positions of the extra columns."""
        several = isinstance(self.beside, tuple)
        return {**self._of.identity(), "beside": self._places if several else self._places[0]}
