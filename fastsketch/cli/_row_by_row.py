"""Commands that say something of every row: map jobs, with what a command adds to them."""

import shutil
import tempfile
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from fastsketch.cli._in_parts import workers_of
from fastsketch.cli._job import limited
from fastsketch.cli._output import Output
from fastsketch.jobs import MapResult, Report
from fastsketch.jobs._mapping import Job, written
from fastsketch.jobs._outputs import Csv, Npy, Parquet, Sink
from fastsketch.jobs._progress import Printed
from fastsketch.sources import Source
from fastsketch.sources._source import Place

PARQUET = ".parquet"


def job_of(args: Namespace, out: Output) -> Job:
    """How the flags of a command have its rows read."""
    return Job(
        workers=workers_of(getattr(args, "workers", "1")),
        engine="dask" if getattr(args, "scheduler", None) else getattr(args, "engine", "processes"),
        scheduler=getattr(args, "scheduler", None),
        resume=getattr(args, "resume", False),
        progress=_told(args, out),
    )


def _told(args: Namespace, out: Output) -> Callable[[Report], None]:
    return Printed(out.title, args.progress)


def suffix_of(name: str, otherwise: str) -> str:
    """What kind of output a name asks for."""
    return next((suffix for suffix in (".npy", PARQUET) if name.endswith(suffix)), otherwise)


def named_output(args: Namespace) -> str | None:
    """The output as ``output_of`` takes it: a folder is the map job's own to check and to hold."""
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
            found = written(method, source, out.path, sink, job, held=True)
            out.kept = str(out.name)
            return found
        if job.resume:
            raise ValueError("--resume needs an output that is a file: what there is lies beside it")
        with tempfile.TemporaryDirectory(prefix="fastsketch-") as folder:
            whole = Path(folder) / f"rows{suffix}"
            found = written(method, source, whole, sink, job)
            with whole.open("rb") as rows, out.writing() as file:
                shutil.copyfileobj(rows, file, 1 << 20)
        return found


def timed(found: MapResult, rows: int | None = None) -> dict[str, Any]:
    """Facts of how long it took; rows of parts that were kept did not take any of it."""
    n = found.n_rows if rows is None else rows
    kept = {"parts_kept": found.n_kept} if found.n_kept else {}
    return {**kept, "seconds": found.seconds, "rows_per_second": n / max(found.seconds, 1e-9)}


class InTurn(Source):
    """Tables with names for their columns, one after another; each is a part."""

    n_features = 0  # whatever the names make of them
    waits = False

    def __init__(self, sources: Sequence[Source]) -> None:
        self.sources = list(sources)
        self.name = ", ".join(source.name for source in sources)
        self.size = sum(source.size for source in sources)
        self.n_rows = None
        self.repeatable = all(source.repeatable for source in sources)

    def read(self, start_row: int = 0) -> Iterator[tuple[Any, int]]:
        """See Source; from the first row on alone."""
        before = 0
        for source in self.sources:
            for rows, position in source.read(0):
                yield rows, before + position
            before += source.size

    def each(self) -> list[Source]:
        """See Source."""
        return self.sources

    def parts(self, n_bytes: int, *, multiple: int = 1) -> list[Source]:
        """See Source."""
        return self.sources if self.repeatable else [self]

    def identity(self) -> dict[str, Any]:
        """See Source."""
        return {"sources": [source.identity() for source in self.sources]}

    def place(self, row: int) -> Place:
        """See Source; of streams alone, of which there is one."""
        return self.sources[0].place(row)
