"""The part that all commands share: files in, a model learned with checkpoints, facts out."""

import contextlib
import json
import math
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

import fastsketch as fs
from fastsketch._validation import as_real
from fastsketch.cli._progress import Progress
from fastsketch.io import Source, StateError, open_source


class Learner(Protocol):
    """A model that a job can learn: the frame, and an update."""

    notes: dict[str, Any]

    @property
    def n_rows(self) -> int: ...
    @property
    def parameters(self) -> dict[str, Any]: ...
    def facts(self) -> dict[str, Any]: ...
    def save(self, path: str | Path) -> None: ...
    def update(self, *args: Any, **kwargs: Any) -> Any: ...


L = TypeVar("L", bound=Learner)

# (source, first row to read, model) -> (arguments of model.update, rows in them, position in the source)
Chunks = Callable[[Source, int, Any], Iterator[tuple[tuple[Any, ...], int, int]]]

# A fact that is printed in lines of its own, and plotted.
SPECTRUM = "singular_values"


def limited(n: int | None) -> contextlib.AbstractContextManager[Any]:
    """The --threads option as a context."""
    return contextlib.nullcontext() if n is None else fs.thread_limit(n)


def given(args: Namespace) -> dict[str, Any]:
    """The model's parameters among the arguments: those that the user gave, and those with a default of the parser."""
    return {name: getattr(args, name) for name in args.parameters if name in args}


def flag(name: str) -> str:
    """The flag of a parameter."""
    return f"--{name.replace('_', '-')}"


# -- learning ----------------------------------------------------------------------------------------------------------
def plain_chunks(source: Source, start_row: int, _: Any) -> Iterator[tuple[tuple[Any, ...], int, int]]:
    """Rows alone, as arguments of model.update."""
    for rows, position in source.chunks(start_row):
        yield (rows,), rows.shape[0], position


def learn(args: Namespace, model: L, *, chunks: Chunks = plain_chunks) -> tuple[L, dict[str, Any]]:
    """Put the rows of args.inputs through the model and save it; returns the model learned and its facts."""
    as_real(args.checkpoint, "--checkpoint", 0.0, 1e9)
    writable(args.output)
    partial = Path(f"{args.output}.partial")
    sources = open_all(args)
    # a checkpoint must agree on this
    job = {"inputs": [str(Path(path).resolve()) for path in args.inputs], "sizes": [s.size for s in sources]}
    file_index = start_row = 0
    if args.resume:
        model, file_index, start_row = resumed(partial, model, job=job)
    progress = Progress(Path(args.output).name, args.progress)
    started = saved_at = time.perf_counter()
    rows_before = model.n_rows
    total = sum(s.size for s in sources) or 1
    with limited(args.threads):
        for index in range(file_index, len(sources)):
            source, before = sources[index], sum(s.size for s in sources[:index])
            row = start_row if index == file_index else 0
            for arguments, count, position in chunks(source, row, model):
                model.update(*arguments)
                row += count
                progress.show((before + position) / total, model.n_rows)
                if args.checkpoint and time.perf_counter() - saved_at >= args.checkpoint:
                    model.notes = {"job": job, "file": index, "row": row}
                    model.save(partial)
                    saved_at = time.perf_counter()
        if model.n_rows == 0:
            raise ValueError("the inputs hold no rows")
        model.notes = {"inputs": [Path(path).name for path in args.inputs]}
        model.save(args.output)
        seconds = time.perf_counter() - started
        progress.show(1.0, model.n_rows, final=True)
        partial.unlink(missing_ok=True)
        facts = model.facts()
    facts |= {"seconds": seconds, "rows_per_second": (model.n_rows - rows_before) / seconds, "output": args.output}
    return model, facts


def open_all(args: Namespace) -> list[Source]:
    """Sources of one width; svmlight files without --n-features take the widest index of them all."""
    sources = [open_source(path, n_features=args.n_features, zero_based=args.zero_based) for path in args.inputs]
    widths = {source.n_features for source in sources}
    if len(widths) > 1:
        text = [source for source in sources if source.n_rows is None]
        fixed = {source.n_features for source in sources if source.n_rows is not None}
        width = max(widths)
        if len(fixed) > 1 or (fixed and fixed != {width}):
            listed = ", ".join(
                f"{path} has {source.n_features}" for path, source in zip(args.inputs, sources, strict=True)
            )
            raise ValueError(f"the inputs differ in their number of columns: {listed}")
        for source in text:
            source.n_features = width
    return sources


def writable(path: str) -> None:
    """Complain now about an output that could not be written later."""
    folder = Path(path).parent
    if not folder.is_dir():
        raise ValueError(f"the folder of the output does not exist: {folder}")
    if Path(path).is_dir():
        raise ValueError(f"the output is a directory: {path}")


def resumed(partial: Path, model: L, *, job: dict[str, Any]) -> tuple[L, int, int]:
    """(model, file, row) of the partial result of the same command."""
    if not partial.exists():
        raise ValueError(f"nothing to resume: {partial} does not exist")
    saved = fs.load(partial)
    if type(saved) is not type(model) or "job" not in saved.notes:
        raise StateError(f"{partial} is no partial result of this command")
    mine, theirs = model.parameters, saved.parameters
    differing = [name for name in mine if mine[name] != theirs[name]]
    if differing or saved.notes["job"] != job:
        listed = ", ".join(differing) or "the input files"
        raise ValueError(f"{partial} belongs to another command: {listed} differ")
    return saved, saved.notes["file"], saved.notes["row"]


# -- reporting ---------------------------------------------------------------------------------------------------------
def finite(value: Any) -> Any:
    """The same with infinities and NaN as null: JSON has neither."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in cast(dict[str, Any], value).items()}
    if isinstance(value, list):
        return [finite(item) for item in cast(list[Any], value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def report(args: Namespace, facts: dict[str, Any]) -> None:
    """Print facts as JSON, or as text, a line each; a spectrum is left out of the text."""
    if args.json:
        print(json.dumps(finite(facts)))
        return
    shown = {name: value for name, value in facts.items() if name != SPECTRUM}
    width = max(map(len, shown))
    for name, value in shown.items():
        text = f"{value:,.0f}" if name == "rows_per_second" else as_text(value)
        print(f"{name.replace('_', ' '):<{width}}  {text}")


def as_text(value: Any) -> str:
    """A fact on one line."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, dict):
        named = cast(dict[str, Any], value)
        return ", ".join(f"{name}={as_text(item)}" for name, item in named.items() if item is not None)
    return ", ".join(map(as_text, cast(list[Any], value))) if isinstance(value, list) else str(value)
