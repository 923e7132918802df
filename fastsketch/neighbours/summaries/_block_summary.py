"""Mergeable summary of a stream: sketches of blocks of its rows, and a reservoir sample."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch._core import threads as _threads
from fastsketch._core.validation import as_integer
from fastsketch._kernels.sketching.random_map import BlockState
from fastsketch._kernels.sketching.state import SketchState
from fastsketch.data.files import _checks as checks
from fastsketch.neighbours.summaries._forest import (
    PART_LEVEL,
    BlockNode,
    Forest,
    node_from_state,
    validate_nodes,
)
from fastsketch.neighbours.summaries._leaf import Arrays, EngineLeaf, Leaf, MappedLeaf
from fastsketch.neighbours.summaries._reservoir import Reservoir
from fastsketch.sketching._engines import EngineSetting, dense_form
from fastsketch.sketching._plain_rows import plain_rows
from fastsketch.sketching._random_maps import ROWS_PER_FEATURE, MappedBlock, SizedMap

# Bytes of rows that are checked and added at a time, while they are in the cache.
SLICE_BYTES = 4 << 20
# Default number of rows of a block for each feature, for method="exact": a block is summed to a d x d matrix.
EXACT_ROWS_PER_FEATURE = 64


@dataclass(frozen=True, slots=True)
class SummarySetting:
    """Parameters of a ``BlockSummary``, already validated."""

    method: str  # never "auto"
    n_directions: int  # to be read from it
    sketch_size: int
    block_rows: int | None  # None: a default for the method and the width
    seed: int
    first_block: int  # number of the first block
    reservoir_size: int | None  # None: no sample


class _SummaryState(NamedTuple):
    """All that a summary has learned, as an immutable tuple: the last block, the merge tree, and the sample."""

    leaf: Leaf
    forest: Forest
    reservoir: Reservoir | None

    def copy(self) -> "_SummaryState":
        """Return an independent copy."""
        return _SummaryState(
            self.leaf.copy(), self.forest.copy(), None if self.reservoir is None else self.reservoir.copy()
        )

    def with_closed_block(self) -> "_SummaryState":
        """Return a copy in which the incomplete last block is closed and added to the merge tree, as merging and
        reading require.
        """
        out = self.copy()
        if out.leaf.n_rows:
            out._next_block()
        return out

    def add_rows(self, rows: NDArray[Any], offset: int) -> None:
        """Add rows to the last block, in place, and start new blocks as they are completed. If an error occurs, the
        state must be discarded.
        """
        leaf, block_rows, n_added = self.leaf, self.leaf.block_rows, 0
        while n_added < len(rows):
            leaf_rows = leaf.n_rows
            n_taken = leaf.add(rows[n_added:], offset=offset + n_added)
            if self.reservoir is not None:
                piece = rows[n_added : n_added + n_taken]
                self.reservoir.add_rows(piece, block=leaf.index, first_row=leaf_rows, block_rows=block_rows)
            n_added += n_taken
            if leaf_rows + n_taken == block_rows:
                self._next_block()

    def _next_block(self) -> None:
        """Add the completed block as a node to the merge tree, and start an empty block; the state changes in place."""
        index = self.leaf.index
        self.forest.add(self.leaf.node())
        self.leaf.restart(index + 1)


class BlockSummary:
    """Summary of a stream from which a hash or quantizer is computed: a sketch in blocks, the mean, and a random sample
    of rows. Summaries of different streams can be merged.

    It is a function of the rows and of their positions in blocks.

    ``update`` and ``merge`` are atomic.
    """

    def __init__(self, setting: SummarySetting, n_features: int, *, dtype: np.dtype[Any]) -> None:
        self.n_features, self.dtype = n_features, dtype
        plan, first_block, reservoir = _plan(setting, n_features), setting.first_block, None
        if isinstance(plan.block, SizedMap):
            leaf: Leaf = MappedLeaf(plan.block, n_features, dtype=dtype, index=first_block)
        else:
            leaf = EngineLeaf(plan.block, n_features, block_rows=plan.block_rows, dtype=dtype, index=first_block)
        if setting.reservoir_size is not None:
            reservoir = Reservoir(setting.reservoir_size, n_features, dtype=dtype, seed=setting.seed)
        self._current = _SummaryState(leaf, Forest(plan.keep), reservoir)

    @property
    def n_rows(self) -> int:
        """Number of rows seen."""
        return sum(node.n_rows for node in self._current.forest.nodes) + self._current.leaf.n_rows

    @property
    def block_rows(self) -> int:
        """Number of rows of a complete block."""
        return self._current.leaf.block_rows

    # -- learning --------------------------------------------------------------------------------------------------
    def update(self, rows: Any) -> None:
        """Add a batch of rows to the summary. If an error occurs, no row is added.

        The batch is an array or CSR (n, d), validated except for finite entries.

        Raises
        ------
        ValueError
            If a row is not finite, or its entries are too large or too small for method="exact".
        """
        n = rows.shape[0]
        step = max(1, SLICE_BYTES // (self.n_features * self.dtype.itemsize))
        dtype: Any = rows.dtype
        in_place = isinstance(rows, np.ndarray) and bool(dtype == self.dtype)
        if (in_place or n <= step) and self._current.leaf.atomic(n):
            self._update_in_place(plain_rows(rows, self.dtype))
            return
        state = self._current.copy()
        try:
            for start in range(0, n, step):
                state.add_rows(plain_rows(rows[start : start + step], self.dtype), start)
        except BaseException:
            _threads.end_interrupted_limits()
            raise
        self._current = state

    def _update_in_place(self, rows: NDArray[Any]) -> None:
        """Add a batch of rows that does not complete the last block, in place; this fast path copies no state.

        Only the list of sampled pieces is copied.
        """
        state = leaf, forest, reservoir = self._current
        leaf_rows = leaf.n_rows
        try:
            position = {"block": leaf.index, "first_row": leaf_rows, "block_rows": leaf.block_rows}
            if reservoir is not None and reservoir.may_keep(len(rows), **position):
                reservoir = reservoir.copy()
                reservoir.add_rows(rows, **position)
                self._current = _SummaryState(leaf, forest, reservoir)
            leaf.add(rows)
        except BaseException:
            if leaf.n_rows == leaf_rows:  # an interrupt may come after the rows were added
                self._current = state
            _threads.end_interrupted_limits()
            raise

    def merge(self, other: "BlockSummary") -> None:
        """Add the blocks of another summary to this one, in place.

        Both must have the same setting, width and dtype. If they are different parts of a job, the parts are sealed.

        Raises
        ------
        ValueError
            If both have the same block.
        """
        mine, theirs = self._current.with_closed_block(), other._current.with_closed_block()
        parts = mine.forest.parts(), theirs.forest.parts()
        if all(parts) and len(parts[0] | parts[1]) > 1:
            mine.forest.seal()
            theirs.forest.seal()
        mine.forest.merge(theirs.forest)
        if mine.reservoir is not None and theirs.reservoir is not None:
            mine.reservoir.merge(theirs.reservoir)
        stop = mine.forest.nodes[-1].stop if mine.forest.nodes else 0
        mine.leaf.restart(max(mine.leaf.index, theirs.leaf.index, stop))
        self._current = mine

    def with_distinct_blocks(self, other: "BlockSummary") -> "BlockSummary":
        """Return a copy whose blocks are numbered differently from those of another summary, so that the two can be
        merged.

        Blocks are renumbered if necessary.
        """
        mine, theirs = self._current.with_closed_block(), other._current.with_closed_block()
        if mine.forest.overlaps(theirs.forest):
            mine.forest.renumber_after(theirs.forest)
            mine.leaf.restart(mine.forest.nodes[-1].stop)
        return self._from_state(mine)

    def seal(self) -> None:
        """Declare this part of a job complete, in place: its blocks are merged into one node, and no rows can be added
        to the part.
        """
        state = self._current.with_closed_block()
        state.forest.seal()
        if state.forest.nodes:
            state.leaf.restart(state.forest.nodes[-1].stop)
        self._current = state

    def copy(self) -> "BlockSummary":
        """Return an independent copy of the summary."""
        return self._from_state(self._current.copy())

    def with_closed_block(self) -> "BlockSummary":
        """Return a copy in which the incomplete last block is closed, as in a merge."""
        return self._from_state(self._current.with_closed_block())

    def _from_state(self, state: _SummaryState) -> "BlockSummary":
        """Return a summary with the same settings as this one and the given state."""
        summary = object.__new__(BlockSummary)
        summary.n_features, summary.dtype, summary._current = self.n_features, self.dtype, state
        return summary

    # -- reading: never changes the state --------------------------------------------------------------------------
    def total(self) -> BlockNode | None:
        """Return one node with the sketch and the mean of all rows, or None before the first row. The summary does not
        change.
        """
        return self._current.with_closed_block().forest.summary()

    def sample(self) -> NDArray[Any]:
        """Return the rows of the reservoir sample in random order, (n, d).

        There are none without a reservoir.
        """
        reservoir = self._current.reservoir
        return np.empty((0, self.n_features), self.dtype) if reservoir is None else reservoir.copy().sorted_sample()[0]

    # -- keeping it ------------------------------------------------------------------------------------------------
    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Return the state of the summary as JSON values and a dictionary of arrays."""
        leaf, forest, reservoir = self._current
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
            # on a copy: ``sorted_sample`` changes the reservoir, and several threads may read
            arrays["reservoir_rows"], arrays["reservoir_priority"], _ = reservoir.copy().sorted_sample()
        return state, arrays

    def restore(self, state: dict[str, Any], arrays: Arrays) -> None:
        """Restore a validated state into this summary, which must be new and of the same setting."""
        leaf, forest, reservoir = self._current
        leaf.restore(_leaf_arrays(arrays), state["index"])
        forest.nodes = [node_from_state(entry, arrays, number) for number, entry in enumerate(state["nodes"])]
        if reservoir is not None:
            reservoir.restore(arrays["reservoir_rows"], arrays["reservoir_priority"])


def validate(
    state: dict[str, Any], arrays: Arrays, setting: SummarySetting, n_features: int, *, dtype: np.dtype[Any]
) -> None:
    """Validate the saved state of a summary. ValueError if it is impossible for a summary with these parameters.

    No memory of the size of the summary is allocated.
    """
    d, plan = n_features, _plan(setting, n_features)
    leaf = _leaf_arrays(arrays)
    if isinstance(plan.block, SizedMap):
        MappedBlock.validate(leaf, plan.block, d, dtype=dtype, center=True)
        counts = BlockState.COUNTS
    else:
        dense_form(plan.block).validate(leaf, plan.block, d, dtype=dtype)
        counts = SketchState.COUNTS
    leaf_rows = checks.named_numbers(leaf, "count", counts, np.dtype(np.int64))["n_rows"]
    checks.number_within(leaf_rows, "rows of the block being filled", 0, plan.block_rows - 1)
    exact, keep = plan.keep is None, plan.keep or 0
    stop = validate_nodes(
        state["nodes"],
        arrays,
        shape=(d if exact else None, d),
        max_rows=d if exact else 2 * keep,
        block_rows=plan.block_rows,
        dtype=np.dtype(np.float64) if exact else dtype,
    )
    # the incomplete block comes after all others
    index = as_integer(state["index"], "index", max(setting.first_block, stop), 1 << 63)
    checks.number_within(index, "index", 0, 2.0**63 - 2.0 ** (PART_LEVEL + 1))
    n_rows = checks.as_count(leaf_rows + sum(node["n_rows"] for node in state["nodes"]), "n_rows")
    names = [f"{kind}_{number}" for number in range(len(state["nodes"])) for kind in ("rows", "mean")]
    if setting.reservoir_size is not None:
        names += ["reservoir_rows", "reservoir_priority"]
        sample = Reservoir(setting.reservoir_size, d, dtype=dtype, seed=setting.seed)
        sample.validate(arrays["reservoir_rows"], arrays["reservoir_priority"], n_rows=n_rows)
    checks.only({name: array for name, array in arrays.items() if not name.startswith("leaf_")}, *names)


def _leaf_arrays(arrays: Arrays) -> Arrays:
    """Return the arrays of a file that belong to the incomplete last block, under the names that the block itself
    uses.
    """
    return {name.removeprefix("leaf_"): array for name, array in arrays.items() if name.startswith("leaf_")}


class _Plan(NamedTuple):
    """Sizes of a summary: the kind of sketch and the number of rows of a block, and the rows that merges retain."""

    block: EngineSetting | SizedMap  # what reduces the rows of a block
    block_rows: int
    keep: int | None  # rows that a merge of two nodes retains; None: nodes are exact sums (d, d)


def _plan(setting: SummarySetting, n_features: int) -> _Plan:
    """Return how a summary sketches its blocks, and the sizes of blocks and nodes, for a method and a number of
    features.
    """
    d, size, block_rows = n_features, setting.sketch_size, setting.block_rows
    if setting.method == "exact":
        engine = EngineSetting(max(2, setting.n_directions), solver="exact", center=True)
        return _Plan(engine, block_rows or EXACT_ROWS_PER_FEATURE * d, None)
    if setting.method == "fd":
        return _Plan(EngineSetting(size, solver="gram", center=True), block_rows or max(4 * d, 8 * size), size - 1)
    q = size // 2
    block_rows = block_rows or max(ROWS_PER_FEATURE * d, 2 * q)
    return _Plan(SizedMap(setting.method, q, block_rows, setting.seed), block_rows, q)
