"""Models of codes: what quantize learns, and what transform and search do with it."""

import time
from argparse import Namespace
from typing import Any

import numpy as np

from fastsketch._core.progress import ProgressLine
from fastsketch.cli._arrays_in_files import matrix
from fastsketch.cli._flags import parameters_of
from fastsketch.cli._in_parts import learn_in_parts, rows_of
from fastsketch.cli._job import limited
from fastsketch.cli._models import load_model
from fastsketch.cli._output import output_of
from fastsketch.cli._reading import rows_in
from fastsketch.cli._report import report
from fastsketch.cli._row_by_row import named_output, suffix_of, timed, write_answers
from fastsketch.data.files import StateError
from fastsketch.jobs._fields import Spec
from fastsketch.jobs._outputs import npy_header
from fastsketch.neighbours.hashing import SketchHash
from fastsketch.neighbours.quantizing import SketchQuantizer

Coder = SketchHash | SketchQuantizer
# Bytes of a code, unless it is to be of bits.
N_BYTES = 20
# Of decoded rows that are written at a time.
CHUNK_BYTES = 8 << 20


def quantize(args: Namespace) -> None:
    """Learn a quantizer, or with --n-bits a hash, from files into one state file, with checkpoints."""
    if "n_bits" not in args.settings:
        parameters: dict[str, Any] = {"n_bytes": N_BYTES, **parameters_of(args, SketchQuantizer)}
        model: Coder = SketchQuantizer(**parameters)
    elif "n_bytes" in args.settings:
        raise ValueError("--n-bits makes a hash and --n-bytes a quantizer: give one of them")
    else:
        model = SketchHash(**parameters_of(args, SketchHash))
    with output_of(args) as out:
        report(args, learn_in_parts(args, model, out, rows_of(args)), out)


def load_coder(path: str) -> Coder:
    """Return the model of 'quantize' in a file."""
    return as_coder(load_model(path), path)


def as_coder(model: Any, path: str) -> Coder:
    """Return a model that makes codes as such; StateError for any other."""
    if not isinstance(model, SketchHash | SketchQuantizer):
        raise StateError(f"{path} holds a {type(model).__name__}, not a SketchHash or a SketchQuantizer")
    return model


def encode(args: Namespace, model: Coder) -> None:
    """Write the codes of the rows of files into one .npy, or a folder of Parquet."""
    suffix = suffix_of(args.output, ".npy")
    with output_of(args, suffix, name=named_output(args)) as out:
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


def decode(args: Namespace, model: Coder) -> None:
    """Write the rows that codes stand for into one .npy."""
    if len(args.inputs) > 1:
        raise ValueError(f"--what rows takes one file of codes, got {len(args.inputs)}")
    if args.resume:
        raise ValueError("--resume does not go with --what rows, which keeps no parts")
    with output_of(args, ".npy") as out:
        codes = matrix(args.inputs[0], np.uint8)
        encoder = model.encoder(factors=True) if isinstance(model, SketchHash) else model.encoder()
        if codes.shape[1] != encoder.width:
            raise ValueError(f"{args.inputs[0]} has codes of {codes.shape[1]} bytes, {args.model} of {encoder.width}")
        d = model.n_features or 0
        step = max(1, CHUNK_BYTES // (4 * d))
        progress, started = ProgressLine(out.title, args.progress), time.perf_counter()
        rows_as = Spec(("",), (np.dtype(np.float32).str,), ((d,),))
        with limited(args.threads), out.writing() as file:
            file.write(npy_header(rows_as, len(codes)))
            for start in range(0, len(codes), step):
                rows = encoder.decode(np.array(codes[start : start + step]))
                file.write(np.ascontiguousarray(rows, np.float32).tobytes())
                progress.show(start / len(codes), start)
        progress.show(1.0, len(codes), final=True)
        seconds = time.perf_counter() - started
        report(args, {"n_rows": len(codes), "n_features": d, "seconds": seconds, "output": args.output}, out)
