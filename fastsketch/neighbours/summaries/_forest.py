"""Merge trees over the block sketches of a stream, such that the result does not depend on the order of merges.

Every block of a stream is a leaf. Two neighbouring nodes of the same level are merged into their parent, like the
carries of a binary counter: blocks 0 and 1, blocks 2 and 3, then the two pairs. Which nodes are merged depends only on
the numbers of their blocks. So a stream in one pass, and its blocks on many machines merged in any order and grouping,
give bitwise identical results (FROSH, Algorithm 3, along a tree). At most two nodes of a level are not merged.

Block numbers: part p of a job has the blocks p 2^32, p 2^32 + 1, ... A sealed part is one node of level 32.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.validation import as_integer, as_real
from fastsketch.data.files import _checks as checks
from fastsketch.sketching._engines import shrink_rows

PART_LEVEL = 32


class BlockNode(NamedTuple):
    """Sketch and mean of the rows of consecutive blocks of a stream: a node of the merge tree.

    The blocks are start .. start + 2^level - 1. Arrays are never written to.
    """

    start: int
    level: int
    rows: NDArray[Any]  # (r, d): rows'rows approximates the centred sum of squares; or (d, d): that sum
    mean: NDArray[np.float64]  # (d,)
    n_rows: int
    shrinkage: float

    @property
    def stop(self) -> int:
        """Number of the block that follows the last block of the node."""
        return self.start + (1 << self.level)


def validate_nodes(
    entries: Any,
    arrays: dict[str, NDArray[Any]],
    *,
    shape: tuple[int | None, int],
    max_rows: int,
    block_rows: int,
    dtype: Any,
) -> int:
    """Validate the nodes of a file. Return the number of the first block after the last node.

    `shape` is the shape of the rows of a node, (None, d) for any number up to `max_rows`. `block_rows` is the number
    of rows of a complete block.
    """
    stop, (n_node_rows, d) = 0, shape
    if not isinstance(entries, list):
        raise TypeError(f"nodes must be a list, got {type(entries).__name__}")
    for number, entry in enumerate(cast("list[Any]", entries)):
        node = node_from_state(entry, arrays, number)
        checks.finite(arrays, f"rows_{number}", (len(node.rows) if n_node_rows is None else n_node_rows, d), dtype)
        checks.finite(arrays, f"mean_{number}", (d,))
        checks.number_within(len(node.rows), f"rows of node {number}", 0, max_rows)
        checks.number_within(node.n_rows, "n_rows of a node", 1, min(block_rows << node.level, checks.MOST_COUNT))
        if node.start < stop:
            raise ValueError("two nodes hold the same block, or their places are not in order")
        if node.start & ((1 << node.level) - 1):
            raise ValueError(f"a node of level {node.level} cannot begin with block {node.start}")
        stop = node.stop
    return stop


def node_from_state(entry: dict[str, Any], arrays: dict[str, NDArray[Any]], number: int) -> BlockNode:
    """Create a node from the entries of a file. Raise TypeError or ValueError if they are invalid."""
    return BlockNode(
        as_integer(entry["start"], "start", 0, 1 << 63),
        as_integer(entry["level"], "level", 0, 2 * PART_LEVEL),
        arrays[f"rows_{number}"],
        arrays[f"mean_{number}"],
        as_integer(entry["n_rows"], "n_rows", 1),
        as_real(entry["shrinkage"], "shrinkage", 0.0, np.finfo(float).max),
    )


def merge_nodes(left: BlockNode, right: BlockNode, keep: int | None) -> BlockNode:
    """Return one node that summarises the rows of two nodes.

    It has the start and level of the left one.

    Rows are concatenated; if there are more than 2 keep, one shrink of Frequent Directions reduces them to `keep`.
    Exact sums (d, d), for which `keep` is None, are added.
    """
    w, h = left.n_rows, right.n_rows
    # sqrt(W h / (W + h)) (mu' - mu), FROSH Algorithm 3, step 9: the row that accounts for the difference of the means
    row = np.sqrt(w / (w + h)) * np.sqrt(h) * (right.mean - left.mean)
    mean, shrinkage = left.mean + h / (w + h) * (right.mean - left.mean), left.shrinkage + right.shrinkage
    if keep is None:
        rows = left.rows + right.rows + np.outer(row, row)
    else:
        rows, delta = np.vstack([left.rows, right.rows, row.astype(left.rows.dtype)]), 0.0
        if len(rows) > 2 * keep:
            rows, delta = shrink_rows(rows, keep + 1)
        shrinkage += delta
    return BlockNode(left.start, left.level, rows, mean, w + h, shrinkage)


class Forest:
    """Merge tree over the blocks of a stream. It stores the nodes that have no parent yet, ordered by block.

    For `keep` see ``merge_nodes``.
    """

    def __init__(self, keep: int | None, nodes: Iterable[BlockNode] = ()) -> None:
        self._keep = keep
        self.nodes = list(nodes)

    def copy(self) -> "Forest":
        """Return an independent copy. It shares the nodes, which never change."""
        return Forest(self._keep, self.nodes)

    def add(self, node: BlockNode) -> None:
        """Add a node and merge neighbouring nodes. Raise ValueError if the forest has one of its blocks already."""
        self.nodes = self._merge_siblings([*self.nodes, node])

    def merge(self, other: "Forest") -> None:
        """Add all nodes of another forest and merge neighbouring nodes. Raise ValueError if they share a block."""
        self.nodes = self._merge_siblings([*self.nodes, *other.nodes])

    def _merge_siblings(self, nodes: list[BlockNode]) -> list[BlockNode]:
        """Merge pairs of nodes that have a common parent until there are none. Return the remaining nodes, sorted by
        block. ValueError if two nodes share a block.
        """
        merged: list[BlockNode] = []
        for node in sorted(nodes, key=lambda node: (node.start, node.level)):
            if merged and node.start < merged[-1].stop:
                raise ValueError(
                    f"{_describe_block(node.start)} has already been merged: give every model of a job its own part, "
                    "or its own first_block"
                )
            merged.append(node)
            while len(merged) > 1 and _are_siblings(merged[-2], merged[-1]):
                right, left = merged.pop(), merged.pop()
                merged.append(merge_nodes(left, right, self._keep)._replace(level=left.level + 1))
        return merged

    def seal(self) -> None:
        """Merge all nodes of each part of a job into one node, in place, to which no block can be added.

        The node has level 32.
        """
        parts: dict[int, list[BlockNode]] = {}
        for node in self.nodes:
            part_start = node.start if node.level >= PART_LEVEL else node.start >> PART_LEVEL << PART_LEVEL
            parts.setdefault(part_start, []).append(node)
        self.nodes = self._merge_siblings(
            [
                nodes[0]
                if nodes[0].level >= PART_LEVEL
                else self._merge_all(nodes)._replace(start=part_start, level=PART_LEVEL)
                for part_start, nodes in parts.items()
            ]
        )

    def parts(self) -> set[int]:
        """Return the set of the part numbers, in a distributed job, of the first and the last node."""
        return {self.nodes[0].start >> PART_LEVEL, (self.nodes[-1].stop - 1) >> PART_LEVEL} if self.nodes else set()

    def overlaps(self, other: "Forest") -> bool:
        """Return True if the two forests have a block in common."""
        return any(a.start < b.stop and b.start < a.stop for a in self.nodes for b in other.nodes)

    def renumber_after(self, other: "Forest") -> None:
        """Seal every part, and renumber the blocks, in place, to follow those of another forest, for a merge."""
        self.seal()
        top = max(node.level for node in self.nodes)  # the start of a node is a multiple of its size
        step = ((other.nodes[-1].stop - self.nodes[0].start >> top) + 1) << top
        self.nodes = [node._replace(start=node.start + step) for node in self.nodes]

    def summary(self) -> BlockNode | None:
        """Return one node that merges all nodes, or None if there are none. The forest does not change."""
        return self._merge_all(self.nodes) if self.nodes else None

    def _merge_all(self, nodes: list[BlockNode]) -> BlockNode:
        """Merge nodes into one, from the last to the first, and return it."""
        total = nodes[-1]
        for node in nodes[-2::-1]:
            total = merge_nodes(node, total, self._keep)
        return total


def _are_siblings(left: BlockNode, right: BlockNode) -> bool:
    """Return True if two nodes are the left and the right child of one parent."""
    return left.level == right.level and left.stop == right.start and not left.start >> left.level & 1


def _describe_block(start: int) -> str:
    """Format the number of a block and of its part for a message."""
    return f"block {start & (1 << PART_LEVEL) - 1} of part {start >> PART_LEVEL}"
