"""Run the jobs of subcommands: learn a model from rows, or write a model's results for rows."""

import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fastsketch.cli._flags import PartsVerb
from fastsketch.cli._output import Output, open_output
from fastsketch.cli._signals import delay_signals
from fastsketch.data.files._untrusted import is_link
from fastsketch.data.sources import Source, comes_once
from fastsketch.jobs import MapResult, Report
from fastsketch.jobs._checkpoint import Checkpoint
from fastsketch.jobs._mapping import write_results
from fastsketch.jobs._outputs import Csv, Npy, Parquet, Sink
from fastsketch.jobs._progress import Printed
from fastsketch.jobs._run import CommandOptions, Learning

NO_REGULAR_FILE = "--resume needs an output that is a regular file: its finished parts are kept in OUTPUT.partial"


# -- learning ----------------------------------------------------------------------------------------------------------
def refuse_rereading_streams(verb: Any, *, passes: int = 1) -> None:
    """Raise ValueError if an input of a subcommand is a stream but --resume or a second pass needs to read it again."""
    streams = [path for path in verb.inputs if comes_once(path)]
    if verb.resume and streams:
        raise ValueError(f"--resume: {streams[0]} is no file, and its rows cannot be read again")
    if passes > 1 and streams:
        raise ValueError(f"--passes 2: {streams[0]} is no regular file, and its rows cannot be read again")


def learn_rows(
    verb: Any,
    model: Any,
    out: Output,
    source: Source,
    *,
    notes: Mapping[str, Any],
    switches: Mapping[str, Any],
    passes: int = 1,
    rows_between_calls: int = 0,
    callback: Callable[[Any], object] | None = None,
) -> dict[str, Any]:
    """Learn the rows of a source, save the model to the output, and return its summary with duration and rate.

    While the job runs, its checkpoint is the folder OUTPUT.partial.

    Parameters
    ----------
    verb : Learn or PartsVerb
    model : model
        A template without rows; it is not changed.
    out : Output
    source : Source
    notes : dict
        Saved with the model, in addition to the names of the inputs.
    switches : dict
        Arguments, other than parameters of the model, that a resumed job must have in common with the stopped one.
    passes : int
    rows_between_calls : int
    callback : callable, optional
        Called with a model that learns in order after every `rows_between_calls` rows.
    """
    folder = _checkpoint_folder(verb, out)
    started, printer = time.perf_counter(), Printed(out.title, verb.progress, passes=passes)
    rows_read = 0

    def print_and_count(report: Report) -> None:
        nonlocal rows_read
        printer(report)
        if report["final"]:
            rows_read += report["rows"] - report["rows_before"]

    try:
        command = CommandOptions(switches, out.path, rows_between_calls, callback)
        job = Learning(model, source, verb.job(print_and_count), passes=passes, command=command)
        learned = job.run(folder if source.repeatable else None)
        with delay_signals():  # a complete result is saved even if a signal comes
            learned.notes = {"inputs": [Path(path).name for path in verb.inputs], **notes}
            out.save(learned)
            if folder is not None:
                Checkpoint(folder).remove()
        facts = learned.facts()
    except KeyboardInterrupt as stop:
        if out.saved_as is None and not getattr(stop, "__notes__", None):
            reason = "there is no output that is a file" if folder is None else "no part was complete"
            reason = reason if source.repeatable else "the rows of a stream cannot be read again"
            stop.add_note(f"nothing has been saved: {reason}")
        raise
    seconds = time.perf_counter() - started
    facts |= {"passes": printer.last["number"]} if printer.last is not None and passes > 1 else {}
    return {**facts, "seconds": seconds, "rows_per_second": rows_read / seconds}


def _checkpoint_folder(verb: Any, out: Output) -> Path | None:
    """Return the checkpoint folder of an output, or None if the output is not a regular file.

    ValueError if --resume needs a folder that there cannot be, or if a link or a file has its name.
    """
    folder = out.partial
    if folder is None:
        if verb.resume:
            raise ValueError(NO_REGULAR_FILE)
        return None
    if is_link(folder) or folder.is_file():
        kind = "link" if is_link(folder) else "file"
        raise ValueError(f"{folder} is a {kind}, but the checkpoint must be a folder: remove it")
    return folder


# -- answers for every row ---------------------------------------------------------------------------------------------
def write_results_of_rows(
    verb: Any,
    method: Callable[..., Any],
    source: Source,
    default_suffix: str,
    column_names: Sequence[str] = (),
    facts: Mapping[str, Any] = {},
) -> None:
    """Write a function's results for every row of a source to the output, and print a report.

    Parameters
    ----------
    verb : PartsVerb
        Its output is .npy or .parquet if its name ends so, otherwise of the default format.
    method : callable(rows) -> array
    source : Source
    default_suffix : str
        ".csv" or ".npy".
    column_names : sequence of str
        Column names in the first line of csv; without any there is no such line.
    facts : dict
        Reported as well.
    """
    sinks: dict[str, Callable[[], Sink]] = {".npy": Npy, ".parquet": Parquet, ".csv": lambda: Csv(list(column_names))}
    suffix = next((suffix for suffix in (".npy", ".parquet") if verb.output.endswith(suffix)), default_suffix)
    sink = sinks[suffix]()
    with open_output(verb, suffix, folder=sink.FOLDER) as out:
        result = _run_map_job(verb, out, method, source, sink, suffix)
        counts = {"n_rows": result.n_rows, **facts, **({"parts_kept": result.n_kept} if result.n_kept else {})}
        rate = result.n_rows / max(result.seconds, 1e-9)
        out.report({**counts, "seconds": result.seconds, "rows_per_second": rate})


def _run_map_job(
    verb: PartsVerb, out: Output, method: Callable[..., Any], source: Source, sink: Sink, suffix: str
) -> MapResult:
    """Run the job that writes a function's results for every row to the output of a subcommand. Return its MapResult.

    If the output is not a regular file, the results are written to a temporary file first and then copied.
    """
    job, path = verb.job(Printed(out.title, verb.progress)), Path(str(out.name)) if sink.FOLDER else out.path
    if path is not None:
        result = write_results(method, source, path, sink, job, already_locked=not sink.FOLDER)
        out.saved_as = out.name
        return result
    if job.resume:
        raise ValueError(NO_REGULAR_FILE)
    with tempfile.TemporaryDirectory(prefix="fastsketch-") as folder:
        complete = Path(folder) / f"rows{suffix}"
        result = write_results(method, source, complete, sink, job)
        with complete.open("rb") as rows, out.writing() as file:
            shutil.copyfileobj(rows, file, 1 << 20)
    return result
