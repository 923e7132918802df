"""A segment: codes of one generation, with their ids and kept rows; it never changes, others take its place."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch.neighbours.codes import Encoder
from fastsketch.neighbours.codes._blocks import Blocks, CodeRows
from fastsketch.neighbours.codes._places import Ids, Positions, Runs, ascending, find, with_run
from fastsketch.neighbours.codes._search import estimated_norms

if TYPE_CHECKING:
    from fastsketch.neighbours.index._cells import Cells

Mask = NDArray[np.bool_]
# Names of the arrays of a segment, in memory and in files.
CODES, IDS, ROWS, REMOVED, MIDDLES, STARTS = "codes", "ids", "rows", "removed", "middles", "starts"

# Most rows of a segment. A search goes through the segments one by one, so that few are better; the last one grows by a
# share of itself and is moved then, so that small ones are better.
SEGMENT_ROWS = 1 << 20
# Most rows of one that is compacted into cells: ten million in one segment are searched in a quarter of the time that
# ten segments take, each with cells of its own, and it is written anew when it is compacted alone.
COMPACT_ROWS = 1 << 24
# Rows that are encoded, decoded, converted or moved at a time.
PIECE_ROWS = 1 << 14


class Written(NamedTuple):
    """A file that holds an array of a segment."""

    folder: Path
    file: str
    crc32: int


@dataclass(frozen=True, eq=False)
class Segment:
    """Rows of an index that were encoded by one encoder.

    Parameters
    ----------
    encoder : Encoder
    codes : CodeRows, or Blocks
    ids : ndarray int64 (n,)
    rows : ndarray float16 or float32 (n, d), or None
        Kept rows.
    removed : ndarray bool (n,), or None
        Which of them do not count any more; None if all count.
    runs : tuple of Run
        How to find an id.
    cells : Cells, or None
        How its rows lie, if near ones lie together.
    written : dict
        {name of an array: its file}, of those that are in files.
    derived : dict
        What a search has made of the codes and keeps for the next one.
    """

    encoder: Encoder
    codes: CodeRows
    ids: Ids
    rows: NDArray[np.floating[Any]] | None = None
    removed: Mask | None = None
    runs: Runs = ()
    cells: "Cells | None" = None
    written: dict[str, Written] = field(default_factory=dict[str, Written])
    derived: dict[str, NDArray[Any]] = field(default_factory=dict[str, NDArray[Any]])

    def __len__(self) -> int:
        return len(self.ids)

    def __reduce__(self) -> tuple[Any, ...]:
        held = self.encoder, self.codes, self.ids, self.rows, self.removed, self.runs, self.cells, self.written
        return Segment, held

    @cached_property
    def n_removed(self) -> int:
        """Return the number of rows that do not count any more."""
        return 0 if self.removed is None else int(np.count_nonzero(self.removed))

    @property
    def n_live(self) -> int:
        """Return the number of rows that count."""
        return len(self) - self.n_removed

    @cached_property
    def live(self) -> Mask | None:
        """Return which rows count; None if all do."""
        return None if self.removed is None else ~self.removed

    @cached_property
    def in_order(self) -> bool:
        """Return whether the ids ascend, so that the order of the rows is that of their ids."""
        return len(self.runs) == 1 and self.runs[0].order is None if self.runs else ascending(self.ids)

    @property
    def live_ids(self) -> Ids:
        """Return the ids of the rows that count."""
        return self.ids if self.live is None else self.ids[self.live]

    @property
    def norms(self) -> NDArray[np.float32]:
        """Return estimated lengths of the rows, kept once somebody has asked for cosines."""
        if "norms" not in self.derived:
            self.derived["norms"] = estimated_norms(self.encoder, self.codes)
        return self.derived["norms"]

    def find(self, ids: Ids) -> Positions:
        """Return where the rows of these ids are, -1 for those that are not here or do not count."""
        if not len(self) or not len(ids):
            return np.full(len(ids), -1, np.int64)
        positions = find(self.runs, self.ids, ids)
        if self.removed is not None:
            positions[(positions >= 0) & self.removed[np.maximum(positions, 0)]] = -1
        return positions

    def without(self, positions: Positions) -> "Segment":
        """Return the segment with these rows removed, too."""
        removed = np.zeros(len(self), np.bool_) if self.removed is None else self.removed.copy()
        removed[positions] = True
        written = {name: file for name, file in self.written.items() if name != REMOVED}
        return replace(self, removed=removed, written=written)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of a file, by name; a bitmap of the removed rows, in the little order, if there are any."""
        out: dict[str, NDArray[Any]] = {CODES: self.codes.data, IDS: self.ids}
        if self.rows is not None:
            out[ROWS] = self.rows
        if self.removed is not None:
            out[REMOVED] = np.packbits(self.removed, bitorder="little")
        if self.cells is not None:
            out[MIDDLES], out[STARTS] = self.cells.middles, self.cells.starts
        return out

    def n_bytes(self) -> int:
        """Return the bytes of the arrays, of what finds an id and of what searches have kept."""
        orders = (run.order for run in self.runs)
        cells = () if self.cells is None else (self.cells.middles, self.cells.starts)
        held = (self.codes.data, self.ids, self.rows, self.removed, *orders, *cells, *self.derived.values())
        return sum(array.nbytes for array in held if array is not None)


def kind_for(metric: str) -> type[CodeRows]:
    """Return how the codes of an index lie."""
    return CodeRows if metric == "hamming" else Blocks


def pieces(n: int) -> Iterator[slice]:
    """Yield slices of n rows."""
    for start in range(0, n, PIECE_ROWS):
        yield slice(start, min(n, start + PIECE_ROWS))


def joined(segments: "list[Segment]") -> Segment:
    """Return one segment of the rows that count of several of one encoder, in their order."""
    ids = _gathered([(s.ids, s.live) for s in segments])
    codes = segments[0].codes.empty(len(ids), segments[0].encoder.layout)
    at = 0
    for segment in segments:
        for piece in pieces(len(segment)):
            some = segment.codes.part(piece.start, piece.stop)
            some = some if segment.live is None else some[segment.live[piece]]
            codes.put(at, some)
            at += len(some)
    with_rows = [(s.rows, s.live) for s in segments if s.rows is not None]
    rows = _gathered(with_rows) if with_rows else None
    return Segment(segments[0].encoder, codes, ids, rows, runs=with_run((), ids))


def _gathered(pieces: list[tuple[NDArray[Any], Mask | None]]) -> NDArray[Any]:
    counts = [len(array) if live is None else int(np.count_nonzero(live)) for array, live in pieces]
    first = pieces[0][0]
    out = np.empty((sum(counts), *first.shape[1:]), first.dtype)
    at = 0
    for (array, live), n in zip(pieces, counts, strict=True):
        # out[at : at + n] = array[live]
        if live is None:
            out[at : at + n] = array
        else:
            np.compress(live, array, axis=0, out=out[at : at + n])
        at += n
    return out
