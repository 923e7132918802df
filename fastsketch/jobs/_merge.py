"""Models that are there, or that tasks make, as one. Of those from elsewhere ``copy`` and ``merge`` are known."""

from collections.abc import Callable, Iterable, Sequence
from math import isqrt
from typing import Literal, Protocol, Self, TypeVar

from fastsketch._core import threads as _threads
from fastsketch._core.validation import as_choice, as_integer
from fastsketch._kernels import pool as cores
from fastsketch.jobs._engines import Engine, Serial
from fastsketch.jobs._options import engine_of
from fastsketch.jobs._tree import Tree, climbed


class Mergeable(Protocol):
    """Model that can be copied and merged."""

    def copy(self) -> Self:
        """Return an independent model in the same state."""
        ...

    def merge(self, other: Self, /) -> Self:
        """Add what another model has seen."""
        ...


M = TypeVar("M", bound=Mergeable)
# Models that ``merge`` joins by two: each of the lowest joins needs a copy, of which of many there would be too many.
MOST_BY_TWO = 64
Item = TypeVar("Item")
MergeEngine = Literal["serial", "threads", "processes"]


def merged(models: Sequence[M]) -> M:
    """Return a new model from several, in their order; none of them is changed."""
    return merged_into_first([models[0].copy(), *models[1:]])


def merged_into_first(models: Sequence[M]) -> M:
    """Return the first of these models with all the others merged into it, in their order."""
    first, *others = models
    in_order = getattr(first, "_merge_in_order", None)  # of sketches: the same bits, sooner
    if in_order is not None and all(isinstance(model, type(first)) for model in others):
        in_order(others)
        return first
    for model in others:
        first.merge(model)
    return first


def merge(
    models: Iterable[M], fan_in: int | None = None, *, engine: MergeEngine = "serial", workers: int | None = None
) -> M:
    """Merge models of one kind into a new one along a tree that their order alone decides; none of them is changed.

    Parameters
    ----------
    models : iterable
        Sketches, hashes or any objects with ``copy()`` and ``merge(other)`` (picklable for processes).
    fan_in : int, optional
        Neighbours merged at a time, at least 2: every row passes log(number of models) / log(fan_in) merges. By default
        2 for up to 64 models; of more as many as make two levels, so that few copies are held at a time.
    engine : {"serial", "threads", "processes"}, default "serial"
        Where the merges of one level run; of no influence on the result.
    workers : int, optional
        Threads or processes; default: the CPUs that this process may use.

    Returns
    -------
    model

    Raises
    ------
    TypeError, ValueError
        If there are no models, or two do not belong together.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> rows = np.random.default_rng(0).standard_normal((400, 20))
    >>> sketches = [fs.FrequentDirections(8, solver="gram").update(part) for part in np.array_split(rows, 5)]
    >>> whole = fs.merge(sketches)
    >>> error = np.linalg.norm(rows.T @ rows - whole.gram(), 2)
    >>> whole.n_rows, bool(error <= whole.error_bound)
    (400, True)
    """
    leaves = list(models)
    if not leaves:
        raise ValueError("models must hold at least one model")
    if fan_in is None:
        fan_in = 2 if len(leaves) <= MOST_BY_TWO else isqrt(len(leaves) - 1) + 1
    fan_in = as_integer(fan_in, "fan_in", 2)
    for model in leaves:
        if not (hasattr(model, "merge") and hasattr(model, "copy")):
            raise TypeError(f"models must hold models that merge, got {type(model).__name__}")
    tree: Tree[M] = Tree(len(leaves), fan_in)
    with _opened(engine, workers, 3) as crew:
        if len(leaves) == 1:
            return leaves[0].copy()
        known = [(tree.place(0, number), leaf) for number, leaf in enumerate(leaves)]
        return climbed(crew, tree, (), merged, join_joined=merged_into_first, known=known)


def map_merge(
    task: Callable[[Item, int], M],
    items: Iterable[Item],
    *,
    fan_in: int = 2,
    engine: MergeEngine = "processes",
    workers: int | None = None,
    retries: int = 3,
) -> M:
    """Make a model of every item and merge them: ``task(item, index)`` for each, then ``merge``.

    Parameters
    ----------
    task : callable (item, index) -> model
        A pure function that opens its own data, for example a file named by the item. It may be run again for an item
        whose worker was lost. For processes it must be importable: defined in a module, not in a lambda.
    items : iterable
        Small: paths, ranges, keys.
    fan_in : int, default 2
    engine : {"serial", "threads", "processes"}, default "processes"
        Processes are spawned, never forked: a script needs its ``if __name__ == "__main__"``.
    workers : int, optional
    retries : int, default 3
        Times a task may lose its process (killed, out of memory) before that is an error. Only the task that the lost
        process was running is repeated.

    Returns
    -------
    model

    Raises
    ------
    ValueError
        If there are no items.
    WorkerLost
        If a task lost its process more than ``retries`` times.
    StateError
        If what comes back from a process is no consistent model; the message has the index of its item.
    Exception
        What a task raises ends the job.

    Notes
    -----
    BLAS runs on one thread in every task.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> def learn(seed, index):
    ...     rows = np.random.default_rng(seed).standard_normal((500, 30))
    ...     return fs.SketchHash(8, part=index).update(rows).seal()
    >>> model = fs.map_merge(learn, [1, 2, 3], engine="threads")
    >>> here = fs.merge([learn(seed, index) for index, seed in enumerate([1, 2, 3])])
    >>> model.n_rows, np.array_equal(model.projection, here.projection)  # wherever its parts were learned
    (1500, True)
    """
    fan_in, wanted = as_integer(fan_in, "fan_in", 2), list(items)
    if not wanted:
        raise ValueError("items must hold at least one item")
    tree: Tree[M] = Tree(len(wanted), fan_in)
    with _opened(engine, workers, as_integer(retries, "retries", 0)) as crew:
        leaves = ((tree.place(0, index), task, (item, index)) for index, item in enumerate(wanted))
        root = climbed(crew, tree, leaves, merged, join_joined=merged_into_first)
    return root.copy() if len(wanted) == 1 else root  # a task may keep what it returns


def _opened(engine: str, workers: int | None, retries: int) -> Engine:
    as_choice(engine, "engine", ("serial", "threads", "processes"))
    n = cores.usable if workers is None else as_integer(workers, "workers", 1)
    if engine == "serial":
        return Serial(_threads.thread_limit(1))
    return engine_of(engine, n, retries=retries)
