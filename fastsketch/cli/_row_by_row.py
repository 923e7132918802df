"""Commands that answer for every row: map jobs with the arguments and the output of a command."""

import shutil
import tempfile
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fastsketch.cli._in_parts import engine_of
from fastsketch.cli._job import limited
from fastsketch.cli._output import Output
from fastsketch.data.sources import Source
from fastsketch.data.sources._joined import Joined
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


def suffix_of(name: str, otherwise: str) -> str:
    """Return the suffix of an output by its name, or `otherwise`."""
    return next((suffix for suffix in (".npy", PARQUET) if name.endswith(suffix)), otherwise)


def named_output(args: Namespace) -> str | None:
    """Return the output as ``output_of`` takes it: a folder is the map job's own to check and to hold."""
    return None if suffix_of(args.output, "") == PARQUET else args.output


def write_answers(
    args: Namespace, out: Output, method: Callable[..., Any], source: Source, suffix: str, heads: Sequence[str] = ()
) -> MapResult:
    """Write what a function says of every row of a source to args.output; csv has a first line of `heads`, if any."""
    sink: Sink = Npy() if suffix == ".npy" else Parquet() if suffix == PARQUET else Csv(list(heads))
    job = job_of(args, out)
    with limited(args.threads):
        if suffix == PARQUET:
            return written(method, source, Path(args.output), sink, job)
        if out.path is not None:
            result = written(method, source, out.path, sink, job, held=True)
            out.kept = str(out.name)
            return result
        if job.resume:
            raise ValueError("--resume needs an output that is a file: what there is lies beside it")
        with tempfile.TemporaryDirectory(prefix="fastsketch-") as folder:
            whole = Path(folder) / f"rows{suffix}"
            result = written(method, source, whole, sink, job)
            with whole.open("rb") as rows, out.writing() as file:
                shutil.copyfileobj(rows, file, 1 << 20)
        return result


def timed(result: MapResult, rows: int | None = None) -> dict[str, Any]:
    """Return facts of how long it took; rows of parts that were kept took none of it."""
    n = result.n_rows if rows is None else rows
    kept = {"parts_kept": result.n_kept} if result.n_kept else {}
    return {**kept, "seconds": result.seconds, "rows_per_second": n / max(result.seconds, 1e-9)}


class InTurn(Joined):
    """Tables with names for their columns, one after another; each is a part."""

    def __init__(self, sources: Sequence[Source]) -> None:
        super().__init__(sources)
        self.name = ", ".join(source.name for source in sources)

    def parts(self, n_bytes: int, *, multiple: int = 1) -> list[Source]:
        """See Source."""
        return self.sources if self.repeatable else [self]
