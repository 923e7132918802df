"""Verbs that are jobs: of ``fs.run``, which learn the rows of inputs, and of ``fs.map_rows``, which answer for each."""

import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

from fastsketch.cli._flags import PartsVerb, ResumableVerb
from fastsketch.cli._output import Output, output_of
from fastsketch.cli._signals import held
from fastsketch.data.files._untrusted import is_link
from fastsketch.data.sources import Source, comes_once
from fastsketch.jobs import MapResult, Report
from fastsketch.jobs._mapping import Job, written
from fastsketch.jobs._outputs import Csv, Npy, Parquet, Sink
from fastsketch.jobs._progress import Printed
from fastsketch.jobs._resuming import Difference, OtherJob, in_words, kept, refuse_finished, remove, shown
from fastsketch.jobs._run import InOrder, Learning

PARQUET = ".parquet"


# -- learning ----------------------------------------------------------------------------------------------------------
def refuse_streams(verb: Any, *, passes: int = 1) -> None:
    """Raise ValueError if a stream is among the inputs of a verb and would be read twice."""
    once = [path for path in verb.inputs if comes_once(path)]
    if verb.resume and once:
        raise ValueError(f"--resume: {once[0]} is no file, and its rows cannot be read again")
    if passes > 1 and once:
        raise ValueError(f"--passes 2: {once[0]} is no regular file, and its rows cannot be read again")


def learn_rows(
    verb: Any,
    model: Any,
    out: Output,
    source: Source,
    *,
    notes: Mapping[str, Any],
    switches: Mapping[str, Any],
    passes: int = 1,
    every: int = 0,
    seen: Callable[[Any], object] | None = None,
) -> dict[str, Any]:
    """Learn the rows of a source, save the model with these notes, and return its facts.

    What has been learned is in a folder beside the output until then. `switches` are the arguments, besides parameters
    of the model, in which a resumed job must equal the one that was stopped. A model that learns in order is shown to
    `seen` after `every` rows.
    """
    folder = _folder(verb, out)
    started, printed = time.perf_counter(), Printed(out.title, verb.progress, passes=passes)
    rows_read = 0

    def tell(report: Report) -> None:
        nonlocal rows_read
        printed(report)
        if report["final"]:
            rows_read += report["rows"] - report["rows_before"]

    try:
        where: dict[str, Any] = verb.job() if hasattr(verb, "job") else {}
        in_order = InOrder(every, seen, switches, until_saved=True)
        job = Learning(model, source, **where, passes=passes, in_order=in_order)
        learned = job.run(folder if source.repeatable else None, resume=verb.resume, progress=tell)
        with held():  # what is complete is saved
            learned.notes = {"inputs": [Path(path).name for path in verb.inputs], **notes}
            out.save(learned)
            if folder is not None:
                remove(folder)
        facts = learned.facts()
    except OtherJob as error:
        raise OtherJob(error.folder, error.changes, partial(_in_words, verb, switches)) from None
    except KeyboardInterrupt as stop:
        if not out.kept:
            stop.add_note(_last_words(folder, source))
        raise
    seconds = time.perf_counter() - started
    facts |= {"passes": printed.last["number"]} if printed.last is not None and passes > 1 else {}
    return {**facts, "seconds": seconds, "rows_per_second": rows_read / seconds}


def _folder(verb: ResumableVerb, out: Output) -> Path | None:
    """Return where the checkpoint is; None if there can be none."""
    folder = out.partial
    if folder is None:
        if verb.resume:
            raise ValueError("--resume needs an output that is a file: what there is lies beside it")
        return None
    for is_other, kind in ((is_link(folder), "link"), (folder.is_file(), "file")):
        if is_other:
            raise ValueError(f"{folder} is a {kind}, and what has been learned lies in a folder: remove it")
    if verb.resume and out.path is not None:
        refuse_finished(folder, out.path)
    return folder


def _last_words(folder: Path | None, source: Source) -> str:
    """Return the sentence that tells, after an interrupt, what has been saved and how to resume."""
    if not source.repeatable:
        return "nothing has been saved: the rows of a stream cannot be read again"
    if folder is None:
        return "nothing has been saved: there is no output that is a file"
    number, rows = kept(folder)
    if not number:
        return "nothing has been saved: no part was complete"
    which = " of the second pass" if number > 1 else ""
    return f"the partial result of {rows:,} rows{which} is in {folder}; the same command with --resume goes on from it"


def _in_words(verb: ResumableVerb, switches: Mapping[str, Any], change: Difference) -> str:
    """Return a difference of two jobs by the flags that make it."""
    name = change.names[-1]
    if change.names[0] in ("parameters", "resolved", "passes", *switches) or name in ("n_features", "zero_based"):
        return f"{verb.flag_of(name)} is {shown(change.now)} now and was {shown(change.then)}"
    if name == "sources":
        then = len(cast("Any", change).then) if isinstance(change.then, list) else shown(change.then)
        return f"there are {len(change.now)} inputs now and were {then}"
    return in_words(change)


# -- answers for every row ---------------------------------------------------------------------------------------------
def answers_job(verb: PartsVerb, out: Output) -> Job:
    """Return how the rows of a verb are read that answers for each of them."""
    return Job(**verb.job(), resume=verb.resume, progress=Printed(out.title, verb.progress))


def answer_rows(
    verb: Any,
    method: Callable[..., Any],
    source: Source,
    default_suffix: str,
    heads: Sequence[str] = (),
    facts: Mapping[str, Any] = {},
) -> None:
    """Write the answers of a function for every row of a source to the output; report rows, these facts and seconds.

    The format is that of the output's name, or the default one; csv has a first line of `heads`, if any.
    """
    suffix = next((suffix for suffix in (".npy", PARQUET) if verb.output.endswith(suffix)), default_suffix)
    sink: Sink = Npy() if suffix == ".npy" else Parquet() if suffix == PARQUET else Csv(list(heads))
    with output_of(verb, suffix, folder=suffix == PARQUET) as out:
        result = _written(verb, out, method, source, sink, suffix)
        kept_parts = {"parts_kept": result.n_kept} if result.n_kept else {}
        rate = result.n_rows / max(result.seconds, 1e-9)
        about = {"n_rows": result.n_rows, **facts, **kept_parts}
        out.report({**about, "seconds": result.seconds, "rows_per_second": rate})


def _written(
    verb: PartsVerb, out: Output, method: Callable[..., Any], source: Source, sink: Sink, suffix: str
) -> MapResult:
    job, path = answers_job(verb, out), Path(str(out.name)) if sink.FOLDER else out.path
    if path is not None:
        result = written(method, source, path, sink, job, held=not sink.FOLDER)
        out.kept = out.name
        return result
    if job.resume:
        raise ValueError("--resume needs an output that is a file: what there is lies beside it")
    with tempfile.TemporaryDirectory(prefix="fastsketch-") as folder:
        whole = Path(folder) / f"rows{suffix}"
        result = written(method, source, whole, sink, job)
        with whole.open("rb") as rows, out.writing() as file:
            shutil.copyfileobj(rows, file, 1 << 20)
    return result
