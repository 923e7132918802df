"""Rows of groups as they come: in memory as long as there is room, then to disk by parts of the groups.

A group that has its whole record when memory is used up stays in memory until the end. All others have only rows, which
go to one of PARTS files with all that come after them. In the end the files are read one after another, each as often
as its groups need: so a group's rows always pass through one buffer, in their order, and where they have lain changes
no bit of it. Rows are written once, whole records never: of groups whose rows come interleaved, a record would be read
and written for every chunk that has a row of it, which is 2 l rows for one.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.sketching import groups as kernel
from fastsketch.sketching._groups._packed_groups import Packed
from fastsketch.sketching._groups._shelf import PIECE_BYTES, Shelf
from fastsketch.sketching._groups._store import EXPONENT, FILL, Numbers, RecordLayout, Sorted, Store

# Files of rows. More of them would only write shorter stretches: a file whose groups do not fit is read several times.
PARTS = 32
# Bytes beside the record for each group: numbers, the key, its place.
BYTES_OF_GROUP = 320


class Gathering:
    """The groups of a pass over rows."""

    def __init__(self, layout: RecordLayout, *, max_memory: float, folder: str | None) -> None:
        self.layout, self.max_memory, self.folder = layout, max_memory, folder
        self._store = Store(layout, max_memory)
        self._n = 0
        self._logs: list[Log] | None = None
        self._logged = np.zeros(0, np.int64)  # rows of each group in the logs

    @property
    def spilled(self) -> bool:
        """Return whether rows have gone to disk."""
        return self._logs is not None

    def close(self) -> None:
        """Give the space of files back."""
        for log in self._logs or ():
            log.close()

    def add(self, rows: NDArray[Any], largest: NDArray[np.float64], which: Numbers, n_groups: int) -> None:
        """Add rows as the kernels read them and checked, with the largest entry of each, and its group."""
        self._n = n_groups
        if self._logs is None:
            store = self._store
            store.add_groups(n_groups)
            batch = Sorted(which, n_groups)
            if self._has_room(store, batch):
                store.absorb(rows, largest, batch)
                return
            self._begin_logs()
        self._add_logged(rows, largest, which)

    def _has_room(self, store: Store, batch: Sorted) -> bool:
        place, kinds = store.growth(batch.group, batch.more)
        # in the end there are records and packed rows at once
        if 2 * (store.bytes + store.bytes_of_growth(kinds)) + BYTES_OF_GROUP * store.n > self.max_memory:
            return False
        store.grow(batch.group[place], kinds)
        return True

    # -- to disk -------------------------------------------------------------------------------------------------------
    def _begin_logs(self) -> None:
        store, layout = self._store, self.layout
        self._logs = [Log(layout, self.folder) for _ in range(PARTS)]
        small = np.flatnonzero((store.room[: store.n] > 0) & (store.room[: store.n] < layout.capacity))
        self._logged = np.zeros(max(1024, store.n), np.int64)
        for start in range(0, len(small), 1024):
            some = small[start : start + 1024]
            fill = store.count[some, FILL]
            rows = store.rows_of(some)
            ends = np.cumsum(fill)
            # oldest first, as they came
            back = np.repeat(ends + ends - fill, fill) - 1 - np.arange(len(rows))
            rows, which = rows[back], np.repeat(some, fill)
            exponent = store.count[which, EXPONENT]
            if exponent.any():
                rows = np.ldexp(rows, exponent[:, np.newaxis].astype(np.intc))
            self._log(rows, which)
        store.drop_small()

    def _add_logged(self, rows: NDArray[Any], largest: NDArray[np.float64], which: Numbers) -> None:
        store = self._store
        resident = np.zeros(self._n, bool)
        resident[: store.n] = store.room[: store.n] == self.layout.capacity
        mine = resident[which]
        if mine.any():
            at = np.flatnonzero(mine)
            batch = Sorted(which[at], self._n)
            batch.order = at[batch.order]
            store.absorb(rows, largest, batch)
        if not mine.all():
            at = np.flatnonzero(~mine)
            self._log(rows[at], which[at])

    def _log(self, rows: NDArray[Any], which: Numbers) -> None:
        assert self._logs is not None
        if self._n > len(self._logged):
            self._logged = np.concatenate([self._logged, np.zeros(max(self._n, len(self._logged)), np.int64)])
        self._logged += np.bincount(which, minlength=len(self._logged))
        part = (which % PARTS).astype(np.uint8)
        order = np.argsort(part, kind="stable")
        ends = np.cumsum(np.bincount(part, minlength=PARTS))
        rows, which = rows[order], which[order]
        for log, start, stop in zip(self._logs, [0, *ends[:-1]], ends, strict=True):
            if stop > start:
                log.write(rows[start:stop], which[start:stop])

    # -- the end -------------------------------------------------------------------------------------------------------
    def finish(self) -> Packed:
        """Return all groups. Of what does not fit into memory, rows lie in a file."""
        packed, store = Packed(self.layout), self._store
        packed.reserve(self._n)
        if self._logs is None:
            group = np.arange(self._n)
            packed.put(store, group, group)
            return packed
        packed.to_file(self.folder)
        resident = np.flatnonzero(store.room[: store.n] == self.layout.capacity)
        packed.put(store, resident, resident)
        self._store = Store(self.layout)
        del store
        for part, log in enumerate(self._logs):
            self._finish_part(packed, part, log)
            log.close()
        return packed

    def _finish_part(self, packed: Packed, part: int, log: "Log") -> None:
        mine = np.arange(part, self._n, PARTS)
        mine = mine[self._logged[mine] > 0]
        # groups of one reading: as many as there is room for
        size = self.layout.record_bytes[self.layout.size_for(self._logged[mine])] + BYTES_OF_GROUP
        before, cuts = np.cumsum(size), [0]
        while cuts[-1] < len(mine):
            done = int(before[cuts[-1] - 1]) if cuts[-1] else 0
            cuts.append(max(cuts[-1] + 1, int(np.searchsorted(before, done + 0.8 * self.max_memory, side="right"))))
        for start, stop in zip(cuts[:-1], cuts[1:], strict=True):
            some = mine[start:stop]
            store = Store(self.layout)
            store.add_groups(len(some))
            # the final record at once: nothing moves
            store.grow(np.arange(len(some)), self.layout.size_for(self._logged[some]))
            for rows, which in log.read():
                local = np.minimum(np.searchsorted(some, which), len(some) - 1)
                at = np.flatnonzero(some[local] == which)
                if len(at):
                    rows = rows[at]
                    largest = np.empty(len(rows))
                    kernel.scan(rows, largest)
                    store.absorb(rows, largest, Sorted(local[at], len(some)))
            packed.put(store, np.arange(len(some)), some)


class Log:
    """Rows and their groups in a file, in their order: eight bytes of the number, and then the row."""

    def __init__(self, layout: RecordLayout, folder: str | None) -> None:
        self._dtype = layout.dtype
        self._shelf = Shelf(8 + layout.row_bytes, np.uint8)
        self._shelf.to_file(folder)

    def write(self, rows: NDArray[Any], which: Numbers) -> None:
        """Add rows (n, d) of groups (n,)."""
        out = np.empty((len(rows), self._shelf.width), np.uint8)
        out[:, :8] = which.astype(np.int64).view(np.uint8).reshape(-1, 8)
        out[:, 8:] = rows.view(np.uint8)
        self._shelf.append(out)

    def read(self) -> Iterator[tuple[NDArray[Any], Numbers]]:
        """Return (rows, groups), a few megabytes at a time."""
        step = max(1, PIECE_BYTES // self._shelf.width)
        for start in range(0, self._shelf.n, step):
            records = self._shelf.read(start, min(step, self._shelf.n - start))
            rows = np.ascontiguousarray(records[:, 8:]).view(self._dtype)
            yield rows, np.ascontiguousarray(records[:, :8]).view(np.int64)[:, 0]

    def close(self) -> None:
        """Give the space back."""
        self._shelf.close()
