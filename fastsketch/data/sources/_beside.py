"""Columns that are read beside the rows, which then lack them: the key of a group, of any type, or targets.

A format that reads columns of its own (text, tables) takes a column out itself where Options.beside names one, and
gives it by ``read_beside``; of others, whose columns are all numbers, it is taken out of the rows here, as are several.
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


def set_apart(source: Source, columns: Beside) -> Source:
    """Return a source with this column, or these, beside its rows."""
    if source.beside is not None:
        if source.beside != columns:
            raise ValueError(f"beside: {source.name} has been opened with {source.beside!r} beside its rows")
        return source
    places = positions(source, columns if isinstance(columns, tuple) else [columns], "beside")
    if source.n_features <= len(set(places)):
        raise ValueError(f"beside: {source.name} has no column but {columns!r}, and none is left for the rows")
    return Apart(source, columns, places)


@contextmanager
def asked_as(argument: str) -> Generator[None]:
    """Let errors about the column beside the rows begin with the argument that named it."""
    try:
        yield
    except ValueError as error:
        if not str(error).startswith("beside: "):
            raise
        raise type(error)(str(error).replace("beside", argument, 1)) from None


class Apart(Derived):
    """The rows of a source without some of their columns."""

    def __init__(self, source: Source, columns: Beside, places: Sequence[int]) -> None:
        super().__init__(source)
        self.beside, self._places = columns, list(places)
        self._others = np.delete(np.arange(source.n_features), self._places)
        self.n_features = len(self._others)
        names = source.feature_names
        self.feature_names = None if names is None else tuple(names[k] for k in self._others)

    def like(self, source: Source) -> Source:
        """See Derived."""
        return Apart(source, self.beside or 0, self._places)

    def read(self, start_row: int = 0) -> Iterator[tuple[Any, int]]:
        """See Source."""
        for rows, _, position in self.read_beside(start_row):
            yield rows, position

    def read_beside(self, start_row: int = 0) -> Iterator[tuple[Any, NDArray[Any], int]]:
        """See Source."""
        for rows, position in self._of.read(start_row):
            yield *self.split(rows), position

    def split(self, rows: Any) -> tuple[Any, NDArray[Any]]:
        """Return rows without these columns, and the values of these."""
        others, first, d = self._others, int(self._others[0]), self.n_features
        values = rows[:, self._places]
        values = values.toarray() if is_sparse(rows) else values
        # at either end nothing need be copied
        together = int(others[-1]) - first == d - 1 and not is_sparse(rows)
        left = rows[:, first : first + d] if together else rows[:, others]
        return left, values if isinstance(self.beside, tuple) else values[:, 0].copy()

    def identity(self) -> dict[str, Any]:
        """See Source."""
        several = isinstance(self.beside, tuple)
        return {**self._of.identity(), "beside": self._places if several else self._places[0]}
