"""Groups in memory while their rows come: a record each, that grows with the group up to a whole buffer."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch._core import threads as _threads
from fastsketch._kernels.sketching import groups as kernel
from fastsketch._kernels.sketching.state import NOTHING_SEEN, SketchState
from fastsketch.sketching._engines import DenseEngine, EngineSetting
from fastsketch.sketching._engines._base import SAFE_EXPONENTS

Numbers = NDArray[np.int64]

# Records of one size are taken from the system together: so many bytes (or that part of what there may be), and this
# part of those there are.
SLAB_BYTES, SLABS, SLAB_SHARE = 1 << 20, 256, 16
# A record that has become too small is replaced by one of this many times its rows.
GROWTH = 1.5
FIRST_ROOM = 2
LINE = 64

FILL, KEPT = SketchState.COUNTS.index("fill"), SketchState.COUNTS.index("kept")
N_ROWS, TOP = SketchState.COUNTS.index("n_rows"), SketchState.COUNTS.index("top")
EXPONENT = SketchState.COUNTS.index("exponent")


def _lines(n_bytes: int) -> int:
    return -(-n_bytes // LINE) * LINE


class RecordLayout:
    """Where the parts of a record lie, for rows of one width and dtype."""

    def __init__(self, setting: EngineSetting, n_features: int, *, dtype: np.dtype[Any]) -> None:
        self.setting, self.n_features, self.dtype = setting, n_features, dtype
        self.capacity = DenseEngine.capacity_for(setting)
        self.row_bytes = n_features * dtype.itemsize
        self.n_lam = setting.sketch_size + 1
        self.n_mean = n_features if setting.center else 0
        self.tail_size = 2 * (self.n_lam + self.n_mean)  # doubles: lam, gain, mean, mean_low
        self.tail = _lines(self.capacity * self.row_bytes)
        rooms = [min(FIRST_ROOM, self.capacity)]
        while rooms[-1] < self.capacity:
            rooms.append(min(self.capacity, max(rooms[-1] + 1, int(rooms[-1] * GROWTH))))
        self.rooms = np.array(rooms, np.int64)
        sizes = [_lines(room * self.row_bytes) for room in rooms]
        sizes[-1] = self.tail + _lines(8 * self.tail_size)
        self.record_bytes = np.array(sizes, np.int64)

    def size_for(self, n_rows: Numbers) -> Numbers:
        """Return the kind of record, as a place in ``rooms``, that holds so many rows, or all that a group needs."""
        # one row short of a buffer without a row to spare for centring, and the buffer is full
        limit = self.capacity - self.setting.center
        return np.searchsorted(self.rooms, np.where(n_rows >= limit, self.capacity, n_rows)).astype(np.int64)

    def states(self, n: int) -> list[Any]:
        """Return states for the parts of a batch."""
        return [DenseEngine(self.setting, self.n_features, dtype=self.dtype).state for _ in range(n)]


class Store:
    """The records of groups 0 .. n - 1, and what they take up."""

    def __init__(self, layout: RecordLayout, max_memory: float = float("inf")) -> None:
        self.layout = layout
        self._slab_bytes = int(min(SLAB_BYTES, max_memory / SLABS))
        self.n = 0
        self.book, self.count = np.zeros((0, len(SketchState.SUMS))), np.zeros((0, len(SketchState.COUNTS)), np.int64)
        self._record, self.room = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._slabs: list[list[NDArray[np.uint8]]] = [[] for _ in layout.rooms]
        self._free: list[Numbers] = [np.empty(0, np.int64) for _ in layout.rooms]
        self._n_records = [0] * len(layout.rooms)
        self._states: list[Any] = []
        self.bytes = 0  # of records

    def _tables(self, n: int) -> None:
        book, count = np.zeros((n, len(SketchState.SUMS))), np.zeros((n, len(SketchState.COUNTS)), np.int64)
        count[:, TOP] = NOTHING_SEEN
        record, room = np.zeros(n, np.int64), np.zeros(n, np.int64)
        book[: self.n], count[: self.n] = self.book[: self.n], self.count[: self.n]
        record[: self.n], room[: self.n] = self._record[: self.n], self.room[: self.n]
        self.book, self.count, self._record, self.room = book, count, record, room

    def add_groups(self, n: int) -> None:
        """Make records for n groups."""
        if n > len(self.book):
            self._tables(max(n, 2 * len(self.book)))
        self.n = max(n, self.n)

    # -- records -----------------------------------------------------------------------------------------------------
    def growth(self, group: Numbers, more: Numbers) -> tuple[Numbers, Numbers]:
        """Return places in `group` of those whose record is too small for `more` rows, and the kind that is not."""
        wanted = self.layout.size_for(self.count[group, FILL] + more)
        place = np.flatnonzero(self.layout.rooms[wanted] > self.room[group])
        return place, wanted[place]

    def bytes_of_growth(self, kinds: Numbers) -> int:
        """Return bytes that must be taken from the system for records of these kinds."""
        wanted = np.bincount(kinds, minlength=len(self.layout.rooms)).tolist()
        return sum(self._to_take(kind, n) * int(self.layout.record_bytes[kind]) for kind, n in enumerate(wanted))

    def _to_take(self, kind: int, n: int) -> int:
        """Return records to take from the system, so that n are free."""
        lacking = n - len(self._free[kind])
        if lacking <= 0:
            return 0
        size = int(self.layout.record_bytes[kind])
        return max(lacking, self._slab_bytes // size, self._n_records[kind] // SLAB_SHARE)

    def grow(self, group: Numbers, kinds: Numbers) -> None:
        """Move groups to larger records."""
        layout = self.layout
        for kind in np.unique(kinds).tolist():
            which = group[kinds == kind]
            at = self._take(kind, len(which))
            size = self.count[which, FILL] * layout.row_bytes
            # rows lie at the end of their place
            old = self._record[which] + self.room[which] * layout.row_bytes - size
            kernel.copy(old, at + layout.rooms[kind] * layout.row_bytes - size, size)
            before = self.room[which]
            rooms: list[int] = np.unique(before[before > 0]).tolist()
            for room in rooms:
                self._give(int(np.searchsorted(layout.rooms, room)), self._record[which[before == room]])
            self._record[which], self.room[which] = at, layout.rooms[kind]
            if kind == len(layout.rooms) - 1:
                kernel.begin_tails(at + layout.tail, layout.n_lam, layout.n_mean)

    def _take(self, kind: int, n: int) -> Numbers:
        free = self._free[kind]
        more = self._to_take(kind, n)
        if more:
            size = int(self.layout.record_bytes[kind])
            slab = np.empty(more * size + LINE, np.uint8)
            start = _lines(slab.ctypes.data)
            self._slabs[kind].append(slab)
            self._n_records[kind] += more
            self.bytes += more * size
            free = np.concatenate([free, start + size * np.arange(more, dtype=np.int64)])
        self._free[kind] = free[n:]
        return free[:n]

    def _give(self, kind: int, records: Numbers) -> None:
        self._free[kind] = np.concatenate([records, self._free[kind]])

    def drop_small(self) -> None:
        """Give back all records but whole ones; their groups are then empty."""
        small = np.flatnonzero(self.room[: self.n] < self.layout.capacity)
        self.count[small], self.book[small], self.room[small], self._record[small] = 0, 0.0, 0, 0
        self.count[small, TOP] = NOTHING_SEEN
        for kind in range(len(self.layout.rooms) - 1):
            size = int(self.layout.record_bytes[kind])
            self.bytes -= size * self._n_records[kind]
            self._slabs[kind], self._free[kind], self._n_records[kind] = [], np.empty(0, np.int64), 0

    # -- rows --------------------------------------------------------------------------------------------------------
    def absorb(self, rows: NDArray[Any], largest: NDArray[np.float64], batch: "Sorted") -> None:
        """Put a batch's rows, as the kernel reads them and checked, into groups that have room for them."""
        layout = self.layout
        n_parts = min(len(batch.group), kernel.parts_of(len(batch.order), layout.n_features, layout.capacity))
        while len(self._states) < n_parts:
            self._states += layout.states(1)
        low, high, most = SAFE_EXPONENTS[layout.dtype.itemsize]
        try:
            kernel.absorb(
                rows,
                largest,
                batch.order,
                batch.start,
                batch.group,
                book=self.book,
                count=self.count,
                record=self._record,
                room=self.room,
                tail=layout.tail,
                exponents=(low, high, most),
                states=self._states[:n_parts],
            )
        except BaseException:
            _threads.settle()
            raise

    def rows_of(self, group: Numbers) -> NDArray[Any]:
        """Return the rows in the buffers of groups, one group after the other, the newest of each first."""
        layout = self.layout
        fill = self.count[group, FILL]
        out = np.empty((int(fill.sum()), layout.n_features), layout.dtype)
        size = fill * layout.row_bytes
        end = self._record[group] + self.room[group] * layout.row_bytes
        kernel.copy(end - size, out.ctypes.data + np.cumsum(size) - size, size)
        return out

    def tails_of(self, group: Numbers) -> NDArray[np.float64]:
        """Return lam, gain, mean and mean_low of groups with whole records."""
        layout = self.layout
        out = np.empty((len(group), layout.tail_size))
        size = np.full(len(group), 8 * layout.tail_size, np.int64)
        kernel.copy(self._record[group] + layout.tail, out.ctypes.data + np.cumsum(size) - size, size)
        return out


class Sorted:
    """The rows of a batch by group: order (n,), where each group's begin in it, and the groups."""

    def __init__(self, which: Numbers, n_groups: int) -> None:
        # a sort of short integers is one by digits
        narrow = which.astype(np.uint16) if n_groups <= 1 << 16 else which
        self.order: Numbers = np.argsort(narrow, kind="stable")
        groups = which[self.order]
        starts = np.flatnonzero(np.append(True, groups[1:] != groups[:-1])) if len(groups) else np.empty(0, np.int64)
        self.group: Numbers = groups[starts]
        self.start: Numbers = np.append(starts, len(which)).astype(np.int64)
        self.more: Numbers = np.diff(self.start)
