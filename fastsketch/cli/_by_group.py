"""sketch --by: a sketch for each group of rows."""

# pyright: reportPrivateUsage=false

import time
from argparse import Namespace
from pathlib import Path

import fastsketch as fs
from fastsketch.cli._flags import parameters_of
from fastsketch.cli._job import limited
from fastsketch.cli._output import output_of
from fastsketch.cli._reading import how_read
from fastsketch.cli._report import report

PARQUET = ".parquet"


def groups(args: Namespace) -> None:
    """Sketch the groups of rows of files into one state file, or one table."""
    as_table = Path(args.output).suffix.lower() == PARQUET
    with output_of(args, PARQUET if as_table else ".fsk") as out, limited(args.threads):
        started = time.perf_counter()
        found = fs.sketch_groups(
            list(args.inputs),
            by=args.by,
            **how_read(args, args.n_features),
            max_memory=args.max_memory,
            folder=_folder(args, out.path),
            progress=args.progress,
            **parameters_of(args, fs.GroupSketches),
        )
        if not len(found):
            raise ValueError("the inputs hold no rows")
        found.notes = {"inputs": [Path(path).name for path in args.inputs], "by": args.by}
        seconds = time.perf_counter() - started
        with out.writing() as file:
            if as_table:
                found.to_parquet(file)
            else:
                found._write(file)
        facts = {**found.facts(), "seconds": seconds, "rows_per_second": found.n_rows / seconds}
        report(args, {**facts, "output": args.output}, out)


def _folder(args: Namespace, output: Path | None) -> str | None:
    """Return the folder of temporary files: by default that of the result, for which there is to be space."""
    if args.folder is not None:
        return args.folder
    return None if output is None else str(output.parent)
