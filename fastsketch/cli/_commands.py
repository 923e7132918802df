"""sketch, audit, refine, merge, export, info and demo."""

# pyright: reportPrivateUsage=false

import json
import time
import warnings
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

import fastsketch as fs
from fastsketch._model import MergeableModel
from fastsketch._validation import as_integer
from fastsketch.cli._in_parts import learn_in_parts, rows_of
from fastsketch.cli._job import given, limited
from fastsketch.cli._models import load_model
from fastsketch.cli._output import output_of
from fastsketch.cli._progress import Progress
from fastsketch.cli._reading import rows_in
from fastsketch.cli._report import SPECTRUM, finite, report
from fastsketch.io import StateError
from fastsketch.sketching import FrequentDirections
from fastsketch.sketching._rows_again import OtherRows
from fastsketch.sources import Source, comes_once
from fastsketch.sources._source import Place

# The note of an item model that says what its events mean, which models must have in common to be merged.
EVENTS = "events"
# Arrays of models that are written as they are.
EXPORTED = ("sketch", "components", "singular_values", "mean", "gram", "projection", "variances", "coef", "popularity")


def sketch(args: Namespace) -> None:
    """Sketch files into one state file, with checkpoints, in one pass or two."""
    model = FrequentDirections(**given(args))
    if as_integer(args.passes, "--passes", 1, 3) > 1:
        model._check_rereadable("--passes 2")
    with output_of(args) as out:
        report(args, learn_in_parts(args, model, out, rows_of(args)), out)


def refine(args: Namespace) -> None:
    """Read the rows of a sketch once more, and save what that makes of it."""
    with output_of(args, over_input=True) as out:
        model = _sketch_in(args.model, "is refined")
        model._check_rereadable("refine")
        sources = rows_in(args, model.n_features, model.feature_names).each()
        started = time.perf_counter()
        with limited(args.threads), warnings.catch_warnings():
            warnings.simplefilter("error", OtherRows)
            try:
                model.refine([_Watched(source, args.progress) for source in sources])
            except OtherRows as other:
                raise ValueError(str(other)) from None
            out.save(model)
        facts = {**model.facts(), "seconds": time.perf_counter() - started}
        report(args, {**facts, "output": args.output}, out)


def _sketch_in(name: str, what: str) -> FrequentDirections:
    model = load_model(name)
    if not isinstance(model, FrequentDirections):
        raise StateError(f"{name} holds a {type(model).__name__}: only a sketch {what}")
    return model


def export(args: Namespace) -> None:
    """An array of a model into an .npy."""
    with output_of(args, ".npy") as out:
        with limited(args.threads):
            model = load_model(args.model)
            if isinstance(model, fs.GroupSketches):
                if args.group is None:
                    raise ValueError(f"{args.model} has sketches of {len(model)} groups: name one with --group")
                key = next((key for key in model if str(key) == args.group), None)
                if key is None:
                    raise ValueError(f"{args.model} has no group {args.group!r}")
                model = model[key]
            elif args.group is not None:
                raise ValueError(f"--group is for sketches of groups, {args.model} holds a {type(model).__name__}")
            if args.array not in EXPORTED:
                raise ValueError(f"--array must be one of {', '.join(EXPORTED)}, got {args.array!r}")
            given: Any = getattr(model, args.array, None)
            given = given() if callable(given) else given
            if not isinstance(given, np.ndarray):
                raise ValueError(f"the {type(model).__name__} in {args.model} has no {args.array}")
            found = cast("NDArray[Any]", given)
        with out.writing() as file:
            np.lib.format.write_array(file, np.ascontiguousarray(found), allow_pickle=False)
        facts = {"kind": type(model).__name__, "array": args.array, "shape": list(found.shape)}
        facts |= {"dtype": str(found.dtype)}
        report(args, {**facts, "output": args.output}, out)


def audit(args: Namespace) -> int:
    """Measure the error of a sketch over the rows of files; nothing is written. 1 if its certificate does not hold."""
    model = load_model(args.model)
    if not isinstance(model, FrequentDirections):
        raise StateError(f"{args.model} holds a {type(model).__name__}: only a sketch is audited")
    model._rereadable("an audit")
    if once := [path for path in args.inputs if comes_once(path)]:
        raise ValueError(f"an audit reads rows again, and those of {once[0]} come once: save them to a file first")
    sources = rows_in(args, model.n_features, model.feature_names).each()
    watched = [_Watched(source, args.progress) for source in sources]
    started = time.perf_counter()
    with limited(args.threads), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", UserWarning)
        found = model.audit(watched, accuracy=args.accuracy)
    total = model.squared_norm
    same_rows = not any(issubclass(warning.category, OtherRows) for warning in told)
    facts = {"kind": "Audit", "n_rows": model.n_rows, "n_features": model.n_features, **found._asdict()}
    facts |= {"relative_error": found.error / total if 0 < total < float("inf") else 0.0}
    report(args, {**facts, "same_rows": same_rows, "seconds": time.perf_counter() - started})
    for warning in told:
        warnings.showwarning(warning.message, warning.category, warning.filename, warning.lineno)
    return int(not same_rows)


class _Watched(Source):
    """A source that shows how far each pass over it has come."""

    def __init__(self, source: Source, progress: bool | None) -> None:
        self.name, self.n_rows, self.n_features, self.size = source.name, source.n_rows, source.n_features, source.size
        self.feature_names, self.repeatable, self.waits = source.feature_names, source.repeatable, False
        self._source, self._wanted, self._passes, self.rows_read = source, progress, 0, 0

    def read(self, start_row: int = 0) -> Iterator[tuple[Any, int]]:
        """See Source."""
        self._passes += 1
        progress, self.rows_read = Progress(f"{Path(self.name).name}, pass {self._passes}", self._wanted), 0
        for rows, position in self._source.chunks(start_row):
            yield rows, position
            self.rows_read += rows.shape[0]
            progress.show(position / self.size if self.size else 1.0, self.rows_read)
        progress.show(1.0, self.rows_read, final=True)

    def place(self, row: int) -> Place:
        """See Source."""
        return self._source.place(row)


def merge(args: Namespace) -> None:
    """Merge state files of models of one kind."""
    with output_of(args, over_input=True) as out:
        with limited(args.threads):
            models = [_mergeable(path) for path in args.inputs]
            meaning = models[0].notes.get(EVENTS)
            for path, other in zip(args.inputs[1:], models[1:], strict=True):
                if other.notes.get(EVENTS) != meaning:
                    raise ValueError(
                        f"{path}: its events have another meaning (--relevant, --binary) than those of {args.inputs[0]}"
                    )
                try:
                    models[0].copy().merge(other)
                except (TypeError, ValueError) as error:
                    raise ValueError(f"{path}: {error}") from None
            merged = fs.merge(models)
            merged.notes = {"merged": [Path(path).name for path in args.inputs]}
            merged.notes |= {} if meaning is None else {EVENTS: meaning}
            out.save(merged)
            facts = merged.facts()
        report(args, {**facts, "output": args.output}, out)


def _mergeable(path: str) -> MergeableModel:
    model = load_model(path)
    if not isinstance(model, MergeableModel):
        raise StateError(f"{path} holds a {type(model).__name__}, which does not merge")
    return model


def info(args: Namespace) -> None:
    """Show the facts of a model in a state file."""
    if args.top < 0:
        raise ValueError(f"--top must not be negative, got {args.top}")
    with limited(args.threads):
        model = load_model(args.input)
        if isinstance(model, fs.CodeIndex):
            from fastsketch.cli._indexing import say_index

            say_index(args, model.facts())
            return
        facts: dict[str, Any] = {**model.facts(), **of_quantizer(model)}
        sketched, certain = isinstance(model, FrequentDirections), {}
        if sketched and model.n_features is not None:
            spectrum = model.spectrum()
            certain = {name: np.sqrt(getattr(spectrum, name)).tolist() for name in ("values", "low", "high")}
            facts["spectrum"] = certain
    if args.plot:
        if SPECTRUM not in facts:
            raise ValueError(f"--plot draws the spectrum of a sketch; {args.input} holds a {facts['kind']}")
        from fastsketch._plot import plot_spectrum

        plot_spectrum(facts, args.plot)
    if args.json:
        print(json.dumps(finite({**facts, "notes": model.notes})))
        return
    report(args, {name: fact for name, fact in facts.items() if fact is not certain})
    if certain:
        triples = list(zip(*certain.values(), strict=True))
        shown = f"{min(args.top, len(triples))} of {len(triples)}"
        print(f"singular values of the rows: estimate, low and high end ({shown}):")
        for triple in triples[: args.top]:
            print("".join(f"  {number:12.6g}" for number in triple))
    values: list[float] = facts.get(SPECTRUM, [])
    if values:
        what = "lengths of the rows of B" if sketched else "singular values"
        print(f"{what} ({min(args.top, len(values))} of {len(values)}):")
        longest = values[0] or 1.0
        for value in values[: args.top]:
            print(f"  {value:12.6g}  {'#' * round(40 * value / longest)}")


def of_quantizer(model: object) -> dict[str, Any]:
    """How a quantizer uses the bytes of a code, as far as it has learned; nothing of other models."""
    if not isinstance(model, fs.SketchQuantizer) or not model.n_rows:
        return {}
    from fastsketch.quantizing._book_encoder import BookEncoder

    encoder = model.encoder()
    assert isinstance(encoder, BookEncoder)
    layout = encoder.layout
    return {
        "factor_bytes": layout.offset.n_bytes + layout.scale.n_bytes,
        "bits_of_directions": encoder.bits_of_directions.tolist(),
        "fingerprint": encoder.fingerprint,
    }


def demo(args: Namespace) -> None:
    """Run the main jobs on photographs and handwritten digits."""
    from fastsketch.demo import run_demo

    progress = Progress("sketch")
    with limited(args.threads):
        facts = run_demo(
            args.output,
            sketch_size=args.sketch_size,
            say=_silent if args.json else print,
            progress=progress.show,
        )
    if args.json:
        print(json.dumps(finite(facts)))


def _silent(_: str) -> None:
    pass
