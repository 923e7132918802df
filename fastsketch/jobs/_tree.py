"""The tree that results join along, by their places alone: whichever of them come first, and from wherever.

Leaves 0 to n - 1 are level 0. Neighbours join, `fan_in` at a time, level by level; the last one of a level may have no
neighbour, and climbs as it is. So node (level, at) covers leaves at * fan_in**level up to the next node's first.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

from fastsketch.jobs._engines import Engine

Node = TypeVar("Node")


class Span(NamedTuple):
    """Place of a node, which covers leaves `first` to `last`."""

    level: int
    at: int  # counted within its level
    first: int
    last: int

    def __str__(self) -> str:
        return f"part {self.first}" if self.first == self.last else f"parts {self.first} to {self.last}"


class Join(NamedTuple, Generic[Node]):
    """Neighbours that are all there, in their order, and the span of what they become."""

    place: Span
    nodes: list[Node]


class Tree(Generic[Node]):
    """Nodes that wait for their neighbours: few, where leaves come about in order."""

    def __init__(self, n_leaves: int, fan_in: int = 2) -> None:
        self._fan_in, self.n_leaves = fan_in, n_leaves
        self._widths = [n_leaves]
        while self._widths[-1] > 1:
            self._widths.append(-(-self._widths[-1] // fan_in))
        self._waiting: dict[tuple[int, int], dict[int, Node]] = {}
        self.root: Node | None = None

    def place(self, level: int, at: int) -> Span:
        """Return the span of a node; ValueError if the tree has none there."""
        if not (0 <= level < len(self._widths) and 0 <= at < self._widths[level]):
            raise ValueError(f"there is no node {at} on level {level} of a tree over {self.n_leaves} parts")
        span = self._fan_in**level
        return Span(level, at, at * span, min((at + 1) * span, self.n_leaves) - 1)

    def add(self, place: Span, node: Node) -> Join[Node] | None:
        """Put a node into its place, and return what can be joined now."""
        level, at = place.level, place.at
        while level + 1 < len(self._widths):
            parent, which = divmod(at, self._fan_in)
            siblings = min(self._fan_in, self._widths[level] - parent * self._fan_in)
            if siblings > 1:
                group = self._waiting.setdefault((level, parent), {})
                group[which] = node
                if len(group) < siblings:
                    return None
                del self._waiting[level, parent]
                return Join(self.place(level + 1, parent), [group[number] for number in range(siblings)])
            level, at = level + 1, parent
        self.root = node
        return None


def climbed(
    engine: Engine,
    tree: Tree[Node],
    leaves: Iterable[tuple[Span, Callable[..., Any], tuple[Any, ...]]],
    join: Callable[[list[Node]], Any],
    *,
    known: Iterable[tuple[Span, Node]] = (),
    finished: Callable[[Span, Any], Node] | None = None,
) -> Node:
    """Return the root of a tree whose leaves are tasks, and whose joins are tasks too, as soon as neighbours are there.

    Parameters
    ----------
    leaves : iterable of (place, function, arguments)
        Asked for one by one, as there is room for them.
    join : callable(list of nodes) -> node
    known : iterable of (place, node)
        What is there already.
    finished : callable(place, what a task returned) -> node
        Called here, for each task; without it that is the node.
    """
    joins: deque[Join[Node]] = deque()
    rest: Iterator[tuple[Span, Callable[..., Any], tuple[Any, ...]]] = iter(leaves)
    left, under_way = tree.n_leaves, 0

    def put(place: Span, node: Node) -> None:
        ready = tree.add(place, node)
        if ready is not None:
            joins.append(ready)

    for place, node in known:
        left -= place.last - place.first + 1
        put(place, node)
    while True:
        while joins and under_way < engine.room(left):
            place, nodes = joins.popleft()
            engine.submit(place, join, nodes)
            under_way += 1
        while left and under_way < engine.room(left):
            place, function, args = next(rest)
            engine.submit(place, function, *args)
            left, under_way = left - 1, under_way + 1
        if not under_way:
            break
        place, result = engine.next()
        under_way -= 1
        put(place, result if finished is None else finished(place, result))
    assert tree.root is not None  # all leaves are in
    return tree.root
