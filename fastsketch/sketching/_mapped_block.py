"""One block of a stream on its way through a random map, a few rows at a time; centring folded in.

Phi (F - 1 mu') = Phi (F - 1 c') - (Phi 1)(mu - c)' for any c: the kernel subtracts c, the block's first row, sums up
the differences, and the rest is one rank-one correction at the end. Each row is read once.
"""

from copy import copy
from operator import attrgetter
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.validation import natural_dtype, not_finite
from fastsketch._frame.model import Arrays
from fastsketch._kernels.sketching import random_map as kernel
from fastsketch.data.files import _checks as checks
from fastsketch.sketching._plain_rows import plain_rows
from fastsketch.sketching._scalars import scalars, set_scalars
from fastsketch.sketching._sized_map import MapNumbers, SizedMap


class Mapped(NamedTuple):
    """A finished block."""

    rows: NDArray[Any]  # (r, d)
    mean: NDArray[np.float64] | None  # (d,)
    mean_low: NDArray[np.float64] | None  # (d,), what rounding took from mean
    weight: float
    n_rows: int  # that went in


class MappedBlock:
    """Block `index` of a stream; the kernel updates its state in place."""

    def __init__(self, sized_map: SizedMap, n_features: int, *, dtype: np.dtype[Any], center: bool, index: int) -> None:
        self.map = sized_map
        self.n_features = n_features
        self.dtype = dtype
        self.center = center
        self._most = sized_map.most(dtype)
        self._numbers: MapNumbers | None = None
        self.index = index
        self._begin()

    def _begin(self) -> None:
        self.state = state = kernel.BlockState(
            self.map.loop,
            p=self.map.rows_per_call,
            d=self.n_features,
            q=self.map.rows_out,
            center=self.center,
            space=self.map.space(self.dtype),
            dtype=self.dtype,
        )
        # arrays of the state, in its own memory
        self._own: Arrays = {
            "out": state.out,
            "pending": state.pending,
            "root": np.asarray(state.root),
            "shift": state.shift,
            "sums": np.asarray(state.sums),
            "ones": np.asarray(state.ones),
        }

    def _need_numbers(self) -> None:
        """Make the random numbers, when a row comes or is mapped: of a file any length of a block is accepted."""
        if self._numbers is None:
            self._numbers = self.map.numbers(self.index, self.dtype)
            self.state.set_numbers(*self._numbers)

    n_rows = property(attrgetter("state.n_rows"))  # taken so far
    weight = property(attrgetter("state.weight"))  # of all of them

    @property
    def room(self) -> int:
        """Return how many rows complete the block."""
        return self.map.block_rows - self.state.n_rows

    def fits_step(self, n: int) -> bool:
        """Return whether n rows pass in one step that either happens or not: nothing is mapped before a bad row."""
        return n <= self.map.rows_per_call - self.state.pending_rows

    def add(self, rows: NDArray[Any], weights: NDArray[np.float64] | None = None, *, offset: int = 0) -> int:
        """Take rows (of dtype, columns contiguous) until the block is complete; return how many.

        Raises ValueError naming the first row (counted from -offset) that is not finite or too large; the state may
        then have changed.
        """
        # a few rows are learned from without a copy of the state: those must be refused before anything is changed
        if self.fits_step(len(rows)) and len(rows):
            self._refuse(max(float(rows.max()), -float(rows.min())), offset, len(rows))
        self._need_numbers()
        taken, bad = kernel.absorb(rows, weights, self.map.block_rows, self.state)
        if bad >= 0:
            raise not_finite(offset + bad, self.dtype)
        self._refuse(self.state.largest, offset, taken)
        return taken

    def _refuse(self, largest: float, offset: int, n: int) -> None:
        """Raise ValueError if sums of so large entries may leave the range; NaN and infinity are the kernel's."""
        if self._most < largest < np.inf:
            raise ValueError(
                f"rows must be below {self._most:.0e} in magnitude to be compressed: one of rows {offset} to "
                f"{offset + n - 1} is not"
            )

    def arrays(self, copy: bool = False) -> Arrays:
        """Return everything that a resume needs, by name: views where there are any, or copies."""
        out = {**self._own, **scalars(self.state)}
        return {name: array.copy() for name, array in out.items()} if copy else out

    @staticmethod
    def validate(arrays: Arrays, sized_map: SizedMap, n_features: int, *, dtype: np.dtype[Any], center: bool) -> None:
        """Raise ValueError unless such a block could have these arrays; takes no memory of its size."""
        d, p, q = n_features, sized_map.rows_per_call, sized_map.rows_out
        count = checks.named_numbers(arrays, "count", kernel.BlockState.COUNTS, np.dtype(np.int64))
        book = checks.named_numbers(arrays, "book", kernel.BlockState.SUMS, np.dtype(np.float64))
        n, pending = count["n_rows"], count["pending_rows"]
        # a complete block is mapped, and a complete step too, before a call ends
        checks.number_within(n, "rows of the block", 0, sized_map.block_rows - 1)
        checks.number_within(pending, "pending rows", 0, min(n, p - 1))
        if (n - pending) % p:
            raise ValueError(f"the {n} rows of the block, less {pending} pending ones, are no whole steps of {p}")
        # from the first row of some weight on
        seen = int(center and n > 0 and book["weight"] > 0)
        checks.number_within(count["shifted"], "shifted", seen, seen)
        checks.number_within(book["weight"], "weight", 0.0, np.inf)
        checks.number_within(book["largest"], "largest", 0.0, sized_map.most(dtype))
        checks.finite(arrays, "out", (q, d), dtype)
        checks.finite(arrays, "pending", (p, d), dtype)  # whatever lies in rows that are not there
        checks.finite(arrays, "shift", (d,), dtype)
        checks.finite(arrays, "sums", (d if center else 0,))
        checks.finite(arrays, "ones", (q,))
        root = checks.not_negative(arrays, "root", (p,))
        if root[pending:].any():
            raise ValueError("rows that are not there must have no weight")
        checks.only(arrays, "out", "pending", "root", "shift", "sums", "ones", "book", "count")

    def restore(self, arrays: Arrays, index: int) -> None:
        """Take arrays that another block of this map gave, or that have passed ``validate``."""
        set_scalars(self.state, arrays)
        for name, mine in self._own.items():
            mine[...] = arrays[name]
        if index != self.index:
            self.index, self._numbers = index, None

    def copy(self) -> Self:
        """Return an independent block in the same state."""
        other = copy(self)
        other._begin()
        if other._numbers is not None:  # which nothing changes
            other.state.set_numbers(*other._numbers)
        for name in (*self.state.SUMS, *self.state.COUNTS):
            setattr(other.state, name, getattr(self.state, name))
        for name, array in self._own.items():
            other._own[name][...] = array
        return other

    def close(self) -> Mapped:
        """Return the finished block; its state is used up."""
        state, q = self.state, self.map.rows_out
        n, weight, mean, low = state.n_rows, state.weight, None, None
        with np.errstate(under="ignore"):
            if n == state.pending_rows and n <= q:  # short: as it is
                root = np.asarray(state.root)[:n, np.newaxis]
                rows = state.pending[:n].astype(np.float64)
                if self.center:
                    # from the heaviest row: what is subtracted twice is then no larger than the spread
                    shift = rows[root.argmax()].copy() if n else np.zeros(self.n_features)
                    rows -= shift
                    move = (root**2 / weight * rows).sum(axis=0) if weight > 0 else np.zeros_like(shift)
                    rows -= move
                    mean, low = _two_sum(shift, move)
                return Mapped((root * rows).astype(self.dtype), mean, low, weight, n)
            self._need_numbers()
            kernel.finish(state.out, state)
            if self.center:
                sums = np.asarray(state.sums)
                move = sums / weight if weight > 0 else np.zeros_like(sums)
                mean, low = _two_sum(state.shift.astype(np.float64), move)
                out: NDArray[Any] = state.out
                out -= np.outer(np.asarray(state.ones), move)
            return Mapped(state.out * self.dtype.type(self.map.scale), mean, low, weight, n)

    def restart(self, index: int) -> None:
        """Begin another block in the same space."""
        state = self.state
        for array in self._own.values():
            array[...] = 0
        for name in state.SUMS:
            setattr(state, name, 0.0)
        for name in state.COUNTS:
            setattr(state, name, 0)
        self.index, self._numbers = index, None


def _two_sum(a: NDArray[np.float64], b: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return (a + b as rounded, what rounding took from it), exactly."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def map_once(sized_map: SizedMap, rows: Any, *, index: int) -> NDArray[Any]:
    """Return Phi rows, (q, d), for one block of checked rows, array or CSR."""
    n, d = rows.shape
    dtype = natural_dtype(rows.dtype)
    block = MappedBlock(sized_map, d, dtype=dtype, center=False, index=index)
    step = max(1, (4 << 20) // (d * dtype.itemsize))
    for start in range(0, n, step):
        block.add(plain_rows(rows[start : start + step], dtype), offset=start)
    state = block.state
    if state.n_rows == state.pending_rows <= sized_map.rows_out:
        kernel.finish(state.out, state)  # also a short one is to be transformed
        return (state.out * sized_map.scale).astype(dtype)
    return block.close().rows
