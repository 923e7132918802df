"""Commands that answer for every row: map jobs with the arguments and the output of a command."""

import shutil
import tempfile
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fastsketch.cli._in_parts import engine_of
from fastsketch.cli._output import Output, output_of
from fastsketch.data.sources import Source
from fastsketch.jobs import MapResult
from fastsketch.jobs._mapping import Job, written
from fastsketch.jobs._outputs import Csv, Npy, Parquet, Sink
from fastsketch.jobs._progress import Printed

PARQUET = ".parquet"


def job_of(args: Namespace, out: Output) -> Job:
    """Return how the flags of a command have its rows read."""
    where: dict[str, Any] = {"workers": 1, **engine_of(args)}
    return Job(
        **where,
        resume=getattr(args, "resume", False),
        progress=Printed(out.title, args.progress),
    )


def answer_rows(
    args: Namespace,
    method: Callable[..., Any],
    source: Source,
    usual: str,
    heads: Sequence[str] = (),
    facts: Mapping[str, Any] = {},
) -> None:
    """Write the answers of a function for every row of a source to args.output; report rows, these facts and seconds.

    The format is that of the name, or the `usual` one; csv has a first line of `heads`, if any.
    """
    suffix = next((suffix for suffix in (".npy", PARQUET) if args.output.endswith(suffix)), usual)
    sink: Sink = Npy() if suffix == ".npy" else Parquet() if suffix == PARQUET else Csv(list(heads))
    with output_of(args, suffix, folder=suffix == PARQUET) as out:
        result = _written(args, out, method, source, sink, suffix)
        kept = {"parts_kept": result.n_kept} if result.n_kept else {}
        rate = result.n_rows / max(result.seconds, 1e-9)
        out.report({"n_rows": result.n_rows, **facts, **kept, "seconds": result.seconds, "rows_per_second": rate})


def _written(
    args: Namespace, out: Output, method: Callable[..., Any], source: Source, sink: Sink, suffix: str
) -> MapResult:
    job, path = job_of(args, out), Path(args.output) if sink.FOLDER else out.path
    if path is not None:
        result = written(method, source, path, sink, job, held=not sink.FOLDER)
        out.kept = args.output
        return result
    if job.resume:
        raise ValueError("--resume needs an output that is a file: what there is lies beside it")
    with tempfile.TemporaryDirectory(prefix="fastsketch-") as folder:
        whole = Path(folder) / f"rows{suffix}"
        result = written(method, source, whole, sink, job)
        with whole.open("rb") as rows, out.writing() as file:
            shutil.copyfileobj(rows, file, 1 << 20)
    return result
