"""The tree along which models are merged; its shape depends only on the number of leaves.

Leaves 0 to n - 1 form level 0. From level to level `fan_in` neighbours are merged; a last node without neighbours moves
up unchanged. Node (level, at) therefore covers the leaves from at * fan_in**level up to the first one of its successor.
Because the shape is fixed, the result at the root does not depend on the order in which leaves are finished.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

from fastsketch.jobs._engines import Engine

Node = TypeVar("Node")


class Span(NamedTuple):
    """The position of a node in a merge tree, and the range of leaves that it covers."""

    level: int
    at: int  # index within the level
    first: int
    last: int

    def __str__(self) -> str:
        return f"part {self.first}" if self.first == self.last else f"parts {self.first} to {self.last}"


class Tree(Generic[Node]):
    """A merge tree to which nodes are added in any order.

    It holds the nodes that wait for their neighbours.
    """

    def __init__(self, n_leaves: int, fan_in: int = 2) -> None:
        self._fan_in, self.n_leaves = fan_in, n_leaves
        self._widths = [n_leaves]  # number of nodes of each level
        while self._widths[-1] > 1:
            self._widths.append(-(-self._widths[-1] // fan_in))
        self._waiting: dict[tuple[int, int], dict[int, Node]] = {}  # by level and index of the parent, then by index
        self.root: Node | None = None

    def place(self, level: int, at: int) -> Span:
        """Return the position of a node and the leaves that it covers. Raise ValueError if there is no such node."""
        if not (0 <= level < len(self._widths) and 0 <= at < self._widths[level]):
            raise ValueError(f"there is no node {at} on level {level} of a tree over {self.n_leaves} parts")
        span = self._fan_in**level
        return Span(level, at, at * span, min((at + 1) * span, self.n_leaves) - 1)

    def add(self, place: Span, node: Node) -> tuple[Span, list[Node]] | None:
        """Add a node; if all its neighbours are there, return (position of their parent, nodes to merge), otherwise
        None.

        The nodes are returned in their order and removed from the tree. A node without a parent becomes ``root``.
        """
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
    """Run tasks on an engine, and yield (position in the tree, result) as each task finishes.

    `left` is the number of tasks to draw from `tasks`, which happens only when the engine has room. Those in `joins`,
    to which the caller may append while it iterates, are submitted first.
    """
    under_way, remaining = 0, iter(tasks)
    while True:
        while (joins or left) and under_way < engine.room(left):
            left -= not joins
            place, function, args = joins.popleft() if joins else next(remaining)
            engine.submit(place, function, *args)
            under_way += 1
        if not under_way:
            return
        yield engine.next()
        under_way -= 1


def reduce_tree(
    engine: Engine,
    tree: Tree[Node],
    leaves: Iterable[Task],
    join: Callable[[list[Node]], Any],
    *,
    join_again: Callable[[list[Node]], Any] | None = None,
    known: Iterable[tuple[Span, Node]] = (),
    finished: Callable[[Span, Any], Node] = lambda _, result: result,
) -> Node:
    """Compute the leaves of a merge tree on an engine, merge neighbours as soon as they are finished, and return the
    root.

    Parameters
    ----------
    engine : Engine
    tree : Tree
        Empty; it is changed.
    leaves : iterable of (place, function, arguments)
        The tasks of the leaves that are not in `known`. They are drawn one by one, when the engine has room.
    join : callable(list of nodes) -> result
    join_again : callable(list of nodes) -> result, optional
        Used instead of ``join`` above level 1, where the first node is a result of ``join`` and may be changed.
    known : iterable of (place, node)
        Nodes that need not be computed.
    finished : callable(place, result of a task) -> node
        Called in this thread for each task.
    """
    joins: deque[Task] = deque()

    def add(place: Span, node: Node) -> None:
        if (ready := tree.add(place, node)) is not None:
            function = join if ready[0].level == 1 or join_again is None else join_again
            joins.append((ready[0], function, (ready[1],)))

    left = tree.n_leaves
    for place, node in known:
        left -= place.last - place.first + 1
        add(place, node)
    for place, result in completed(engine, leaves, left, joins):
        add(place, finished(place, result))
    assert tree.root is not None  # all leaves are in
    return tree.root
