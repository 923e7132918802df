"""A uniform sample of rows that is kept out of the sketch, so that a ridge can be chosen on them.

Every row that may be held out (of users those with two items at least) has a key, a function of the seed, its place in
the stream and what it holds; those of the least keys are held out. So the choice depends on neither batches nor the
order of merges, and two parts of a stream with the same seed choose apart.
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

# Random numbers are drawn for this many places at a time, and rows are looked at for this many.
BLOCK = 4096
# Powers of a decay are undone up to this factor.
MOST_UNDONE = 1e12
# Of SplitMix64.
STEP, LAST_SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(31)
SHUFFLES = (
    (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)),
    (np.uint64(27), np.uint64(0x94D049BB133111EB)),
)


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Rows (users) in the order of their keys; no array ever changes."""

    rows: Any  # CSR (r, items), of a regression with the targets as its last columns; dense ones as r arrays, objects
    weight: NDArray[np.float64]  # (r,) when they came, faded since
    key: Keys  # (r,) ascending
    came: NDArray[np.int64]  # (r,) number of the row in the stream; of those of a merge that of the last before it

    def __len__(self) -> int:
        return len(self.key)

    @property
    def n_events(self) -> int:
        """Return the number of events of all users; nnz of scipy costs ten times as much, at every row of an update."""
        return len(self.rows.data)

    def chosen(self, where: slice | NDArray[np.int64]) -> "HeldOut":
        """Return some of the users, in this order."""
        taken = self.rows.dtype != object and isinstance(where, np.ndarray)
        rows = lines(self.rows, cast("NDArray[np.int64]", where)) if taken else self.rows[where]
        return HeldOut(rows, self.weight[where], self.key[where], self.came[where])

    def own(self) -> "HeldOut":
        """Return the same users with a copy of their rows, which may be a caller's, in less time than scipy takes."""
        rows = copy(self.rows)
        rows.data, rows.indices, rows.indptr = rows.data.copy(), rows.indices.copy(), rows.indptr.copy()
        return HeldOut(rows, self.weight, self.key, self.came)

    def faded(self, factor: float) -> "HeldOut":
        """Return the same users with weights times a factor."""
        return replace(self, weight=self.weight * factor)

    def aged(self, decay: float, n_rows: int, *, came: int | None = None) -> "HeldOut":
        """Return the same users with the weights that they have after n_rows rows, as if they had come in the last.

        `came`: its number in another stream.
        """
        age = (n_rows - 1 - self.came).astype(np.float64)
        last = np.full(len(self), n_rows - 1 if came is None else came)
        return replace(self, weight=self.weight * decay**age, came=last)

    def with_items(self, places: NDArray[np.int64], width: int) -> "HeldOut":
        """Return the same users with their items at other places."""
        rows, indices = self.rows, places[self.rows.indices].astype(np.int32)
        moved: Any = type(rows)((rows.data.copy(), indices, rows.indptr.copy()), shape=(len(self), width))
        moved.sort_indices()
        return replace(self, rows=moved)


def empty(n_items: int, dtype: np.dtype[Any]) -> HeldOut:
    """Return a reservoir without users."""
    return HeldOut(empty_rows(n_items, dtype, 0), np.empty(0), np.empty(0, np.uint64), np.empty(0, np.int64))


def empty_rows(n_items: int, dtype: np.dtype[Any], n_rows: int = 1) -> Any:
    """Return CSR rows without items."""
    from scipy.sparse import csr_array

    return csr_array((n_rows, n_items), dtype=dtype)


def offer(
    held: HeldOut, rows: Any, weight: NDArray[np.float64], *, size: int, first: int, seed: int, decay: float
) -> tuple[HeldOut, HeldOut]:
    """Offer rows `first`, `first` + 1, ... of a stream, CSR (k, items): (reservoir, rows for the sketch in order).

    With decay < 1 the sketch gets one row for each that comes, be it without items: this is what ages it.
    """
    k, r = int(rows.shape[0]), len(held)
    key, own = keys_of(rows, first, seed), np.arange(r, r + k)
    length: NDArray[np.int64] = rows.indptr[1:] - rows.indptr[:-1]
    able = (length >= 2) & (weight > 0)
    if r >= size:
        able &= key < held.key[-1] if size else False
    if not able.any() and (decay < 1.0 or length.all()):  # as most single rows are, once the reservoir is full
        return held, HeldOut(rows, weight, key, own + (first - r))
    # sources of what the sketch gets at each place: a held user, r + a row, or -1
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
    """Return the sources of the reservoir (at most size,) in the order of their keys: a place in it, or r + a row.

    `held`: the r keys of the reservoir before; `able`: rows that may be held out. `given` (k,), sources of what the
    sketch gets in the place of each row, becomes that which leaves the reservoir for it, -1 where nothing does.
    """
    r = len(held)
    some = np.flatnonzero(able & (key < held[-1]) if 0 < size <= r else able & (size > 0))
    if not len(some):
        return np.arange(r)
    if len(some) == 1:  # without a look at all others: a row that comes alone
        i, full = some[0], r >= size
        given[i] = out = r - 1 if full else -1
        kept = np.insert(np.arange(r), np.searchsorted(held, key[i]), r + i)
        return kept[kept != out] if full else kept
    first, some = np.split(some, [max(size - r, 0)])  # there is room for the first
    given[first] = -1
    source = np.concatenate([np.arange(r), r + first])
    by_source = np.concatenate([held, key])
    source = source[np.argsort(by_source[source], kind="stable")]
    stayed, entered = len(source), list[tuple[int, int]]()  # a heap with the largest key first, of equal ones the last
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
    """Return CSR matrices of one width one below the other; scipy's vstack takes ten times as long for short ones."""
    ends: NDArray[np.int64] = np.cumsum([0, *(part.indptr[-1] for part in parts)])
    indptr = np.concatenate([parts[0].indptr[:1], *(p.indptr[1:] + end for p, end in zip(parts, ends, strict=False))])
    data, indices = (np.concatenate([getattr(part, name) for part in parts]) for name in ("data", "indices"))
    return type(parts[0])((data, indices, indptr), shape=(len(indptr) - 1, parts[0].shape[1]))


def lines(rows: Any, where: NDArray[np.int64]) -> Any:
    """Return some rows of CSR, in this order: as rows[where] does, in less time for short ones."""
    before: NDArray[np.int64] = rows.indptr
    starts = before[where]
    lengths = before[where + 1] - starts
    indptr = np.zeros(len(where) + 1, before.dtype)
    np.cumsum(lengths, out=indptr[1:])
    at = np.arange(int(indptr[-1])) + np.repeat(starts - indptr[:-1], lengths)
    return type(rows)((rows.data[at], rows.indices[at], indptr), shape=(len(where), rows.shape[1]))


def concatenated(parts: Sequence[HeldOut]) -> HeldOut:
    """Return all rows of some parts, one after the other: dense ones apart, where all are, else CSR."""
    some = [part for part in parts if len(part)] or parts[:1]
    apart = all(part.rows.dtype == object for part in some)
    rows: Any = np.concatenate([p.rows for p in some]) if apart else stacked([csr_of(p) for p in some])
    weight, key, came = (np.concatenate([getattr(part, name) for part in some]) for name in ("weight", "key", "came"))
    return HeldOut(rows, weight, key, came)


def csr_of(held: HeldOut) -> Any:
    """Return the rows as CSR, of dense ones every entry."""
    from scipy.sparse import csr_array

    if held.rows.dtype != object:
        return held.rows
    rows: NDArray[np.float64] = np.vstack(held.rows)
    r, width = len(held), int(rows.shape[1])
    indptr = np.arange(0, width * r + 1, width)
    return csr_array((rows.ravel(), np.tile(np.arange(width, dtype=np.int32), r), indptr), shape=rows.shape)


def apart(rows: NDArray[np.float64]) -> NDArray[Any]:
    """Return dense rows (r, d) as r arrays of their own, which leave and enter without a copy of the others."""
    out = np.empty(len(rows), object)
    out[:] = [row.copy() for row in rows]
    return out


def joined(parts: Sequence[HeldOut]) -> HeldOut:
    """Return all users of some parts in the order of their keys, whatever the order of the parts.

    The same items in the same place of two streams have the same key: then it is by their values and weights.
    """
    every = concatenated(parts)
    rows = csr_of(every) if len(every) else every.rows
    values = _sums(rows, mixed(rows.data.astype(np.float64).view(np.uint64) ^ _names(rows)))
    return every.chosen(np.lexsort((every.weight, values, every.key)))


def undone(decay: float) -> int:
    """Return the number of rows over which powers of a decay are undone."""
    return max(1, int(np.log(MOST_UNDONE) / -np.log(decay))) if decay < 1.0 else 2**62


# -- keys --------------------------------------------------------------------------------------------------------------
def keys_of(rows: Any, first: int, seed: int) -> Keys:
    """Return the keys (k,) of CSR rows that are `first`, `first` + 1, ... of their stream."""
    return numbered(_sums(rows, _names(rows)), first, seed)


def numbered(content: Keys, first: int, seed: int) -> Keys:
    """Return the keys (k,) of rows `first`, `first` + 1, ... of a stream, by a number for what each holds."""
    k = len(content)
    if k == 0:
        return np.empty(0, np.uint64)
    drawn: list[Keys] = []
    for block in range(first // BLOCK, (first + k - 1) // BLOCK + 1):
        start, stop = max(first - block * BLOCK, 0), min(first + k - block * BLOCK, BLOCK)
        drawn.append(raw_block(seed, Key.HELD_OUT, block, BLOCK)[start:stop])
    return (drawn[0] if len(drawn) == 1 else np.concatenate(drawn)) ^ mixed(content)


def _names(rows: Any) -> Keys:
    """Return a random number for the item of every entry, so that sums tell sets apart."""
    return mixed(rows.indices.astype(np.uint64))


def _sums(rows: Any, values: Keys) -> Keys:
    """Sum the entries of every row, modulo 2**64."""
    sums = np.zeros(len(values) + 1, np.uint64)
    np.add.accumulate(values, out=sums[1:])
    at = sums[rows.indptr]
    return at[1:] - at[:-1]


def mixed(values: Keys) -> Keys:
    """Return 64-bit numbers permuted so that they look random.

    The last steps of SplitMix64 (Steele, Lea, Flood 2014).
    """
    out = values + STEP
    for shift, factor in SHUFFLES:
        out ^= out >> shift
        out *= factor
    out ^= out >> LAST_SHIFT
    return out


# -- state -------------------------------------------------------------------------------------------------------------
def names_of(prefix: str) -> list[str]:
    """Return the names of the arrays of users in a file."""
    return [f"{prefix}_{name}" for name in ("indptr", "indices", "data", "weight", "key", "came")]


def arrays_of(held: HeldOut, prefix: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of users by name, for a file."""
    rows = csr_of(held)
    indptr, indices = rows.indptr.astype(np.int64), rows.indices.astype(np.int32)
    arrays = indptr, indices, rows.data, held.weight, held.key, held.came
    return dict(zip(names_of(prefix), arrays, strict=True))


def from_arrays(arrays: checks.Arrays, n_items: int, prefix: str) -> HeldOut:
    """Return the users whom ``arrays_of`` has written."""
    from scipy.sparse import csr_array

    indptr, indices, data, weight, key, came = (arrays[name] for name in names_of(prefix))
    return HeldOut(csr_array((data, indices, indptr), shape=(len(key), n_items)), weight, key, came)


def validate(
    arrays: checks.Arrays, prefix: str, n_items: int, *, size: int, fewest: int, n_rows: int, dtype: np.dtype[Any]
) -> None:
    """Raise ValueError unless these could be users of n_rows rows, `size` at most, each of `fewest` items or more.

    With `fewest` 0 they are rows of any numbers.
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
