"""transform: what a model makes of every row: components, densities, codes, or the rows that codes stand for."""

from argparse import Namespace
from importlib import import_module
from typing import Any

from fastsketch.cli._coding import decode, encode
from fastsketch.cli._models import load_model
from fastsketch.cli._output import output_of
from fastsketch.cli._reading import rows_in
from fastsketch.cli._report import report
from fastsketch.cli._row_by_row import named_output, suffix_of, timed, write_answers
from fastsketch.data.files import StateError, read_header
from fastsketch.data.sources import comes_once
from fastsketch.neighbours.hashing import SketchHash
from fastsketch.neighbours.quantizing import SketchQuantizer
from fastsketch.sketching import FrequentDirections

# What --what may ask of a model of codes, by its functions here, and of an estimator, by its methods.
OF_CODES = {"codes": encode, "rows": decode}
METHODS = {"components": "transform", "scores": "score_samples", "distances": "mahalanobis"}


def transform(args: Namespace) -> None:
    """Write what a model makes of every row."""
    estimator = None if comes_once(args.model) else _saved_estimator(args)
    model = load_model(args.model) if estimator is None else estimator
    if isinstance(model, SketchHash | SketchQuantizer):
        what = args.what or "codes"
        if what not in OF_CODES:
            raise ValueError(f"--what must be {' or '.join(OF_CODES)} for a {type(model).__name__}, got {what}")
        for flag, value in (("n-components", args.n_components), ("beside", args.beside)):
            if value is not None:
                raise ValueError(f"--{flag} is not for codes")
        OF_CODES[what](args, model)
        return
    if args.factors:
        raise ValueError(f"--factors is for codes of a hash: {args.model} holds a {type(model).__name__}")
    _write_answers(args, model if estimator is not None else _estimator_of(args, model))


def _write_answers(args: Namespace, estimator: Any) -> None:
    """Write what a method of an estimator says of every row."""
    suffix, what = suffix_of(args.output, ".csv"), args.what or "components"
    with output_of(args, suffix, name=named_output(args)) as out:
        method = getattr(estimator, METHODS[what], None) if what in METHODS else None
        if method is None:
            known = [name for name, method in METHODS.items() if hasattr(estimator, method)]
            raise ValueError(
                f"--what must be {' or '.join(known) or 'nothing'} for a {type(estimator).__name__}, got {what}"
            )
        source = rows_in(args, estimator.n_features_in_, getattr(estimator, "feature_names_in_", None))
        heads = [str(name) for name in estimator.get_feature_names_out()] if what == "components" else [what]
        heads = heads if args.beside is None else [str(args.beside), *heads]
        found = write_answers(args, out, method, source, suffix, heads)
        report(args, {"n_rows": found.n_rows, "columns": len(heads), **timed(found), "output": args.output}, out)


def _sklearn() -> Any:
    try:
        return import_module("fastsketch.sklearn")
    except ImportError as error:
        raise ImportError("transform needs scikit-learn: pip install 'fastsketch[sklearn]'") from error


def _saved_estimator(args: Namespace) -> Any:
    """Return the estimator that a file holds, or None if it holds another model."""
    about = read_header(args.model)
    if about.get("home") != "fastsketch.sklearn":
        return None
    if args.n_components is not None:
        raise ValueError("--n-components is for sketches: an estimator has its own")
    cls = getattr(_sklearn(), str(about["kind"]), None)
    if cls is None or not hasattr(cls, "load"):
        raise StateError(f"{args.model} holds a {about['kind']}, which this version of fastsketch does not know")
    return cls.load(args.model)


def _estimator_of(args: Namespace, model: Any) -> Any:
    """Return the estimator that has learned a sketch."""
    sklearn = _sklearn()
    if not isinstance(model, FrequentDirections):
        raise StateError(
            f"{args.model} holds a {type(model).__name__}, not a sketch, an estimator with components or a model of "
            "codes"
        )
    if args.what not in (None, "components"):
        return sklearn.SketchedCovariance.from_sketch(model)
    return sklearn.SketchedPCA.from_sketch(model, n_components=args.n_components)
