"""Arrays with room for rows to come: the last segment of an index is a view of their beginning."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch.codes import Encoder
from fastsketch.indexing._places import Ids, with_run
from fastsketch.indexing._segment import SEGMENT_ROWS, Codes, Segment

# The first rows that there is room for, and the share by which the room grows: what an index holds and does not use.
FIRST_ROWS, GROWTH = 1024, 4


class Batch(NamedTuple):
    """Rows to be added."""

    codes: Codes
    ids: Ids
    rows: NDArray[np.floating[Any]] | None

    def part(self, start: int, stop: int) -> "Batch":
        """Some of its rows."""
        rows = None if self.rows is None else self.rows[start:stop]
        return Batch(self.codes[start:stop], self.ids[start:stop], rows)


class Room(NamedTuple):
    """Arrays of which the first entries are the rows of a segment.

    What lies behind them is nobody's: who was interrupted while writing there has changed nothing.
    """

    arrays: tuple[NDArray[Any], ...]  # codes, ids, and rows if they are kept
    segment: Segment

    @property
    def capacity(self) -> int:
        """Rows that fit in."""
        return len(self.arrays[0])

    @property
    def left(self) -> int:
        """Rows that the segment can still take."""
        return SEGMENT_ROWS - len(self.segment)

    def with_batch(self, batch: Batch, coming: int) -> "Room":
        """The room with a batch that fits in a segment behind its rows, and `coming` rows in all expected."""
        n = len(self.segment)
        stop = n + len(batch.ids)
        new = tuple(array for array in batch if array is not None)
        arrays = self.arrays
        if stop > self.capacity:
            capacity = min(SEGMENT_ROWS, max(n + coming, n + n // GROWTH, FIRST_ROWS))
            arrays = tuple(np.empty((capacity, *array.shape[1:]), array.dtype) for array in arrays)
            for array, old in zip(arrays, self.arrays, strict=True):
                array[:n] = old[:n]
        for array, values in zip(arrays, new, strict=True):
            array[n:stop] = values
        codes, ids = arrays[0][:stop], arrays[1][:stop]
        rows = arrays[2][:stop] if len(arrays) > 2 else None
        removed = self.segment.removed
        if removed is not None:
            removed = np.concatenate([removed, np.zeros(stop - n, np.bool_)])
        runs = with_run(self.segment.runs, ids)
        segment = Segment(self.segment.encoder, codes, ids, rows, removed, runs)
        return Room(arrays, segment)


def empty_room(encoder: Encoder, rows_dtype: np.dtype[Any] | None) -> Room:
    """Room for codes of an encoder, with no row in it."""
    codes, ids = np.empty((0, encoder.width), np.uint8), np.empty(0, np.int64)
    rows = None if rows_dtype is None else np.empty((0, encoder.n_features), rows_dtype)
    kept = () if rows is None else (rows,)
    return Room((codes, ids, *kept), Segment(encoder, codes, ids, rows))
