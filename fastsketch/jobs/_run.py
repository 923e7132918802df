"""Learn the rows of a source in parts, and merge the models along a tree that depends only on the parts."""

# pyright: reportPrivateUsage=false
# (hooks of the frame for the parts of a job)

import contextlib
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
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
from fastsketch.data.sources import Source, open_rows, rename_beside_in_errors, with_missing
from fastsketch.jobs import _parts
from fastsketch.jobs._checkpoint import Checkpoint, Entry
from fastsketch.jobs._engines import Engine
from fastsketch.jobs._manifest import Identity, as_json, can_resume, check_unchanged, identity_of
from fastsketch.jobs._options import EngineName, Job
from fastsketch.jobs._parts import JobNode
from fastsketch.jobs._progress import ProgressOption, Reporter
from fastsketch.jobs._tree import Span, Tree, reduce_tree

M = TypeVar("M")

# Bytes of the rows of a part. Merges and messages cost little in comparison, and a kill costs a worker at most a part.
PART_BYTES = 128 << 20
# A dense part is at least so many times as large as the state of its model, which every merge reads, checks, sends and
# writes a few times. Sparse rows take far longer per byte than merges, so that their parts need not be larger.
STATES_OF_A_PART = 64
# Bytes that a part has at most, unless one block of rows is larger.
LARGEST_PART = 1 << 30
# Examples that a learner learns at a time: few enough that any learner reaches a checkpoint in about a second.
EXAMPLES_AT_A_TIME = 4096
# Seconds between two checkpoints of a model that learns in order, which is what a kill costs. Writing checkpoints takes
# at most 1 / SHARE of the time.
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
    progress: ProgressOption = None,
    passes: int = 1,
    retries: int = 3,
) -> M:
    """Learn all rows of a source on many cores or machines, and return the model.

    The rows are split into parts, workers learn a model of each part, and models of neighbouring parts are merged along
    a tree that depends only on the parts. The result is therefore bitwise identical for any number of workers and every
    engine, on processors of one kind.

    Parameters
    ----------
    model : model
        A template without rows. The result has its parameters and its notes; the template is not changed.
    source : source, or anything that ``fs.open_rows`` accepts
        The rows. An iterator, a pipe or other rows that cannot be read again are learned in this process, in one part.
    target : str or int, or list of these, optional
        For a model that predicts (``SketchedNewton``, ``SketchedRidge``): the column of targets, by name or index; for
        a ``SketchedRidge`` also several. It is the ``beside`` of ``fs.open_rows``. Text is a label, unless the targets
        of the first chunk are numbers. Labels of svmlight text need no name.
    workers : int or "auto", default "auto"
        Number of tasks that run at the same time, at least 1. "auto" limits it by the CPUs (by affinity and the quota
        of a container), the memory, the number of parts and the size of the job. One worker is this process.
    engine : {"processes", "threads", "dask"}, default "processes"
        Where parts are learned. Processes are spawned, never forked: a script needs its ``if __name__ == "__main__"``.
    scheduler : str, distributed.Client or None
        For engine "dask": the address of a scheduler, or a client; None for the active client.
    checkpoint : path, optional
        A folder for the models of finished parts, created if necessary, from which ``resume=True`` continues. At the
        end it holds only the result. A job of one part has no checkpoint, unless its model learns rows in order.
    resume : bool, default False
        Whether to continue from ``checkpoint``: only parts that are not in it are learned, or the rows after those that
        a model has learned in order. If it holds no job, the job starts, with a warning.
    progress : bool, "json" or callable, optional
        True for a line on standard error (None: only on a terminal), "json" for lines of JSON, or a function that is
        called with a ``jobs.Report``: a dict with "rows", "parts", "seconds", "certificate" and more.
    passes : int, default 1
        Maximal number of passes over the rows. 2 gives a better sketch (``FrequentDirections.refine``). A SketchedRidge
        without an exact X'X takes as many passes as its coefficients need to converge to those of all rows
        (``SketchedRidge.refine``), usually less than 50; it keeps those of the sketch if their held-out error is lower.
    retries : int, default 3
        How often a part may lose its worker (killed, out of memory) before that is an error. Engine "dask" uses
        ``distributed.scheduler.allowed-failures`` of Dask's configuration instead.

    Returns
    -------
    model
        A new model with the parameters and notes of the template.

    Raises
    ------
    TypeError, ValueError
        If an argument is not valid, ``model`` has seen rows, rows are not valid (the message names file and row), or
        ``checkpoint`` belongs to another job.
    SourceError
        If the source cannot be read, or was changed during the job.
    StateError
        If the manifest of the checkpoint is damaged.
    LockHeld
        If another job uses the checkpoint.
    WorkerLost
        If a part lost its worker more than ``retries`` times.

    Notes
    -----
    Models that need rows in order (sketches with decay, online learners) learn in this process, and ``workers`` above 1
    is an error. Their checkpoint is written every few seconds and after an interrupt. BLAS and the kernels run on one
    thread in each worker.

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
    with rename_beside_in_errors("target"):
        rows = open_rows(source) if target is None else open_rows(source, beside=target)
    finish: Callable[[Any], Any] | None = None
    if getattr(model, "_GAPS", False):
        rows = with_missing(rows)
    if hasattr(model, "_job"):
        model, finish = cast("Any", model)._job(rows)
    job = Job(workers, engine, scheduler, resume, progress, retries).checked()
    model = Learning(model, rows, job, labelled=target is not None, passes=passes).run(checkpoint)
    return model if finish is None else finish(model)


class CommandOptions(NamedTuple):
    """Options of a learning job that only the command line sets."""

    switches: Mapping[str, Any] = {}  # arguments that a resumed job must have in common with the one that was stopped
    result: Path | None = None  # the file that the caller saves the model in; until then the checkpoint is kept
    # Of a model that learns rows in order: a function that is called with it after every `rows_between_calls` rows.
    rows_between_calls: int = 0
    callback: Callable[[Any], object] | None = None


class Learning:
    """A learning job of ``fs.run``: its checked arguments, and the parts into which the source is split."""

    def __init__(
        self,
        template: Any,
        source: Source,
        job: Job,
        *,
        labelled: bool = False,
        passes: int = 1,
        command: CommandOptions | None = None,
    ) -> None:
        self.template, self.source, self.job = template, source, job
        self.command = command or CommandOptions()
        self._check_template(labelled)
        self.why_in_order: str | None = template._in_order()
        if self.why_in_order is not None and job.workers not in ("auto", 1):
            raise ValueError(f"workers must be 1: {self.why_in_order}, so that rows are learned in their order")
        self.passes = as_integer(passes, "passes", 1)
        if self.passes > 1:
            if not hasattr(template, "_check_passes"):
                raise ValueError(f"passes must be 1 for a {type(template).__name__}")
            template._check_passes(self.passes)
            if not source.repeatable:
                raise ValueError(f"passes must be 1: the rows of {source.name} can be read only once")
        self.parts, self.part_bytes = [source], 0
        if self.why_in_order is None:
            state_bytes = 0 if source.sparse else template._state_bytes(source.n_features)
            self.part_bytes = max(PART_BYTES, min(LARGEST_PART, STATES_OF_A_PART * state_bytes))
            self.parts = source.parts(self.part_bytes, multiple=template._part_rows(source.n_features))

    def _check_template(self, labelled: bool) -> None:
        """Raise TypeError or ValueError if the model cannot learn the rows of this job."""
        template, kind = self.template, type(self.template).__name__
        if not (isinstance(template, Model) and hasattr(template, "update")):
            fits = isinstance(template, Model) and hasattr(template, "fit")
            instead = ": its fit takes all rows together" if fits else ""
            raise TypeError(f"model must be a model that learns by update, got {kind}{instead}")
        learns_targets = template._learns_targets()
        if learns_targets and self.source.beside is None and not self.source.labelled:
            raise TypeError(f"a {kind} learns from rows with targets: target names the column that holds them")
        if labelled and not learns_targets:
            raise TypeError(f"target is of learners: a {kind} has no use for one")
        if template.n_rows:
            raise ValueError(f"model must have seen no rows, it has seen {template.n_rows}: merge the result into it")

    # -- running ---------------------------------------------------------------------------------------------------
    def run(self, checkpoint: str | PathLike[str] | None) -> Any:
        """Learn all rows of the source, and return the model."""
        source, folder, resume = self.source, None if checkpoint is None else Path(checkpoint), self.job.resume
        if resume and folder is None:
            raise ValueError("resume needs the checkpoint to continue from")
        if folder is not None and not source.repeatable:
            option = "resume" if resume else "checkpoint"
            reason = "can be read only once, so that a stopped job cannot continue"
            raise ValueError(f"{option}: the rows of {source.name} {reason}")
        resume = resume and folder is not None and can_resume(folder, self.command.result)
        with (
            Reporter(self.job.progress, source, len(self.parts), passes=self.passes) as reporter,
            contextlib.ExitStack() as stack,
        ):
            identity = identity_of(source) if source.repeatable else {}
            in_order, saved = self.why_in_order is not None, None
            if folder is not None and (resume or in_order or len(self.parts) > 1):
                saved = stack.enter_context(Checkpoint.open(folder, self._identity(identity), resume=resume))
            if in_order:
                model = self._learn_in_order(saved, reporter)
            else:
                bytes_of_models = 2 * self.template._state_bytes(self.parts[0].n_features)
                engine = self.job.engine_for(self.parts, lambda: bytes_of_models, reporter.count_rows)
                model = self._learn_in_parts(stack.enter_context(engine), saved, reporter)
            if source.repeatable:
                check_unchanged(source, identity)
        return model

    def _identity(self, source: Identity) -> Identity:
        """Return a dict that describes the job for its manifest; `source` is the dict that identifies the rows."""
        return {
            "kind": type(self.template).__name__,
            **as_json(self.command.switches),
            "parameters": as_json(plain(self.template.parameters)),
            "resolved": as_json(plain(self.template.resolved)),
            "passes": self.passes,
            "part_bytes": self.part_bytes,
            "parts": len(self.parts),
            "inputs": source if "sources" in source else {"sources": [source]},
        }

    # -- in parts --------------------------------------------------------------------------------------------------
    def _learn_in_parts(self, engine: Engine, checkpoint: Checkpoint | None, reporter: Reporter) -> Any:
        """Learn the parts on an engine, in as many passes as the model requests, and return the model."""
        model = self._learn_pass(self.template, engine, checkpoint, reporter, 1)
        if self.passes == 1:
            return model
        requested, learned, number = model._passes_again(self.passes - 1), None, 1
        while True:
            try:
                template = requested.send(learned)
            except StopIteration as end:
                return end.value
            number += 1
            reporter.begin_pass(number)
            learned = self._learn_pass(template, engine, checkpoint, reporter, number)

    def _learn_pass(
        self, template: Any, engine: Engine, checkpoint: Checkpoint | None, reporter: Reporter, number: int
    ) -> Any:
        """Learn all parts in one pass and merge their models. Return the model of all rows.

        Models of the pass that the checkpoint holds are not learned again. `number` is that of the pass, from 1.
        """
        tree: Tree[JobNode] = Tree(len(self.parts))
        saved_nodes = (
            []
            if checkpoint is None
            else self._read_saved_nodes(tree, checkpoint, template, number, in_process=engine.in_process)
        )
        for _, node in saved_nodes:
            reporter.count_earlier(node)
        shared = engine.share(template)
        saved_parts = {part for _, node in saved_nodes for part in range(node.first, node.last + 1)}
        starts = _parts.plan_part_models(template, self.parts)
        leaves = (
            (tree.span(0, index), _parts.learn_part, (shared, start, part, index, not engine.in_process))
            for index, (start, part) in enumerate(zip(starts, self.parts, strict=True))
            if index not in saved_parts
        )

        def save_and_report(span: Span, node: JobNode) -> JobNode:
            if checkpoint is not None:
                checkpoint.write_node(number, span, node)
            reporter.count_finished(node)
            return node

        model = reduce_tree(
            engine, tree, leaves, _parts.merge_nodes, finished_nodes=saved_nodes, on_finished=save_and_report
        ).load_model()
        if model.n_rows == 0:
            raise ValueError(f"{self.source.name} holds no rows")
        if len(self.parts) > 1 and plain(model.parameters) != plain(template.parameters):  # those of the first part
            return template.copy().merge(model)
        model.notes = deepcopy(template.notes)
        return model

    def _read_saved_nodes(
        self, tree: Tree[JobNode], checkpoint: Checkpoint, template: Any, number: int, *, in_process: bool
    ) -> list[tuple[Span, JobNode]]:
        """Return a list of pairs (position in the merge tree, model) of the checkpoint's models of a pass.

        The models are loaded if `in_process`, and kept as bytes otherwise.
        """
        saved_nodes: list[tuple[Span, JobNode]] = []
        for entry, content in checkpoint.read_nodes(number, partial(self._check_node, template, tree)):
            span = tree.span(entry.level, entry.position)
            model = from_bytes(content) if in_process else content
            saved_nodes.append((span, JobNode(model, entry.rows, span.first, span.last, {})))
        return saved_nodes

    def _check_node(self, template: Any, tree: Tree[JobNode] | None, entry: Entry, model: Any) -> None:
        """Raise StateError unless a model from a checkpoint fits the job's parts and template.

        `tree` is None for a job that learns rows in order.
        """
        if type(model) is not type(template):
            raise StateError(f"it holds a {type(model).__name__}, and the job makes a {type(template).__name__}")
        lengths = [self.source.n_rows]
        if tree is not None:
            try:
                span = tree.span(entry.level, entry.position)
            except ValueError as error:
                raise StateError(str(error)) from None
            lengths = [part.n_rows for part in self.parts[span.first : span.last + 1]]
        n_rows_known = sum(length for length in lengths if length is not None)
        complete = tree is not None or entry.level > 0
        if None not in lengths and not (n_rows_known if complete else 0) <= model.n_rows <= n_rows_known:
            raise StateError(f"it has {model.n_rows} rows, and its parts have {n_rows_known}")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if tree is not None:
                    template.copy().merge(model)
                elif plain(model.parameters) != plain(template.parameters):
                    raise ValueError("its parameters are not those of the job")
        except (ValueError, TypeError, ArithmeticError) as error:
            raise StateError(f"it is no model of this job: {error}") from error

    # -- in order --------------------------------------------------------------------------------------------------
    def _learn_in_order(self, checkpoint: Checkpoint | None, reporter: Reporter) -> Any:
        """Learn all rows in their order in one model in this process, without parts. Return the model.

        The checkpoint holds the model, whose number of rows says where a resumed job continues. It is written every few
        seconds, after an interrupt, and at the end as a node of level 1.
        """
        model, source = self.template.copy(), self.source
        for entry, content in (
            [] if checkpoint is None else checkpoint.read_nodes(1, partial(self._check_node, model, None))
        ):
            model = from_bytes(content)
            reporter.set_earlier_rows(entry.rows)

        def save(level: int = 0) -> float:
            """Write the model to the checkpoint, and return the time at which the next write is due."""
            began = time.perf_counter()
            if checkpoint is not None:
                checkpoint.write_node(1, Span(level, 0, 0, 0), _parts.as_node(model, 0, 0, as_bytes=False))
            now = time.perf_counter()
            return now + max(SECONDS, SHARE * (now - began))

        reporter.model = model
        rows_saved, due = model.n_rows, time.perf_counter() + SECONDS
        step = self.command.rows_between_calls or (EXAMPLES_AT_A_TIME if model._learns_targets() else 0)
        learned_blocks = _parts.learn_rows(model, source, model.n_rows, step=step)
        try:
            with blas_limit(), contextlib.closing(learned_blocks):
                for count, position in learned_blocks:
                    reporter.count_rows(count, position / source.size if source.size else 0.0)
                    if self.command.callback is not None:
                        self.command.callback(model)
                    if time.perf_counter() >= due:
                        rows_saved, due = model.n_rows, save()
        except KeyboardInterrupt:
            if model.n_rows > rows_saved:
                save()
            raise
        if model.n_rows == 0:
            raise ValueError(f"{source.name} holds no rows")
        if self.command.result is None:
            save(level=1)
        reporter.model = None
        reporter.count_finished(_parts.as_node(model, 0, 0, as_bytes=False))
        return model
