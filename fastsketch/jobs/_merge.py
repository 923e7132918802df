"""Merge several models into one along a tree, optionally after computing the models in parallel."""

from collections.abc import Callable, Iterable, Sequence
from math import isqrt
from typing import Literal, Protocol, Self, TypeVar

from fastsketch._core import threads as _threads
from fastsketch._core.validation import as_choice, as_integer
from fastsketch._kernels import pool as cores
from fastsketch.jobs._engines import Engine, Serial
from fastsketch.jobs._options import engine_of
from fastsketch.jobs._tree import Tree, reduce_tree


class Mergeable(Protocol):
    """Protocol of models that can be copied and merged."""

    def copy(self) -> Self:
        """Return an independent copy of the model."""
        ...

    def merge(self, other: Self, /) -> Self:
        """Add all that another model has learned to this model, and return this model."""
        ...


M = TypeVar("M", bound=Mergeable)
# Number of models up to which ``merge`` merges pairs. Each merge of pairs of given models needs a copy.
MAX_MODELS_IN_PAIRS = 64
Item = TypeVar("Item")
MergeEngine = Literal["serial", "threads", "processes"]


def merge_to_copy(models: Sequence[M]) -> M:
    """Merge models in their order into a copy of the first one, and return the copy.

    None of the given models is changed.
    """
    return merge_into_first([models[0].copy(), *models[1:]])


def merge_into_first(models: Sequence[M]) -> M:
    """Merge models in their order into the first one, which is changed, and return it.

    The other models are not changed.
    """
    first, *others = models
    in_order = getattr(first, "_merge_in_order", None)  # of sketches: the same bits in less time
    if in_order is not None and all(isinstance(model, type(first)) for model in others):
        in_order(others)
        return first
    for model in others:
        first.merge(model)
    return first


def merge(
    models: Iterable[M], fan_in: int | None = None, *, engine: MergeEngine = "serial", workers: int | None = None
) -> M:
    """Merge models of one kind into a new model, along a tree that depends only on their order and number.

    Parameters
    ----------
    models : iterable
        Sketches, hashes or any objects with ``copy()`` and ``merge(other)``, picklable for processes. They are not
        changed.
    fan_in : int, optional
        Number of neighbours that are merged at a time, at least 2. Every row passes log(number of models) / log(fan_in)
        merges. Default: 2 for up to 64 models; for more models, the number that gives two levels, so that few copies
        exist at the same time.
    engine : {"serial", "threads", "processes"}, default "serial"
        Where merges run. It does not change the result.
    workers : int, optional
        Number of threads or processes. Default: the CPUs that this process may use.

    Returns
    -------
    model

    Raises
    ------
    TypeError, ValueError
        If there are no models, or two of them cannot be merged.

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
        fan_in = 2 if len(leaves) <= MAX_MODELS_IN_PAIRS else isqrt(len(leaves) - 1) + 1
    fan_in = as_integer(fan_in, "fan_in", 2)
    for model in leaves:
        if not (hasattr(model, "merge") and hasattr(model, "copy")):
            raise TypeError(f"models must hold models that merge, got {type(model).__name__}")
    tree: Tree[M] = Tree(len(leaves), fan_in)
    with _create_engine(engine, workers, 3) as running_engine:
        if len(leaves) == 1:
            return leaves[0].copy()
        leaf_nodes = [(tree.span(0, number), leaf) for number, leaf in enumerate(leaves)]
        return reduce_tree(
            running_engine, tree, (), merge_to_copy, merge_again=merge_into_first, finished_nodes=leaf_nodes
        )


def map_merge(
    task: Callable[[Item, int], M],
    items: Iterable[Item],
    *,
    fan_in: int = 2,
    engine: MergeEngine = "processes",
    workers: int | None = None,
    retries: int = 3,
) -> M:
    """Compute a model for every item in parallel, and merge the models in the order of the items.

    Parameters
    ----------
    task : callable (item, index) -> model
        A function without side effects that opens its own data, for example the file that the item names. It is called
        again for an item whose worker was lost. For processes it must be importable: defined in a module, not a lambda.
    items : iterable
        Small objects, such as paths, ranges or keys.
    fan_in : int, default 2
        Number of neighbours that are merged at a time, at least 2.
    engine : {"serial", "threads", "processes"}, default "processes"
        Processes are spawned, never forked: a script needs its ``if __name__ == "__main__"``.
    workers : int, optional
        Number of threads or processes. Default: the CPUs that this process may use.
    retries : int, default 3
        How often a task may lose its process (killed, out of memory) before that is an error. Only the task of the
        lost process is repeated.

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
        If a process returns a model that is not consistent. The message has the index of its item.
    Exception
        The first error of a task; it ends the job.

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
    fan_in, item_list = as_integer(fan_in, "fan_in", 2), list(items)
    if not item_list:
        raise ValueError("items must hold at least one item")
    tree: Tree[M] = Tree(len(item_list), fan_in)
    with _create_engine(engine, workers, as_integer(retries, "retries", 0)) as running_engine:
        leaves = ((tree.span(0, index), task, (item, index)) for index, item in enumerate(item_list))
        root = reduce_tree(running_engine, tree, leaves, merge_to_copy, merge_again=merge_into_first)
    return root.copy() if len(item_list) == 1 else root  # a task may keep what it returns


def _create_engine(engine: str, workers: int | None, retries: int) -> Engine:
    """Validate the arguments of a merge, and return a new engine of the kind that they select."""
    as_choice(engine, "engine", ("serial", "threads", "processes"))
    n = cores.usable if workers is None else as_integer(workers, "workers", 1)
    if engine == "serial":
        return Serial(_threads.thread_limit(1))
    return engine_of(engine, n, retries=retries)
