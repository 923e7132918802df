"""hash, quantize and encode."""

import time
from argparse import Namespace
from typing import Any

import numpy as np

from fastsketch.cli._appending import npy_rows
from fastsketch.cli._in_parts import learn_in_parts, rows_of
from fastsketch.cli._job import given, limited
from fastsketch.cli._models import load_model
from fastsketch.cli._output import output_of
from fastsketch.cli._progress import Progress
from fastsketch.cli._reading import open_all
from fastsketch.cli._report import report
from fastsketch.hashing import SketchHash
from fastsketch.io import StateError
from fastsketch.quantizing import SketchQuantizer
from fastsketch.sources import naming

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
    """Codes of the rows of files into one .npy."""
    with output_of(args, ".npy") as out:
        model = load_coder(args.model)
        options: dict[str, Any] = {}
        if args.factors:
            if not isinstance(model, SketchHash):
                raise ValueError(f"--factors is for codes of a hash: those of {args.model} have theirs already")
            options["factors"] = True
        width = model.encode(np.empty((0, model.n_features or 0)), **options).shape[1]
        sources = open_all(args.inputs, model.n_features, zero_based=args.zero_based)
        total, before, rows = sum(source.size for source in sources) or 1, 0, 0
        progress, started = Progress(out.title, args.progress), time.perf_counter()
        with limited(args.threads), out.writing() as file, npy_rows(file, np.uint8, width) as append:
            for source in sources:
                row = 0
                for chunk, position in source.chunks():
                    with naming(source, row):
                        append(model.encode(chunk, **options))
                    row += chunk.shape[0]
                    progress.show((before + position) / total, rows + row)
                before += source.size
                rows += row
        progress.show(1.0, rows, final=True)
        seconds = time.perf_counter() - started
        facts: dict[str, Any] = {"n_rows": rows}
        if isinstance(model, SketchHash):
            facts["n_bits"] = model.n_bits
        facts |= {"bytes_per_code": width, "seconds": seconds, "rows_per_second": rows / seconds}
        report(args, {**facts, "output": args.output}, out)
