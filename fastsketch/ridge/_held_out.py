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

# Random numbers are drawn for blocks of this many rows, and new rows are compared with the reservoir in such blocks.
BLOCK_ROWS = 4096
# Largest factor by which weights are divided to compensate the decay that the sketch will apply to them.
MAX_DECAY_RATIO = 1e12
# Constants of SplitMix64.
SPLITMIX_INCREMENT, SPLITMIX_LAST_SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(31)
SPLITMIX_ROUNDS = (
    (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)),
    (np.uint64(27), np.uint64(0x94D049BB133111EB)),
)


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Reservoir of held-out rows: a uniform random sample of a stream, sorted by pseudorandom keys. In recommenders a
    row is a user.

    Immutable: methods return new objects.
    """

    rows: Any  # CSR (r, items), for a regression with targets as last columns; or an object array of r dense rows
    weight: NDArray[np.float64]  # (r,) at arrival; only ``fade`` changes it, ``decay`` is applied by ``apply_decay``
    key: Keys  # (r,) ascending
    row_number: NDArray[np.int64]  # (r,) number of the row in the stream; after a merge that of the last row before it

    def __len__(self) -> int:
        return len(self.key)

    @property
    def n_events(self) -> int:
        """Return the number of stored entries of the held-out rows, which must be CSR.

        This is ten times as fast as scipy's ``nnz``.
        """
        return len(self.rows.data)

    def take(self, positions: slice | NDArray[np.int64]) -> "HeldOut":
        """Return a reservoir of the rows at the given positions, in the given order."""
        by_position = self.rows.dtype != object and isinstance(positions, np.ndarray)
        rows = take_csr_rows(self.rows, cast("NDArray[np.int64]", positions)) if by_position else self.rows[positions]
        return HeldOut(rows, self.weight[positions], self.key[positions], self.row_number[positions])

    def copy_rows(self) -> "HeldOut":
        """Return a reservoir with copies of the rows' arrays, so that later changes to the caller's arrays do not
        matter.
        """
        rows = copy(self.rows)
        rows.data, rows.indices, rows.indptr = rows.data.copy(), rows.indices.copy(), rows.indptr.copy()
        return HeldOut(rows, self.weight, self.key, self.row_number)

    def faded(self, factor: float) -> "HeldOut":
        """Return a reservoir of the same rows with all weights multiplied by a factor."""
        return replace(self, weight=self.weight * factor)

    def apply_decay(self, decay: float, n_rows: int, *, row_number: int | None = None) -> "HeldOut":
        """Return a new reservoir in which the weight of each row is multiplied by decay**age.
        The age of a row is the number of the rows, out of `n_rows`, that came after it.

        The rows of the new reservoir all have the number of the last row, so that the decay is not applied twice.
        `row_number` is the number to use instead if the rows are to continue in another stream.
        """
        ages = (n_rows - 1 - self.row_number).astype(np.float64)
        row_numbers = np.full(len(self), n_rows - 1 if row_number is None else row_number)
        return replace(self, weight=self.weight * decay**ages, row_number=row_numbers)

    def renumber_items(self, new_columns: NDArray[np.int64], width: int) -> "HeldOut":
        """Return a reservoir in which column j is moved to column new_columns[j] of `width` columns.

        It is used when a model gets new items.
        """
        rows, indices = self.rows, new_columns[self.rows.indices].astype(np.int32)
        renumbered: Any = type(rows)((rows.data.copy(), indices, rows.indptr.copy()), shape=(len(self), width))
        renumbered.sort_indices()
        return replace(self, rows=renumbered)


def empty_reservoir(n_items: int, dtype: np.dtype[Any]) -> HeldOut:
    """Return a reservoir without rows, for CSR rows of n_items columns."""
    return HeldOut(empty_csr(n_items, dtype, 0), np.empty(0), np.empty(0, np.uint64), np.empty(0, np.int64))


def empty_csr(n_items: int, dtype: np.dtype[Any], n_rows: int = 1) -> Any:
    """Return a CSR matrix (n_rows, n_items) without stored entries."""
    from scipy.sparse import csr_array

    return csr_array((n_rows, n_items), dtype=dtype)


def update_reservoir(
    held: HeldOut, rows: Any, weight: NDArray[np.float64], *, size: int, first: int, seed: int, decay: float
) -> tuple[HeldOut, HeldOut]:
    """Sample rows for the reservoir from new CSR rows, and return (new reservoir, rows for the sketch to learn).
    Both are HeldOut objects; a row is in one of the two.

    The rows have the numbers `first`, `first` + 1, ... in the stream. Each new row that enters the reservoir evicts a
    row, or none if the reservoir is not full. Evicted rows and rows that do not enter are for the sketch, in the order
    of the stream, with decayed weights. With decay < 1 the sketch gets exactly one row for each new row, if necessary
    an empty one, because every row that it learns makes its contents decay.
    """
    k, r = int(rows.shape[0]), len(held)
    keys, sources = sampling_keys(rows, first, seed), np.arange(r, r + k)
    lengths: NDArray[np.int64] = rows.indptr[1:] - rows.indptr[:-1]
    eligible = (lengths >= 2) & (weight > 0)
    if r >= size:
        eligible &= keys < held.key[-1] if size else False
    if not eligible.any() and (
        decay < 1.0 or lengths.all()
    ):  # the usual case for single rows once the reservoir is full
        return held, HeldOut(rows, weight, keys, sources + (first - r))
    # source of what the sketch gets in each place: a held-out row, r + a new row, or -1
    sketch_sources: NDArray[np.int64] = np.where((lengths > 0) | (decay < 1.0), sources, -1)
    reservoir_sources = sample_bottom_k(held.key, keys, eligible, size=size, sketch_sources=sketch_sources)
    all_rows = stack_csr([held.rows, rows, empty_csr(rows.shape[1], rows.dtype)])
    row_numbers = np.concatenate([held.row_number, sources + (first - r), [0]])
    weights = np.concatenate([held.weight, weight, [1.0]])
    sketch_positions = np.flatnonzero((sketch_sources >= 0) | (decay < 1.0))
    source_of_output = np.where(sketch_sources[sketch_positions] >= 0, sketch_sources[sketch_positions], r + k)
    ages = np.where(source_of_output == r + k, 0, first + sketch_positions - row_numbers[source_of_output])
    all_keys = np.concatenate([held.key, keys, np.zeros(1, np.uint64)])
    new_reservoir = HeldOut(
        take_csr_rows(all_rows, reservoir_sources),
        weights[reservoir_sources],
        all_keys[reservoir_sources],
        row_numbers[reservoir_sources],
    )
    return new_reservoir, HeldOut(
        take_csr_rows(all_rows, source_of_output),
        weights[source_of_output] * decay**ages,
        all_keys[source_of_output],
        first + sketch_positions,
    )


def sample_bottom_k(
    held_keys: Keys, batch_keys: Keys, eligible: NDArray[np.bool_], *, size: int, sketch_sources: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the source indices of the rows that a reservoir has after a new batch, by bottom-k sampling.
    `sketch_sources` is changed in place.

    The rows with the smallest keys are chosen, in ascending order of keys: i < r is row i of the old reservoir of r
    rows, and r + j is row j of the batch.

    Parameters
    ----------
    held_keys : ndarray (r,)
        Keys of the reservoir before.
    batch_keys, eligible : ndarray (k,)
        Keys of the rows, and whether each may be held out.
    size : int
        Size of the reservoir.
    sketch_sources : ndarray (k,)
        Source index of the row that the sketch learns in place of each row of the batch, on entry usually the row
        itself. For a row that enters the reservoir it becomes the source index of the row that is evicted, or -1 if
        none is.
    """
    r = len(held_keys)
    candidates = np.flatnonzero(eligible & (batch_keys < held_keys[-1]) if 0 < size <= r else eligible & (size > 0))
    if not len(candidates):
        return np.arange(r)
    if len(candidates) == 1:  # a shortcut for single rows
        i, is_full = candidates[0], r >= size
        sketch_sources[i] = evicted = r - 1 if is_full else -1
        sources = np.insert(np.arange(r), np.searchsorted(held_keys, batch_keys[i]), r + i)
        return sources[sources != evicted] if is_full else sources
    filling, candidates = np.split(candidates, [max(size - r, 0)])  # the first ones fill the reservoir
    sketch_sources[filling] = -1
    source = np.concatenate([np.arange(r), r + filling])
    all_keys = np.concatenate([held_keys, batch_keys])
    source = source[np.argsort(all_keys[source], kind="stable")]
    n_remaining, heap = (
        len(source),
        list[tuple[int, int]](),
    )  # a heap, largest key first; of equal keys the last row first
    for start in range(0, len(candidates), BLOCK_ROWS):
        block = candidates[start : start + BLOCK_ROWS]
        for i in (
            block[batch_keys[block] < all_keys[source[n_remaining - 1]]].tolist() if n_remaining else block.tolist()
        ):
            largest_remaining = (
                (~int(all_keys[source[n_remaining - 1]]), -int(source[n_remaining - 1])) if n_remaining else heap[0]
            )
            largest = min(largest_remaining, heap[0]) if heap else largest_remaining
            if ~int(batch_keys[i]) > largest[0]:
                heapq.heappush(heap, (~int(batch_keys[i]), -(r + i)))
                if n_remaining and largest is largest_remaining:
                    n_remaining -= 1
                else:
                    heapq.heappop(heap)
                sketch_sources[i] = -largest[1]
    sources = np.concatenate(
        [source[:n_remaining], np.sort(np.array([-source_index for _, source_index in heap], np.int64))]
    )
    return sources[np.argsort(all_keys[sources], kind="stable")]


def stack_csr(matrices: Sequence[Any]) -> Any:
    """Return CSR matrices of the same width stacked vertically, as scipy's ``vstack`` but in a tenth of the time."""
    offsets: NDArray[np.int64] = np.cumsum([0, *(matrix.indptr[-1] for matrix in matrices)])
    indptr = np.concatenate(
        [matrices[0].indptr[:1], *(matrix.indptr[1:] + end for matrix, end in zip(matrices, offsets, strict=False))]
    )
    data, indices = (np.concatenate([getattr(matrix, name) for matrix in matrices]) for name in ("data", "indices"))
    return type(matrices[0])((data, indices, indptr), shape=(len(indptr) - 1, matrices[0].shape[1]))


def take_csr_rows(rows: Any, positions: NDArray[np.int64]) -> Any:
    """Return the CSR rows at the given positions, like ``rows[positions]`` but faster for few rows."""
    row_ends: NDArray[np.int64] = rows.indptr
    starts = row_ends[positions]
    lengths = row_ends[positions + 1] - starts
    indptr = np.zeros(len(positions) + 1, row_ends.dtype)
    np.cumsum(lengths, out=indptr[1:])
    entries = np.arange(int(indptr[-1])) + np.repeat(starts - indptr[:-1], lengths)
    return type(rows)((rows.data[entries], rows.indices[entries], indptr), shape=(len(positions), rows.shape[1]))


def concatenate(reservoirs: Sequence[HeldOut]) -> HeldOut:
    """Return one reservoir with the held-out rows of all given ones, in their order.

    The rows stay dense if all of them are, else they become CSR.
    """
    nonempty = [reservoir for reservoir in reservoirs if len(reservoir)] or reservoirs[:1]
    all_dense = all(reservoir.rows.dtype == object for reservoir in nonempty)
    rows: Any = (
        np.concatenate([reservoir.rows for reservoir in nonempty])
        if all_dense
        else stack_csr([as_csr(reservoir) for reservoir in nonempty])
    )
    weight, key, row_numbers = (
        np.concatenate([getattr(reservoir, name) for reservoir in nonempty]) for name in ("weight", "key", "row_number")
    )
    return HeldOut(rows, weight, key, row_numbers)


def as_csr(reservoir: HeldOut) -> Any:
    """Return the rows of a reservoir as a CSR matrix. Rows that are stored dense are converted, with all entries
    stored.
    """
    from scipy.sparse import csr_array

    if reservoir.rows.dtype != object:
        return reservoir.rows
    rows: NDArray[np.float64] = np.vstack(reservoir.rows)
    n_rows, width = len(reservoir), int(rows.shape[1])
    indptr = np.arange(0, width * n_rows + 1, width)
    return csr_array((rows.ravel(), np.tile(np.arange(width, dtype=np.int32), n_rows), indptr), shape=rows.shape)


def split_into_rows(rows: NDArray[np.float64]) -> NDArray[Any]:
    """Return an object array of copies of a dense matrix's rows, in which a reservoir can replace single rows."""
    separate_rows = np.empty(len(rows), object)
    separate_rows[:] = [row.copy() for row in rows]
    return separate_rows


def merge_reservoirs(reservoirs: Sequence[HeldOut]) -> HeldOut:
    """Return one reservoir with the rows of all given ones, sorted by key.
    It may exceed the size limit; the caller then drops the rows of the largest keys.

    The result does not depend on the order of the reservoirs: rows with equal keys, which are rows of equal content at
    the same position of two streams, are ordered by their values and weights.
    """
    all_rows = concatenate(reservoirs)
    matrix = as_csr(all_rows) if len(all_rows) else all_rows.rows
    value_hashes = sum_rows(
        matrix, hash_integers(matrix.data.astype(np.float64).view(np.uint64) ^ hash_columns(matrix))
    )
    return all_rows.take(np.lexsort((all_rows.weight, value_hashes, all_rows.key)))


def rows_per_decay_block(decay: float) -> int:
    """Return the largest number n of rows for which decay**-n stays below MAX_DECAY_RATIO.
    So many rows can be weighted by powers of 1 / decay before precision is lost.

    Weights of so many rows can be divided by powers of the decay without loss of precision.
    """
    return max(1, int(np.log(MAX_DECAY_RATIO) / -np.log(decay))) if decay < 1.0 else 2**62


# -- keys --------------------------------------------------------------------------------------------------------------
def sampling_keys(rows: Any, first: int, seed: int) -> Keys:
    """Return a pseudorandom key for each CSR row (k,), by which rows are sampled. `first` is the number of the first
    row in the stream.
    """
    return sampling_keys_of_hashes(sum_rows(rows, hash_columns(rows)), first, seed)


def sampling_keys_of_hashes(hashes: Keys, first: int, seed: int) -> Keys:
    """Return a pseudorandom key for each row (k,), by which rows are sampled, given a hash of each row's content.
    `first` is the number of the first row in the stream.

    Each key is the exclusive or of a random number, which depends on the seed and the row's number, and of a hash of
    the content of the row (`hashes`, (k,)).
    """
    k = len(hashes)
    if k == 0:
        return np.empty(0, np.uint64)
    random_blocks: list[Keys] = []
    for block in range(first // BLOCK_ROWS, (first + k - 1) // BLOCK_ROWS + 1):
        start, stop = max(first - block * BLOCK_ROWS, 0), min(first + k - block * BLOCK_ROWS, BLOCK_ROWS)
        random_blocks.append(raw_block(seed, Key.HELD_OUT, block, BLOCK_ROWS)[start:stop])
    return (random_blocks[0] if len(random_blocks) == 1 else np.concatenate(random_blocks)) ^ hash_integers(hashes)


def hash_columns(rows: Any) -> Keys:
    """Return a hash of the column number of every stored entry of CSR rows. Their sum over a row is a hash of the row's
    set of columns.
    """
    return hash_integers(rows.indices.astype(np.uint64))


def sum_rows(rows: Any, values: Keys) -> Keys:
    """Return the sum of the values of each CSR row's entries, modulo 2**64, as an array (n_rows,)."""
    cumulative = np.zeros(len(values) + 1, np.uint64)
    np.add.accumulate(values, out=cumulative[1:])
    at_row_ends = cumulative[rows.indptr]
    return at_row_ends[1:] - at_row_ends[:-1]


def hash_integers(values: Keys) -> Keys:
    """Return pseudorandom 64-bit hashes of 64-bit integers. Different integers have different hashes.

    These are the last steps of SplitMix64 (Steele, Lea, Flood 2014).
    """
    hashes = values + SPLITMIX_INCREMENT
    for shift, factor in SPLITMIX_ROUNDS:
        hashes ^= hashes >> shift
        hashes *= factor
    hashes ^= hashes >> SPLITMIX_LAST_SHIFT
    return hashes


# -- state -------------------------------------------------------------------------------------------------------------
def state_names(prefix: str) -> list[str]:
    """Return the names that a state file uses for the arrays of a reservoir."""
    return [f"{prefix}_{name}" for name in ("indptr", "indices", "data", "weight", "key", "came")]


def state_arrays(reservoir: HeldOut, prefix: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of a reservoir by name, for a state file."""
    rows = as_csr(reservoir)
    indptr, indices = rows.indptr.astype(np.int64), rows.indices.astype(np.int32)
    arrays = indptr, indices, rows.data, reservoir.weight, reservoir.key, reservoir.row_number
    return dict(zip(state_names(prefix), arrays, strict=True))


def reservoir_from_arrays(arrays: checks.Arrays, n_items: int, prefix: str) -> HeldOut:
    """Restore a reservoir from the arrays that ``state_arrays`` returned, and return it as HeldOut."""
    from scipy.sparse import csr_array

    indptr, indices, data, weight, key, came = (arrays[name] for name in state_names(prefix))
    return HeldOut(csr_array((data, indices, indptr), shape=(len(key), n_items)), weight, key, came)


def validate_state_arrays(
    arrays: checks.Arrays,
    prefix: str,
    n_items: int,
    *,
    max_rows: int,
    min_entries: int,
    n_rows: int,
    dtype: np.dtype[Any],
) -> None:
    """Raise ValueError unless the arrays of a reservoir, read from a state file, can come from `n_rows` rows.

    The reservoir must have at most `max_rows` rows, each with at least `min_entries` positive entries. If `min_entries`
    is 0, entries may be any finite numbers.
    """
    indptr_name, indices_name, data_name, weight_name, key_name, row_number_name = state_names(prefix)
    keys = checks.array_of(arrays, key_name, arrays[key_name].shape[:1], np.uint64)
    n_held, n_stored = len(keys), len(arrays[data_name])
    checks.number_within(n_held, f"users {prefix}", 0, min(max_rows, n_rows))
    if (keys[1:] < keys[:-1]).any():
        raise ValueError(f"the keys of the users {prefix} are not in order")
    checks.not_negative(arrays, weight_name, (n_held,))
    row_numbers = checks.array_of(arrays, row_number_name, (n_held,), np.int64)
    if n_held and not 0 <= row_numbers.min() <= row_numbers.max() < n_rows:
        raise ValueError(
            f"array '{row_number_name}' must lie in [0, {n_rows}), got {row_numbers.min()} and {row_numbers.max()}"
        )
    data = checks.finite(arrays, data_name, (n_stored,), dtype)
    if n_stored and min_entries and data.min() <= 0:
        raise ValueError(f"array '{data_name}' must be positive, got {data.min()}")
    indptr = checks.array_of(arrays, indptr_name, (n_held + 1,), np.int64)
    indices = checks.array_of(arrays, indices_name, (n_stored,), np.int32)
    checks.csr_rows(indptr, indices, n_stored=n_stored, n_columns=n_items, name=f"the users {prefix}")
    if n_held and np.diff(indptr).min() < min_entries:
        raise ValueError(f"users {prefix} must have {min_entries} items at least")
