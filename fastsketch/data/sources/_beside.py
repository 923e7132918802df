"""A column that is read beside the rows, which then lack it: the key of a group, of any type that its format has.

A format that reads columns of its own (text, tables) takes the column out itself where Options.beside names one, and
gives it by ``read_beside``; of others, whose columns are all numbers, it is taken out of the rows here.
"""

from collections.abc import Iterator
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.validation import is_sparse
from fastsketch.data.sources._column_names import positions
from fastsketch.data.sources._select import Derived
from fastsketch.data.sources._source import Source


def set_apart(source: Source, column: str | int) -> Source:
    """Return a source with this column beside its rows."""
    if source.beside is not None:
        if source.beside != column:
            raise ValueError(f"beside: {source.name} has been opened with {source.beside!r} beside its rows")
        return source
    place = positions(source, [column], "beside")[0]
    if source.n_features < 2:
        raise ValueError(f"{source.name} has no column but {column!r}")
    return Apart(source, column, place)


class Apart(Derived):
    """The rows of a source without one of their columns."""

    def __init__(self, source: Source, column: str | int, place: int) -> None:
        super().__init__(source)
        self.beside, self._place = column, place
        self.n_features -= 1
        names = source.feature_names
        self.feature_names = None if names is None else (*names[:place], *names[place + 1 :])

    def like(self, source: Source) -> Source:
        """See Derived."""
        return Apart(source, self.beside or 0, self._place)

    def read(self, start_row: int = 0) -> Iterator[tuple[Any, int]]:
        """See Source."""
        for rows, _, position in self.read_beside(start_row):
            yield rows, position

    def read_beside(self, start_row: int = 0) -> Iterator[tuple[Any, NDArray[Any], int]]:
        """See Source."""
        k, last = self._place, self.n_features
        for rows, position in self._of.read(start_row):
            if is_sparse(rows):
                others = np.delete(np.arange(last + 1), k)
                sparse = cast("Any", rows)
                yield sparse[:, others], sparse[:, [k]].toarray()[:, 0], position
                continue
            dense = cast("NDArray[Any]", rows)
            # at either end nothing need be copied
            left = dense[:, 1:] if k == 0 else dense[:, :last] if k == last else np.delete(dense, k, axis=1)
            yield left, dense[:, k].copy(), position

    def identity(self) -> dict[str, Any]:
        """See Source."""
        return {**self._of.identity(), "beside": self._place}
