"""Commands that learn: jobs of ``fs.run`` with the arguments, the output and the words of a command."""

import time
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

from fastsketch.cli._flags import flag_of
from fastsketch.cli._output import Output, output_of
from fastsketch.cli._reading import rows_in
from fastsketch.cli._signals import held
from fastsketch.data.files._untrusted import is_link
from fastsketch.data.sources import Source, comes_once
from fastsketch.jobs import Report
from fastsketch.jobs._progress import Printed
from fastsketch.jobs._resuming import Difference, OtherJob, in_words, kept, refuse_finished, remove, shown
from fastsketch.jobs._run import InOrder, Learning

# Arguments that are no parameters of the model, and that two runs of one job have in common.
SWITCHES = (
    *("regression", "binary", "names", "target", "header", "separator", "decimal"),
    *("missing", "categorical", "numeric", "ignore"),
)


def rows_of(args: Namespace) -> Source:
    """Open the rows of args.inputs, one file after another. A stream that would be read twice is refused."""
    refuse_streams(args)
    return rows_in(args, args.n_features)


def refuse_streams(args: Namespace) -> None:
    """Raise ValueError if a stream is among args.inputs and would be read twice."""
    once = [path for path in args.inputs if comes_once(path)]
    if args.resume and once:
        raise ValueError(f"--resume: {once[0]} is no file, and its rows cannot be read again")
    if getattr(args, "passes", 1) > 1 and once:
        raise ValueError(f"--passes 2: {once[0]} is no regular file, and its rows cannot be read again")


def learn_files(args: Namespace, model: Any) -> None:
    """Learn the rows of args.inputs into one state file, with checkpoints, and report the facts of the model."""
    with output_of(args) as out:
        out.report(learn_rows(args, model, out, rows_of(args))[1])


def learn_rows(
    args: Namespace,
    model: Any,
    out: Output,
    source: Source,
    *,
    notes: dict[str, Any] | None = None,
    finish: Callable[[Any], object] = lambda model: None,
    every: int = 0,
    seen: Callable[[Any], object] | None = None,
) -> tuple[Any, dict[str, Any]]:
    """Learn the rows of a source, save the model when `finish` has seen it, and return it with its facts.

    What has been learned is in a folder beside the output until then, or in that of --checkpoint. A model that learns
    in order is shown to `seen` after every so many rows.
    """
    folder = _folder(args, out)
    started, printed = time.perf_counter(), Printed(out.title, args.progress, passes=getattr(args, "passes", 1))
    rows_read = 0

    def tell(report: Report) -> None:
        nonlocal rows_read
        printed(report)
        if report["final"]:
            rows_read += report["rows"] - report["rows_before"]

    try:
        switches = {name: getattr(args, name, None) for name in SWITCHES}
        job = Learning(
            model,
            source,
            **engine_of(args),
            passes=getattr(args, "passes", 1),
            in_order=InOrder(every, seen, switches, until_saved=True),
        )
        learned = job.run(folder if source.repeatable else None, resume=args.resume, progress=tell)
        finish(learned)
        with held():  # what is complete is saved
            learned.notes = {"inputs": [Path(path).name for path in args.inputs], **(notes or {})}
            out.save(learned)
            if folder is not None:
                remove(folder)
        facts = learned.facts()
    except OtherJob as error:
        raise OtherJob(error.folder, error.changes, partial(_in_words, args)) from None
    except KeyboardInterrupt as stop:
        if not out.kept:
            stop.add_note(_last_words(folder, source))
        raise
    seconds = time.perf_counter() - started
    facts |= {"passes": printed.last["number"]} if printed.last is not None and getattr(args, "passes", 1) > 1 else {}
    return learned, {**facts, "seconds": seconds, "rows_per_second": rows_read / seconds}


def engine_of(args: Namespace) -> dict[str, Any]:
    """Return the arguments that say where parts are learned or answered; of commands that work here alone none."""
    if "workers" not in args:
        return {}
    try:
        workers = args.workers if args.workers == "auto" else int(args.workers)
    except ValueError:
        raise ValueError(f"--workers must be a number or auto, got {args.workers}") from None
    return {"workers": workers, "engine": "dask" if args.scheduler else args.engine, "scheduler": args.scheduler}


def _folder(args: Namespace, out: Output) -> Path | None:
    """Return where the checkpoint is; None if there can be none."""
    folder = out.partial if args.checkpoint is None else Path(args.checkpoint)
    if args.resume and folder is None:
        raise ValueError("--resume needs an output that is a file, or --checkpoint DIR: what there is lies there")
    if folder is not None and args.checkpoint is None and is_link(folder):
        raise ValueError(f"{folder} is a link, and what has been learned lies in a folder: remove it")
    if folder is not None and folder.is_file():
        raise ValueError(f"{folder} is a file, and what has been learned lies in a folder: remove it")
    if args.resume and folder is not None and out.path is not None:
        refuse_finished(folder, out.path)
    return folder


def _last_words(folder: Path | None, source: Source) -> str:
    """Return the sentence that tells, after an interrupt, what has been saved and how to resume."""
    if not source.repeatable:
        return "nothing has been saved: the rows of a stream cannot be read again"
    if folder is None:
        return "nothing has been saved: there is no output that is a file, nor --checkpoint DIR"
    number, rows = kept(folder)
    if not number:
        return "nothing has been saved: no part was complete"
    which = " of the second pass" if number > 1 else ""
    return f"the partial result of {rows:,} rows{which} is in {folder}; the same command with --resume goes on from it"


def _in_words(args: Namespace, change: Difference) -> str:
    """Return a difference of two jobs by the flags that make it."""
    name = change.names[-1]
    if change.names[0] in ("parameters", "resolved", "passes", *SWITCHES) or name in ("n_features", "zero_based"):
        return f"{flag_of(args, name)} is {shown(change.now)} now and was {shown(change.then)}"
    if name == "sources":
        then = len(cast("Any", change).then) if isinstance(change.then, list) else shown(change.then)
        return f"there are {len(change.now)} inputs now and were {then}"
    return in_words(change)
