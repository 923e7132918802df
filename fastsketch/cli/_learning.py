"""learn: a linear model from labelled rows, with the loss as it goes."""

import inspect
import tempfile
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from fastsketch._validation import as_integer
from fastsketch.cli._job import flag, given, learn, limited, report
from fastsketch.io import Source, SourceError, open_source
from fastsketch.io._sources import SvmlightSource
from fastsketch.online import AdaptiveSubgradient, SketchedNewton

LinearLearner = SketchedNewton | AdaptiveSubgradient
Targets = NDArray[np.float64]

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
    with tempfile.TemporaryDirectory() as folder:
        kept = args.output is not None
        if not kept:
            args.output = str(Path(folder) / "model.fsk")
        model, facts = learn(args, model, chunks=LabelledChunks(args, every=0 if args.json else args.every))
        if not kept:
            del facts["output"]
    if args.regression:
        facts.pop("error_rate", None)
    if args.test:
        facts |= tested(args, model)
    report(args, facts)


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


class LabelledChunks:
    """Labelled pieces of a file as arguments of update; prints a line every so many examples."""

    def __init__(self, args: Namespace, *, every: int) -> None:
        self._regression = args.regression
        self._every = every  # 0: no lines, and pieces as long as the source's
        self._labels: set[float] = set()

    def __call__(self, source: Source, start_row: int, model: Any) -> Iterator[tuple[tuple[Any, Targets], int, int]]:
        if not isinstance(source, SvmlightSource):
            raise SourceError(f"{source.path}: labels are read from svmlight text only")
        for rows, labels, position in source.labelled_chunks(start_row):
            targets = self.signs(labels, source.path)
            step = self._every or rows.shape[0]
            for start in range(0, rows.shape[0], step):
                part = slice(start, min(start + step, rows.shape[0]))
                yield (rows[part], targets[part]), part.stop - part.start, position
                if self._every:
                    _print_progress(model.progress, self._regression)

    def signs(self, labels: Targets, path: Path) -> Targets:
        """Targets of a classification are the signs of two labels: -1 and 1, 0 and 1, or 1 and 2."""
        if self._regression:
            return labels
        before = set(self._labels)
        self._labels.update(np.unique(labels).tolist())
        if before == {1.0} and 2.0 in self._labels:
            raise ValueError(f"{path}: labels are 1 and 2, but the first rows had only 1, taken for the positive one")
        if not any(self._labels <= set(pair) for pair in ((-1.0, 1.0), (0.0, 1.0), (1.0, 2.0))):
            listed = ", ".join(f"{label:g}" for label in sorted(self._labels)[:6])
            raise ValueError(
                f"{path}: labels must be two, -1 and 1, 0 and 1, or 1 and 2, got {listed}; "
                "real targets need --regression"
            )
        return np.where(labels >= 2, 1.0, -1.0) if 2.0 in self._labels else np.where(labels > 0, 1.0, -1.0)


def _print_progress(progress: dict[str, Any], regression: bool) -> None:
    error = "" if regression else f"  error rate {progress['error_rate']:.4f}"
    print(f"{progress['n_rows']:>12,} examples  mean loss {progress['mean_loss']:.5f}{error}", flush=True)


def tested(args: Namespace, model: LinearLearner) -> dict[str, Any]:
    """How a learner does on the test rows."""
    chunks, right, squares, count = LabelledChunks(args, every=0), 0, 0.0, 0
    source = open_source(args.test, n_features=model.n_features, zero_based=args.zero_based)
    with limited(args.threads):
        for (rows, targets), n, _ in chunks(source, 0, model):
            scores = model.decision_function(rows)
            right += int(((scores > 0) == (targets > 0)).sum())
            squares += float(((scores - targets) ** 2).sum())
            count += n
    if args.regression:
        return {"test_examples": count, "test_mean_squared_error": squares / max(count, 1)}
    return {"test_examples": count, "test_accuracy": right / max(count, 1)}
