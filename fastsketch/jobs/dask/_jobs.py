"""Partitions in, one model out. Tasks are pure and open their own data: a lost worker costs a retry of its tasks."""

# Dask has no types; models have hooks for the parts of a job.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false, reportPrivateUsage=false

from collections.abc import Sequence
from numbers import Real
from typing import Any, TypeVar, cast

import numpy as np

from fastsketch._core.threads import thread_limit
from fastsketch._core.validation import as_integer, is_sparse
from fastsketch._frame.model import MergeableModel, Model
from fastsketch.data.sources import Source, open_rows
from fastsketch.data.sources._paths import is_name
from fastsketch.jobs._engines import Serial
from fastsketch.jobs._parts import JobNode, join, node_of
from fastsketch.jobs._run import run
from fastsketch.jobs._tree import Tree, climbed
from fastsketch.jobs.dask._engine import computed
from fastsketch.lowrank import LowRankModel
from fastsketch.sketching import FrequentDirections, SecondPass

Any_model = TypeVar("Any_model", bound=Model)


def _learn(model: Any, rows: Any, partition: int, complete: bool) -> JobNode:
    """Return the model of one partition; `model` is empty, and may serve other threads too."""
    with thread_limit(1):
        out = model.copy().update(rows)
        if complete:
            out._complete_part()
        return node_of(out, partition, partition, as_bytes=True)


def _join(nodes: Sequence[JobNode]) -> JobNode:
    with thread_limit(1):
        return join(nodes)


def _partitions(data: Any) -> tuple[list[Any], list[int] | None, int | None]:
    """Return (delayed partitions, their lengths, number of columns), None for what is not known before they load."""
    from dask import array
    from dask.delayed import Delayed, delayed

    if isinstance(data, array.Array):
        if data.ndim != 2:
            raise ValueError(f"data must be two-dimensional, got {data.ndim} dimensions")
        if data.shape[1] == 0 or np.isnan(data.shape[1]):
            raise ValueError(f"data must have a known number of columns, at least one, got {data.shape[1]}")
        whole: Any = cast("Any", data).rechunk({1: -1})
        lengths = whole.chunks[0]
        known = None if any(np.isnan(length) for length in lengths) else [int(length) for length in lengths]
        return list(whole.to_delayed().ravel()), known, int(whole.shape[1])
    # a sparse matrix would be iterated row by row, by scipy, unseen
    if isinstance(data, str | bytes) or is_sparse(data) or not hasattr(data, "__iter__"):
        raise TypeError(
            f"data must be a dask array, a list of delayed partitions or names of files, got {type(data).__name__}"
        )
    parts = [part if isinstance(part, Delayed) else delayed(part)() if callable(part) else None for part in data]
    if any(part is None for part in parts):
        raise TypeError("data must be a dask array, or a list of delayed partitions or of functions that load one")
    if not parts:
        raise ValueError("data must hold at least one partition")
    return parts, None, None


def fit(model: Any_model, data: Any, *, fan_in: int = 4, scheduler: Any = None, **options: Any) -> Any_model:
    """Learn from rows on Dask: of a collection, one task a partition (DFROSH, FROSH Algorithm 3, for a SketchHash).

    Parameters
    ----------
    model : fs.FrequentDirections, fs.SketchHash, or another model or estimator that learns from parts of rows
        A template that has seen no rows: its parameters and its notes count, and it is not changed.
    data : dask.array.Array (n, d), or list of dask.delayed partitions or of functions without arguments
        Each partition is an array or scipy.sparse matrix of rows, loaded by the worker that learns from it. Names of
        files, and what ``fs.open_rows`` gives, are cut into parts as in ``fs.run(model, data, engine="dask")``, which
        this then is.
    fan_in : int, default 4
        Models merged by one task; of no meaning for files.
    scheduler : str, distributed.Client or a cluster, optional
        Where to run; by default on the active client.
    sample_weight, validation, patience, callback : of a LowRankModel
        As for its ``fit``: weights, and held-out entries unless they are a share, in partitions as the data. A share
        holds out the entries that a fit of one process would.
    max_memory : float, of a LowRankModel
        Bytes that the sums of one step may take on a worker: n (rank + 1) (rank + 2) / 2 numbers of 8 bytes in a sweep,
        n the columns, once for each of its partitions and five times more. By default a quarter of the least memory of
        a worker. What would take more is refused before the first step.

    Returns
    -------
    model
        Of the same kind and parameters.

    Raises
    ------
    TypeError, ValueError
        If the model or the data cannot serve, or ``update`` refuses a partition.
    ConnectionError
        If no scheduler answers.
    WorkerLost
        If one task loses its worker again and again.
    StateError
        If what comes back from a worker is no consistent model; the message names the partitions.

    Notes
    -----
    Without a scheduler or an active ``dask.distributed`` client a collection is learned on Dask's threads, and files
    on a cluster of processes on this machine, for as long as that takes. The result depends on the partitions, not on
    the number of workers, the order in which they finish, or failures. A SketchHash of an array of which every
    partition but the last is a multiple of ``block_rows`` long is that of one pass over all rows, bit for bit;
    otherwise each partition is a part that is sealed.

    Partitions of a LowRankModel stay on their workers, with the scores of their entries and the factors of their rows;
    sums over columns travel. The objective is that of ``model.fit`` of all rows but for rounding (in float32, of losses
    with kinks, rounding decides which kinks are met), the bits depend on the partitions alone, and the factors of all
    rows come back with the model.

    Examples
    --------
    >>> import dask.array as da, fastsketch as fs
    >>> import fastsketch.jobs.dask
    >>> rows = da.random.default_rng(0).standard_normal((4000, 50), chunks=(1000, 50))
    >>> model = fastsketch.jobs.dask.fit(fs.SketchHash(16), rows)
    >>> bool((model.projection == fs.SketchHash(16).update(rows.compute()).projection).all())  # as in one pass
    True
    """
    fan_in = as_integer(fan_in, "fan_in", 2)
    if isinstance(model, LowRankModel):
        return cast("Any_model", _fit_low_rank(model, data, scheduler, options))
    if options:
        raise TypeError(f"{', '.join(options)}: of a LowRankModel alone, got {type(model).__name__}")
    if isinstance(data, Source) or is_name(data) or (isinstance(data, list) and data and all(map(is_name, data))):
        return run(model, data, engine="dask", scheduler=scheduler)
    if hasattr(model, "_job"):
        from dask import array

        if not isinstance(data, array.Array):
            raise TypeError(f"data must be a dask array or names of files for an estimator, got {type(data).__name__}")
        template, finish = cast("Any", model)._job(open_rows(data))
        return finish(fit(template, data, fan_in=fan_in, scheduler=scheduler))
    if not isinstance(model, MergeableModel):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"model must be a model that merges, got {type(model).__name__}")
    if model.n_features is not None:
        raise ValueError(f"model must have seen no rows, it has seen {model.n_rows}")
    parts, lengths, d = _partitions(data)
    first = None if lengths is None or d is None else model._first_blocks(lengths, d)
    if first is None:
        models = [model._for_part(part) for part in range(len(parts))]
    else:
        models = [model._for_part(0, block) for block in first]
    return model.copy().merge(_learned(models, parts, fan_in, scheduler, complete=first is None))


def _learned(models: Sequence[Any], parts: Sequence[Any], fan_in: int, scheduler: Any, *, complete: bool) -> Any:
    """Return one model of partitions that empty ones learn, a task each; joins are tasks too."""
    from dask.delayed import delayed

    learn, merge = delayed(_learn), delayed(_join)
    tree: Tree[Any] = Tree(len(parts), fan_in)
    leaves = (
        (tree.place(0, number), learn, (empty, part, number, complete))
        for number, (empty, part) in enumerate(zip(models, parts, strict=True))
    )
    return computed(climbed(Serial(), tree, leaves, merge), scheduler).opened()  # here nothing but promises is made


def _fit_low_rank(model: LowRankModel, data: Any, scheduler: Any, options: dict[str, Any]) -> LowRankModel:
    from fastsketch.jobs.dask import _low_rank

    if isinstance(data, Source) or is_name(data):
        raise TypeError("a LowRankModel is fitted to delayed partitions, functions that load one, or a dask array")
    wanted = tuple(_low_rank.fit.__kwdefaults__ or ())
    if unknown := sorted(set(options) - set(wanted)):
        raise TypeError(f"fit has no argument {unknown[0]!r} for a LowRankModel: it has {', '.join(wanted)}")
    for name in ("sample_weight", "validation"):
        given = options.get(name)
        if given is not None and not isinstance(given, Real):
            options[name] = _partitions(given)[0]
    return _low_rank.fit(model, _partitions(data)[0], scheduler, **options)


def refine(model: FrequentDirections, data: Any, *, fan_in: int = 4, scheduler: Any = None) -> FrequentDirections:
    """Read the rows of a Dask collection once more: ``FrequentDirections.refine``, one task a partition.

    Parameters
    ----------
    model : fs.FrequentDirections
        A sketch: what ``fit`` gave for the same data; it is not changed.
    data, fan_in, scheduler
        As for ``fit``, but no files: ``fs.run(..., passes=2)`` reads those twice.

    Returns
    -------
    FrequentDirections
        A new one, refined; a copy if it has accumulated A'A itself (solver "exact"), which no task reads for.

    Raises
    ------
    TypeError, ValueError
        If the sketch has seen no rows, has decay or a compressor, or the data are not of its width.
    StateError
        If what comes back from a worker is not consistent; the message names the partitions.

    Warns
    -----
    UserWarning
        If the rows differ from those of the sketch, in number or in squared norm.

    Notes
    -----
    A task holds its partition, the sketch, its r directions and their products with A'A, (d, r) float64 each.

    Examples
    --------
    >>> import dask.array as da, fastsketch as fs
    >>> import fastsketch.jobs.dask
    >>> rows = da.random.default_rng(0).standard_normal((4000, 500), chunks=(1000, 500))
    >>> sketch = fastsketch.jobs.dask.fit(fs.FrequentDirections(16, method="pfd"), rows)
    >>> refined = fastsketch.jobs.dask.refine(sketch, rows)
    >>> bool(refined.singular_values[0] > sketch.singular_values[0])
    True
    """
    from dask.delayed import delayed

    fan_in = as_integer(fan_in, "fan_in", 2)
    again = SecondPass.of(model)
    parts, _, d = _partitions(data)
    if d is not None and d != model.n_features:
        raise ValueError(f"data must have {model.n_features} columns as the rows before, got {d}")
    if model._is_exact():
        return model.copy()
    empty = [delayed(again)] * len(parts)
    return again.merge(_learned(empty, parts, fan_in, scheduler, complete=False)).finish()
