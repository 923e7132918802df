"""Commands whose rows may be learned in parts, on several cores or machines: fs.run, with what a command adds to it."""

import contextlib
import time
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

from fastsketch._validation import as_real
from fastsketch.cli._flags import flag_of
from fastsketch.cli._job import limited
from fastsketch.cli._output import Output
from fastsketch.cli._reading import rows_in
from fastsketch.cli._signals import held
from fastsketch.jobs import Report, run
from fastsketch.jobs._manifest import Difference, OtherJob, in_words, kept, remove, shown
from fastsketch.jobs._progress import Printed
from fastsketch.sources import Source, comes_once


def rows_of(args: Namespace) -> Source:
    """The rows of args.inputs, one file after another. A stream that would be read twice is refused before it is."""
    once = [path for path in args.inputs if comes_once(path)]
    if args.resume and once:
        raise ValueError(f"--resume: {once[0]} is no file, and its rows cannot be read again")
    if getattr(args, "passes", 1) > 1 and once:
        raise ValueError(f"--passes 2: {once[0]} is no regular file, and its rows cannot be read again")
    return rows_in(args, args.n_features)


def learn_in_parts(
    args: Namespace,
    model: Any,
    out: Output,
    source: Source,
    *,
    notes: dict[str, Any] | None = None,
    finish: Callable[[Any], object] = lambda model: None,
) -> dict[str, Any]:
    """Learn the rows of a source in parts, save the model when `finish` has seen it, and return its facts.

    What has been learned of parts is in a folder beside the output until then, or in that of --checkpoint.
    """
    folder = _folder(args, out)
    started, told = time.perf_counter(), Printed(out.title, args.progress, passes=getattr(args, "passes", 1))
    rows_read = 0

    def tell(report: Report) -> None:
        nonlocal rows_read
        told(report)
        if report["final"]:
            rows_read += report["rows"] - report["rows_before"]

    try:
        with limited(args.threads):
            found = run(
                model,
                source,
                workers=workers_of(args.workers),
                engine="dask" if args.scheduler else args.engine,
                scheduler=args.scheduler,
                checkpoint=folder if source.repeatable else None,
                resume=args.resume,
                progress=tell,
                passes=getattr(args, "passes", 1),
            )
            finish(found)
            with held():  # what is complete is saved
                found.notes = {"inputs": [Path(path).name for path in args.inputs], **(notes or {})}
                out.save(found)
                if folder is not None:
                    remove(folder)
            facts = found.facts()
    except OtherJob as error:
        raise OtherJob(error.folder, error.found, partial(_in_words, args)) from None
    except KeyboardInterrupt as stop:
        if not out.kept:
            stop.add_note(_last_words(folder, source))
        raise
    seconds = time.perf_counter() - started
    facts |= {"passes": told.last["number"]} if told.last is not None and getattr(args, "passes", 1) > 1 else {}
    facts |= {"seconds": seconds, "rows_per_second": rows_read / seconds}
    return facts if out.name is None else {**facts, "output": out.name}


def workers_of(given: str) -> int | str:
    """The value of --workers."""
    try:
        return int(given)
    except ValueError:
        if given != "auto":
            raise ValueError(f"--workers must be a number or auto, got {given}") from None
        return given


def _folder(args: Namespace, out: Output) -> Path | None:
    """Where the checkpoint is; None if there can be none."""
    if args.checkpoint is not None and _is_number(args.checkpoint):
        as_real(float(args.checkpoint), "--checkpoint", 0.0, 1e9)
    folder = Path(args.checkpoint) if args.checkpoint is not None and not _is_number(args.checkpoint) else out.partial
    if args.resume and folder is None:
        raise ValueError("--resume needs an output that is a file, or --checkpoint DIR: what there is lies there")
    if folder is not None and folder.is_file():
        raise ValueError(f"{folder} is a file, the partial result of another command: remove it")
    return folder


def _is_number(text: str) -> bool:
    """Whether --checkpoint has a number of seconds, as of commands that do not learn in parts."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _last_words(folder: Path | None, source: Source) -> str:
    """What an interrupt leaves."""
    if not source.repeatable:
        return "nothing has been saved: the rows of a stream cannot be read again"
    if folder is None:
        return "nothing has been saved: there is no output that is a file, nor --checkpoint DIR"
    number, rows = kept(folder)
    if not number:
        with contextlib.suppress(OSError):
            remove(folder)
        return "nothing has been saved: no part was complete"
    which = " of the second pass" if number > 1 else ""
    return f"the partial result of {rows:,} rows{which} is in {folder}; the same command with --resume goes on from it"


def _in_words(args: Namespace, found: Difference) -> str:
    """A difference of two jobs by the flags that make it."""
    name = found.names[-1]
    if found.names[0] in ("parameters", "resolved", "passes") or name in ("n_features", "zero_based"):
        return f"{flag_of(args, name)} is {shown(found.now)} now and was {shown(found.then)}"
    if name == "sources":
        return f"there are {_count(found.now)} inputs now and were {_count(found.then)}"
    return in_words(found)


def _count(sources: Any) -> int:
    return len(cast("list[Any]", sources)) if isinstance(sources, list) else 1
