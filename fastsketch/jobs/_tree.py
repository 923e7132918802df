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

    def add(self, place: Span, node: Node) -> tuple[Span, list[Node]] | None:
        """Put a node into its place, and return (span, its nodes in their order) of what can be joined now."""
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
                return self.place(level + 1, parent), [group[number] for number in range(siblings)]
            level, at = level + 1, parent
        self.root = node
        return None


Task = tuple[Span, Callable[..., Any], tuple[Any, ...]]


def completed(engine: Engine, tasks: Iterable[Task], left: int, joins: deque[Task]) -> Iterator[tuple[Span, Any]]:
    """Yield (place, result) of `left` tasks as they finish; asked for as there is room, after what is in `joins`."""
    under_way, rest = 0, iter(tasks)
    while True:
        while (joins or left) and under_way < engine.room(left):
            left -= not joins
            place, function, args = joins.popleft() if joins else next(rest)
            engine.submit(place, function, *args)
            under_way += 1
        if not under_way:
            return
        yield engine.next()
        under_way -= 1


def climbed(
    engine: Engine,
    tree: Tree[Node],
    leaves: Iterable[Task],
    join: Callable[[list[Node]], Any],
    *,
    join_joined: Callable[[list[Node]], Any] | None = None,
    known: Iterable[tuple[Span, Node]] = (),
    finished: Callable[[Span, Any], Node] | None = None,
) -> Node:
    """Return the root of a tree whose leaves are tasks, and whose joins are tasks too, as soon as neighbours are there.

    Parameters
    ----------
    leaves : iterable of (place, function, arguments)
        Asked for one by one, as there is room for them.
    join : callable(list of nodes) -> node
    join_joined : callable(list of nodes) -> node, optional
        In place of ``join`` above the leaves: the first node was joined, and may be changed.
    known : iterable of (place, node)
        What is there already.
    finished : callable(place, what a task returned) -> node
        Called here, for each task; without it that is the node.
    """
    joins: deque[Task] = deque()

    def add(place: Span, node: Node) -> None:
        if (ready := tree.add(place, node)) is not None:
            function = join if ready[0].level == 1 or join_joined is None else join_joined
            joins.append((ready[0], function, (ready[1],)))

    left = tree.n_leaves
    for place, node in known:
        left -= place.last - place.first + 1
        add(place, node)
    for place, result in completed(engine, leaves, left, joins):
        add(place, result if finished is None else finished(place, result))
    assert tree.root is not None  # all leaves are in
    return tree.root
