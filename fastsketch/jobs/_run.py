"""fs.run: a source cut into parts, a model of each, and one of them all, along a tree that the parts alone decide."""

# pyright: reportPrivateUsage=false
# (hooks of the frame for the parts of a job)

import contextlib
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from fastsketch._core.threads import blas_limit
from fastsketch._core.validation import as_integer
from fastsketch._frame.loading import from_bytes
from fastsketch._frame.model import Model, plain
from fastsketch.data.files._state import StateError
from fastsketch.data.sources import Source, asked_as, open_rows, with_missing
from fastsketch.jobs import _parts
from fastsketch.jobs._checkpoint import Checkpoint, Entry
from fastsketch.jobs._engines import Engine
from fastsketch.jobs._manifest import Identity, as_written, check_unchanged, goes_on, identity_of
from fastsketch.jobs._options import EngineName, Job
from fastsketch.jobs._parts import JobNode
from fastsketch.jobs._progress import Reporter, Wanted
from fastsketch.jobs._tree import Span, Tree, climbed

M = TypeVar("M")

# Bytes of the rows of a part: joins and messages are nothing beside it, and a kill costs no more than it a worker.
PART_BYTES = 128 << 20
# Dense parts are so many times as large as the state of their model, at least: a join reads, checks, sends and writes
# that a few times. Sparse rows take far longer by the byte, and their joins are little beside them at any size.
STATES_OF_A_PART = 64
# Most bytes of a part, but for blocks that are larger.
LARGEST_PART = 1 << 30
# Rows of a piece of examples: short enough for a checkpoint or an interrupt in a second or so, whatever the learner.
EXAMPLES_AT_A_TIME = 4096
# Seconds between two checkpoints of a model that learns in order: what a kill costs. Writing them may take one part in
# so many of the time.
SECONDS, SHARE = 5.0, 20


def run(
    model: M,
    source: Any,
    *,
    target: str | int | Sequence[str | int] | None = None,
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
    target : str or int, or list of these, optional
        For a model that predicts (``SketchedNewton``, ``SketchedRidge``) the column that it is to predict, by name or
        position, for a ``SketchedRidge`` also several: ``beside`` of ``fs.open_rows``. Words are labels, unless those
        of the first rows are numbers. Labels of svmlight text need no name.
    workers : int or "auto", default "auto"
        Tasks that run at the same time, at least 1. "auto": as many as CPUs (by affinity and the quota of a container),
        memory, number of parts and the size of the job have use for. One worker is this process.
    engine : {"processes", "threads", "dask"}, default "processes"
        Where parts are learned. Processes are spawned, never forked: a script needs its ``if __name__ == "__main__"``.
    scheduler : str, distributed.Client or None
        For engine "dask": the address of a scheduler or a client; None for the active client.
    checkpoint : path, optional
        A folder for what has been learned so far, made if need be: ``resume=True`` goes on from it after a kill. In the
        end it holds the result alone; models of parts have none if there is one part.
    resume : bool, default False
        Whether to go on from what is in ``checkpoint``: only parts of which nothing is there are learned, or the rows
        after those that a model has learned in order. Where nothing is there the job begins, with a warning.
    progress : bool, "json" or callable, optional
        Whether to print a line on standard error (None: on a terminal), lines of JSON, or what to call with a
        ``jobs.Report``: a dict with "rows", "rows_per_second", "parts", "n_parts", "seconds", "certificate" and more.
    passes : int, default 1
        Over the rows, at most. 2: once more, for a better sketch (``FrequentDirections.refine``). Of a SketchedRidge,
        which keeps no X'X: as many more as come to the coefficients of all rows (``SketchedRidge.refine``), unless
        those of the sketch have the smaller error on the rows held out; 50 are mostly enough.
    retries : int, default 3
        Times a part may lose its worker (killed, out of memory) before that is an error. With engine "dask" that is
        ``distributed.scheduler.allowed-failures`` of Dask's configuration.

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
    Models that need their rows in order (sketches with decay, learners) learn here, and keep what they have learned
    every few seconds and when they are interrupted: ``workers`` above 1 are refused. Two jobs with one checkpoint are
    refused, too. In workers BLAS and the kernels run on one thread each.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> rows = np.random.default_rng(0).standard_normal((2000, 30))
    >>> model = fs.run(fs.SketchHash(8), rows)
    >>> model.n_rows, np.array_equal(model.projection, fs.SketchHash(8).update(rows).projection)  # as in one pass
    (2000, True)
    >>> examples = np.column_stack([rows, rows[:, 0] > rows[:, 1]])
    >>> learner = fs.run(fs.SketchedNewton(), examples, target=-1)
    >>> learner.n_rows, learner.progress["error_rate"] < 0.1
    (2000, True)
    """
    with asked_as("target"):
        rows = open_rows(source) if target is None else open_rows(source, beside=target)
    finish: Callable[[Any], Any] | None = None
    if getattr(model, "_GAPS", False):
        rows = with_missing(rows)
    if hasattr(model, "_job"):
        model, finish = cast("Any", model)._job(rows)
    job = Job(workers, engine, scheduler, resume, progress, retries).checked()
    model = Learning(model, rows, job, labelled=target is not None, passes=passes).run(checkpoint)
    return model if finish is None else finish(model)


class InOrder(NamedTuple):
    """Options of a command whose model learns in order."""

    every: int = 0  # rows of a piece at most, 0 for as many as are quick
    seen: Callable[[Any], object] | None = None  # is called with the model after each piece
    switches: Mapping[str, Any] = {}  # what else two runs of one job have in common, for ``resume``
    until_saved: bool = False  # what is kept is needed until the caller has saved the model: a short job keeps nothing


class Learning:
    """Job that learns: the arguments of ``run``, checked, and the parts that they make of a source."""

    def __init__(
        self,
        template: Any,
        source: Source,
        job: Job,
        *,
        labelled: bool = False,
        passes: int = 1,
        in_order: InOrder | None = None,
    ) -> None:
        self.template, self.source, self.job = template, source, job
        self.how = in_order or InOrder()
        self._check_template(labelled)
        if self.why_in_order is not None and job.workers not in ("auto", 1):
            raise ValueError(f"workers must be 1: {self.why_in_order}, so that rows are learned in their order")
        self.passes = as_integer(passes, "passes", 1)
        if self.passes > 1:
            if not hasattr(template, "_check_passes"):
                raise ValueError(f"passes must be 1 for a {type(template).__name__}")
            template._check_passes(self.passes)
            if not source.repeatable:
                raise ValueError(f"passes must be 1: the rows of {source.name} come once")
        self.parts, self.part_bytes = self._cut()

    def _check_template(self, labelled: bool) -> None:
        template, source = self.template, self.source
        kind, update = type(template).__name__, getattr(template, "update", None)
        if not (isinstance(template, Model) and update):
            whole = isinstance(template, Model) and hasattr(template, "fit")
            instead = ": its fit takes all rows together" if whole else ""
            raise TypeError(f"model must be a model that learns by update, got {kind}{instead}")
        self.why_in_order: str | None = template._in_order()
        self.learns_targets = template._learns_targets()
        if self.learns_targets and source.beside is None and not source.labelled:
            raise TypeError(f"a {kind} learns from rows with targets: target names the column that holds them")
        if labelled and not self.learns_targets:
            raise TypeError(f"target is of learners: a {kind} has no use for one")
        if template.n_rows:
            raise ValueError(f"model must have seen no rows, it has seen {template.n_rows}: merge the result into it")

    def _cut(self) -> tuple[list[Source], int]:
        d = self.source.n_features
        if self.why_in_order is not None:
            return [self.source], 0
        wanted = 0 if self.source.sparse else STATES_OF_A_PART * self.template._state_bytes(d)
        size = max(PART_BYTES, min(LARGEST_PART, wanted))
        return self.source.parts(size, multiple=self.template._part_rows(d)), size

    # -- running ---------------------------------------------------------------------------------------------------
    def run(self, checkpoint: str | PathLike[str] | None) -> Any:
        """Learn the rows, and return the model of them all."""
        source, folder, resume = self.source, None if checkpoint is None else Path(checkpoint), self.job.resume
        if resume and folder is None:
            raise ValueError("resume needs the checkpoint to go on from")
        if folder is not None and not source.repeatable:
            what = "resume" if resume else "checkpoint"
            raise ValueError(f"{what}: the rows of {source.name} come once, and nobody could go on with the rest")
        resume = resume and folder is not None and goes_on(folder)
        with (
            Reporter(self.job.progress, source, len(self.parts), passes=self.passes) as reporter,
            contextlib.ExitStack() as stack,
        ):
            before = identity_of(source) if source.repeatable else {}
            ordered, kept = self.why_in_order is not None, None
            if folder is not None and (resume or ordered or len(self.parts) > 1):
                kept = stack.enter_context(Checkpoint.opened(folder, self._identity(before), resume=resume))
            if ordered:
                model = self._one_after_another(kept, reporter)
            else:
                bytes_of_models = 2 * self.template._state_bytes(self.parts[0].n_features)
                engine = stack.enter_context(
                    self.job.engine_for(self.parts, lambda: bytes_of_models, reporter.rows_here)
                )
                model = self._pass(self.template, engine, kept, reporter, 1)
                if self.passes > 1:
                    model = self._again(model, engine, kept, reporter)
            if source.repeatable:
                check_unchanged(source, before)
        return model

    def _again(self, model: Any, engine: Engine, kept: Checkpoint | None, reporter: Reporter) -> Any:
        """Return what a model becomes by passes over its rows, as many as it wants."""
        wanted, read, number = model._passes_again(self.passes - 1), None, 1
        while True:
            try:
                template = wanted.send(read)
            except StopIteration as end:
                return end.value
            number += 1
            reporter.begin_pass(number)
            read = self._pass(template, engine, kept, reporter, number)

    def _identity(self, source: Identity) -> Identity:
        return {
            "kind": type(self.template).__name__,
            **as_written(self.how.switches),
            "parameters": as_written(plain(self.template.parameters)),
            "resolved": as_written(plain(self.template.resolved)),
            "passes": self.passes,
            "part_bytes": self.part_bytes,
            "parts": len(self.parts),
            "inputs": source if "sources" in source else {"sources": [source]},
        }

    def _pass(self, template: Any, engine: Engine, kept: Checkpoint | None, reporter: Reporter, number: int) -> Any:
        tree: Tree[JobNode] = Tree(len(self.parts))
        known = [] if kept is None else self._known(tree, kept, template, number, here=engine.here)
        for _, node in known:
            reporter.known(node)
        shared = engine.share(template)
        there = {part for _, node in known for part in range(node.first, node.last + 1)}

        def leaves() -> Iterator[tuple[Span, Callable[..., Any], tuple[Any, ...]]]:
            for index, (begin, part) in enumerate(
                zip(_parts.beginnings(template, self.parts), self.parts, strict=True)
            ):
                if index not in there:
                    yield tree.place(0, index), _parts.learn, (shared, begin, part, index, not engine.here)

        def finished(place: Span, node: JobNode) -> JobNode:
            if kept is not None:
                kept.add(number, place, node)
            reporter.finished(node)
            return node

        root = climbed(engine, tree, leaves(), _parts.join, known=known, finished=finished)
        model = root.opened()
        if model.n_rows == 0:
            raise ValueError(f"{self.source.name} holds no rows")
        if len(self.parts) > 1 and plain(model.parameters) != plain(template.parameters):  # those of the first part
            return template.copy().merge(model)
        model.notes = deepcopy(template.notes)
        return model

    def _known(
        self, tree: Tree[JobNode], kept: Checkpoint, template: Any, number: int, *, here: bool
    ) -> list[tuple[Span, JobNode]]:
        known: list[tuple[Span, JobNode]] = []
        for entry, content in kept.nodes(number, partial(self._check_node, template, tree)):
            place = tree.place(entry.level, entry.at)
            model = from_bytes(content) if here else content
            known.append((place, JobNode(model, entry.rows, place.first, place.last, {})))
        return known

    def _check_node(self, template: Any, tree: Tree[JobNode] | None, entry: Entry, model: Any) -> None:
        """Raise StateError unless a model of a checkpoint can be that of its parts, for a job with this template.

        tree: None if rows are learned in their order.
        """
        if type(model) is not type(template):
            raise StateError(f"it holds a {type(model).__name__}, and the job makes a {type(template).__name__}")
        lengths = [self.source.n_rows]
        if tree is not None:
            try:
                place = tree.place(entry.level, entry.at)
            except ValueError as error:
                raise StateError(str(error)) from None
            lengths = [part.n_rows for part in self.parts[place.first : place.last + 1]]
        known = sum(length for length in lengths if length is not None)
        complete = self.why_in_order is None or entry.level > 0
        if None not in lengths and not (known if complete else 0) <= model.n_rows <= known:
            raise StateError(f"it has {model.n_rows} rows, and its parts have {known}")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if self.why_in_order is None:
                    template.copy().merge(model)
                elif plain(model.parameters) != plain(template.parameters):
                    raise ValueError("its parameters are not those of the job")
        except (ValueError, TypeError, ArithmeticError) as error:
            raise StateError(f"it is no model of this job: {error}") from error

    def _one_after_another(self, kept: Checkpoint | None, reporter: Reporter) -> Any:
        """Return one model that has learned all rows in their order.

        Its number of rows says where in the source it is: what is kept is the model, every few seconds, when it is
        interrupted, and (level 1) in the end.
        """
        model, source, every = self.template.copy(), self.source, self.how.every
        for entry, content in [] if kept is None else kept.nodes(1, partial(self._check_node, model, None)):
            model = from_bytes(content)
            reporter.begun(entry.rows)

        def keep(level: int = 0) -> float:
            """Keep the model, and return when to do so again."""
            began = time.perf_counter()
            if kept is not None:
                kept.add(1, Span(level, 0, 0, 0), _parts.node_of(model, 0, 0, as_bytes=False))
            now = time.perf_counter()
            return now + max(SECONDS, SHARE * (now - began))

        reporter.model = model
        rows_kept, due = model.n_rows, time.perf_counter() + SECONDS
        every = every or (EXAMPLES_AT_A_TIME if self.learns_targets else 0)
        pieces = _parts.learned(model, source, model.n_rows, step=every)
        try:
            with blas_limit(), contextlib.closing(pieces):
                for count, position in pieces:
                    reporter.rows_here(count, position / source.size if source.size else 0.0)
                    if self.how.seen is not None:
                        self.how.seen(model)
                    if time.perf_counter() >= due:
                        rows_kept, due = model.n_rows, keep()
        except KeyboardInterrupt:
            if model.n_rows > rows_kept:
                keep()
            raise
        if model.n_rows == 0:
            raise ValueError(f"{source.name} holds no rows")
        if not self.how.until_saved:
            keep(level=1)
        reporter.model = None
        reporter.finished(_parts.node_of(model, 0, 0, as_bytes=False))
        return model
