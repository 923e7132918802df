"""quantize, transform: models of codes, and the answers of a model for every row: components, densities, codes."""

from argparse import Namespace
from importlib import import_module
from typing import Any

import numpy as np

from fastsketch.cli._flags import parameters_of
from fastsketch.cli._in_parts import learn_files
from fastsketch.cli._reading import load_model, rows_in
from fastsketch.cli._row_by_row import answer_rows
from fastsketch.data.files import StateError, read_header
from fastsketch.data.sources import comes_once, open_rows
from fastsketch.neighbours.hashing import SketchHash
from fastsketch.neighbours.quantizing import SketchQuantizer
from fastsketch.sketching import FrequentDirections

Coder = SketchHash | SketchQuantizer
NO_CODER = ", not a SketchHash or a SketchQuantizer"
# Bytes of a code, unless it is to be of bits.
N_BYTES = 20


def quantize(args: Namespace) -> None:
    """Learn a quantizer, or with --n-bits a hash, from files into one state file, with checkpoints."""
    if "n_bits" not in args.settings:
        parameters: dict[str, Any] = {"n_bytes": N_BYTES, **parameters_of(args, SketchQuantizer)}
        model: Coder = SketchQuantizer(**parameters)
    elif "n_bytes" in args.settings:
        raise ValueError("--n-bits makes a hash and --n-bytes a quantizer: give one of them")
    else:
        model = SketchHash(**parameters_of(args, SketchHash))
    learn_files(args, model)


# -- transform ---------------------------------------------------------------------------------------------------------
METHODS = {"components": "transform", "scores": "score_samples", "distances": "mahalanobis"}


def transform(args: Namespace) -> None:
    """Write the answer of a model for every row: components, a density, a distance, a code or a decoded row."""
    estimator = None if comes_once(args.model) else _saved_estimator(args)
    model = load_model(args.model) if estimator is None else estimator
    if isinstance(model, SketchHash | SketchQuantizer):
        what, answers = args.what or "codes", {"codes": _encode, "rows": _decode}
        if what not in answers:
            raise ValueError(f"--what must be {' or '.join(answers)} for a {type(model).__name__}, got {what}")
        for flag, value in (("n-components", args.n_components), ("beside", args.beside)):
            if value is not None:
                raise ValueError(f"--{flag} is not for codes")
        answers[what](args, model)
        return
    if args.factors:
        raise ValueError(f"--factors is for codes of a hash: {args.model} holds a {type(model).__name__}")
    estimator, what = estimator or _estimator_of(args, model), args.what or "components"
    known = [name for name, method in METHODS.items() if hasattr(estimator, method)]
    if what not in known:
        raise ValueError(
            f"--what must be {' or '.join(known) or 'nothing'} for a {type(estimator).__name__}, got {what}"
        )
    source = rows_in(args, estimator.n_features_in_, getattr(estimator, "feature_names_in_", None))
    heads = [str(name) for name in estimator.get_feature_names_out()] if what == "components" else [what]
    heads = heads if args.beside is None else [str(args.beside), *heads]
    answer_rows(args, getattr(estimator, METHODS[what]), source, ".csv", heads, {"columns": len(heads)})


def _encode(args: Namespace, model: Coder) -> None:
    """Write the codes of the rows of files into one .npy, or a folder of Parquet."""
    if args.factors and not isinstance(model, SketchHash):
        raise ValueError(f"--factors is for codes of a hash: those of {args.model} have theirs already")
    encoder = model.encoder(factors=True) if args.factors and isinstance(model, SketchHash) else model.encoder()
    facts: dict[str, Any] = {"n_bits": model.n_bits} if isinstance(model, SketchHash) else {}
    source = rows_in(args, model.n_features, model.feature_names)
    answer_rows(args, encoder.encode, source, ".npy", facts={**facts, "bytes_per_code": encoder.width})


def _decode(args: Namespace, model: Coder) -> None:
    """Write the rows that codes stand for into one .npy, or a folder of Parquet."""
    codes = open_rows(list(args.inputs))
    encoder = model.encoder(factors=True) if isinstance(model, SketchHash) else model.encoder()
    if codes.dtype != np.uint8 or codes.n_features != encoder.width:
        made = f"codes of {codes.n_features} bytes" if codes.dtype == np.uint8 else f"rows of {codes.dtype}"
        raise ValueError(
            f"{codes.name} must hold codes of {encoder.width} bytes, as {args.model} makes them, got {made}"
        )
    answer_rows(args, encoder.decode, codes, ".npy", facts={"n_features": model.n_features})


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
        return sklearn.SketchedCovariance.from_model(model)
    return sklearn.SketchedPCA.from_model(model, n_components=args.n_components)
