"""Groups as tables that no longer change: numbers of each, the rows of all."""

from collections.abc import Iterator
from math import ldexp
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.sketching import groups as kernel
from fastsketch.sketching._groups._shelf import PIECE_BYTES, Shelf
from fastsketch.sketching._groups._store import EXPONENT, FILL, KEPT, Numbers, RecordLayout, Store

# Groups that are read together.
TOGETHER = 1024


class Packed:
    """The state of groups 0 .. n - 1; a group that has shrunk once has a tail: lam, gain, mean, mean_low."""

    def __init__(self, layout: RecordLayout) -> None:
        self.layout = layout
        self.book, self.count = np.empty((0, 5)), np.empty((0, 6), np.int64)
        self.place = np.empty(0, np.int64)  # of a group's first row in `rows`
        self.tail_place = np.empty(0, np.int64)
        self.rows = Shelf(layout.n_features, layout.dtype)
        self.tails = Shelf(layout.tail_size, np.float64)

    @classmethod
    def of(cls, layout: RecordLayout, arrays: dict[str, NDArray[Any]]) -> "Packed":
        """Return the inverse of ``arrays``."""
        packed = cls(layout)
        packed.book, packed.count = arrays["book"], arrays["count"]
        packed.rows, packed.tails = Shelf.of(arrays["rows"]), Shelf.of(arrays["tails"])
        fill, kept = packed.count[:, FILL], packed.has_tail
        packed.place, packed.tail_place = np.cumsum(fill) - fill, np.cumsum(kept) - kept
        return packed

    @property
    def n(self) -> int:
        """Return the number of groups."""
        return len(self.book)

    @property
    def has_tail(self) -> Numbers:
        """Return 1 for groups that have a tail, 0 for others."""
        return (self.count[:, KEPT] > 0).astype(np.int64)

    @property
    def bytes(self) -> int:
        """Return the bytes of rows and tails."""
        return self.rows.n * self.rows.row_bytes + self.tails.n * self.tails.row_bytes

    def to_file(self, folder: str | None) -> None:
        """Move rows and tails out of memory."""
        self.rows.to_file(folder)
        self.tails.to_file(folder)

    def reserve(self, n: int) -> None:
        """Make room for n groups, to be put."""
        self.book, self.count = np.zeros((n, 5)), np.zeros((n, 6), np.int64)
        self.place, self.tail_place = np.zeros(n, np.int64), np.zeros(n, np.int64)

    def put(self, store: Store, group: Numbers, number: Numbers) -> None:
        """Take some groups of a store; `number` is what they are called here."""
        self._number(store, group, number)
        for start in range(0, len(group), TOGETHER):
            some = group[start : start + TOGETHER]
            self.rows.append(store.rows_of(some))
            self.tails.append(store.tails_of(some[store.count[some, KEPT] > 0]))

    def take(self, other: "Packed", group: Numbers, number: Numbers) -> None:
        """Take some groups of another one; `number` is what they are called here."""
        self._number(other, group, number)
        for rows in other.rows.gathered(other.place[group], other.count[group, FILL]):
            self.rows.append(rows)
        place = other.tail_place[group[other.has_tail[group] > 0]]
        for tails in other.tails.gathered(place, np.ones(len(place), np.int64)):
            self.tails.append(tails)

    def _number(self, of: "Store | Packed", group: Numbers, number: Numbers) -> None:
        """Copy the numbers of groups whose rows and tails come next."""
        self.book[number], self.count[number] = of.book[group], of.count[group]
        fill, tailed = of.count[group, FILL], of.count[group, KEPT] > 0
        self.place[number] = self.rows.n + np.cumsum(fill) - fill
        self.tail_place[number] = self.tails.n + np.cumsum(tailed) - tailed

    def take_one(self, number: int, arrays: dict[str, NDArray[Any]]) -> None:
        """Take the arrays of an engine as a group."""
        self.book[number], self.count[number] = arrays["book"], arrays["count"]
        self.place[number], self.tail_place[number] = self.rows.n, self.tails.n
        self.rows.append(arrays["buffer"].copy())
        if arrays["count"][KEPT]:
            tail = np.concatenate([arrays[name] for name in ("lam", "gain", "mean", "mean_low")])
            self.tails.append(tail[np.newaxis])

    # -- reading -------------------------------------------------------------------------------------------------------
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return everything, in the order of the groups."""
        return {
            "book": self.book,
            "count": self.count,
            "rows": _joined(list(self.row_pieces()), self.rows),
            "tails": _joined(list(self.tail_pieces()), self.tails),
        }

    def row_pieces(self) -> Iterator[NDArray[Any]]:
        """Return the rows in the order of the groups, in pieces."""
        return self.rows.gathered(self.place, self.count[:, FILL])

    def tail_pieces(self) -> Iterator[NDArray[Any]]:
        """Return the tails in the order of the groups, in pieces."""
        place = self.tail_place[self.has_tail > 0]
        return self.tails.gathered(place, np.ones(len(place), np.int64))

    def one(self, number: int) -> dict[str, NDArray[Any]]:
        """Return the arrays of an engine with the rows of one group."""
        layout, count = self.layout, self.count[number]
        fill, kept, l1, d = int(count[FILL]), int(count[KEPT]), layout.n_lam, layout.n_mean
        if kept:
            tail = self.tails.read(int(self.tail_place[number]), 1)[0]
        else:
            tail = np.concatenate([np.zeros(l1), np.ones(l1), np.zeros(2 * d)])
        lam, gain, mean, low = np.split(tail, [l1, 2 * l1, 2 * l1 + d])
        return {
            "book": self.book[number].copy(),
            "count": count.copy(),
            "lam": lam.copy(),
            "gain": gain.copy(),
            "mean": mean.copy(),
            "mean_low": low.copy(),
            "root": np.ones(fill - kept),
            "buffer": self.rows.read(int(self.place[number]), fill).copy(),
        }

    def last_numbers(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return (Delta, squared norm) of all groups as they are when each is read, in squared units of the rows."""
        layout = self.layout
        book, count = self.book.copy(), self.count.copy()
        n_parts = max(1, kernel.parts_of(TOGETHER * layout.capacity, layout.n_features, layout.capacity))
        states = layout.states(n_parts)
        buffers = np.empty((n_parts, layout.capacity, layout.n_features), layout.dtype)
        none = np.concatenate([np.zeros(layout.n_lam), np.ones(layout.n_lam), np.zeros(2 * layout.n_mean)])
        order = np.argsort(self.place, kind="stable")
        ends = np.cumsum(count[order, FILL]) * layout.row_bytes
        start = 0
        while start < self.n:
            before = int(ends[start - 1]) if start else 0
            stop = max(start + 1, int(np.searchsorted(ends, before + PIECE_BYTES, side="right")))
            some = order[start:stop]
            fill, tailed = count[some, FILL], count[some, KEPT] > 0
            rows = self.rows.read(int(self.place[some[0]]), int(fill.sum()))
            # the tails of neighbours are neighbours
            tails = self.tails.read(int(self.tail_place[some[0]]), int(tailed.sum()))
            row_at = rows.ctypes.data + (np.cumsum(fill) - fill) * layout.row_bytes
            tail_at = np.full(len(some), none.ctypes.data, np.int64)
            tail_at[tailed] = tails.ctypes.data + 8 * layout.tail_size * np.arange(int(tailed.sum()))
            some_book, some_count = book[some], count[some]
            kernel.last_numbers(
                buffers,
                book=some_book,
                count=some_count,
                rows=row_at.astype(np.int64),
                tail=tail_at,
                states=states[: min(n_parts, len(some))],
            )
            book[some] = some_book
            start = stop
        units = np.array([ldexp(1.0, int(exponent)) for exponent in self.count[:, EXPONENT]])
        with np.errstate(over="ignore", under="ignore"):
            return book[:, 0] * units * units, book[:, 1] * units * units


def _joined(pieces: list[NDArray[Any]], shelf: Shelf) -> NDArray[Any]:
    return np.concatenate(pieces) if pieces else np.empty((0, shelf.width), shelf.dtype)
