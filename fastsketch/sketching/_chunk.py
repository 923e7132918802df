"""One chunk of a stream on its way through a compressor, a block of rows at a time; centring folded in.

Phi (F - 1 mu') = Phi (F - 1 c') - (Phi 1)(mu - c)' for any c: the kernel subtracts c, the chunk's first row, sums up
what is left, and the rest is one rank-one correction at the end. Each row is read once.
"""

import contextlib
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fastsketch import _threads
from fastsketch._kernels import compress as kernel
from fastsketch._validation import as_rows, natural_dtype

WEIGHT, LARGEST = 0, 1
ROWS, PENDING, SHIFTED = 0, 1, 2


class Compressed(NamedTuple):
    """What a chunk became: rows (r, d), mean (d,) float64 or None, total weight, number of rows that went in."""

    rows: np.ndarray
    mean: np.ndarray | None
    weight: float
    n_rows: int


class Chunk:
    """State of chunk `index`: arrays that the kernel updates in place (their meaning: _kernels/compress.pyx)."""

    STATE = ("out", "pending", "root", "shift", "sums", "ones", "book", "count")

    def __init__(self, compressor, n_features, dtype, center, index):
        """compressor: with all sizes resolved."""
        q, p = compressor.rows_out, compressor.rows_per_call
        self.compressor = compressor
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
            "scratch": np.empty(compressor.space(dtype), dtype),
        }
        self._begin(index)

    def _begin(self, index):
        self.index = index
        self.a.update(self.compressor.draw(index, self.dtype))

    def _limit(self):
        """Only the Gaussian map calls BLAS."""
        dense = self.compressor.kind == "gaussian"
        return _threads.blas_for(self.compressor.rows_out) if dense else contextlib.nullcontext()

    @property
    def n_rows(self):
        return int(self.a["count"][ROWS])

    @property
    def room(self):
        """Rows until the chunk is complete."""
        return self.compressor.block_rows - self.n_rows

    def fits_block(self, n):
        """Whether n rows pass in one step that either happens or does not: no block is completed before a bad row."""
        return n <= self.compressor.rows_per_call - int(self.a["count"][PENDING])

    def add(self, rows, weights, offset=0):
        """Take rows (of dtype, columns contiguous) until the chunk is complete; returns how many.

        Raises ValueError naming the first row (counted from -offset) that is not finite or too large; the state may
        then have changed.
        """
        with self._limit():
            taken, bad = kernel.absorb(rows, weights, self.compressor.block_rows, self.compressor.code, self.a)
        if bad >= 0:
            narrow = " (as float32)" if self.dtype == np.float32 else ""
            raise ValueError(f"rows must be finite: row {offset + bad} holds a NaN or an infinity{narrow}")
        limit = np.finfo(self.dtype).max / (4 * self.compressor.padded_rows)
        if self.a["book"][LARGEST] > limit:
            raise ValueError(
                f"rows must be below {limit:.0e} in magnitude to be compressed: one of rows {offset} to "
                f"{offset + taken - 1} is not"
            )
        return taken

    def arrays(self, copy=False):
        """Everything that a resume needs, by name."""
        return {name: self.a[name].copy() if copy else self.a[name] for name in self.STATE}

    def restore(self, arrays, index):
        """Take the state that `arrays` describes; ValueError if shapes do not fit."""
        for name in self.STATE:
            if arrays[name].shape != self.a[name].shape:
                raise ValueError(f"array {name!r} has shape {arrays[name].shape}, expected {self.a[name].shape}")
        count = arrays["count"]
        if not 0 <= count[PENDING] <= count[ROWS] <= self.compressor.block_rows:
            raise ValueError("the counts do not fit the chunk")
        for name in self.STATE:
            self.a[name][...] = arrays[name]
        if index != self.index:
            self._begin(index)

    def copy(self):
        other = object.__new__(Chunk)
        other.compressor, other.dtype, other.index = self.compressor, self.dtype, self.index
        other.a = {**self.a, **self.arrays(copy=True)}
        for name in ("scratch", "square"):  # two copies may serve two threads
            other.a[name] = np.empty_like(self.a[name])
        return other

    def close(self):
        """What the chunk became; its state is used up."""
        a, q = self.a, self.compressor.rows_out
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
                return Compressed((root * rows).astype(self.dtype), mean, weight, n)
            with self._limit():
                kernel.finish(a["out"], self.compressor.code, a)
            mean = None
            if centre:
                move = a["sums"] / weight if weight > 0 else np.zeros_like(a["sums"])
                mean = a["shift"] + move
                a["out"] -= np.outer(a["ones"], move)
            return Compressed(a["out"] * self.dtype.type(self.compressor.scale), mean, weight, n)

    def restart(self, index):
        """Begin another chunk in the same space."""
        for name in self.STATE:
            self.a[name][...] = 0
        self._begin(index)


def compress_once(compressor, rows, index):
    """Phi rows for one chunk of any length."""
    rows = as_rows(rows)
    n = rows.shape[0]
    if n == 0:
        raise ValueError("rows must hold at least one row")
    if compressor.block_rows is not None and n > compressor.block_rows:
        raise ValueError(f"rows must fit one chunk of {compressor.block_rows}, got {n}")
    q = compressor.rows_out
    if q is None:
        raise ValueError("rows_out must be given")
    if n < q:
        raise ValueError(f"rows must be at least rows_out = {q}, got {n}")
    sized = compressor if compressor.block_rows else replace(compressor, block_rows=n)
    dtype = natural_dtype(rows.dtype)
    chunk = Chunk(sized, rows.shape[1], dtype, False, index)
    step = max(1, (4 << 20) // (rows.shape[1] * dtype.itemsize))
    for start in range(0, n, step):
        piece = plain_rows(rows, start, min(start + step, n), dtype)
        chunk.add(piece, None, start)
    if chunk.n_rows == chunk.a["count"][PENDING] <= q:
        kernel.finish(chunk.a["out"], sized.code, chunk.a)  # also a short one is to be transformed
        return (chunk.a["out"] * sized.scale).astype(dtype)
    return chunk.close().rows


def plain_rows(rows, start, stop, dtype):
    """rows[start:stop] as the kernel reads it: in place if it can be."""
    rows = rows[start:stop]
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
