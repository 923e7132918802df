"""learn: a linear model from labelled rows, with the loss as it goes."""

import inspect
from argparse import Namespace
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast, get_args

from fastsketch._core.losses import LOSSES
from fastsketch._core.validation import as_integer
from fastsketch.cli._answering import scored
from fastsketch.cli._flags import flag_of, parameters_of
from fastsketch.cli._in_parts import learn_rows, refuse_streams
from fastsketch.cli._labelled import (
    columns_to_learn,
    is_table,
    require_labels,
    rows_to_learn,
    rows_with_targets,
    targets_in,
)
from fastsketch.cli._output import Output, output_of
from fastsketch.cli._scoring import LinearLearner
from fastsketch.data.files import SourceError
from fastsketch.data.files._input import InputFile
from fastsketch.data.sources import open_rows
from fastsketch.online import AdaptiveSubgradient, SketchedNewton
from fastsketch.ridge import SketchedRidge

# Defaults with --regression: those of the regressors in fastsketch.sklearn. A test compares both.
REGRESSION: dict[str, Any] = {"loss": "square"}

# The method that is no online learner.
RIDGE = "ridge"

# Parameters that hold labels.
OF_LABELS = ("classes", "class_weight")

# What of `progress` stands in the lines of --every, where it is known.
SHOWN = ("mean_loss", "error_rate", "log_loss", "auc", "mean_absolute_error", "root_mean_squared_error")


def learn_online(args: Namespace) -> None:
    """Learn from labelled rows: progressive loss, what `score` says on test rows, a model file."""
    as_integer(args.every, "--every", 0)
    refuse_streams(args)
    if args.settings.get("method") == RIDGE:
        learn_ridge(args)
        return
    if args.fill is not None:
        raise ValueError(f"--fill is of --method {RIDGE}: other methods learn a missing number as such")
    source, notes = rows_to_learn(args)
    model = make_model(args, numbers=notes.get("table", {}).get("label_kind", "numeric") == "numeric")
    if args.test and is_table(args.test):  # whether it is there is to be known before the work is done
        with InputFile(Path(args.test)):
            pass
    elif args.test:
        open_rows(args.test, n_features=1)
    require_labels(source)
    every = 0 if args.json else args.every
    with output_of(args) as out:

        def say(model: Any) -> None:
            out.say(_as_line(model.progress, args.regression))

        seen = say if every else None
        model, facts = learn_rows(args, model, out, source, notes=notes, every=every, seen=seen)
        if args.regression:
            facts.pop("error_rate", None)
        out.report(facts | tested(args, model, out))


def learn_ridge(args: Namespace) -> None:
    """Learn a ridge regression of real targets: in parts, and with what `score` says on test rows."""
    for name, usual in (("categorical", None), ("every", 0), ("missing", "feature")):
        if getattr(args, name) != usual:
            advice = ": columns are numbers, --ignore A,B leaves others out, and --fill X fills in what is missing"
            raise ValueError(f"{flag_of(args, name)} does not belong to --method {RIDGE}{advice}")
    settings = {name: text for name, text in args.settings.items() if name != "method"}
    model = SketchedRidge(**parameters_of(Namespace(**{**vars(args), "settings": settings}), SketchedRidge))
    notes: dict[str, Any] = {}
    if args.target is not None:
        notes = {"target": targets_in(args.target), "columns": columns_to_learn(args), "fill": args.fill}
    source = rows_with_targets(args)
    require_labels(source)
    with output_of(args) as out, as_flags():
        model, facts = learn_rows(args, model, out, source, notes=notes)
        if not args.json:
            facts.pop("ridge_path", None)
        out.report(facts | tested(args, model, out))


@contextmanager
def as_flags() -> Generator[None]:
    """Let errors about columns name the flags of `learn`."""
    try:
        yield
    except SourceError as error:
        message = str(error).replace("--columns", "--numeric or --ignore")
        hint = " (--ignore A,B leaves columns out)" if "no finite decimal" in message and "--" not in message else ""
        raise SourceError(message + hint) from None


def tested(args: Namespace, model: LinearLearner | SketchedRidge, out: Output) -> dict[str, Any]:
    """Return what `score` says on the rows of --test, if there are any."""
    if not args.test:
        return {}
    measured = scored(Namespace(**{**vars(args), "inputs": [args.test], "target": None}), model, out)
    return {f"test_{name}": value for name, value in measured.items() if args.json or name != "confusion"}


def make_model(args: Namespace, *, numbers: bool = True) -> LinearLearner:
    """Return the learner of the method that was asked for; a parameter of the other kind is refused.

    numbers: whether labels are numbers, and not words.
    """
    parameters = parameters_of(args, SketchedNewton, AdaptiveSubgradient)
    if args.regression and not numbers:
        raise ValueError(f"--regression needs targets that are numbers, and column {args.target} of labels holds words")
    if numbers:
        parameters |= {
            name: as_numbers(parameters[name], flag_of(args, name)) for name in OF_LABELS if name in parameters
        }
    method = parameters.get("method")
    newton, adaptive = methods(SketchedNewton), methods(AdaptiveSubgradient)
    cls = SketchedNewton if method is None or method in newton else AdaptiveSubgradient
    known = inspect.signature(cls).parameters
    if method is not None and method not in (*newton, *adaptive):
        raise ValueError(f"--method must be one of {', '.join((*newton, *adaptive, RIDGE))}, got {method!r}")
    for name in parameters:
        if name not in known:
            raise ValueError(f"{flag_of(args, name)} does not belong to --method {method or known['method'].default}")
    model = cls(**{**(REGRESSION if args.regression else {}), **parameters})
    kind = LOSSES[model.loss].targets
    if kind == "label" and args.regression:
        raise ValueError(f"--loss {model.loss} is of labels: it does not go with --regression")
    if kind != "label" and not args.regression:
        raise ValueError(f"--loss {model.loss} is of real targets: it needs --regression")
    return model


def as_numbers(value: Any, name: str) -> Any:
    """Return the labels of a flag, a list or the keys of a dict, as the numbers that they are in the inputs."""
    if not isinstance(value, list | dict):
        return value
    try:
        labels = [float(label) for label in cast("list[str]", value)]
    except ValueError as error:
        raise ValueError(f"{name}: labels are numbers: {error}") from None
    return (
        labels if isinstance(value, list) else dict(zip(labels, cast("dict[str, float]", value).values(), strict=True))
    )


def methods(cls: type[LinearLearner]) -> tuple[str, ...]:
    """Return the methods that a learner's class knows."""
    return get_args(inspect.signature(cls).parameters["method"].annotation)


def _as_line(progress: dict[str, Any], regression: bool) -> str:
    known = [(name, progress.get(name)) for name in SHOWN if not (regression and name == "error_rate")]
    words = [f"{name.replace('_', ' ')} {value:.5f}" for name, value in known if value is not None]
    return "  ".join([f"{progress['n_rows']:>12,} examples", *words])
