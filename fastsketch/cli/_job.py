"""What the commands share: files in, a model learned with checkpoints, facts out."""

import contextlib
import json
import math
import time
from dataclasses import asdict
from pathlib import Path

import fastsketch as fs
from fastsketch._validation import as_real
from fastsketch.cli._progress import Progress
from fastsketch.hashing import SketchHash
from fastsketch.io import StateError, open_source
from fastsketch.sketching import FrequentDirections


def limited(n):
    """The --threads option as a context."""
    return contextlib.nullcontext() if n is None else fs.threads(n)


def plain_chunks(source, start_row, model):
    """Rows alone, as arguments of model.update."""
    for rows, position in source.chunks(start_row):
        yield (rows,), rows.shape[0], position


def seen(model):
    """Rows that a model has learned from, whatever it calls them."""
    return model.n_rounds if hasattr(model, "n_rounds") else model.n_rows


def learn(args, model, describe, chunks=plain_chunks):
    """Put the rows of args.inputs through the model and save it; returns its facts.

    chunks(source, start_row, model) yields (arguments of model.update, rows, position).
    """
    as_real(args.checkpoint, "--checkpoint", 0.0, 1e9)
    writable(args.output)
    partial = Path(f"{args.output}.partial")
    sources = open_all(args)
    # what a checkpoint must agree on
    job = {"inputs": [str(Path(path).resolve()) for path in args.inputs], "sizes": [s.size for s in sources]}
    file_index = start_row = 0
    if args.resume:
        model, file_index, start_row = resumed(partial, model, job)
    progress = Progress(Path(args.output).name, args.progress)
    started = saved_at = time.perf_counter()
    rows_before = seen(model)
    total = sum(s.size for s in sources) or 1
    with limited(args.threads):
        for index in range(file_index, len(sources)):
            source, before = sources[index], sum(s.size for s in sources[:index])
            row = start_row if index == file_index else 0
            for given, count, position in chunks(source, row, model):
                model.update(*given)
                row += count
                progress.show((before + position) / total, seen(model))
                if args.checkpoint and time.perf_counter() - saved_at >= args.checkpoint:
                    model.notes = {"job": job, "file": index, "row": row}
                    model.save(partial)
                    saved_at = time.perf_counter()
        if seen(model) == 0:
            raise ValueError("the inputs hold no rows")
        model.notes = {"inputs": [Path(path).name for path in args.inputs]}
        model.save(args.output)
        seconds = time.perf_counter() - started
        progress.show(1.0, seen(model), final=True)
        partial.unlink(missing_ok=True)
        facts = describe(model)
    facts.update(seconds=seconds, rows_per_second=(seen(model) - rows_before) / seconds, output=args.output)
    return facts


def open_all(args):
    """Sources of one width; svmlight files without --features take the widest index of them all."""
    sources = [open_source(path, n_features=args.features, zero_based=args.zero_based) for path in args.inputs]
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


def writable(path):
    """Complain now about an output that could not be written later."""
    folder = Path(path).parent
    if not folder.is_dir():
        raise ValueError(f"the folder of the output does not exist: {folder}")
    if Path(path).is_dir():
        raise ValueError(f"the output is a directory: {path}")


def resumed(partial, model, job):
    """(model, file, row) of the partial result of the same command."""
    if not partial.exists():
        raise ValueError(f"nothing to resume: {partial} does not exist")
    saved = fs.load(partial)
    if type(getattr(saved, "_config", None)) is not type(model._config) or "job" not in saved.notes:
        raise StateError(f"{partial} is no partial result of this command")
    mine, theirs = asdict(model._config), asdict(saved._config)
    differing = [name for name in mine if mine[name] != theirs[name]]
    if differing or saved.notes["job"] != job:
        what = ", ".join(differing) or "the input files"
        raise ValueError(f"{partial} belongs to another command: {what} differ")
    return saved, saved.notes["file"], saved.notes["row"]


def load_model(path, kinds=(FrequentDirections, SketchHash)):
    """A model from its file, of one of these kinds."""
    model = fs.load(path)
    if not isinstance(model, kinds):
        raise StateError(f"{path} holds a {type(model).__name__}, not a {' or '.join(k.__name__ for k in kinds)}")
    return model


def finite(value):
    """The same with infinities and NaN as null: JSON has neither."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def report(args, facts):
    """Print facts as text or JSON."""
    if args.json:
        print(json.dumps(finite(facts)))
        return
    width = max(map(len, facts))
    for name, value in facts.items():
        if isinstance(value, float):
            value = f"{value:,.0f}" if name == "rows_per_second" else f"{value:.6g}"
        elif isinstance(value, int) and not isinstance(value, bool):
            value = f"{value:,}"
        print(f"{name.replace('_', ' '):<{width}}  {value}")
