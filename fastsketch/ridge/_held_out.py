"""Uniform random sample of rows (bottom-k reservoir), held out of a sketch so that a ridge penalty can be chosen on it.

Every row that may be held out (for users: those with two items at least) has a pseudorandom key, a function of the
seed, its position in the stream and its content. The rows with the smallest keys are held out. So the sample depends
neither on batches nor on the order of merges, and two parts of a stream with the same seed are sampled independently.
"""

import heapq
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.random import Key, raw_block
from fastsketch.data.files import _checks as checks

Keys = NDArray[np.uint64]

# Random numbers are drawn for this many rows at a time, and rows are compared in such blocks.
BLOCK = 4096
# Powers of a decay are divided out up to this factor.
MOST_UNDONE = 1e12
# Constants of SplitMix64.
STEP, LAST_SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(31)
SHUFFLES = (
    (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)),
    (np.uint64(27), np.uint64(0x94D049BB133111EB)),
)


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Reservoir of held-out rows (users), sorted by their random keys.

    Immutable: methods return new objects.
    """

    rows: Any  # CSR (r, items), for a regression with targets as last columns; or an object array of r dense rows
    weight: NDArray[np.float64]  # (r,) at their arrival, since then only faded
    key: Keys  # (r,) ascending
    came: NDArray[np.int64]  # (r,) number of the row in the stream; after a merge that of the last row before it

    def __len__(self) -> int:
        return len(self.key)

    @property
    def n_events(self) -> int:
        """Return the number of stored entries of the held-out rows.

        Ten times as fast as scipy's ``nnz``.
        """
        return len(self.rows.data)

    def chosen(self, where: slice | NDArray[np.int64]) -> "HeldOut":
        """Return the held-out rows at the given positions, in the given order."""
        taken = self.rows.dtype != object and isinstance(where, np.ndarray)
        rows = lines(self.rows, cast("NDArray[np.int64]", where)) if taken else self.rows[where]
        return HeldOut(rows, self.weight[where], self.key[where], self.came[where])

    def own(self) -> "HeldOut":
        """Copy the arrays of the rows, which may belong to the caller, and return a new reservoir."""
        rows = copy(self.rows)
        rows.data, rows.indices, rows.indptr = rows.data.copy(), rows.indices.copy(), rows.indptr.copy()
        return HeldOut(rows, self.weight, self.key, self.came)

    def faded(self, factor: float) -> "HeldOut":
        """Return the held-out rows with their weights multiplied by a factor."""
        return replace(self, weight=self.weight * factor)

    def aged(self, decay: float, n_rows: int, *, came: int | None = None) -> "HeldOut":
        """Return the held-out rows with their weights decayed to the end of a stream of `n_rows` rows.

        The result counts its rows as if they had arrived last. `came` replaces their number in the stream, if they
        continue in another stream.
        """
        age = (n_rows - 1 - self.came).astype(np.float64)
        last = np.full(len(self), n_rows - 1 if came is None else came)
        return replace(self, weight=self.weight * decay**age, came=last)

    def with_items(self, places: NDArray[np.int64], width: int) -> "HeldOut":
        """Return the held-out rows with their items (columns) renumbered, in a matrix of `width` columns.

        `places` has the new column of each item.
        """
        rows, indices = self.rows, places[self.rows.indices].astype(np.int32)
        moved: Any = type(rows)((rows.data.copy(), indices, rows.indptr.copy()), shape=(len(self), width))
        moved.sort_indices()
        return replace(self, rows=moved)


def empty(n_items: int, dtype: np.dtype[Any]) -> HeldOut:
    """Return an empty reservoir of held-out rows."""
    return HeldOut(empty_rows(n_items, dtype, 0), np.empty(0), np.empty(0, np.uint64), np.empty(0, np.int64))


def empty_rows(n_items: int, dtype: np.dtype[Any], n_rows: int = 1) -> Any:
    """Return a CSR matrix without stored entries."""
    from scipy.sparse import csr_array

    return csr_array((n_rows, n_items), dtype=dtype)


def offer(
    held: HeldOut, rows: Any, weight: NDArray[np.float64], *, size: int, first: int, seed: int, decay: float
) -> tuple[HeldOut, HeldOut]:
    """Offer new CSR rows to a reservoir. Return the new reservoir, and the rows for the sketch in order.

    The rows have the positions `first`, `first` + 1, ... in the stream.

    With decay < 1 the sketch gets one row for each that arrives, an empty one if need be, since rows age its contents.
    """
    k, r = int(rows.shape[0]), len(held)
    key, own = keys_of(rows, first, seed), np.arange(r, r + k)
    length: NDArray[np.int64] = rows.indptr[1:] - rows.indptr[:-1]
    able = (length >= 2) & (weight > 0)
    if r >= size:
        able &= key < held.key[-1] if size else False
    if not able.any() and (decay < 1.0 or length.all()):  # the usual case for single rows once the reservoir is full
        return held, HeldOut(rows, weight, key, own + (first - r))
    # source of what the sketch gets in each place: a held-out row, r + a new row, or -1
    given: NDArray[np.int64] = np.where((length > 0) | (decay < 1.0), own, -1)
    kept = exchange(held.key, key, able, size=size, given=given)
    every = stacked([held.rows, rows, empty_rows(rows.shape[1], rows.dtype)])
    came = np.concatenate([held.came, own + (first - r), [0]])
    weights = np.concatenate([held.weight, weight, [1.0]])
    at = np.flatnonzero((given >= 0) | (decay < 1.0))
    source = np.where(given[at] >= 0, given[at], r + k)
    age = np.where(source == r + k, 0, first + at - came[source])
    keys = np.concatenate([held.key, key, np.zeros(1, np.uint64)])
    left = HeldOut(lines(every, kept), weights[kept], keys[kept], came[kept])
    return left, HeldOut(lines(every, source), weights[source] * decay**age, keys[source], first + at)


def exchange(
    held: Keys, key: Keys, able: NDArray[np.bool_], *, size: int, given: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Choose the rows that a reservoir keeps after a new batch. Return their source indices; `given` is changed.

    These are the rows of the smallest keys (a bottom-k sample), in ascending order of keys. Source i < r is position i
    of the old reservoir of r rows, source r + j is row j of the batch.

    Parameters
    ----------
    held : ndarray (r,)
        Keys of the reservoir before.
    key, able : ndarray (k,)
        Keys of the rows, and whether each may be held out.
    size : int
        Size of the reservoir.
    given : ndarray (k,)
        On entry the source of what the sketch gets in the place of each row. Changed in place: where a row is held out
        it becomes the source that this row evicts, or -1 if it evicts none.
    """
    r = len(held)
    some = np.flatnonzero(able & (key < held[-1]) if 0 < size <= r else able & (size > 0))
    if not len(some):
        return np.arange(r)
    if len(some) == 1:  # a shortcut for single rows
        i, full = some[0], r >= size
        given[i] = out = r - 1 if full else -1
        kept = np.insert(np.arange(r), np.searchsorted(held, key[i]), r + i)
        return kept[kept != out] if full else kept
    first, some = np.split(some, [max(size - r, 0)])  # the first ones fill the reservoir
    given[first] = -1
    source = np.concatenate([np.arange(r), r + first])
    by_source = np.concatenate([held, key])
    source = source[np.argsort(by_source[source], kind="stable")]
    stayed, entered = (
        len(source),
        list[tuple[int, int]](),
    )  # a heap, largest key first; of equal keys the last row first
    for start in range(0, len(some), BLOCK):
        part = some[start : start + BLOCK]
        for i in part[key[part] < by_source[source[stayed - 1]]].tolist() if stayed else part.tolist():
            last = (~int(by_source[source[stayed - 1]]), -int(source[stayed - 1])) if stayed else entered[0]
            top = min(last, entered[0]) if entered else last
            if ~int(key[i]) > top[0]:
                heapq.heappush(entered, (~int(key[i]), -(r + i)))
                if stayed and top is last:
                    stayed -= 1
                else:
                    heapq.heappop(entered)
                given[i] = -top[1]
    kept = np.concatenate([source[:stayed], np.sort(np.array([-place for _, place in entered], np.int64))])
    return kept[np.argsort(by_source[kept], kind="stable")]


def stacked(parts: Sequence[Any]) -> Any:
    """Stack CSR matrices of the same width vertically.

    For short ones this takes a tenth of the time of scipy's ``vstack``.
    """
    ends: NDArray[np.int64] = np.cumsum([0, *(part.indptr[-1] for part in parts)])
    indptr = np.concatenate([parts[0].indptr[:1], *(p.indptr[1:] + end for p, end in zip(parts, ends, strict=False))])
    data, indices = (np.concatenate([getattr(part, name) for part in parts]) for name in ("data", "indices"))
    return type(parts[0])((data, indices, indptr), shape=(len(indptr) - 1, parts[0].shape[1]))


def lines(rows: Any, where: NDArray[np.int64]) -> Any:
    """Return the CSR rows at the given positions, like ``rows[where]`` but faster for few rows."""
    before: NDArray[np.int64] = rows.indptr
    starts = before[where]
    lengths = before[where + 1] - starts
    indptr = np.zeros(len(where) + 1, before.dtype)
    np.cumsum(lengths, out=indptr[1:])
    at = np.arange(int(indptr[-1])) + np.repeat(starts - indptr[:-1], lengths)
    return type(rows)((rows.data[at], rows.indices[at], indptr), shape=(len(where), rows.shape[1]))


def concatenated(parts: Sequence[HeldOut]) -> HeldOut:
    """Concatenate reservoirs of held-out rows, in the given order.

    The rows stay dense if all of them are, else they become CSR.
    """
    some = [part for part in parts if len(part)] or parts[:1]
    apart = all(part.rows.dtype == object for part in some)
    rows: Any = np.concatenate([p.rows for p in some]) if apart else stacked([csr_of(p) for p in some])
    weight, key, came = (np.concatenate([getattr(part, name) for part in some]) for name in ("weight", "key", "came"))
    return HeldOut(rows, weight, key, came)


def csr_of(held: HeldOut) -> Any:
    """Return the rows of a reservoir as a CSR matrix.

    Of dense rows every entry is stored.
    """
    from scipy.sparse import csr_array

    if held.rows.dtype != object:
        return held.rows
    rows: NDArray[np.float64] = np.vstack(held.rows)
    r, width = len(held), int(rows.shape[1])
    indptr = np.arange(0, width * r + 1, width)
    return csr_array((rows.ravel(), np.tile(np.arange(width, dtype=np.int32), r), indptr), shape=rows.shape)


def apart(rows: NDArray[np.float64]) -> NDArray[Any]:
    """Split a dense matrix into an object array with a copy of each row, so that rows can be replaced one by one."""
    out = np.empty(len(rows), object)
    out[:] = [row.copy() for row in rows]
    return out


def joined(parts: Sequence[HeldOut]) -> HeldOut:
    """Merge reservoirs into one that has all their rows, sorted by keys.

    The result does not depend on the order of the reservoirs.

    Equal content at the same position of two streams has equal keys. Such rows are ordered by their values and weights.
    """
    every = concatenated(parts)
    rows = csr_of(every) if len(every) else every.rows
    values = _sums(rows, mixed(rows.data.astype(np.float64).view(np.uint64) ^ _names(rows)))
    return every.chosen(np.lexsort((every.weight, values, every.key)))


def undone(decay: float) -> int:
    """Return the number of rows over which powers of a decay can be divided out without loss of precision."""
    return max(1, int(np.log(MOST_UNDONE) / -np.log(decay))) if decay < 1.0 else 2**62


# -- keys --------------------------------------------------------------------------------------------------------------
def keys_of(rows: Any, first: int, seed: int) -> Keys:
    """Return the pseudorandom sampling keys (k,) of CSR rows `first`, `first` + 1, ... of a stream."""
    return numbered(_sums(rows, _names(rows)), first, seed)


def numbered(content: Keys, first: int, seed: int) -> Keys:
    """Return the pseudorandom sampling keys of rows `first`, `first` + 1, ... of a stream.

    `content` has a hash of the content of each row; the keys have the same shape (k,).
    """
    k = len(content)
    if k == 0:
        return np.empty(0, np.uint64)
    drawn: list[Keys] = []
    for block in range(first // BLOCK, (first + k - 1) // BLOCK + 1):
        start, stop = max(first - block * BLOCK, 0), min(first + k - block * BLOCK, BLOCK)
        drawn.append(raw_block(seed, Key.HELD_OUT, block, BLOCK)[start:stop])
    return (drawn[0] if len(drawn) == 1 else np.concatenate(drawn)) ^ mixed(content)


def _names(rows: Any) -> Keys:
    """Return a hash of the column number of every stored entry.

    The sum over a row distinguishes sets of columns.
    """
    return mixed(rows.indices.astype(np.uint64))


def _sums(rows: Any, values: Keys) -> Keys:
    """Sum one value of each stored entry over every CSR row, modulo 2**64."""
    sums = np.zeros(len(values) + 1, np.uint64)
    np.add.accumulate(values, out=sums[1:])
    at = sums[rows.indptr]
    return at[1:] - at[:-1]


def mixed(values: Keys) -> Keys:
    """Hash 64-bit integers by a permutation that looks random.

    These are the last steps of SplitMix64 (Steele, Lea, Flood 2014).
    """
    out = values + STEP
    for shift, factor in SHUFFLES:
        out ^= out >> shift
        out *= factor
    out ^= out >> LAST_SHIFT
    return out


# -- state -------------------------------------------------------------------------------------------------------------
def names_of(prefix: str) -> list[str]:
    """Return the names that the arrays of a reservoir have in a state file."""
    return [f"{prefix}_{name}" for name in ("indptr", "indices", "data", "weight", "key", "came")]


def arrays_of(held: HeldOut, prefix: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of a reservoir by name, for a state file."""
    rows = csr_of(held)
    indptr, indices = rows.indptr.astype(np.int64), rows.indices.astype(np.int32)
    arrays = indptr, indices, rows.data, held.weight, held.key, held.came
    return dict(zip(names_of(prefix), arrays, strict=True))


def from_arrays(arrays: checks.Arrays, n_items: int, prefix: str) -> HeldOut:
    """Restore a reservoir from the arrays that ``arrays_of`` returned."""
    from scipy.sparse import csr_array

    indptr, indices, data, weight, key, came = (arrays[name] for name in names_of(prefix))
    return HeldOut(csr_array((data, indices, indptr), shape=(len(key), n_items)), weight, key, came)


def validate(
    arrays: checks.Arrays, prefix: str, n_items: int, *, size: int, fewest: int, n_rows: int, dtype: np.dtype[Any]
) -> None:
    """Raise ValueError if the arrays cannot be a reservoir of a stream of n_rows rows.

    It has at most `size` rows, each with `fewest` positive entries or more. With `fewest` 0 entries may be any numbers.
    """
    of_indptr, of_indices, of_data, of_weight, of_key, of_came = names_of(prefix)
    key = checks.array_of(arrays, of_key, arrays[of_key].shape[:1], np.uint64)
    r, stored = len(key), len(arrays[of_data])
    checks.number_within(r, f"users {prefix}", 0, min(size, n_rows))
    if (key[1:] < key[:-1]).any():
        raise ValueError(f"the keys of the users {prefix} are not in order")
    checks.not_negative(arrays, of_weight, (r,))
    came = checks.array_of(arrays, of_came, (r,), np.int64)
    if r and not 0 <= came.min() <= came.max() < n_rows:
        raise ValueError(f"array '{of_came}' must lie in [0, {n_rows}), got {came.min()} and {came.max()}")
    data = checks.finite(arrays, of_data, (stored,), dtype)
    if stored and fewest and data.min() <= 0:
        raise ValueError(f"array '{of_data}' must be positive, got {data.min()}")
    indptr = checks.array_of(arrays, of_indptr, (r + 1,), np.int64)
    indices = checks.array_of(arrays, of_indices, (stored,), np.int32)
    checks.csr_rows(indptr, indices, n_stored=stored, n_columns=n_items, what=f"the users {prefix}")
    if r and np.diff(indptr).min() < fewest:
        raise ValueError(f"users {prefix} must have {fewest} items at least")
