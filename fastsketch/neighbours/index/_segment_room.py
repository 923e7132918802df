"""Arrays with room for rows to come: the last segment of an index is a view of their beginning."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch.neighbours.codes import Encoder
from fastsketch.neighbours.codes._blocks import CodeRows
from fastsketch.neighbours.codes._layout import Codes
from fastsketch.neighbours.codes._places import Ids, with_run
from fastsketch.neighbours.index._segment import SEGMENT_ROWS, Segment

# The first rows that there is room for, and the share by which the room grows: what an index holds and does not use.
FIRST_ROWS, GROWTH = 1024, 4


class CodedBatch(NamedTuple):
    """Rows to be added."""

    codes: Codes
    ids: Ids
    rows: NDArray[np.floating[Any]] | None

    def part(self, start: int, stop: int) -> "CodedBatch":
        """Return some rows of the batch."""
        rows = None if self.rows is None else self.rows[start:stop]
        return CodedBatch(self.codes[start:stop], self.ids[start:stop], rows)


class SegmentRoom(NamedTuple):
    """Arrays of which the first entries are the rows of a segment.

    What lies behind them is nobody's: who was interrupted while writing there has changed nothing.
    """

    codes: CodeRows
    arrays: tuple[NDArray[Any], ...]  # ids, and rows if they are kept
    segment: Segment

    @property
    def capacity(self) -> int:
        """Return how many rows fit in."""
        return len(self.codes)

    @property
    def left(self) -> int:
        """Return how many rows the segment can still take."""
        return SEGMENT_ROWS - len(self.segment)

    def with_batch(self, batch: CodedBatch, coming: int) -> "SegmentRoom":
        """Return the room with a batch that fits in a segment behind its rows, and `coming` rows in all expected."""
        n = len(self.segment)
        stop = n + len(batch.ids)
        new = (batch.ids,) if batch.rows is None else (batch.ids, batch.rows)
        held, arrays = self.codes, self.arrays
        if stop > self.capacity:
            capacity = min(SEGMENT_ROWS, max(n + coming, n + n // GROWTH, FIRST_ROWS))
            held = held.moved(n, capacity)
            arrays = tuple(np.empty((capacity, *array.shape[1:]), array.dtype) for array in arrays)
            for array, old in zip(arrays, self.arrays, strict=True):
                array[:n] = old[:n]
        held.put(n, batch.codes)
        for array, values in zip(arrays, new, strict=True):
            array[n:stop] = values
        ids, rows = arrays[0][:stop], arrays[1][:stop] if len(arrays) > 1 else None
        removed = self.segment.removed
        if removed is not None:
            removed = np.concatenate([removed, np.zeros(stop - n, np.bool_)])
        runs = with_run(self.segment.runs, ids)
        segment = Segment(self.segment.encoder, held.first(stop), ids, rows, removed, runs)
        return SegmentRoom(held, arrays, segment)


def empty_room(kind: type[CodeRows], encoder: Encoder, rows_dtype: np.dtype[Any] | None) -> SegmentRoom:
    """Return room for codes of an encoder, with no row in it."""
    codes, ids = kind.empty(0, encoder.layout), np.empty(0, np.int64)
    rows = None if rows_dtype is None else np.empty((0, encoder.n_features), rows_dtype)
    return SegmentRoom(codes, (ids,) if rows is None else (ids, rows), Segment(encoder, codes, ids, rows))
