"""The state of a stream: blocks that are complete, the one being filled, a sample of the rows."""

from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch import _threads
from fastsketch._validation import as_integer
from fastsketch.hashing._forest import Forest, Join, Node, checked_node, join_moments, join_rows
from fastsketch.hashing._leaf import Arrays, EngineLeaf, Leaf, MappedLeaf
from fastsketch.hashing._reservoir import Reservoir
from fastsketch.sketching._engines import EngineSetting
from fastsketch.sketching._plain_rows import plain_rows
from fastsketch.sketching._random_maps import ROWS_PER_FEATURE
from fastsketch.sketching._sized_map import SizedMap

# Rows of a step: checked and used while they are in the cache.
SLICE_BYTES = 4 << 20
# A block of the exact sum is a d x d matrix: few of them, of at least this many rows a feature.
EXACT_ROWS_PER_FEATURE = 64


@dataclass(frozen=True, slots=True)
class SummarySetting:
    """Checked parameters of a summary."""

    method: str  # never "auto"
    n_bits: int
    sketch_size: int
    block_rows: int | None  # None: a default for the method and the width
    seed: int
    place: int  # of the first block
    reservoir_size: int | None  # None: no sample


class _Held(NamedTuple):
    """The state. A summary replaces it in one step, so that an interrupt finds the old one or the new one."""

    leaf: Leaf
    forest: Forest
    reservoir: Reservoir | None

    def copy(self) -> "_Held":
        return _Held(self.leaf.copy(), self.forest.copy(), None if self.reservoir is None else self.reservoir.copy())

    def closed(self) -> "_Held":
        """A copy in which the block being filled, if it holds rows, is a node."""
        out = self.copy()
        if out.leaf.n_rows:
            out._next_block()
        return out

    def take(self, rows: NDArray[Any], offset: int) -> None:
        """Put rows in, block after block; after an error the state is of no use."""
        leaf, done = self.leaf, 0
        while done < len(rows):
            before = leaf.n_rows
            taken = leaf.add(rows[done:], offset=offset + done)
            if self.reservoir is not None:
                piece = rows[done : done + taken]
                self.reservoir.take(piece, block=leaf.index, first=before, block_rows=leaf.block_rows)
            done += taken
            if leaf.n_rows == leaf.block_rows:
                self._next_block()

    def _next_block(self) -> None:
        index = self.leaf.index
        self.forest.add(self.leaf.close())
        self.leaf.restart(index + 1)


class BlockSummary:
    """Sketch, mean and sample of a stream, a function of the rows and their places in blocks alone.

    It takes rows, merges with others and is read; every call is all or nothing.
    """

    def __init__(self, setting: SummarySetting, n_features: int, *, dtype: np.dtype[Any]) -> None:
        self.n_features, self.dtype = n_features, dtype
        leaf, join = _leaf_and_join(setting, n_features, dtype=dtype)
        reservoir = None
        if setting.reservoir_size is not None:
            reservoir = Reservoir(setting.reservoir_size, n_features, dtype=dtype, seed=setting.seed)
        self._held = _Held(leaf, Forest(join), reservoir)

    @property
    def n_rows(self) -> int:
        """Rows seen."""
        return sum(node.n_rows for node in self._held.forest.nodes) + self._held.leaf.n_rows

    @property
    def block_rows(self) -> int:
        """Rows of a block."""
        return self._held.leaf.block_rows

    @property
    def n_nodes(self) -> int:
        """Matrices held beside the block being filled."""
        return len(self._held.forest.nodes)

    # -- learning --------------------------------------------------------------------------------------------------
    def update(self, rows: Any) -> None:
        """Take all rows of a batch, checked but for finite entries (array or CSR, (n, d)), or none.

        Raises
        ------
        ValueError
            If a row is not finite, or too large for the method.
        """
        n = rows.shape[0]
        step = max(1, SLICE_BYTES // (self.n_features * self.dtype.itemsize))
        in_place = isinstance(rows, np.ndarray) and cast("NDArray[Any]", rows).dtype == self.dtype
        if (in_place or n <= step) and self._held.leaf.atomic(n):
            self._update_in_place(plain_rows(rows, self.dtype))
            return
        new = self._held.copy()
        try:
            for start in range(0, n, step):
                new.take(plain_rows(rows[start : start + step], self.dtype), start)
        except BaseException:
            _threads.settle()
            raise
        self._held = new

    def _update_in_place(self, rows: NDArray[Any]) -> None:
        """Rows that the leaf takes in one step: nothing is copied but the list of the sample's pieces."""
        held = leaf, forest, reservoir = self._held
        before = leaf.n_rows
        try:
            if reservoir is not None:
                reservoir = reservoir.copy()
                reservoir.take(rows, block=leaf.index, first=before, block_rows=leaf.block_rows)
                self._held = _Held(leaf, forest, reservoir)
            leaf.add(rows)
        except BaseException:
            if leaf.n_rows == before:  # an interrupt may also come when the rows are in
                self._held = held
            _threads.settle()
            raise

    def merge(self, other: "BlockSummary") -> None:
        """Add the blocks of another summary of the same setting, width and dtype; of another part: seal both.

        Raises
        ------
        ValueError
            If both hold the same block.
        """
        mine, theirs = self._held.closed(), other._held.closed()
        parts = mine.forest.parts(), theirs.forest.parts()
        if all(parts) and len(parts[0] | parts[1]) > 1:
            mine.forest.seal()
            theirs.forest.seal()
        mine.forest.merge(theirs.forest)
        if mine.reservoir is not None and theirs.reservoir is not None:
            mine.reservoir.merge(theirs.reservoir)
        stop = mine.forest.nodes[-1].stop if mine.forest.nodes else 0
        mine.leaf.restart(max(mine.leaf.index, theirs.leaf.index, stop))
        self._held = mine

    def seal(self) -> None:
        """Make every part one node: no block may follow in it."""
        new = self._held.closed()
        new.forest.seal()
        if new.forest.nodes:
            new.leaf.restart(new.forest.nodes[-1].stop)
        self._held = new

    def copy(self) -> "BlockSummary":
        """An independent summary in the same state."""
        return self._with(self._held.copy())

    def closed(self) -> "BlockSummary":
        """A copy in which the block being filled is complete, as in a merge."""
        return self._with(self._held.closed())

    def _with(self, held: _Held) -> "BlockSummary":
        other = object.__new__(BlockSummary)
        other.n_features, other.dtype, other._held = self.n_features, self.dtype, held
        return other

    # -- reading: never changes the state --------------------------------------------------------------------------
    def total(self) -> Node | None:
        """Everything as one node; None before the first row."""
        return self._held.closed().forest.summary()

    def sample(self) -> NDArray[Any]:
        """The sampled rows (n, d), in a random order; none without a reservoir."""
        reservoir = self._held.reservoir
        return np.empty((0, self.n_features), self.dtype) if reservoir is None else reservoir.copy().settled()[0]

    # -- keeping it ------------------------------------------------------------------------------------------------
    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Entries for json, and arrays."""
        leaf, forest, reservoir = self._held
        state = {
            "n_features": self.n_features,
            "dtype": self.dtype.name,
            "index": leaf.index,
            "nodes": [
                {"start": n.start, "level": n.level, "n_rows": n.n_rows, "shrinkage": n.shrinkage} for n in forest.nodes
            ],
        }
        arrays = {f"leaf_{name}": array for name, array in leaf.arrays().items()}
        for number, node in enumerate(forest.nodes):
            arrays[f"rows_{number}"], arrays[f"mean_{number}"] = node.rows, node.mean
        if reservoir is not None:
            # of a copy: to settle is to change, and several threads may read
            arrays["reservoir_rows"], arrays["reservoir_priority"] = reservoir.copy().settled()
        return state, arrays

    def restore(self, state: dict[str, Any], arrays: Arrays) -> None:
        """The inverse of ``state``, on a new summary of the same setting; ValueError if they do not fit."""
        d, (leaf, forest, reservoir) = self.n_features, self._held
        if any(arrays[name].shape[-1] != d for name in ("leaf_out", "leaf_buffer") if name in arrays):
            raise ValueError(f"the block does not have {d} columns")
        leaf.restore(
            {name.removeprefix("leaf_"): array for name, array in arrays.items() if name.startswith("leaf_")},
            as_integer(state["index"], "index", 0),
        )
        nodes = [
            checked_node(about, arrays[f"rows_{number}"], mean=arrays[f"mean_{number}"])
            for number, about in enumerate(state["nodes"])
        ]
        if any(node.rows.shape[1] != d for node in nodes):
            raise ValueError(f"the nodes do not have {d} columns")
        forest.restore(nodes)
        if reservoir is not None:
            reservoir.restore(arrays["reservoir_rows"], arrays["reservoir_priority"])


def _leaf_and_join(setting: SummarySetting, n_features: int, *, dtype: np.dtype[Any]) -> tuple[Leaf, Join]:
    """An empty leaf, and how nodes join."""
    d, size, block_rows, place = n_features, setting.sketch_size, setting.block_rows, setting.place
    if setting.method == "exact":
        engine = EngineSetting(max(2, setting.n_bits), solver="exact", center=True)
        block_rows = block_rows or EXACT_ROWS_PER_FEATURE * d
        return EngineLeaf(engine, d, block_rows=block_rows, dtype=dtype, index=place), join_moments
    if setting.method == "fd":
        engine = EngineSetting(size, solver="gram", center=True)
        block_rows = block_rows or max(4 * d, 8 * size)
        return EngineLeaf(engine, d, block_rows=block_rows, dtype=dtype, index=place), join_rows(size - 1)
    q = size // 2
    random_map = SizedMap(setting.method, q, block_rows or max(ROWS_PER_FEATURE * d, 2 * q), setting.seed)
    return MappedLeaf(random_map, d, dtype=dtype, index=place), join_rows(q)
