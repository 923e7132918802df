"""The tree along which models are merged; its shape depends only on the number of leaves.

Leaves 0 to n - 1 form level 0. From level to level `fan_in` neighbours are merged; a last node without neighbours moves
up unchanged. Node (level, position) therefore covers the leaves from position * fan_in**level up to the first one of
its successor.
Because the shape is fixed, the result at the root does not depend on the order in which leaves are finished.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

from fastsketch.jobs._engines import Engine

Node = TypeVar("Node")


class Span(NamedTuple):
    """Position of a node in a merge tree, with the first and the last leaf below it."""

    level: int
    position: int  # position within the level
    first: int
    last: int

    def __str__(self) -> str:
        return f"part {self.first}" if self.first == self.last else f"parts {self.first} to {self.last}"


class Tree(Generic[Node]):
    """Merge tree whose nodes are added as they are finished, in any order. It tells which nodes can then be merged.

    It holds the nodes that wait for their neighbours.
    """

    def __init__(self, n_leaves: int, fan_in: int = 2) -> None:
        self._fan_in, self.n_leaves = fan_in, n_leaves
        self._widths = [n_leaves]  # number of nodes of each level
        while self._widths[-1] > 1:
            self._widths.append(-(-self._widths[-1] // fan_in))
        self._waiting: dict[tuple[int, int], dict[int, Node]] = {}  # by (level, position) of the parent, then by child
        self.root: Node | None = None

    def span(self, level: int, position: int) -> Span:
        """Return the Span of a node: its leaves, given its level above the leaves and its position in that level.

        ValueError if there is no such node.
        """
        if not (0 <= level < len(self._widths) and 0 <= position < self._widths[level]):
            raise ValueError(f"there is no node {position} on level {level} of a tree over {self.n_leaves} parts")
        n_leaves_each = self._fan_in**level
        return Span(level, position, position * n_leaves_each, min((position + 1) * n_leaves_each, self.n_leaves) - 1)

    def add(self, span: Span, node: Node) -> tuple[Span, list[Node]] | None:
        """Add a finished node, and return (Span of the parent, nodes to merge) once all its siblings are finished.
        Return None before.

        The nodes are returned in their order and removed from the tree. A node without a parent becomes ``root``.
        """
        level, position = span.level, span.position
        while level + 1 < len(self._widths):
            parent, child = divmod(position, self._fan_in)
            siblings = min(self._fan_in, self._widths[level] - parent * self._fan_in)
            if siblings > 1:
                group = self._waiting.setdefault((level, parent), {})
                group[child] = node
                if len(group) < siblings:
                    return None
                del self._waiting[level, parent]
                return self.span(level + 1, parent), [group[number] for number in range(siblings)]
            level, position = level + 1, parent
        self.root = node
        return None


Task = tuple[Span, Callable[..., Any], tuple[Any, ...]]


def run_tasks(
    engine: Engine, tasks: Iterable[Task], n_tasks: int, merge_tasks: deque[Task]
) -> Iterator[tuple[Span, Any]]:
    """Run tasks on an engine, those in `merge_tasks` first. Yield (Span, result) for each task as soon as it is
    finished.

    `n_tasks` tasks are drawn from `tasks`, only when the engine can take more. Those in `merge_tasks`, to which the
    caller may append while it iterates, are submitted first.
    """
    n_running, remaining = 0, iter(tasks)
    while True:
        while (merge_tasks or n_tasks) and n_running < engine.max_submitted(n_tasks):
            n_tasks -= not merge_tasks
            span, function, args = merge_tasks.popleft() if merge_tasks else next(remaining)
            engine.submit(span, function, *args)
            n_running += 1
        if not n_running:
            return
        yield engine.next_result()
        n_running -= 1


def reduce_tree(
    engine: Engine,
    tree: Tree[Node],
    leaves: Iterable[Task],
    merge_nodes: Callable[[list[Node]], Any],
    *,
    merge_again: Callable[[list[Node]], Any] | None = None,
    finished_nodes: Iterable[tuple[Span, Node]] = (),
    on_finished: Callable[[Span, Any], Node] = lambda _, result: result,
) -> Node:
    """Compute the leaves of a merge tree on an engine, merge them as they finish, and return the root's result.

    Parameters
    ----------
    engine : Engine
    tree : Tree
        Empty; it is changed.
    leaves : iterable of (place, function, arguments)
        The tasks of the leaves that are not in `finished_nodes`. They are drawn one by one, when the engine has room.
    merge_nodes : callable(list of nodes) -> result
    merge_again : callable(list of nodes) -> result, optional
        Used instead of ``merge_nodes`` above level 1, where the first node is a result of ``merge_nodes`` and may be
        changed.
    finished_nodes : iterable of (Span, node)
        Nodes that need not be computed.
    on_finished : callable(Span, result of a task) -> node
        Called in this thread for each task.
    """
    merge_tasks: deque[Task] = deque()

    def add(span: Span, node: Node) -> None:
        if (parent_and_children := tree.add(span, node)) is not None:
            function = merge_nodes if parent_and_children[0].level == 1 or merge_again is None else merge_again
            merge_tasks.append((parent_and_children[0], function, (parent_and_children[1],)))

    n_tasks = tree.n_leaves
    for span, node in finished_nodes:
        n_tasks -= span.last - span.first + 1
        add(span, node)
    for span, result in run_tasks(engine, leaves, n_tasks, merge_tasks):
        add(span, on_finished(span, result))
    assert tree.root is not None  # all leaves are in
    return tree.root
