"""hash, quantize and encode."""

from argparse import Namespace
from typing import Any

from fastsketch.cli._in_parts import learn_in_parts, rows_of
from fastsketch.cli._job import given
from fastsketch.cli._models import load_model
from fastsketch.cli._output import output_of
from fastsketch.cli._reading import rows_in
from fastsketch.cli._report import report
from fastsketch.cli._row_by_row import named_output, suffix_of, timed, write_answers
from fastsketch.hashing import SketchHash
from fastsketch.io import StateError
from fastsketch.quantizing import SketchQuantizer

Coder = SketchHash | SketchQuantizer


def hash_rows(args: Namespace) -> None:
    """Learn hash functions from files into one state file, with checkpoints."""
    _learn(args, SketchHash(**given(args)))


def quantize(args: Namespace) -> None:
    """Learn a quantizer from files into one state file, with checkpoints."""
    _learn(args, SketchQuantizer(**given(args)))


def _learn(args: Namespace, model: Coder) -> None:
    with output_of(args) as out:
        report(args, learn_in_parts(args, model, out, rows_of(args)), out)


def load_coder(path: str) -> Coder:
    """The model of 'hash' or 'quantize' in a file."""
    model = load_model(path)
    if not isinstance(model, SketchHash | SketchQuantizer):
        raise StateError(f"{path} holds a {type(model).__name__}, not a SketchHash or a SketchQuantizer")
    return model


def encode(args: Namespace) -> None:
    """Codes of the rows of files into one .npy, or a folder of Parquet."""
    suffix = suffix_of(args.output, ".npy")
    with output_of(args, suffix, name=named_output(args)) as out:
        model = load_coder(args.model)
        if args.factors and not isinstance(model, SketchHash):
            raise ValueError(f"--factors is for codes of a hash: those of {args.model} have theirs already")
        encoder = model.encoder(factors=True) if args.factors and isinstance(model, SketchHash) else model.encoder()
        source = rows_in(args, model.n_features, model.feature_names)
        found = write_answers(args, out, encoder.encode, source, suffix)
        facts: dict[str, Any] = {"n_rows": found.n_rows}
        if isinstance(model, SketchHash):
            facts["n_bits"] = model.n_bits
        facts |= {"bytes_per_code": encoder.width, **timed(found)}
        report(args, {**facts, "output": args.output}, out)
