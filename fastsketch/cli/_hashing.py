"""hash, encode and search."""

import json
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fastsketch as fs
from fastsketch._validation import as_integer
from fastsketch.cli._appending import npy_rows
from fastsketch.cli._job import given, learn, limited, naming
from fastsketch.cli._output import output_of
from fastsketch.cli._progress import Progress
from fastsketch.cli._report import report
from fastsketch.hashing import SketchHash
from fastsketch.io import SourceError, open_source
from fastsketch.io._sources import read_npy_header

Codes = NDArray[np.uint8]


def hash_rows(args: Namespace) -> None:
    """Learn hash functions from files into one state file, with checkpoints."""
    with output_of(args) as out:
        _, facts = learn(args, SketchHash(**given(args)), out)
        report(args, facts, out)


def encode(args: Namespace) -> None:
    """Codes of the rows of files into one .npy."""
    with output_of(args, ".npy") as out:
        model = SketchHash.load(args.model)
        width = -(-model.n_bits // 8)
        sources = [open_source(path, n_features=model.n_features, zero_based=args.zero_based) for path in args.inputs]
        total, before, rows = sum(source.size for source in sources) or 1, 0, 0
        progress, started = Progress(out.title, args.progress), time.perf_counter()
        with limited(args.threads), out.writing() as file, npy_rows(file, np.uint8, width) as append:
            for source in sources:
                row = 0
                for chunk, position in source.chunks():
                    with naming(source, row):
                        append(model.encode(chunk))
                    row += chunk.shape[0]
                    progress.show((before + position) / total, rows + row)
                before += source.size
                rows += row
        progress.show(1.0, rows, final=True)
        seconds = time.perf_counter() - started
        report(
            args,
            {
                "n_rows": rows,
                "n_bits": model.n_bits,
                "bytes_per_code": width,
                "seconds": seconds,
                "rows_per_second": rows / seconds,
                "output": args.output,
            },
            out,
        )


def read_codes(path: str, width: int) -> Codes:
    """The codes that ``encode`` wrote, (n, width)."""
    try:
        header = read_npy_header(Path(path))
        if header.dtype != np.uint8 or len(header.shape) != 2 or header.shape[1] != width or header.fortran:
            raise SourceError(f"{path} must hold uint8 codes of {width} bytes, got {header.dtype} {header.shape}")
        if header.shape[0] == 0:  # nothing to map
            return np.empty(header.shape, np.uint8)
        return np.memmap(path, np.uint8, "r", header.offset, header.shape)
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror or error}") from None


def search(args: Namespace) -> None:
    """Nearest codes of the rows of a file."""
    as_integer(args.k, "-k", 1)
    as_integer(args.show, "--show", 0)
    with output_of(args, ".npz") as out:
        model = SketchHash.load(args.model)
        codes = read_codes(args.codes, -(-model.n_bits // 8))
        source = open_source(args.queries, n_features=model.n_features, zero_based=args.zero_based)
        encoded: list[Codes] = []
        with limited(args.threads):
            for chunk, _ in source.chunks():
                with naming(source, sum(map(len, encoded))):
                    encoded.append(model.encode(chunk))
            queries = np.concatenate(encoded) if encoded else np.empty((0, codes.shape[1]), np.uint8)
            started = time.perf_counter()
            distances, indices = fs.hamming_topk(queries, codes, k=args.k)
            seconds = time.perf_counter() - started
        facts: dict[str, Any] = {
            "queries": len(queries),
            "codes": len(codes),
            "n_bits": model.n_bits,
            "seconds": seconds,
        }
        if args.output:
            with out.writing() as file:
                np.savez(file, indices=indices, distances=distances)
            facts["output"] = args.output
        if args.json:
            out.say(json.dumps({**facts, "indices": indices.tolist(), "distances": distances.tolist()}))
            return
        report(args, facts, out)
        for query in range(min(args.show, len(queries))):
            found = "  ".join(f"{i} ({d})" for i, d in zip(indices[query], distances[query], strict=True))
            out.say(f"  query {query}: {found}")
