"""The model of the last V blocks as they slide, by at most two merges a block and never more at once.

Blocks are cut into chunks of m = ceil(V / 2). Of the chunk that is being filled the merge of its blocks so far is kept,
of the chunk before its whole merge and its blocks, of the one before that the merges of its last 1, 2, .. blocks, of
which those of the window are still wanted:

    older: merges of blocks i to the end     before: whole        chunk: prefix
    [ . . i . . . . . . . . . . . . . ]      [ . . . . . . ]      [ . . ]

While a chunk fills, one merge a block turns the blocks of the chunk before into merges from each to its end, which are
all there when the window begins to leave it. (Two stacks cost one merge a block and V - 1 at once when they flip.)
"""

from collections.abc import Iterable
from functools import reduce
from typing import Any, NamedTuple, Self

# A model that nobody changes any more; None where no row came.
Node = Any


def joined(one: Node, two: Node) -> Node:
    """Return the model of the rows of both, in this order; neither is changed."""
    if one is None or two is None:
        return two if one is None else one
    return one.copy().merge(two)


class SlidingMerge(NamedTuple):
    """The last V blocks; an immutable value."""

    n_blocks: int  # V >= 1
    older: tuple[Node, ...] = ()  # merges from a block to the end of its chunk; the window begins at the first of them
    before: tuple[Node, ...] = ()  # blocks of the chunk before, from behind more and more of them merges to its end
    whole: Node = None  # that chunk
    chunk: tuple[Node, ...] = ()  # blocks of the chunk being filled
    prefix: Node = None  # all of them

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Return all models in it, with None where no row came; some stand in several places."""
        return (*self.older, *self.before, self.whole, *self.chunk, self.prefix)

    def pushed(self, *blocks: Node) -> Self:
        """Return the blocks with more behind, and without as many of the first where there were V.

        Any number costs at most two merges each, and time that is linear in V: a day without rows is 86,400 seconds.
        """
        m, filled = -(-self.n_blocks // 2), len(self.chunk)
        now, later = blocks[: m - filled], blocks[m - filled :]
        chunk, prefix, before = (*self.chunk, *now), reduce(joined, now, self.prefix), list(self.before)
        if before:
            for place in range(m - 2 - filled, max(m - 2 - len(chunk), 0), -1):
                before[place] = joined(before[place], before[place + 1])
        if len(chunk) < m:
            return self._replace(older=self.older[len(now) :], before=tuple(before), chunk=chunk, prefix=prefix)
        # of an odd V the first block of the older chunk is outside by now
        older = (self.whole, *before[1:])[2 * m - self.n_blocks :] if before else ()
        full = type(self)(self.n_blocks, older, chunk, prefix)
        return full.pushed(*later) if later else full

    def merged(self) -> Node:
        """Return the model of the last V blocks, by at most two merges; None without rows."""
        return reduce(joined, (self.older[0] if self.older else None, self.whole, self.prefix))

    @classmethod
    def of(cls, n_blocks: int, blocks: Iterable[Node]) -> Self:
        """Return the last blocks of several."""
        return cls(n_blocks).pushed(*blocks)
