"""fs.run: a source cut into parts, a model of each, and one of them all, along a tree that the parts alone decide."""

# pyright: reportPrivateUsage=false
# (hooks of the frame for the parts of a job)

import contextlib
from collections.abc import Callable, Iterator
from copy import deepcopy
from inspect import signature
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar, cast

from fastsketch._model import Model, plain
from fastsketch._threads import blas_limit
from fastsketch._validation import as_choice, as_flag, as_integer
from fastsketch.io._input import SourceError
from fastsketch.io._state import StateError
from fastsketch.jobs import _parts
from fastsketch.jobs._engines import NAMES, Engine, EngineName, Serial, engine_of
from fastsketch.jobs._manifest import Identity, Manifest, as_written, differences, in_words
from fastsketch.jobs._parts import Node
from fastsketch.jobs._progress import Progress, Wanted
from fastsketch.jobs._tree import Place, Tree, climbed
from fastsketch.jobs._workers import automatic
from fastsketch.sources import Source, open_rows

M = TypeVar("M")

# Bytes of the rows of a part: joins and messages are nothing beside it, and a kill costs no more than it a worker.
PART_BYTES = 128 << 20
# Dense parts are so many times as large as the state of their model, at least: a join reads, checks, sends and writes
# that a few times. Sparse rows take far longer by the byte, and their joins are little beside them at any size.
STATES_OF_A_PART = 64
# Most bytes of a part, but for blocks that are larger.
LARGEST_PART = 1 << 30


def run(
    model: M,
    source: Any,
    *,
    workers: int | str = "auto",
    engine: EngineName = "processes",
    scheduler: Any = None,
    checkpoint: str | PathLike[str] | None = None,
    resume: bool = False,
    progress: Wanted = None,
    passes: int = 1,
    retries: int = 3,
) -> M:
    """Learn from all rows of a source, on as many cores as there are.

    The rows are cut into parts, a model learns each of them wherever there is room, and models of neighbours are merged
    along a tree that the parts alone decide: the result has the same bits for any number of workers and every engine,
    on processors of one kind.

    Parameters
    ----------
    model : model
        A template that has seen no rows: its parameters and its notes count, and it is not changed.
    source : source, or whatever ``fs.open_rows`` takes
        Rows; an iterator, a pipe and all else whose rows come once are read here, in one part.
    workers : int or "auto", default "auto"
        Tasks that run at the same time, at least 1. "auto": as many as CPUs (by affinity and the quota of a container),
        memory, number of parts and the size of the job have use for. One worker is this process.
    engine : {"processes", "threads", "dask"}, default "processes"
        Where parts are learned. Processes are spawned, never forked: a script needs its ``if __name__ == "__main__"``.
    scheduler : str, distributed.Client or None
        For engine "dask": the address of a scheduler or a client; None for the active one.
    checkpoint : path, optional
        A folder for what has been learned so far, made if need be: ``resume=True`` goes on from it after a kill. In the
        end it holds the result alone; a job of one part has none.
    resume : bool, default False
        Whether to go on from what is in ``checkpoint``; only parts of which nothing is there are learned.
    progress : bool, "json" or callable, optional
        Whether to print a line on standard error (None: on a terminal), lines of JSON, or what to call with a
        ``jobs.Report``: a dict with "rows", "rows_per_second", "parts", "n_parts", "seconds", "certificate" and more.
    passes : {1, 2}, default 1
        2: read the rows once more, for a better sketch (``FrequentDirections.refine``).
    retries : int, default 3
        Times a part may lose its worker (killed, out of memory) before that is an error.

    Returns
    -------
    model
        A new one, of the same kind, parameters and notes.

    Raises
    ------
    TypeError, ValueError
        If an argument is none, ``model`` has seen rows, rows are refused (the message names file and row), or
        ``checkpoint`` belongs to another job.
    SourceError
        If the source cannot be read, or was written to during the job.
    StateError
        If the checkpoint is damaged.
    WorkerLost
        If a part lost its worker more than ``retries`` times.

    Notes
    -----
    Models that need their rows in order (sketches with decay, learners) learn here, part after part: then ``workers``
    above 1 are refused. Two jobs with one checkpoint are refused, too. In workers BLAS and the kernels run on one
    thread each.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> rows = np.random.default_rng(0).standard_normal((2000, 30))
    >>> model = fs.run(fs.SketchHash(8), rows)
    >>> model.n_rows, np.array_equal(model.projection, fs.SketchHash(8).update(rows).projection)  # as in one pass
    (2000, True)
    """
    rows = open_rows(source)
    if hasattr(model, "_job"):
        template, finish = cast("Any", model)._job(rows)
    else:
        template, finish = model, _same
    job = _Job(template, rows, passes=passes, engine=engine, workers=workers)
    resume = as_flag(resume, "resume")
    if resume and checkpoint is None:
        raise ValueError("resume needs the checkpoint to go on from")
    job.retries, job.scheduler = as_integer(retries, "retries", 0), scheduler
    folder = None if checkpoint is None else Path(checkpoint)
    if folder is not None and not job.source.repeatable:
        what = "resume" if resume else "checkpoint"
        raise ValueError(f"{what}: the rows of {job.source.name} come once, and nobody could go on with the rest")
    with Progress(progress, job.source, len(job.parts), passes=job.passes) as told:
        return finish(job.run(folder, resume=resume, told=told))


def _same(model: Any) -> Any:
    return model


class _Job:
    """What is to be done, checked."""

    retries: int = 3
    scheduler: Any = None

    def __init__(self, given: Any, source: Source, *, passes: int, engine: str, workers: int | str) -> None:
        if not (isinstance(given, Model) and hasattr(given, "update")):
            whole = isinstance(given, Model) and hasattr(given, "fit")
            instead = ": its fit takes all rows, fastsketch.dask.fit their partitions" if whole else ""
            raise TypeError(f"model must be a model that learns by update, got {type(given).__name__}{instead}")
        template: Any = given
        if "targets" in signature(template.update).parameters:
            raise TypeError(f"a {type(template).__name__} learns from rows with targets, which a source does not have")
        if template.n_rows:
            raise ValueError(f"model must have seen no rows, it has seen {template.n_rows}: merge the result into it")
        as_choice(engine, "engine", NAMES)
        if workers != "auto":
            workers = as_integer(workers, "workers", 1)
        self.template = template
        self.source = source
        self.passes = as_integer(passes, "passes", 1, 3)
        if self.passes == 2:
            if not hasattr(template, "_check_second_pass"):
                raise ValueError(f"passes must be 1 for a {type(template).__name__}")
            template._check_second_pass()
            if not source.repeatable:
                raise ValueError(f"passes must be 1: the rows of {source.name} come once")
        self.in_order = template._in_order()
        self.parts, self.part_bytes = self._cut()
        self.engine = engine
        self.workers = self._workers(workers)

    def _cut(self) -> tuple[list[Source], int]:
        d = self.source.n_features
        if self.in_order is not None:
            return self.source.parts(PART_BYTES), PART_BYTES
        wanted = 0 if self.source.sparse else STATES_OF_A_PART * self.template._state_bytes(d)
        size = max(PART_BYTES, min(LARGEST_PART, wanted))
        return self.source.parts(size, multiple=self.template._part_rows(d)), size

    def _workers(self, wanted: int | str) -> int:
        if self.in_order is not None:
            if wanted not in ("auto", 1):
                raise ValueError(f"workers must be 1: {self.in_order}, so that rows are learned in their order")
            return 1
        if not self.source.repeatable:
            return 1
        if isinstance(wanted, int):
            return wanted
        if self.engine == "dask":
            return 0
        n_bytes = sum(part.n_bytes or part.size for part in self.parts)
        return automatic(self.template, self.parts, n_bytes, processes=self.engine == "processes")

    # -- running ---------------------------------------------------------------------------------------------------
    def run(self, folder: Path | None, *, resume: bool, told: Progress) -> Any:
        before = as_written(self.source.identity()) if self.source.repeatable else None
        with contextlib.ExitStack() as stack:
            manifest = None
            if folder is not None and (resume or len(self.parts) > 1):
                identity = self._identity(before)
                manifest = stack.enter_context(Manifest.opened(folder, identity, resume=resume))
            engine = stack.enter_context(self._engine(told))
            model = self._pass(self.template, engine, manifest, told, 1)
            again = model._second_pass() if self.passes == 2 else None
            if again is not None:
                told.begin_pass(2)
                model = self._pass(again, engine, manifest, told, 2).finish()
        if before is not None:
            found = differences(as_written(self.source.identity()), before)
            if found:
                raise SourceError(f"the rows changed while they were read: {in_words(found[0])}")
        return model

    def _identity(self, source: Any) -> Identity:
        return {
            "kind": type(self.template).__name__,
            "parameters": as_written(plain(self.template.parameters)),
            "resolved": as_written(plain(self.template.resolved)),
            "passes": self.passes,
            "part_bytes": self.part_bytes,
            "parts": len(self.parts),
            "inputs": source if source is None or "sources" in source else {"sources": [source]},
        }

    def _engine(self, told: Progress) -> Engine:
        if self.workers == 1 and self.engine != "dask":
            return Serial(blas_limit(), told.rows_here)
        return engine_of(self.engine, self.workers, retries=self.retries, scheduler=self.scheduler)

    def _pass(self, template: Any, engine: Engine, manifest: Manifest | None, told: Progress, number: int) -> Any:
        if self.in_order is not None:
            return self._chain(template, manifest, told)
        tree: Tree[Node] = Tree(len(self.parts))
        known = [] if manifest is None else self._known(tree, manifest, number, here=engine.here)
        for _, node in known:
            told.known(node)
        shared = engine.share(template)
        there = {part for _, node in known for part in range(node.first, node.last + 1)}

        def leaves() -> Iterator[tuple[Place, Callable[..., Any], tuple[Any, ...]]]:
            for index, (begin, part) in enumerate(
                zip(_parts.beginnings(template, self.parts), self.parts, strict=True)
            ):
                if index not in there:
                    yield tree.place(0, index), _parts.learn, (shared, begin, part, index, not engine.here)

        def finished(place: Place, node: Node) -> Node:
            if manifest is not None:
                manifest.add(number, place, node)
            told.finished(node)
            return node

        root = climbed(engine, tree, leaves(), _parts.join, known=known, finished=finished)
        model = root.opened()
        if model.n_rows == 0:
            raise ValueError(f"{self.source.name} holds no rows")
        if plain(model.parameters) != plain(template.parameters):  # those of the first part
            return template.copy().merge(model)
        model.notes = deepcopy(template.notes)
        return model

    def _known(self, tree: Tree[Node], manifest: Manifest, number: int, *, here: bool) -> list[tuple[Place, Node]]:
        found: list[tuple[Place, Node]] = []
        for entry, node in manifest.nodes(number):
            try:
                place = tree.place(entry.level, entry.at)
            except ValueError:
                place = None
            if place is None or (place.first, place.last) != (entry.first, entry.last):
                raise StateError(f"{manifest.folder}: the manifest has {entry.file} in no place: start without resume")
            found.append((place, node))
        return [(place, node._replace(content=node.opened()) if here else node) for place, node in found]

    def _chain(self, template: Any, manifest: Manifest | None, told: Progress) -> Any:
        """One model, part after part."""
        model, done = template.copy(), 0
        if manifest is not None:
            for _, node in manifest.nodes(1):
                model, done = node.opened(), node.last + 1
                told.known(node)
        with blas_limit():
            for index in range(done, len(self.parts)):
                _parts.take(model, self.parts[index])
                node = _parts.node_of(model, 0, index, as_bytes=False)
                if manifest is not None:
                    manifest.add(1, Place(0, index, 0, index), node)
                told.finished(node)
        if model.n_rows == 0:
            raise ValueError(f"{self.source.name} holds no rows")
        return model
