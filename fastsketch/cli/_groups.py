"""groups: a sketch for each group of rows."""

# pyright: reportPrivateUsage=false

import time
from argparse import Namespace
from pathlib import Path

import fastsketch as fs
from fastsketch._validation import as_real
from fastsketch.cli._flags import as_column
from fastsketch.cli._job import given, limited
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
            by=as_column(args.by),
            **how_read(args, args.n_features),
            max_memory=1e6 * as_real(args.max_memory, "--max-memory", 0.0, 1e12),
            folder=_folder(args, out.path),
            progress=args.progress,
            **given(args),
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
    """Temporary files go where the result goes, unless something else is asked for: there is to be space for it."""
    if args.temporary_folder is not None:
        return args.temporary_folder
    return None if output is None else str(output.parent)
