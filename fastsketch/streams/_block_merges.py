"""The merge of the latest blocks, made when it is asked for, of merges that are kept for the next time.

Blocks are cut into chunks of m = ceil(V / 2) by their numbers; the last V lie in three at most. Of the first chunk the
merges from a block to its end are kept, as those are wanted in turn while the window leaves it; of the others the merge
of its blocks so far:

    suffixes: merges from block i to the end     prefix: whole      prefix
    [ . . i . . . . . . . . . . . . . . . . ]    [ . . . . . . ]    [ . . ]

Every merge is of neighbours in a fixed order, so that its bits do not say when it was asked for. Each time one suffix
more of the second chunk is made, which the next ones want: whoever asks after every block waits for four merges at
most, whoever asks for the first time for as many as there are blocks. Blocks that nobody asks for cost no merge.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

# A model that nobody changes any more; None where no row came.
Node = Any


def joined(one: Node, two: Node) -> Node:
    """Return the model of the rows of both, in this order; neither is changed."""
    if one is None or two is None:
        return two if one is None else one
    return one.copy().merge(two)


class BlockMerges(NamedTuple):
    """Merges of blocks that are known; an immutable value."""

    suffixes: Mapping[int, Node] = {}  # by the number of the first block: to the end of its chunk
    prefixes: Mapping[int, tuple[int, Node]] = {}  # by the number of a chunk: its last block so far, all up to it

    def of(self, blocks: Mapping[int, Node], end: int, n_blocks: int) -> "tuple[list[Node], BlockMerges]":
        """Return what the last n_blocks before number `end` are merged of, in order, and all that is known then.

        blocks: those of them that have rows, by number, ascending.
        """
        m = -(-n_blocks // 2)
        chunks: dict[int, list[int]] = {}
        for number in blocks:
            chunks.setdefault(number // m, []).append(number)
        first, parts, prefixes = (end - n_blocks) // m, [], {}
        suffixes = self._extended(blocks, chunks.get(first, ()), len(blocks))
        parts = [suffixes[chunks[first][0]]] if first in chunks else []
        for chunk in (first + 1, first + 2):
            done, node = self.prefixes.get(chunk, (-1, None))
            numbers = chunks.get(chunk, [])
            for number in numbers if node is None else [number for number in numbers if number > done]:
                done, node = number, joined(node, blocks[number])
            if node is not None:
                prefixes[chunk] = done, node
                parts.append(node)
        if (first + 2) * m <= end:
            suffixes |= self._extended(blocks, chunks.get(first + 1, ()), 1)
        return parts, BlockMerges(suffixes, prefixes)

    def _extended(self, blocks: Mapping[int, Node], numbers: Sequence[int], more: int) -> dict[int, Node]:
        """Return merges from the last of some blocks to their end: those that are known, and so many more."""
        out: dict[int, Node] = {}
        node: Node = None
        for number in reversed(numbers):
            if number not in self.suffixes:
                if not more:
                    break
                more -= 1
            node = self.suffixes[number] if number in self.suffixes else joined(blocks[number], node)
            out[number] = node
        return out
