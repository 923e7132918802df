"""Merge trees. They know nothing of models but ``copy`` and ``merge``."""

from fastsketch._validation import as_choice, as_integer
from fastsketch.merging._engines import ENGINES


def merged(models):
    """A new model from several, in their order; none of them is changed."""
    out = models[0].copy()
    for model in models[1:]:
        out.merge(model)
    return out


def tree_merge(models, fan_in=2, *, engine="serial", workers=None):
    """Merge models into a new one along a tree that their order alone decides; none of them is changed.

    Parameters
    ----------
    models : sequence
        Sketches, hashes or any objects with ``copy()`` and ``merge(other)`` (picklable for processes).
    fan_in : int, default 2
        Neighbours merged at a time, at least 2.
    engine : {"serial", "threads", "processes"}, default "serial"
        Where merges of one level run. The result has the same bits with every engine.
    workers : int, optional
        Threads or processes; default: the CPUs this process may use.

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
    >>> sketches = [fs.FrequentDirections(8).update(part) for part in np.array_split(rows, 5)]
    >>> fs.tree_merge(sketches).n_rows
    400
    """
    fan_in, models = as_integer(fan_in, "fan_in", 2), list(models)
    if not models:
        raise ValueError("models must hold at least one model")
    with _opened(engine, workers) as run:
        return _climb(run, models, fan_in)


def map_merge(task, items, fan_in=2, *, engine="processes", workers=None, retries=3):
    """Make a model of every item and merge them: ``task(item, index)`` for each, then ``tree_merge``.

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
    >>> fs.map_merge(learn, [1, 2, 3], engine="threads").n_rows
    1500
    """
    fan_in, items = as_integer(fan_in, "fan_in", 2), list(items)
    if not items:
        raise ValueError("items must hold at least one item")
    with _opened(engine, workers, as_integer(retries, "retries", 0)) as run:
        return _climb(run, run(task, [(item, index) for index, item in enumerate(items)]), fan_in)


def _opened(engine, workers, retries=3):
    as_choice(engine, "engine", tuple(ENGINES))
    return ENGINES[engine](None if workers is None else as_integer(workers, "workers", 1), retries)


def _climb(run, level, fan_in):
    alone = len(level) == 1
    while len(level) > 1:
        groups = [level[start : start + fan_in] for start in range(0, len(level), fan_in)]
        done = iter(run(merged, [(group,) for group in groups if len(group) > 1]))
        level = [next(done) if len(group) > 1 else group[0] for group in groups]
    return level[0].copy() if alone else level[0]
