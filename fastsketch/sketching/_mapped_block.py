"""One block of a stream on its way through a random map, a few rows at a time; centring folded in.

Phi (F - 1 mu') = Phi (F - 1 c') - (Phi 1)(mu - c)' for any c: the kernel subtracts c, the block's first row, sums up
what is left, and the rest is one rank-one correction at the end. Each row is read once.
"""

import contextlib
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch import _threads
from fastsketch._kernels import random_map as kernel
from fastsketch._validation import natural_dtype, not_finite
from fastsketch.sketching._sized_map import SizedMap

WEIGHT, LARGEST = 0, 1
ROWS, PENDING, SHIFTED = 0, 1, 2


class Mapped(NamedTuple):
    """A finished block."""

    rows: NDArray[Any]  # (r, d)
    mean: NDArray[np.float64] | None  # (d,)
    weight: float
    n_rows: int  # that went in


class MappedBlock:
    """State of block `index`: arrays that the kernel updates in place (their meaning: _kernels/random_map.pyx)."""

    STATE = ("out", "pending", "root", "shift", "sums", "ones", "book", "count")

    def __init__(self, sized_map: SizedMap, n_features: int, *, dtype: np.dtype[Any], center: bool, index: int) -> None:
        q, p = sized_map.rows_out, sized_map.rows_per_call
        self.map = sized_map
        self.dtype = dtype
        self.a = {
            "out": np.zeros((q, n_features), dtype),
            "pending": np.zeros((p, n_features), dtype),
            "shift": np.zeros(n_features, dtype),
            "root": np.zeros(p),
            "square": np.zeros(p),
            "sums": np.zeros(n_features if center else 0),
            "ones": np.zeros(q),
            "book": np.zeros(2),
            "count": np.zeros(3, np.int64),
            "scratch": np.empty(sized_map.space(dtype), dtype),
        }
        self._begin(index)

    def _begin(self, index: int) -> None:
        self.index = index
        self.a.update(self.map.numbers(index, self.dtype)._asdict())

    def _limit(self) -> AbstractContextManager[Any]:
        """Only the Gaussian map calls BLAS."""
        return _threads.blas_for(self.map.rows_out) if self.map.kind == "gaussian" else contextlib.nullcontext()

    @property
    def n_features(self) -> int:
        """Columns of the rows."""
        return self.a["out"].shape[1]

    @property
    def n_rows(self) -> int:
        """Rows taken so far."""
        return int(self.a["count"][ROWS])

    @property
    def weight(self) -> float:
        """Sum of their weights."""
        return float(self.a["book"][WEIGHT])

    @property
    def room(self) -> int:
        """Rows until the block is complete."""
        return self.map.block_rows - self.n_rows

    def fits_step(self, n: int) -> bool:
        """Whether n rows pass in one step that either happens or does not: nothing is mapped before a bad row."""
        return n <= self.map.rows_per_call - int(self.a["count"][PENDING])

    def add(self, rows: NDArray[Any], weights: NDArray[np.float64] | None = None, *, offset: int = 0) -> int:
        """Take rows (of dtype, columns contiguous) until the block is complete; returns how many.

        Raises ValueError naming the first row (counted from -offset) that is not finite or too large; the state may
        then have changed.
        """
        with self._limit():
            taken, bad = kernel.absorb(rows, weights, self.map.block_rows, self.map.loop, self.a)
        if bad >= 0:
            raise not_finite(offset + bad, self.dtype)
        limit = np.finfo(self.dtype).max / (4 * self.map.padded_rows)
        if self.a["book"][LARGEST] > limit:
            raise ValueError(
                f"rows must be below {limit:.0e} in magnitude to be compressed: one of rows {offset} to "
                f"{offset + taken - 1} is not"
            )
        return taken

    def arrays(self, copy: bool = False) -> dict[str, NDArray[Any]]:
        """Everything that a resume needs, by name."""
        return {name: self.a[name].copy() if copy else self.a[name] for name in self.STATE}

    def restore(self, arrays: dict[str, NDArray[Any]], index: int) -> None:
        """Take the state that `arrays` describes; ValueError if shapes do not fit."""
        for name in self.STATE:
            if arrays[name].shape != self.a[name].shape:
                raise ValueError(f"array {name!r} has shape {arrays[name].shape}, expected {self.a[name].shape}")
        count = arrays["count"]
        if not 0 <= count[PENDING] <= count[ROWS] <= self.map.block_rows:
            raise ValueError("the counts do not fit the block")
        for name in self.STATE:
            self.a[name][...] = arrays[name]
        if index != self.index:
            self._begin(index)

    def copy(self) -> "MappedBlock":
        """An independent block in the same state."""
        other = object.__new__(MappedBlock)
        other.map, other.dtype, other.index = self.map, self.dtype, self.index
        other.a = {**self.a, **self.arrays(copy=True)}
        for name in ("scratch", "square"):  # two copies may serve two threads
            other.a[name] = np.empty_like(self.a[name])
        return other

    def close(self) -> Mapped:
        """The finished block; its state is used up."""
        a, q = self.a, self.map.rows_out
        n, weight = self.n_rows, float(a["book"][WEIGHT])
        centre = a["sums"].size > 0
        with np.errstate(under="ignore"):
            if n == a["count"][PENDING] and n <= q:  # short: as it is
                root = a["root"][:n, np.newaxis]
                rows = a["pending"][:n].astype(np.float64)
                mean = None
                if centre:
                    shift = a["shift"].astype(np.float64)
                    moved = rows - shift
                    move = (root**2 * moved).sum(axis=0) / weight if weight > 0 else 0.0
                    mean, rows = shift + move, moved - move
                return Mapped((root * rows).astype(self.dtype), mean, weight, n)
            with self._limit():
                kernel.finish(a["out"], self.map.loop, a)
            mean = None
            if centre:
                move = a["sums"] / weight if weight > 0 else np.zeros_like(a["sums"])
                mean = a["shift"] + move
                a["out"] -= np.outer(a["ones"], move)
            return Mapped(a["out"] * self.dtype.type(self.map.scale), mean, weight, n)

    def restart(self, index: int) -> None:
        """Begin another block in the same space."""
        for name in self.STATE:
            self.a[name][...] = 0
        self._begin(index)


def map_once(sized_map: SizedMap, rows: Any, *, index: int) -> NDArray[Any]:
    """Phi rows, (q, d), for one block of checked rows, array or CSR."""
    n, d = rows.shape
    dtype = natural_dtype(rows.dtype)
    block = MappedBlock(sized_map, d, dtype=dtype, center=False, index=index)
    step = max(1, (4 << 20) // (d * dtype.itemsize))
    for start in range(0, n, step):
        block.add(plain_rows(rows[start : start + step], dtype), offset=start)
    if block.n_rows == block.a["count"][PENDING] <= sized_map.rows_out:
        kernel.finish(block.a["out"], sized_map.loop, block.a)  # also a short one is to be transformed
        return (block.a["out"] * sized_map.scale).astype(dtype)
    return block.close().rows


def plain_rows(rows: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """A slice of checked rows, array or CSR, as the kernels read it: in place if it can be."""
    if not isinstance(rows, np.ndarray):
        rows = rows.toarray()
    size = dtype.itemsize
    if (
        rows.dtype == dtype
        and rows.flags.aligned
        and rows.strides[0] % size == 0
        and (rows.strides[1] == size or rows.shape[1] == 1)
    ):
        return rows
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(rows, dtype)
