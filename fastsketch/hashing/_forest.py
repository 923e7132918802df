"""A sketch of blocks of rows that does not depend on who saw which block, nor on the order of merges.

Block i of a stream becomes a leaf. Two neighbours of the same size join into one node, as the digits of a binary
counter carry: blocks 0 and 1, then 2 and 3, then the two pairs. Which nodes ever join, and from what, is a matter of
their places alone; so a stream in one pass, or its blocks on many machines, merged in any order and any grouping, give
the same bits (FROSH Algorithm 3 along a tree). At most two nodes of a size wait for their neighbours.

Places: part p of a job holds blocks p 2^32, p 2^32 + 1, ... A part that is sealed is one node of level 32.
"""

from typing import NamedTuple

import numpy as np

from fastsketch.sketching import shrink_rows

PART_LEVEL = 32


class Node(NamedTuple):
    """Summary of the blocks start .. start + 2^level - 1; its arrays are never changed."""

    start: int
    level: int
    rows: np.ndarray  # (r, d): rows'rows approximates the centred sum of squares; or (d, d) that sum itself
    mean: np.ndarray  # (d,) float64
    weight: int  # rows seen
    shrinkage: float

    @property
    def stop(self):
        return self.start + (1 << self.level)


def correction_row(left, right):
    """sqrt(W h / (W + h)) (mu' - mu), FROSH Algorithm 3, step 9: what centring by one mean adds."""
    w, h = left.weight, right.weight
    return np.sqrt(w / (w + h)) * np.sqrt(h) * (right.mean - left.mean)


def joined_mean(left, right):
    return left.mean + right.weight / (left.weight + right.weight) * (right.mean - left.mean)


def join_rows(left, right, keep):
    """One node from two of rows, at most 2 keep rows long: beyond that, one shrink to `keep`."""
    row = correction_row(left, right).astype(left.rows.dtype)
    rows, delta = np.vstack([left.rows, right.rows, row]), 0.0
    if len(rows) > 2 * keep:
        rows, delta = shrink_rows(rows, keep + 1)
    return rows, left.shrinkage + right.shrinkage + delta


def join_moments(left, right, _):
    """The same for exact sums of squares (d, d)."""
    row = correction_row(left, right)
    return left.rows + right.rows + np.outer(row, row), 0.0


class Forest:
    """The nodes that a model holds, in the order of their places."""

    def __init__(self, join, keep, nodes=()):
        self.join, self.keep = join, keep
        self.nodes = list(nodes)

    def copy(self):
        return Forest(self.join, self.keep, self.nodes)

    def add(self, node):
        """Put one node in and let neighbours join; ValueError if its blocks are there already."""
        self.nodes = self._carried([*self.nodes, node])

    def merge(self, other):
        """Put all nodes of another forest in."""
        self.nodes = self._carried([*self.nodes, *other.nodes])

    def _carried(self, nodes):
        done = []
        for node in sorted(nodes, key=lambda node: (node.start, node.level)):
            if done and node.start < done[-1].stop:
                raise ValueError(
                    f"{_place(node.start)} is counted already: give every model of a job its own part, or "
                    "its own first_block"
                )
            done.append(node)
            while len(done) > 1 and self._siblings(done[-2], done[-1]):
                right, left = done.pop(), done.pop()
                done.append(self._joined(left, right)._replace(start=left.start, level=left.level + 1))
        return done

    @staticmethod
    def _siblings(left, right):
        return left.level == right.level and left.stop == right.start and not left.start >> left.level & 1

    def _joined(self, left, right):
        rows, shrinkage = self.join(left, right, self.keep)
        return Node(left.start, left.level, rows, joined_mean(left, right), left.weight + right.weight, shrinkage)

    def seal(self):
        """Make every part one node: no block may follow in it, and its neighbours can join it."""
        parts = {}
        for node in self.nodes:
            if node.level >= PART_LEVEL:
                parts[node.start] = node
                continue
            place = node.start >> PART_LEVEL << PART_LEVEL
            parts.setdefault(place, []).append(node)
        sealed = [
            nodes if isinstance(nodes, Node) else self._folded(nodes)._replace(start=place, level=PART_LEVEL)
            for place, nodes in parts.items()
        ]
        self.nodes = self._carried(sealed)

    def parts(self):
        """Indices of the parts that hold nodes: (first, last)."""
        return self.nodes[0].start >> PART_LEVEL, (self.nodes[-1].stop - 1) >> PART_LEVEL

    def summary(self):
        """All nodes as one; None without any."""
        return self._folded(self.nodes) if self.nodes else None

    def _folded(self, nodes):
        """From the last, which are the small ones in a stream, to the first."""
        total = nodes[-1]
        for node in nodes[-2::-1]:
            total = self._joined(node, total)
        return total


def _place(start):
    return f"block {start & (1 << PART_LEVEL) - 1} of part {start >> PART_LEVEL}"
