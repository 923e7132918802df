"""decode: what codes stand for."""

import time
from argparse import Namespace

import numpy as np

from fastsketch.cli._coding import load_coder
from fastsketch.cli._job import limited
from fastsketch.cli._output import output_of
from fastsketch.cli._report import report
from fastsketch.cli._searching import matrix
from fastsketch.hashing import SketchHash
from fastsketch.jobs._fields import Spec
from fastsketch.jobs._outputs import npy_header
from fastsketch.jobs._progress import Line as Progress

# Of decoded rows that are written at a time.
CHUNK_BYTES = 8 << 20


def decode(args: Namespace) -> None:
    """The rows that codes stand for, into one .npy."""
    with output_of(args, ".npy") as out:
        model = load_coder(args.model)
        codes = matrix(args.codes, np.uint8)
        encoder = model.encoder(factors=True) if isinstance(model, SketchHash) else model.encoder()
        if codes.shape[1] != encoder.width:
            raise ValueError(f"{args.codes} has codes of {codes.shape[1]} bytes, {args.model} of {encoder.width}")
        d = model.n_features or 0
        step = max(1, CHUNK_BYTES // (4 * d))
        progress, started = Progress(out.title, args.progress), time.perf_counter()
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
