"""Random maps that compress every block of m rows into q rows.

A map is a matrix Phi (q x m) with E[Phi' Phi] = I.

``Compressor`` is the user's choice of a map, ``SizedMap`` a map with all its sizes and random numbers, ``MappedBlock``
a block of rows that is being mapped, a few rows at a time. Every random number is a function of (kind, seed, index of
the block, position within the block): see fastsketch._core.random.

Centring is folded into the map: Phi (F - 1 mu') = Phi (F - 1 c') - (Phi 1)(mu - c)' for any c. The kernel subtracts c,
the block's first row, and sums up the differences; one rank-one correction follows at the end. Each row is read once.
"""

from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import Any, Final, Literal, NamedTuple, Self, cast, get_args

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.random import Key, as_normal, raw_numbers
from fastsketch._core.validation import (
    MOST_SIZE,
    Rows,
    as_choice,
    as_integer,
    as_rows,
    as_seed,
    natural_dtype,
    not_finite,
)
from fastsketch._frame.model import Arrays
from fastsketch._kernels.sketching import random_map as kernel
from fastsketch.data.files import _checks as checks
from fastsketch.sketching._plain_rows import plain_rows
from fastsketch.sketching._scalars import scalars, set_scalars

MapKind = Literal["srht", "countsketch", "sparse", "gaussian", "sampling"]
MAP_KINDS: Final[tuple[str, ...]] = get_args(MapKind)

# Key of the random numbers of each kind, and its loop in the kernel.
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

# Bounds on the rows of one step of the transform. A step has 2 q rows or more where the upper bound allows, so that the
# additions of the q sampled rows cost little; beyond 1,024 rows a strip of columns no longer fits the second cache.
MOST_STEP = 1024
LEAST_STEP = 64
# Nonzeros per row of the sparse sign map (Tropp, Yurtsever, Udell and Cevher, SIAM J. Sci. Comput. 41(4), 2019).
SPARSE_SIGNS = 8

# Streams of the random generator.
_SIGNS, _PLACES = 0, 1


class MapNumbers(NamedTuple):
    """Random signs and output positions that define the map of one block of rows, as the compiled kernel reads them.

    Their meaning is described in _kernels/sketching/random_map.pyx.
    """

    value: NDArray[Any]
    target: NDArray[np.int32]
    hi: NDArray[np.int64]
    s: int


@dataclass(frozen=True)
class SizedMap:
    """A random map, such as a subsampled Hadamard transform, of blocks of `block_rows` rows to `rows_out` rows.

    The parameters are not validated.
    """

    kind: str
    rows_out: int
    block_rows: int
    seed: int = 0

    @property
    def loop(self) -> int:
        """Return the number by which the compiled kernel recognises this kind of map."""
        return _LOOPS[self.kind]

    @property
    def scale(self) -> float:
        """Return the factor by which the kernel's result must be multiplied, so that squared norms are preserved on
        average.

        The kernel of "srht" has entries +-1, without the factor 1 / sqrt(rows_out).
        """
        return float(1.0 / np.sqrt(self.rows_out)) if self.kind == "srht" else 1.0

    @cached_property
    def padded_rows(self) -> int:
        """Return the number of rows that the kernel processes for one block: the length of a block, rounded up to what
        the map needs.

        The added rows count as zero.
        """
        m = self.block_rows
        if self.kind == "srht":
            return max(8, 1 << (m - 1).bit_length())
        return -(-m // self.rows_per_call) * self.rows_per_call

    @cached_property
    def rows_per_call(self) -> int:
        """Return how many rows the kernel collects before it maps them together."""
        if self.kind == "srht":
            return min(max(8, 1 << (2 * self.rows_out - 1).bit_length()), MOST_STEP, self.padded_rows)
        return max(LEAST_STEP, -(-(self.rows_out + 1) // 8) * 8)

    def most(self, dtype: np.dtype[Any]) -> float:
        """Return the largest magnitude of an entry with which sums over a block do not overflow the dtype."""
        return float(np.finfo(dtype).max) / (4 * self.padded_rows)

    def space(self, dtype: np.dtype[Any]) -> int:
        """Return the number of entries of the scratch array that the caller must allocate for the kernel."""
        p = self.rows_per_call
        if self.kind == "srht":
            return kernel.srht_space(self.rows_out, p, dtype)
        return p * SPARSE_SIGNS

    def numbers(self, index: int, dtype: np.dtype[Any]) -> MapNumbers:
        """Return the random numbers that map block `index`; the same index always has the same numbers."""
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
        """Return `rows_out` distinct integers from 0 to m - 1, in random order.
        They depend on the seed and the block's index only.
        """
        q = self.rows_out
        if 4 * q >= m:
            return np.argsort(self._raw(index, _PLACES, n=m), kind="stable")[:q]
        # the first q distinct numbers of a sequence, of which 1.5 q are nearly always enough
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
    """Return random 64-bit integers converted to uniform random integers in [0, n), for n below 2**31.

    From the upper 32 bits, with a bias of n / 2**32.
    """
    return (((raw >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32)).astype(np.int64)


def _hashed(raw: NDArray[np.uint64], n: int, *, dtype: np.dtype[Any]) -> tuple[NDArray[np.int32], NDArray[Any]]:
    return _below(raw, n).astype(np.int32), (1.0 - 2.0 * (raw & np.uint64(1))).astype(dtype)


class Mapped(NamedTuple):
    """Result of compressing one block: the compressed rows, with the mean, the total weight and the number of the
    original rows.
    """

    rows: NDArray[Any]  # (r, d)
    mean: NDArray[np.float64] | None  # (d,)
    mean_low: NDArray[np.float64] | None  # (d,), what rounding took from mean
    weight: float
    n_rows: int  # of the block


class MappedBlock:
    """The current block of a stream, whose rows a random map compresses as they arrive.
    ``close`` returns the compressed rows.
    """

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
        # views of the arrays of the state
        self._own: Arrays = {
            "out": state.out,
            "pending": state.pending,
            "root": np.asarray(state.root),
            "shift": state.shift,
            "sums": np.asarray(state.sums),
            "ones": np.asarray(state.ones),
        }

    def _need_numbers(self) -> None:
        """Draw the random numbers of this block's map, unless that was done, and pass them to the kernel.

        They are drawn when a row is added or mapped; loading a file needs none.
        """
        if self._numbers is None:
            self._numbers = self.map.numbers(self.index, self.dtype)
            self.state.set_numbers(*self._numbers)

    n_rows = property(attrgetter("state.n_rows"))  # taken so far
    weight = property(attrgetter("state.weight"))  # of all of them

    @property
    def room(self) -> int:
        """Return how many more rows the block takes until it is complete."""
        return self.map.block_rows - self.state.n_rows

    def fits_step(self, n: int) -> bool:
        """Return True if the map can collect n more rows before it must map the collected ones together.

        ``add`` then checks them before anything changes, so that the caller needs no copy of the state.
        """
        return n <= self.map.rows_per_call - self.state.pending_rows

    def add(self, rows: NDArray[Any], weights: NDArray[np.float64] | None = None, *, offset: int = 0) -> int:
        """Add rows to the block, at most until it is complete. Return the number of rows that were added; the caller
        adds the others to the next block.

        Rows are of the block's dtype, each contiguous.

        Raises ValueError naming the first row (counted from -offset) that is not finite or too large; the state may
        then have changed.
        """
        # the caller has no copy of the state if the rows are few: refuse them before anything changes
        if self.fits_step(len(rows)) and len(rows):
            self._refuse(max(float(rows.max()), -float(rows.min())), offset, len(rows))
        self._need_numbers()
        taken, bad = kernel.absorb(rows, weights, self.map.block_rows, self.state)
        if bad >= 0:
            raise not_finite(offset + bad, self.dtype)
        self._refuse(self.state.largest, offset, taken)
        return taken

    def _refuse(self, largest: float, offset: int, n: int) -> None:
        """Raise ValueError if `largest`, the largest magnitude of some rows, may make sums over a block overflow.

        NaN and infinity are left to the kernel.
        """
        if self._most < largest < np.inf:
            raise ValueError(
                f"rows must be below {self._most:.0e} in magnitude to be compressed: one of rows {offset} to "
                f"{offset + n - 1} is not"
            )

    def arrays(self, copy: bool = False) -> Arrays:
        """Return the complete state as a dict of named arrays, as views where possible or as copies."""
        out = {**self._own, **scalars(self.state)}
        return {name: array.copy() for name, array in out.items()} if copy else out

    @staticmethod
    def validate(arrays: Arrays, sized_map: SizedMap, n_features: int, *, dtype: np.dtype[Any], center: bool) -> None:
        """Validate the arrays of a saved state, which may come from an untrusted file. ValueError unless a block of
        this map can have this state.

        Allocates nothing of the block's size.
        """
        d, p, q = n_features, sized_map.rows_per_call, sized_map.rows_out
        count = checks.named_numbers(arrays, "count", kernel.BlockState.COUNTS, np.dtype(np.int64))
        book = checks.named_numbers(arrays, "book", kernel.BlockState.SUMS, np.dtype(np.float64))
        n, pending = count["n_rows"], count["pending_rows"]
        # complete steps and blocks are mapped before a call ends
        checks.number_within(n, "rows of the block", 0, sized_map.block_rows - 1)
        checks.number_within(pending, "pending rows", 0, min(n, p - 1))
        if (n - pending) % p:
            raise ValueError(f"the {n} rows of the block, less {pending} pending ones, are no whole steps of {p}")
        # set by the first row of positive weight
        seen = int(center and n > 0 and book["weight"] > 0)
        checks.number_within(count["shifted"], "shifted", seen, seen)
        checks.number_within(book["weight"], "weight", 0.0, np.inf)
        checks.number_within(book["largest"], "largest", 0.0, sized_map.most(dtype))
        checks.finite(arrays, "out", (q, d), dtype)
        checks.finite(arrays, "pending", (p, d), dtype)  # unused rows included
        checks.finite(arrays, "shift", (d,), dtype)
        checks.finite(arrays, "sums", (d if center else 0,))
        checks.finite(arrays, "ones", (q,))
        root = checks.not_negative(arrays, "root", (p,))
        if root[pending:].any():
            raise ValueError("rows that are not there must have no weight")
        checks.only(arrays, "out", "pending", "root", "shift", "sums", "ones", "book", "count")

    def restore(self, arrays: Arrays, index: int) -> None:
        """Overwrite the state and the index of the block. The arrays must come from ``arrays`` or have passed
        ``validate``.
        """
        set_scalars(self.state, arrays)
        for name, mine in self._own.items():
            mine[...] = arrays[name]
        if index != self.index:
            self.index, self._numbers = index, None

    def copy(self) -> Self:
        """Return an independent copy of the block."""
        other = copy(self)
        other._begin()
        if other._numbers is not None:  # which never change
            other.state.set_numbers(*other._numbers)
        for name in (*self.state.SUMS, *self.state.COUNTS):
            setattr(other.state, name, getattr(self.state, name))
        for name, array in self._own.items():
            other._own[name][...] = array
        return other

    def close(self) -> Mapped:
        """Map the rows that are still waiting, and return the compressed block. Call ``restart`` before adding rows
        again.
        """
        state, q = self.state, self.map.rows_out
        n, weight, mean, low = state.n_rows, state.weight, None, None
        with np.errstate(under="ignore"):
            if n == state.pending_rows and n <= q:  # a short block is not mapped
                root = np.asarray(state.root)[:n, np.newaxis]
                rows = state.pending[:n].astype(np.float64)
                if self.center:
                    # relative to the heaviest row, so that differences are no larger than the spread
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
        """Clear all sums and arrays, in place, and begin an empty block with the given index, which selects its random
        numbers.
        """
        state = self.state
        for array in self._own.values():
            array[...] = 0
        for name in state.SUMS:
            setattr(state, name, 0.0)
        for name in state.COUNTS:
            setattr(state, name, 0)
        self.index, self._numbers = index, None


def _two_sum(a: NDArray[np.float64], b: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Add two arrays without loss (Knuth's TwoSum). Return the rounded sums and their rounding errors."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def map_once(sized_map: SizedMap, rows: Any, *, index: int) -> NDArray[Any]:
    """Return one block of validated rows, dense or CSR, compressed by a random map; not centred or weighted."""
    n, d = rows.shape
    dtype = natural_dtype(rows.dtype)
    block = MappedBlock(sized_map, d, dtype=dtype, center=False, index=index)
    step = max(1, (4 << 20) // (d * dtype.itemsize))
    for start in range(0, n, step):
        block.add(plain_rows(rows[start : start + step], dtype), offset=start)
    state = block.state
    if state.n_rows == state.pending_rows <= sized_map.rows_out:
        kernel.finish(state.out, state)  # a short block is mapped as well
        return (state.out * sized_map.scale).astype(dtype)
    return block.close().rows


# m / d by default: FROSH section 5.2.
ROWS_PER_FEATURE = 4


@dataclass(frozen=True)
class Compressor:
    """A random map that compresses every block of rows of a stream into fewer rows.

    The map Phi turns m rows into q, with E[Phi' Phi] = I.

    Parameters
    ----------
    kind : {"srht", "countsketch", "sparse", "gaussian", "sampling"}, default "srht"
        Subsampled randomized Hadamard transform (FROSH Algorithm 2); one signed sum a row; eight signed sums a
        row; dense Gaussian; uniform sampling of rows.
    rows_out : int, optional
        q >= 1; by default the ``sketch_size`` of the sketch behind it.
    block_rows : int, optional
        m >= q; by default 4 d (at least 2 q).
    seed : int, default 0
        Below 2**64. Block t of a stream always gets the same random numbers, wherever it is processed.
    first_block : int, default 0
        Index of the first block. Models that are to be merged need blocks of different indices.

    Raises
    ------
    TypeError, ValueError
        If a parameter is out of range; the message names it.

    Notes
    -----
    Cost per element of a block: "srht" takes log2(p) + q / p additions (p as below), "countsketch" one, "sparse"
    eight, "gaussian" 2 q operations, and "sampling" none. Uniform sampling loses rare heavy rows. Instead of an m x d
    buffer, "srht" needs O((q + p) d) memory: it processes a block in steps of p rows, where p is the smallest power
    of two that is at least 2 q, but at most 1,024 and at most the rows of the padded block. If the stream ends within
    a block, its rows are compressed if there are more than q of them, and otherwise kept unchanged.

    References
    ----------
    Ailon, Liberty 2008; Tropp 2011; Charikar, Chen, Farach-Colton 2002; Nelson, Nguyen 2013; FROSH, Algorithm 2.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> rows = np.random.default_rng(0).standard_normal((1000, 50))
    >>> rows[7] *= 30  # nearly as heavy as all others, and a sample would miss it
    >>> few = fs.Compressor("srht", 32, block_rows=1000).compress(rows)
    >>> few.shape, bool(abs(np.sum(few**2) / np.sum(rows**2) - 1) < 0.2)
    ((32, 50), True)
    """

    kind: MapKind = "srht"
    rows_out: int | None = None
    block_rows: int | None = field(default=None, kw_only=True)
    seed: int = field(default=0, kw_only=True)
    first_block: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        as_choice(self.kind, "kind", MAP_KINDS)
        for name in ("rows_out", "block_rows"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, as_integer(value, name, 1, MOST_SIZE))
        object.__setattr__(self, "seed", as_seed(self.seed))
        object.__setattr__(self, "first_block", as_integer(self.first_block, "first_block", 0, 1 << 63))
        if self.rows_out and self.block_rows and self.block_rows < self.rows_out:
            raise ValueError(f"block_rows must be at least rows_out, got {self.block_rows} and {self.rows_out}")

    def compress(self, rows: Rows, index: int = 0) -> NDArray[Any]:
        """Apply the random map to one block of rows, and return the compressed rows.

        Parameters
        ----------
        rows : array_like or scipy.sparse (n, d)
            One block: real and finite, rows_out <= n <= block_rows.
        index : int, default 0
            The block's index, which selects the random numbers.

        Returns
        -------
        ndarray (rows_out, d)
            float32 for float32 rows, else float64.

        Raises
        ------
        TypeError, ValueError
            If ``rows_out`` was not given, or the rows are not such a block.
        """
        index, checked = as_integer(index, "index", 0, 1 << 62), as_rows(rows)
        n, q = checked.shape[0], self.rows_out
        if n == 0:
            raise ValueError("rows must hold at least one row")
        if self.block_rows is not None and n > self.block_rows:
            raise ValueError(f"rows must fit one block of {self.block_rows}, got {n}")
        if q is None:
            raise ValueError("rows_out must be given")
        if n < q:
            raise ValueError(f"rows must be at least rows_out = {q}, got {n}")
        return map_once(SizedMap(self.kind, q, self.block_rows or n, self.seed), checked, index=index)


def sized(compressor: Compressor, *, rows_out: int, n_features: int) -> SizedMap:
    """Return the random map of a compressor with every size set, as a SizedMap.

    `rows_out` is used if the compressor itself has no number of output rows.
    """
    q = compressor.rows_out or rows_out
    m = compressor.block_rows or max(ROWS_PER_FEATURE * n_features, 2 * q)
    return SizedMap(compressor.kind, q, m, compressor.seed)


def as_compressor(value: Any, name: str = "compressor") -> Compressor | MapKind:
    """Return a valid Compressor for a Compressor or a dict of parameters, and the name for the name of a kind.
    TypeError or ValueError for anything else.
    """
    if isinstance(value, Compressor):
        return value
    if isinstance(value, str):
        return Compressor(cast("MapKind", value)).kind
    if isinstance(value, dict):
        return Compressor(**cast("dict[str, Any]", value))
    raise TypeError(f"{name} must be a Compressor, the name of a kind or None, got {type(value).__name__}")
