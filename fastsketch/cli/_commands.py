"""sketch, audit, merge and info."""

# pyright: reportPrivateUsage=false

import time
import warnings
from argparse import Namespace
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

import fastsketch as fs
from fastsketch._core.progress import ProgressLine
from fastsketch._core.validation import as_integer
from fastsketch._frame.model import MergeableModel
from fastsketch.cli._flags import flag_of, parameters_of
from fastsketch.cli._in_parts import learn_files
from fastsketch.cli._output import SPECTRUM, Output, output_of
from fastsketch.cli._reading import how_read, load_model, rows_in
from fastsketch.data.sources import Source, comes_once
from fastsketch.data.sources._select import Derived
from fastsketch.sketching import FrequentDirections
from fastsketch.sketching._rows_again import OtherRows

# The note of an item model that says what its events mean, which models must have in common to be merged.
EVENTS = "events"
# Flags of rows that are learned in parts.
PARTS = ("workers", "engine", "scheduler", "checkpoint", "resume")
# Arrays of models that are written as they are.
EXPORTED = ("sketch", "components", "singular_values", "mean", "gram", "projection", "variances", "coef", "popularity")


def sketch(args: Namespace) -> None:
    """Sketch files into one state file, with checkpoints, in one pass or two; or their groups; or read rows again."""
    if args.refine is not None:
        _refuse(args, "--refine", ("by", "passes", *PARTS, *args.settings))
        _refine(args)
    elif args.by is not None:
        _refuse(args, "--by", ("passes", *PARTS))
        _sketch_groups(args)
    else:
        model = FrequentDirections(**parameters_of(args, FrequentDirections))
        if as_integer(args.passes, "--passes", 1, 3) > 1:
            model._check_rereadable("--passes 2")
        learn_files(args, model)


def _refuse(args: Namespace, what: str, names: Iterable[str]) -> None:
    """Raise ValueError for the first of these arguments that is given."""
    for name in names:
        usual = {"passes": 1, "workers": "auto", "engine": "processes"}.get(name)
        value = getattr(args, name, usual)
        if name in args.settings or not (value is None or value is False or value == usual):
            raise ValueError(f"{flag_of(args, name)} does not go with {what}")


def _refine(args: Namespace) -> None:
    """Read the rows of a sketch once more, and save what that makes of it."""
    with output_of(args, over_input=True) as out:
        model = load_model(args.refine, FrequentDirections, ": only a sketch is refined")
        model._check_rereadable("--refine")
        sources = rows_in(args, model.n_features, model.feature_names).each()
        started = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("error", OtherRows)
            try:
                model.refine([_Watched(source, args.progress) for source in sources])
            except OtherRows as other:
                raise ValueError(str(other)) from None
            out.save(model)
        out.report({**model.facts(), "seconds": time.perf_counter() - started})


def _sketch_groups(args: Namespace) -> None:
    """Sketch the groups of rows of files into one state file."""
    with output_of(args) as out:
        started = time.perf_counter()
        sketches = fs.sketch_groups(
            list(args.inputs),
            by=args.by,
            **how_read(args, args.n_features),
            progress=args.progress,
            **parameters_of(args, fs.GroupSketches),
        )
        if not len(sketches):
            raise ValueError("the inputs hold no rows")
        sketches.notes = {"inputs": [Path(path).name for path in args.inputs], "by": args.by}
        seconds = time.perf_counter() - started
        out.save(sketches)
        out.report({**sketches.facts(), "seconds": seconds, "rows_per_second": sketches.n_rows / seconds})


def audit(args: Namespace) -> int:
    """Measure the error of a sketch over the rows of files; nothing is written. 1 if its certificate does not hold."""
    model = load_model(args.model, FrequentDirections, ": only a sketch is audited")
    model._rereadable("an audit")
    if once := [path for path in args.inputs if comes_once(path)]:
        raise ValueError(f"an audit reads rows again, and those of {once[0]} come once: save them to a file first")
    sources = rows_in(args, model.n_features, model.feature_names).each()
    watched = [_Watched(source, args.progress) for source in sources]
    started = time.perf_counter()
    with output_of(args) as out:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            audited = model.audit(watched, accuracy=args.accuracy)
        total = model.squared_norm
        same_rows = not any(issubclass(warning.category, OtherRows) for warning in caught)
        facts = {"kind": "Audit", "n_rows": model.n_rows, "n_features": model.n_features, **audited._asdict()}
        facts |= {"relative_error": audited.error / total if 0 < total < float("inf") else 0.0}
        out.report({**facts, "same_rows": same_rows, "seconds": time.perf_counter() - started})
    for warning in caught:
        warnings.showwarning(warning.message, warning.category, warning.filename, warning.lineno)
    return int(not same_rows)


class _Watched(Derived):
    """A source that shows how far each pass over it has come."""

    def __init__(self, source: Source, progress: bool | None) -> None:
        super().__init__(source)
        self.waits = False  # chunks() of the source reads ahead
        self._wanted, self._passes, self.rows_read = progress, 0, 0

    def like(self, source: Source) -> Source:
        """See Derived."""
        return _Watched(source, self._wanted)

    def read(self, start_row: int = 0) -> Iterator[tuple[Any, int]]:
        """See Source."""
        self._passes += 1
        progress, self.rows_read = ProgressLine(f"{Path(self.name).name}, pass {self._passes}", self._wanted), 0
        for rows, position in self._of.chunks(start_row):
            yield rows, position
            self.rows_read += rows.shape[0]
            progress.show(position / self.size if self.size else 1.0, self.rows_read)
        progress.show(1.0, self.rows_read, final=True)


def merge(args: Namespace) -> None:
    """Merge state files of models of one kind."""
    with output_of(args, over_input=True) as out:
        models = [load_model(path, MergeableModel, ", which does not merge") for path in args.inputs]
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
        out.report(merged.facts())


def info(args: Namespace) -> None:
    """Show the facts of a model in a state file, or write one of its arrays."""
    if args.top < 0:
        raise ValueError(f"--top must not be negative, got {args.top}")
    if (args.array is None) != (args.output is None):
        raise ValueError("--array NAME and -o OUT.npy go together: what is written, and where")
    with output_of(args, ".npy") as out:
        if args.array is not None:
            _write_array(args, out)
            return
        model = load_model(args.input)
        if isinstance(model, fs.CodeIndex):
            out.report(model.facts())
            return
        if args.group is not None:
            model = _of_group(args, model)
        facts: dict[str, Any] = {**model.facts(), **of_quantizer(model)}
        intervals = {}
        if isinstance(model, FrequentDirections) and model.n_features is not None:
            spectrum = model.spectrum()
            intervals = {name: np.sqrt(getattr(spectrum, name)).tolist() for name in ("values", "low", "high")}
        spectra = {"spectrum": intervals} if intervals else {}
        out.report({**facts, **spectra, "notes": model.notes} if args.json else facts)
        if not args.json:
            sketched = isinstance(model, FrequentDirections)
            _show_spectra(args.top, intervals, facts.get(SPECTRUM, []), sketched=sketched)


def _show_spectra(top: int, intervals: dict[str, list[float]], values: list[float], *, sketched: bool) -> None:
    """Print the intervals of singular values, and bars of those that the sketch itself has."""
    if intervals:
        triples = list(zip(*intervals.values(), strict=True))
        shown = f"{min(top, len(triples))} of {len(triples)}"
        print(f"singular values of the rows: estimate, low and high end ({shown}):")
        for triple in triples[:top]:
            print("".join(f"  {number:12.6g}" for number in triple))
    if values:
        what = "lengths of the rows of B" if sketched else "singular values"
        print(f"{what} ({min(top, len(values))} of {len(values)}):")
        longest = values[0] or 1.0
        for value in values[:top]:
            print(f"  {value:12.6g}  {'#' * round(40 * value / longest)}")


def _write_array(args: Namespace, out: Output) -> None:
    if args.array not in EXPORTED:
        raise ValueError(f"--array must be one of {', '.join(EXPORTED)}, got {args.array!r}")
    model = load_model(args.input)
    if isinstance(model, fs.GroupSketches) and args.group is None:
        raise ValueError(f"{args.input} has sketches of {len(model)} groups: name one with --group")
    model = model if args.group is None else _of_group(args, model)
    array: Any = getattr(model, args.array, None)
    array = array() if callable(array) else array
    if not isinstance(array, np.ndarray):
        raise ValueError(f"the {type(model).__name__} in {args.input} has no {args.array}")
    values = cast("NDArray[Any]", array)
    with out.writing() as file:
        np.lib.format.write_array(file, np.ascontiguousarray(values), allow_pickle=False)
    facts = {"kind": type(model).__name__, "array": args.array, "shape": list(values.shape)}
    out.report({**facts, "dtype": str(values.dtype)})


def _of_group(args: Namespace, model: Any) -> FrequentDirections:
    """Return the sketch of the group that is asked for."""
    if not isinstance(model, fs.GroupSketches):
        raise ValueError(f"--group is for sketches of groups, {args.input} holds a {type(model).__name__}")
    key = next((key for key in model if str(key) == args.group), None)
    if key is None:
        raise ValueError(f"{args.input} has no group {args.group!r}")
    return model[key]


def of_quantizer(model: object) -> dict[str, Any]:
    """Return how a quantizer uses the bytes of a code, as far as it has learned; nothing for other models."""
    if not isinstance(model, fs.SketchQuantizer) or not model.n_rows:
        return {}
    from fastsketch.neighbours.quantizing._book_encoder import BookEncoder

    encoder = model.encoder()
    assert isinstance(encoder, BookEncoder)
    layout = encoder.layout
    return {
        "factor_bytes": layout.offset.n_bytes + layout.scale.n_bytes,
        "bits_of_directions": encoder.bits_of_directions.tolist(),
        "fingerprint": encoder.fingerprint,
    }
