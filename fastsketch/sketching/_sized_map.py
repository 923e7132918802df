"""A random map Phi (q x m) with all its sizes known: its random numbers, and its sizes in the kernel.

Every number is a function of (kind, seed, index of the block, place within it): see fastsketch._core.random.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.random import Key, as_normal, raw_numbers
from fastsketch._kernels.sketching import random_map as kernel

MapKind = Literal["srht", "countsketch", "sparse", "gaussian", "sampling"]
MAP_KINDS: Final[tuple[str, ...]] = get_args(MapKind)

# Key of each kind's random numbers, and the loop of the kernel that serves it.
_KEYS = {
    "srht": Key.SRHT,
    "countsketch": Key.COUNTSKETCH,
    "sparse": Key.SPARSE_SIGNS,
    "gaussian": Key.GAUSSIAN,
    "sampling": Key.SAMPLING,
}
_LOOPS = {
    "srht": kernel.SRHT_LOOP,
    "countsketch": kernel.SCATTER_LOOP,
    "sparse": kernel.SCATTER_LOOP,
    "gaussian": kernel.GEMM_LOOP,
    "sampling": kernel.SCATTER_LOOP,
}

# Rows of one step of the transform: at least 2 q, so that the q additions of sampled rows are few beside the
# transform; beyond 1,024 its strips no longer fit the second cache.
MOST_STEP = 1024
LEAST_STEP = 64
# Nonzeros per row of the sparse sign map: with 4 and more it is as accurate as a Gaussian one in practice.
SPARSE_SIGNS = 4

# Streams of the generator.
_SIGNS, _PLACES = 0, 1


class MapNumbers(NamedTuple):
    """The random numbers of one block, as the kernel takes them (their meaning: _kernels/sketching/random_map.pyx)."""

    value: NDArray[Any]
    target: NDArray[np.int32]
    hi: NDArray[np.int64]
    s: int


@dataclass(frozen=True)
class SizedMap:
    """Phi for blocks of `block_rows` = m rows that become `rows_out` = q; checked by who makes it."""

    kind: str
    rows_out: int
    block_rows: int
    seed: int = 0

    @property
    def loop(self) -> int:
        """Return which loop of the kernel serves this map."""
        return _LOOPS[self.kind]

    @property
    def scale(self) -> float:
        """Return the factor of the kernel's output: it works with entries +-1 where it can."""
        return float(1.0 / np.sqrt(self.rows_out)) if self.kind == "srht" else 1.0

    @cached_property
    def padded_rows(self) -> int:
        """Return the rows of the block rounded up to whole steps of the map: absent rows count as zero."""
        m = self.block_rows
        if self.kind == "srht":
            return max(8, 1 << (m - 1).bit_length())
        return -(-m // self.rows_per_call) * self.rows_per_call

    @cached_property
    def rows_per_call(self) -> int:
        """Return p, the rows of one call of the kernel's inner loop, above q: a short block can stay as it is."""
        if self.kind == "srht":
            return min(max(8, 1 << (2 * self.rows_out - 1).bit_length()), MOST_STEP, self.padded_rows)
        return max(LEAST_STEP, -(-(self.rows_out + 1) // 8) * 8)

    def most(self, dtype: np.dtype[Any]) -> float:
        """Return the largest entry whose sums over a block stay in the range of the dtype."""
        return float(np.finfo(dtype).max) / (4 * self.padded_rows)

    def space(self, dtype: np.dtype[Any]) -> int:
        """Return the elements of scratch."""
        p = self.rows_per_call
        if self.kind == "srht":
            return kernel.srht_space(self.rows_out, p, dtype)
        return p * SPARSE_SIGNS

    def numbers(self, index: int, dtype: np.dtype[Any]) -> MapNumbers:
        """Return the random numbers of block `index`."""
        q, m = self.rows_out, self.padded_rows
        value, target, hi, s = np.empty(0, dtype), np.empty(0, np.int32), np.empty(0, np.int64), 0
        if self.kind == "srht":
            value = _signs(self._raw(index, _SIGNS, n=-(-m // 64)), m, dtype=dtype)
            places = np.sort(self._sample(index, m))
            p = self.rows_per_call
            target, hi = (places % p).astype(np.int32), places // p
        elif self.kind == "countsketch":
            s = 1
            target, value = _hashed(self._raw(index, _PLACES, n=m), q, dtype=dtype)
        elif self.kind == "sparse":
            # output rows in s groups, one entry of every column in each (the block form of Nelson and Nguyen)
            s = min(SPARSE_SIGNS, q)
            edges = np.arange(s + 1) * q // s
            raw = self._raw(index, _PLACES, n=m * s).reshape(m, s)
            columns = [_hashed(raw[:, t], edges[t + 1] - edges[t], dtype=dtype) for t in range(s)]
            target = np.stack([where + edges[t] for t, (where, _) in enumerate(columns)], axis=1).astype(np.int32)
            value = np.stack([sign for _, sign in columns], axis=1) / np.sqrt(dtype.type(s))
        elif self.kind == "gaussian":
            value = (as_normal(self._raw(index, _PLACES, n=m * q)) / np.sqrt(q)).astype(dtype)
        else:
            s = 1
            places = np.sort(self._sample(index, self.block_rows))
            value, target = np.zeros(m, dtype), np.zeros(m, np.int32)
            value[places] = np.sqrt(self.block_rows / q)
            target[places] = np.arange(q)
        return MapNumbers(
            np.ascontiguousarray(value).ravel(), np.ascontiguousarray(target).ravel(), np.ascontiguousarray(hi), s
        )

    def _raw(self, index: int, stream: int, *, n: int) -> NDArray[np.uint64]:
        return raw_numbers(self.seed, _KEYS[self.kind], index, stream, n)

    def _sample(self, index: int, m: int) -> NDArray[np.int64]:
        """Return q different numbers below m, in random order."""
        q = self.rows_out
        if 4 * q >= m:
            return np.argsort(self._raw(index, _PLACES, n=m), kind="stable")[:q]
        # the first q different ones of a sequence: half as many again are nearly always enough
        n = q
        while True:
            n += n // 2 + 8
            numbers = _below(self._raw(index, _PLACES, n=n), m)
            _, first = np.unique(numbers, return_index=True)
            if len(first) >= q:
                return numbers[np.sort(first)[:q]]


def _signs(raw: NDArray[np.uint64], n: int, *, dtype: np.dtype[Any]) -> NDArray[Any]:
    bits = np.unpackbits(raw.astype("<u8", copy=False).view(np.uint8), bitorder="little")[:n]
    return (1 - 2 * bits.astype(np.int8)).astype(dtype)


def _below(raw: NDArray[np.uint64], n: int) -> NDArray[np.int64]:
    """Return uniform integers below n < 2**31 from the upper halves (bias n / 2**32)."""
    return (((raw >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32)).astype(np.int64)


def _hashed(raw: NDArray[np.uint64], n: int, *, dtype: np.dtype[Any]) -> tuple[NDArray[np.int32], NDArray[Any]]:
    return _below(raw, n).astype(np.int32), (1.0 - 2.0 * (raw & np.uint64(1))).astype(dtype)
