"""Verbs that are jobs: of ``fs.run``, which learn the rows of inputs, and of ``fs.map_rows``, which answer for each."""

import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fastsketch.cli._flags import PartsVerb, ResumableVerb
from fastsketch.cli._output import Output, output_of
from fastsketch.cli._signals import held
from fastsketch.data.files._untrusted import is_link
from fastsketch.data.sources import Source, comes_once
from fastsketch.jobs import MapResult, Report
from fastsketch.jobs._checkpoint import remove
from fastsketch.jobs._manifest import refuse_finished
from fastsketch.jobs._mapping import written
from fastsketch.jobs._outputs import Csv, Npy, Parquet, Sink
from fastsketch.jobs._progress import Printed
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
        in_order = InOrder(every, seen, switches, until_saved=True)
        job = Learning(model, source, verb.job(tell), passes=passes, in_order=in_order)
        learned = job.run(folder if source.repeatable else None)
        with held():  # what is complete is saved
            learned.notes = {"inputs": [Path(path).name for path in verb.inputs], **notes}
            out.save(learned)
            if folder is not None:
                remove(folder)
        facts = learned.facts()
    except KeyboardInterrupt as stop:
        if out.kept is None and not getattr(stop, "__notes__", None):
            stop.add_note(f"nothing has been saved: {_why_nothing(folder, source)}")
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


def _why_nothing(folder: Path | None, source: Source) -> str:
    """Return why an interrupted job has saved nothing."""
    if not source.repeatable:
        return "the rows of a stream cannot be read again"
    return "there is no output that is a file" if folder is None else "no part was complete"


# -- answers for every row ---------------------------------------------------------------------------------------------
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
    job, path = verb.job(Printed(out.title, verb.progress)), Path(str(out.name)) if sink.FOLDER else out.path
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
