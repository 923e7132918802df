"""index: rows that go into an index in a folder, or out of it."""

import contextlib
import time
from argparse import Namespace
from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fastsketch as fs
from fastsketch._core.progress import ProgressLine
from fastsketch.cli._coding import NO_CODER, Coder
from fastsketch.cli._output import Output, output_of
from fastsketch.cli._reading import load_model, matrix, read_ids, rows_in
from fastsketch.cli._signals import held
from fastsketch.data.sources import naming
from fastsketch.neighbours.index import IndexConflict
from fastsketch.neighbours.index._index_files import MANIFEST, is_ours

GENERATIONS = "generations"


def change(args: Namespace) -> None:
    """Add rows to an index, remove some, or encode those of older generations anew."""
    asked = {"INPUT": bool(args.inputs), "--remove": args.remove is not None, "--reencode": args.reencode is not None}
    if sum(asked.values()) != 1:
        raise ValueError(f"index takes one of {', '.join(asked)}")
    if not args.inputs:
        for flag in ("model", "ids", "keep_rows", "metric", "partitions"):
            if getattr(args, flag) is not None:
                raise ValueError(f"--{flag.replace('_', '-')} goes with rows to add: INPUT")
    (_add if args.inputs else _remove if args.remove is not None else _reencode)(args)


def _add(args: Namespace) -> None:
    """Add the rows of files to an index, which is made if it is not there: all of them, or none."""
    with _unchanged(args) as out:
        index = _renewed(args) if (Path(args.index) / MANIFEST).exists() else _made(args)
        sources = rows_in(args, index.n_features).each()
        ids = read_ids(args.ids) if args.ids else None
        total, before, rows = sum(source.size for source in sources) or 1, 0, 0
        progress, started = ProgressLine(Path(args.index).name, args.progress), time.perf_counter()
        for source in sources:
            row = 0
            for chunk, position in source.chunks():
                n = chunk.shape[0]
                with naming(source, row):
                    index.add(chunk, None if ids is None else _next(ids, rows + row, n, args.ids))
                row += n
                progress.show((before + position) / total, rows + row)
            before += source.size
            rows += row
        if ids is not None and len(ids) != rows:
            raise ValueError(f"{args.ids} must hold one id for each of the {rows} rows, got {len(ids)}")
        _save(args, index)
        progress.show(1.0, rows, final=True)
        seconds = time.perf_counter() - started
        facts = {"added": rows, **index.facts(), "seconds": seconds, "rows_per_second": rows / seconds}
        report_index(args, out, facts)


def _next(ids: NDArray[Any], start: int, n: int, path: str) -> NDArray[Any]:
    if start + n > len(ids):
        raise ValueError(f"{path} must hold one id for each row, got {len(ids)}: there are more rows")
    return ids[start : start + n]


def _made(args: Namespace) -> fs.CodeIndex:
    if not args.model:
        raise ValueError(f"there is no index {args.index}: --model names the model that a new one is made with")
    folder = Path(args.index)
    if folder.exists() and not (folder.is_dir() and all(is_ours(entry.name) for entry in folder.iterdir())):
        raise ValueError(f"{args.index} is there, and no index")
    if not folder.absolute().parent.is_dir():
        raise ValueError(f"the folder of the index does not exist: {folder.parent}")
    rows, cells = (None if value == "none" else value for value in (args.keep_rows, args.partitions))
    partitions: Any = int(cells) if cells and cells.isdecimal() else cells
    if isinstance(partitions, str) and partitions != "auto":
        raise ValueError(f"--partitions must be none, auto or a number of cells, got {cells}")
    model = load_model(args.model, Coder, NO_CODER)
    return fs.CodeIndex(model, rows=rows, metric=args.metric or "euclidean", partitions=partitions)


def _renewed(args: Namespace) -> fs.CodeIndex:
    index = fs.CodeIndex.load(args.index)
    for flag, given, there in (
        ("--keep-rows", args.keep_rows, index.rows or "none"),
        ("--metric", args.metric, index.metric),
        ("--partitions", args.partitions, str(index.partitions or "none")),
    ):
        if given is not None and given != there:
            raise ValueError(f"{flag} is settled when an index is made: that of {args.index} is {there}")
    return index.renew(load_model(args.model, Coder, NO_CODER)) if args.model else index


def _remove(args: Namespace) -> None:
    """Remove rows by their ids: all of them, or none."""
    with _unchanged(args) as out:
        index = fs.CodeIndex.load(args.index)
        ids = _ids_in(args.remove)
        if not len(ids):
            raise ValueError(f"--remove {args.remove} names no rows")
        try:
            index.remove(ids)
        except IndexError as error:
            raise ValueError(f"{args.index}: {error}") from None
        _save(args, index)
        report_index(args, out, {"removed": len(ids), **index.facts()})


def _ids_in(text: str) -> NDArray[Any]:
    """Return the ids of a flag: whole numbers between commas, or a file of them."""
    try:
        return np.array([int(part) for part in text.split(",")], np.int64)
    except (ValueError, OverflowError):
        return read_ids(text)


def _reencode(args: Namespace) -> None:
    """Encode the rows of older generations as those of the present one."""
    with _unchanged(args) as out:
        index = fs.CodeIndex.load(args.index)
        started = time.perf_counter()
        decoded = args.reencode == "decoded"
        rows = None if decoded or args.reencode == "kept" else matrix(args.reencode)
        index.reencode(rows, decoded=decoded)
        _save(args, index)
        report_index(args, out, {**index.facts(), "seconds": time.perf_counter() - started})


def report_index(args: Namespace, out: Output, facts: dict[str, Any]) -> None:
    """Print the facts of an index: as text, a line for each generation."""
    if args.json:
        out.report(facts)
        return
    out.report({name: value for name, value in facts.items() if name != GENERATIONS})
    out.say(f"generations ({len(facts[GENERATIONS])}):")
    for one in facts[GENERATIONS]:
        removed = f", {one['n_removed']:,} removed" if one["n_removed"] else ""
        now = ", encodes what is added" if one["current"] else ""
        factors = f" ({one['factor_bytes']} of factors)" if one["factor_bytes"] else ""
        out.say(
            f"  {one['fingerprint'][:12]}  {one['width']} bytes a code{factors}, {one['n_rows']:,} rows{removed}{now}"
        )


def _save(args: Namespace, index: fs.CodeIndex) -> None:
    """Save; a signal waits until that is done."""
    with held():
        try:
            index.save(args.index)
        except IndexConflict:
            raise ValueError(
                f"{args.index} has been changed by somebody else meanwhile, and is as they left it: run this again"
            ) from None


@contextlib.contextmanager
def _unchanged(args: Namespace) -> Generator[Output]:
    """Return where facts are printed; note on an interrupt in this block that the index is as it was."""
    try:
        with output_of(args) as out:
            yield out
    except KeyboardInterrupt as stop:
        stop.add_note(f"{args.index} is as it was")
        raise
