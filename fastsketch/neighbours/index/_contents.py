"""Contents of an index: segments in the order of their rows. Every change makes new ones and leaves the old."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch.data.files._checks import MOST_COUNT
from fastsketch.data.names._id_map import IdMap, no_ids, taken
from fastsketch.neighbours.codes import Encoder
from fastsketch.neighbours.codes._places import Ids, Positions
from fastsketch.neighbours.codes._search_arguments import as_integers, different, shown
from fastsketch.neighbours.index._segment import COMPACT_ROWS, SEGMENT_ROWS, Segment, joined
from fastsketch.neighbours.index._segment_room import CodedBatch, SegmentRoom, empty_room


class Contents(NamedTuple):
    """Full segments, and the open one of the present encoder, to which rows are added."""

    sealed: tuple[Segment, ...]
    room: SegmentRoom
    next_id: int  # above all that were ever given
    names: IdMap | None = None  # the ids that people see, in place of numbers; None: the numbers are the ids

    @property
    def encoder(self) -> Encoder:
        """Return the encoder of what is added."""
        return self.room.segment.encoder

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Return the segments that have rows."""
        last = self.room.segment
        return (*self.sealed, last) if len(last) else self.sealed

    @property
    def n_live(self) -> int:
        """Return the number of rows that count."""
        return sum(segment.n_live for segment in self.segments)

    @property
    def live_ids(self) -> Ids:
        """Return the ids of the rows that count, in the order of the rows."""
        return np.concatenate([np.empty(0, np.int64), *(segment.live_ids for segment in self.segments)])

    # -- where rows are ------------------------------------------------------------------------------------------------
    def locate(self, ids: Ids) -> tuple[NDArray[np.int64], Positions]:
        """Return (number of the segment, position in it) of the rows of ids; -1, -1 where there is none."""
        which, where = np.full(len(ids), -1, np.int64), np.full(len(ids), -1, np.int64)
        for number, segment in enumerate(self.segments):
            positions = segment.find(ids)
            hit = positions >= 0
            which[hit], where[hit] = number, positions[hit]
        return which, where

    def located(self, ids: Ids, name: str) -> tuple[NDArray[np.int64], Positions]:
        """Return what ``locate`` does; IndexError for ids that are not there."""
        which, where = self.locate(ids)
        if (which < 0).any():
            raise IndexError(f"{name} must be in the index: {shown(self.named(ids[which < 0]))} not found")
        return which, where

    # -- ids that are strings ------------------------------------------------------------------------------------------
    def named(self, ids: Ids) -> NDArray[Any]:
        """Return the ids that people see, in the shape of the numbers; of -1 None where they are strings."""
        return ids if self.names is None else taken(self.names, ids)

    def numbers_of(self, ids: ArrayLike, name: str = "ids") -> Ids:
        """Return the numbers of some ids, or of one: -1 for a string without one; TypeError or ValueError."""
        if self.names is None:
            return as_ids(ids, name)
        return self.names.places(np.atleast_1d(ids), name)

    def known_numbers(self, ids: ArrayLike, name: str = "ids") -> Ids:
        """Return the same; IndexError for a string that the index never had."""
        out = self.numbers_of(ids, name)
        if self.names is not None and out.min(initial=0) < 0:
            raise IndexError(f"{name} must be in the index: {shown(np.atleast_1d(ids)[out < 0])} not found")
        return out

    def different(self, numbers: Ids, name: str = "ids") -> Ids:
        """Return the same numbers; ValueError that lists the ids of those that come twice."""
        if self.names is not None and len(np.unique(numbers)) < len(numbers):
            seen, counts = np.unique(numbers, return_counts=True)
            raise ValueError(f"{name} must be different, got {shown(self.named(seen[counts > 1]))} more than once")
        return different(numbers, name)

    def with_names(self, ids: ArrayLike | None) -> tuple["Contents", ArrayLike | None]:
        """Return (contents that know the ids of new rows, if they are strings; the ids as numbers).

        TypeError for integers and strings in one index.
        """
        given: Any = [] if ids is None else ids if np.ndim(ids) else [ids]
        if type(ids) is tuple:
            given = list(cast("tuple[Any, ...]", ids))
        strings = len(given) > 0 and isinstance(np.asarray(given).flat[0], str)
        if self.names is None and not strings:
            return self, ids
        if ids is None:
            raise ValueError("the ids of this index are strings: pass one for each row")
        if self.names is None and self.next_id:
            raise TypeError("ids must be integers, as those of the index are, got strings")
        names, numbers = (no_ids() if self.names is None else self.names).extended(given)
        if names.kind != "strings":
            raise TypeError("ids must be all integers or all strings")
        return self._replace(names=names), numbers

    # -- what rows that come need --------------------------------------------------------------------------------------
    def new_ids(self, ids: ArrayLike | None, n: int) -> Ids:
        """Return ids for n rows that come: those given, int64 and new, or the next ones; TypeError or ValueError."""
        if ids is None:
            if self.next_id + n > MOST_COUNT:
                raise ValueError("there are no ids above those in the index: pass ids")
            return np.arange(self.next_id, self.next_id + n)
        out = as_ids(ids)
        if len(out) != n:
            raise ValueError(f"ids must have one entry for each of the {n} rows, got {len(out)}")
        self.different(out)
        if n and int(out.min()) < self.next_id:
            which, _ = self.locate(out)
            if (which >= 0).any():
                there = shown(self.named(out[which >= 0]))
                raise ValueError(f"ids must be new: {there} in the index already (remove them first)")
        return out.copy()

    def encoder_of(self, fingerprint: Any) -> Encoder:
        """Return the encoder of a fingerprint, of any generation; TypeError or ValueError if there is none."""
        if not isinstance(fingerprint, str):
            raise TypeError(f"fingerprint must be a string, got {type(fingerprint).__name__}")
        for encoder in (self.encoder, *(segment.encoder for segment in self.segments)):
            if encoder.fingerprint == fingerprint:
                return encoder
        raise ValueError(
            f"the codes are of another model: its fingerprint is {fingerprint[:12]!r}, that of the present encoder "
            f"{self.encoder.fingerprint[:12]!r} (renew(model) first, or add the rows)"
        )

    # -- changes -------------------------------------------------------------------------------------------------------
    def with_rows(self, batches: Iterable[CodedBatch], coming: int) -> "Contents":
        """Return contents with `coming` rows in all, encoded by the present encoder, whose ids are not there yet."""
        contents = self
        for batch in batches:
            start, n = 0, len(batch.ids)
            while start < n:
                if contents.room.left == 0:
                    contents = contents.closed()
                stop = min(n, start + contents.room.left)
                piece = batch.part(start, stop)
                contents = contents._replace(
                    room=contents.room.with_batch(piece, coming),
                    next_id=max(contents.next_id, 1 + int(piece.ids.max())),
                )
                coming, start = coming - (stop - start), stop
        return contents

    def closed(self, encoder: Encoder | None = None) -> "Contents":
        """Return contents with room for a new segment, of another encoder if one is given."""
        last = self.room.segment
        room = empty_room(type(last.codes), encoder or self.encoder, None if last.rows is None else last.rows.dtype)
        sealed = (*self.sealed, replace(last, codes=last.codes.own())) if len(last) else self.sealed
        return self._replace(sealed=sealed, room=room)

    def with_segment(self, segment: Segment) -> "Contents":
        """Return contents with rows of any encoder, whose ids are not there yet."""
        next_id = max(self.next_id, 1 + int(segment.ids.max()))
        return self.closed()._replace(sealed=(*self.segments, segment), next_id=next_id)

    def without(self, ids: Ids) -> "Contents":
        """Return contents without the rows of ids; IndexError if one is not there."""
        which, where = self.located(ids, "ids")
        last = self.room.segment
        segments = [
            segment.without(where[which == number]) if (which == number).any() else segment
            for number, segment in enumerate((*self.sealed, last))
        ]
        return self._replace(sealed=tuple(segments[:-1]), room=self.room._replace(segment=segments[-1]))

    def of_segments(self, segments: Iterable[Segment]) -> "Contents":
        """Return contents with other segments in place of all, for the same rows."""
        return self.closed()._replace(sealed=tuple(segments))

    def compacted(self, in_cells: Callable[[Segment], Segment], *, wide: bool) -> "Contents":
        """Return contents in few segments, without the rows that do not count, and with their rows in cells.

        wide: whether there will be cells, so that a segment may be larger than one that is looked at as a whole.
        """
        merged = _merged(self.segments, lambda before, after: True, COMPACT_ROWS if wide else SEGMENT_ROWS)
        return self.of_segments(in_cells(joined([segment]) if segment.n_removed else segment) for segment in merged)

    def tidied(self, in_cells: Callable[[Segment], Segment]) -> "Contents":
        """Return contents for a save: small segments joined, and those made anew that lost a share of their rows."""
        merged = _merged(self.segments, lambda before, after: before < 2 * after, SEGMENT_ROWS)
        return self.of_segments(
            in_cells(joined([segment])) if REMOVED_SHARE * segment.n_removed >= len(segment) else in_cells(segment)
            for segment in merged
        )


# -- when segments are made anew ---------------------------------------------------------------------------------------
# One row in so many removed, and the segment is written anew by the next save.
REMOVED_SHARE = 4


def _merged(segments: Iterable[Segment], worth: Callable[[int, int], bool], most: int) -> list[Segment]:
    """Join neighbours of one encoder up to so many rows, where it is worth it by the rows before and those behind.

    If that is where the former are fewer than twice the latter, lengths at least halve from one segment to the next:
    there are few files however many saves, and a row is written anew as often as its segment grows by half.
    """
    groups: list[tuple[int, list[Segment]]] = []
    for segment in segments:
        n, group = segment.n_live, [segment]
        while n and groups:
            before, others = groups[-1]
            if others[-1].encoder != segment.encoder or before + n > most or not worth(before, n):
                break
            groups.pop()
            n, group = before + n, others + group
        if n:
            groups.append((n, group))
    return [group[0] if len(group) == 1 else joined(group) for _, group in groups]


# -- ids ---------------------------------------------------------------------------------------------------------------
def as_ids(ids: ArrayLike, name: str = "ids") -> Ids:
    """Return int64 (n,) of one id or many; TypeError or ValueError for what is none."""
    given = np.atleast_1d(ids)
    if given.dtype.kind in "iu" and given.size and (given.min() < 0 or given.max() >= MOST_COUNT):
        raise ValueError(f"{name} must lie in [0, 2**62), got {shown(given[(given < 0) | (given >= MOST_COUNT)])}")
    return as_integers(given, name)
