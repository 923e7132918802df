"""transform: the components of rows, or what an estimator says of them."""

from argparse import Namespace
from typing import Any

from fastsketch.cli._models import load_model
from fastsketch.cli._output import output_of
from fastsketch.cli._reading import rows_in
from fastsketch.cli._report import report
from fastsketch.cli._row_by_row import named_output, suffix_of, timed, write_answers
from fastsketch.io import StateError, read_header
from fastsketch.sketching import FrequentDirections

# What --what may ask for, and which method gives it.
METHODS = {"components": "transform", "scores": "score_samples", "distances": "mahalanobis"}


def transform(args: Namespace) -> None:
    """Rows on the components of a sketch, or of an estimator that was saved."""
    suffix = suffix_of(args.output, ".csv")
    with output_of(args, suffix, name=named_output(args)) as out:
        model = load_estimator(args)
        method = getattr(model, METHODS[args.what], None) if args.what in METHODS else None
        if method is None:
            known = [what for what, name in METHODS.items() if hasattr(model, name)]
            raise ValueError(
                f"--what must be {' or '.join(known) or 'nothing'} for a {type(model).__name__}, got {args.what}"
            )
        source = rows_in(args, model.n_features_in_, getattr(model, "feature_names_in_", None))
        heads = [str(name) for name in model.get_feature_names_out()] if args.what == "components" else [args.what]
        heads = [args.beside, *heads] if args.beside else heads
        found = write_answers(args, out, method, source, suffix, heads)
        report(args, {"n_rows": found.n_rows, "columns": len(heads), **timed(found), "output": args.output}, out)


def load_estimator(args: Namespace) -> Any:
    """The estimator of a file; of a sketch the one that has learned it."""
    try:
        from fastsketch import sklearn
    except ImportError as error:
        raise ImportError("transform needs scikit-learn: pip install 'fastsketch[sklearn]'") from error
    about = read_header(args.model)
    if about.get("home") == "fastsketch.sklearn":
        if args.n_components is not None:
            raise ValueError("--n-components is for sketches: an estimator has its own")
        cls = getattr(sklearn, str(about["kind"]), None)
        if cls is None or not hasattr(cls, "load"):
            raise StateError(f"{args.model} holds a {about['kind']}, which this version of fastsketch does not know")
        return cls.load(args.model)
    model = load_model(args.model)
    if not isinstance(model, FrequentDirections):
        raise StateError(f"{args.model} holds a {type(model).__name__}, not a sketch or an estimator with components")
    if args.what != "components":
        return sklearn.SketchedCovariance.from_sketch(model)
    return sklearn.SketchedPCA.from_sketch(model, n_components=args.n_components)
