"""learn: a linear model from labelled rows, with the loss as it goes."""

import inspect
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

from fastsketch._validation import as_integer
from fastsketch.cli._job import flag, given, learn, limited, naming
from fastsketch.cli._labels import Labels, find_labels, labels_of
from fastsketch.cli._output import Output, output_of
from fastsketch.cli._reading import Piece
from fastsketch.cli._report import report
from fastsketch.io import Source, SourceError, open_source
from fastsketch.io._sources import SvmlightSource
from fastsketch.online import AdaptiveSubgradient, SketchedNewton

LinearLearner = SketchedNewton | AdaptiveSubgradient

# Short enough for a checkpoint or an interrupt in a second or so, whatever the method; the bits do not depend on it.
ROWS_AT_A_TIME = 4096

# Defaults with --regression: those of the regressors in fastsketch.sklearn. A test compares both.
REGRESSION: dict[str, Any] = {"loss": "square"}


def learn_online(args: Namespace) -> None:
    """Learn from svmlight files; progressive loss, accuracy on a test set, a model file."""
    as_integer(args.every, "--every", 0)
    model = make_model(args)
    for path in [*args.inputs, *([args.test] if args.test else [])]:
        if Path(path).suffix in (".npy", ".npz"):
            raise SourceError(f"{path}: labels are read from svmlight text only")
    if args.test:
        open_source(args.test, n_features=1)  # whether it is there is to be known before the work is done
    with output_of(args) as out:
        reader = LabelledRows(args, out, every=0 if args.json else args.every)
        model, facts = learn(args, model, out, reader=reader)
        if args.regression:
            facts.pop("error_rate", None)
        if args.test:
            facts |= tested(args, model, reader)
        report(args, facts, out)


def make_model(args: Namespace) -> LinearLearner:
    """The learner of the method that was asked for; a parameter of the other kind is refused."""
    parameters = given(args)
    method = parameters.get("method")
    if method == "newton":
        raise ValueError("--method newton is --method rfd now: Newton's methods are named by their sketches")
    newton, adaptive = methods(SketchedNewton), methods(AdaptiveSubgradient)
    cls = SketchedNewton if method is None or method in newton else AdaptiveSubgradient
    known = inspect.signature(cls).parameters
    if method is not None and method not in (*newton, *adaptive) and method.replace("-", "_") not in adaptive:
        raise ValueError(f"--method must be one of {', '.join((*newton, *adaptive))}, got {method!r}")
    for name in parameters:
        if name not in known:
            raise ValueError(f"{flag(name)} does not belong to --method {method or known['method'].default}")
    return cls(**{**(REGRESSION if args.regression else {}), **parameters})


def methods(cls: type[LinearLearner]) -> tuple[str, ...]:
    """The methods that a learner's class knows."""
    return get_args(inspect.signature(cls).parameters["method"].annotation)


class LabelledRows:
    """Labelled rows of svmlight text as arguments of update; prints a line every so many examples."""

    def __init__(self, args: Namespace, out: Output, *, every: int) -> None:
        self._regression = args.regression
        self._out = out
        self._every = every  # 0: no lines
        self._labels: Labels | None = None

    def begin(self, sources: Sequence[Source]) -> None:
        """See Reader."""
        if not self._regression:
            self._labels = find_labels(map(_labelled, sources))

    def notes(self) -> dict[str, Any]:
        """See Reader."""
        return {} if self._labels is None else {"labels": list(self._labels)}

    def take(self, notes: dict[str, Any]) -> None:
        """See Reader."""
        self._labels = None if self._regression else labels_of(notes)

    def __call__(self, source: Source, start_row: int, model: Any) -> Iterator[Piece]:
        """See Reader."""
        row = start_row
        for rows, labels, position in _labelled(source).labelled_chunks(start_row):
            targets = labels
            if self._labels is not None:
                with naming(source, row):
                    targets = self._labels.signs(labels)
            row += rows.shape[0]
            step = self._every or ROWS_AT_A_TIME
            for start in range(0, rows.shape[0], step):
                part = slice(start, min(start + step, rows.shape[0]))
                yield (rows[part], targets[part]), part.stop - part.start, position
                if self._every and model is not None:
                    self._out.say(_as_line(model.progress, self._regression))


def _labelled(source: Source) -> SvmlightSource:
    if not isinstance(source, SvmlightSource):
        raise SourceError(f"{source.path}: labels are read from svmlight text only")
    return source


def _as_line(progress: dict[str, Any], regression: bool) -> str:
    error = "" if regression else f"  error rate {progress['error_rate']:.4f}"
    return f"{progress['n_rows']:>12,} examples  mean loss {progress['mean_loss']:.5f}{error}"


def tested(args: Namespace, model: LinearLearner, reader: LabelledRows) -> dict[str, Any]:
    """How a learner does on the test rows, whose labels mean what they meant when it learned."""
    right, squares, count = 0, 0.0, 0
    source = open_source(args.test, n_features=model.n_features, zero_based=args.zero_based)
    with limited(args.threads):
        for (rows, targets), n, _ in reader(source, 0, None):
            with naming(source, count):
                scores = model.decision_function(rows)
            right += int(((scores > 0) == (targets > 0)).sum())
            squares += float(((scores - targets) ** 2).sum())
            count += n
    if args.regression:
        return {"test_examples": count, "test_mean_squared_error": squares / max(count, 1)}
    return {"test_examples": count, "test_accuracy": right / max(count, 1)}
