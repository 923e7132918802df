"""Concatenate sources that have the same number of columns."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch.data.files._input import SourceError
from fastsketch.data.sources._column_names import common_names
from fastsketch.data.sources._select import picked
from fastsketch.data.sources._source import Place, Source, length, rows_of_part
from fastsketch.data.sources._svmlight_source import SvmlightSource


def concatenate(sources: Sequence[Source]) -> Source:
    """Return one source that reads several sources one after another. A single source is returned unchanged.

    Raises
    ------
    SourceError
        If they differ in their number of columns, or in the names of these.
    """
    sources = [one for source in sources for one in source.each()]
    return sources[0] if len(sources) == 1 else Concatenated(_of_one_width(sources))


def _of_one_width(sources: list[Source]) -> list[Source]:
    """Set the widths of svmlight sources to the largest one, in place, and return all sources.
    SourceError if other sources differ in width.
    """
    first = next((source for source in sources if not isinstance(source, SvmlightSource)), sources[0])
    for other in sources:
        is_text = isinstance(other, SvmlightSource)
        may_grow = is_text and (isinstance(first, SvmlightSource) or other.n_features < first.n_features)
        if other.n_features != first.n_features and not may_grow:
            common_names(sources)  # raises an error that names the column
            raise SourceError(
                f"the inputs differ in their number of columns: {first.name} has {first.n_features}, {other.name} has "
                f"{other.n_features}"
            )
    width = max(source.n_features for source in sources)
    return [source if source.n_features == width else source.varied(n_features=width) for source in sources]


class Concatenated(Source):
    """A source that reads the rows of several sources, one after another."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self.sources = list(sources)
        first = self.sources[0]
        self.name = first.name if len(self.sources) == 1 else f"{first.name} and {len(self.sources) - 1} more"
        self.n_features = first.n_features
        self.feature_names = common_names(self.sources)
        dtypes = [source.dtype for source in self.sources]
        known = [dtype for dtype in dtypes if dtype is not None]
        self.dtype = np.result_type(*known) if len(known) == len(dtypes) else None
        self.complete = all(source.complete for source in self.sources)
        self.beside, self.taken = first.beside, first.taken
        self.labelled = all(source.labelled for source in self.sources)
        self.sparse = any(source.sparse for source in self.sources)
        self.repeatable = all(source.repeatable for source in self.sources)
        self.waits = self.repeatable and any(source.waits for source in self.sources)
        rows = [source.n_rows for source in self.sources]
        counts = [n for n in rows if n is not None]
        self.n_rows = sum(counts) if len(counts) == len(rows) else None
        self.size = sum(source.size for source in self.sources)
        # rows before each source, as far as known; text is counted when it is read
        self._before: list[int] = [0, *accumulate(counts)]
        self._counted: dict[int, int] = {k: row for k, row in enumerate(rows) if row is not None}

    @property
    def n_bytes(self) -> int:
        """Approximate size of the rows of all sources, in bytes."""
        return sum(source.n_bytes for source in self.sources)

    def read(self, start_row: int = 0) -> Iterator[tuple[Any, int]]:
        """Yield (rows, position in the source) for each chunk of all sources, from row `start_row` on."""
        return cast("Any", self._each(start_row, lambda source, row: source.read(row)))

    def read_beside(self, start_row: int = 0) -> Iterator[tuple[Any, NDArray[Any], int]]:
        """Yield (rows, values of the extra column `beside`, position in the source) for each chunk of all sources."""
        return cast("Any", self._each(start_row, lambda source, row: source.read_beside(row)))

    def _each(self, start_row: int, read: Callable[[Source, int], Iterator[Any]]) -> Iterator[tuple[Any, ...]]:
        """Yield the chunks of all sources, one source after another. `read` yields the chunks of one source from a
        row on. Row numbers are counted through all sources.
        """
        before = first = 0
        for k, source in enumerate(self.sources):
            known = self._counted.get(k)
            if known is None or first + known > start_row:
                skip = max(0, start_row - first)
                # the end of a source of unknown length is found only by reading
                left, rows_here = (skip, 0) if known is None else (0, skip)
                for rows, *values, position in read(source, skip - left):
                    n = length(rows)
                    gone = min(left, n)
                    left, rows_here = left - gone, rows_here + n
                    if gone:
                        rows, values = rows[gone:], [column[gone:] for column in values]
                    if gone < n:
                        yield self._cast(rows), *values, before + position
                known = self._counted[k] = rows_here
            first, before = first + known, before + source.size

    def _cast(self, rows: Any) -> Any:
        return rows if self.dtype is None or rows.dtype == self.dtype else rows.astype(self.dtype)

    def between(self, start: int, stop: int) -> Source:
        """Return rows [start, stop) as a source, which may span several of the sources."""
        sources: list[Source] = []
        first = max(0, bisect_right(self._before, start) - 1)
        for source, before in zip(self.sources[first:], self._before[first:], strict=False):
            if before >= stop:
                break
            low, high = max(start - before, 0), min(stop - before, source.n_rows or 0)
            if low < high:
                sources.append(source if high - low == source.n_rows else source.between(low, high))
        part = self._part(sources or self.sources[first : first + 1])
        part.first_row = self.first_row + start
        return part

    def _part(self, sources: list[Source]) -> "Concatenated":
        part = Concatenated(sources)
        part.dtype, part.feature_names, part.sparse = self.dtype, self.feature_names, self.sparse
        return part

    def each(self) -> list[Source]:
        """Return the list of the sources that are concatenated."""
        return self.sources

    def only(self, columns: Sequence[int]) -> Source:
        """Return a source that reads only the columns at these positions, in this order."""
        return Concatenated([picked(source, columns) for source in self.sources])

    def parts(self, n_bytes: int, *, multiple: int = 1) -> list[Source]:
        """Split the rows into consecutive sources of about n_bytes each, for a parallel job, and return them as a list.

        If all sources know their numbers of rows, a part is a range of rows and may span several sources. Otherwise
        each source is split, and consecutive small parts are concatenated.
        """
        if not self.repeatable:
            return [self]
        if self.n_rows is not None and (multiple > 1 or all(map(_can_be_cut, self.sources))):
            step = rows_of_part(self, n_bytes, multiple)
            cuts = range(0, max(1, self.n_rows), step)
            return [self.between(start, min(start + step, self.n_rows)) for start in cuts]
        groups: list[list[Source]] = []
        held = 0
        for part in (part for source in self.sources for part in source.parts(n_bytes, multiple=multiple)):
            if groups and held + part.n_bytes <= n_bytes:
                groups[-1].append(part)
                held += part.n_bytes
            else:
                groups.append([part])
                held = part.n_bytes
        return [self._part(group) for group in groups]

    def identity(self) -> dict[str, Any]:
        """Return JSON values that identify the rows of every source."""
        return {"sources": [source.identity() for source in self.sources]}

    def _row_names(self) -> NDArray[Any] | None:
        names = [source._row_names() for source in self.sources]
        known = [some for some in names if some is not None]
        return np.concatenate(known) if len(known) == len(names) else None

    def place(self, row: int) -> Place:
        """Return the file, row and line of a row, for messages."""
        for k, source in enumerate(self.sources):
            known = self._counted.get(k)
            if known is None or row < known or k == len(self.sources) - 1:
                return source.place(row)
            row -= known
        raise IndexError(row)


def _can_be_cut(source: Source) -> bool:
    """Return True if a source can be split at any row without reading the rows before it."""
    return type(source).parts is Source.parts
