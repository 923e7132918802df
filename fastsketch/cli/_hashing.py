"""hash, encode and search."""

import contextlib
import json
import time
from pathlib import Path

import numpy as np

import fastsketch as fs
from fastsketch._validation import as_integer
from fastsketch.cli._commands import describe
from fastsketch.cli._job import learn, limited, load_model, report, writable
from fastsketch.cli._progress import Progress
from fastsketch.hashing import SketchHash
from fastsketch.io import open_source
from fastsketch.io._replacing import replacing
from fastsketch.io._sources import SourceError


def hash_rows(args):
    """Learn hash functions from files into one state file, with checkpoints."""
    model = SketchHash(
        args.bits,
        args.sketch,
        args.sketch_size,
        args.block_rows,
        None if args.rotation == "none" else args.rotation,
        args.seed,
        part=args.part,
        dtype=args.dtype,
    )
    report(args, learn(args, model, describe))


def encode(args):
    """Codes of the rows of files into one .npy."""
    writable(args.output)
    model = load_model(args.model, (SketchHash,))
    sources = [open_source(path, n_features=model.n_features, zero_based=args.zero_based) for path in args.inputs]
    total, before, rows = sum(source.size for source in sources) or 1, 0, 0
    progress, started = Progress(Path(args.output).name, args.progress), time.perf_counter()
    with limited(args.threads), codes_file(args.output, -(-model.n_bits // 8)) as append:
        for path, source in zip(args.inputs, sources, strict=True):
            for chunk, position in source.chunks():
                try:
                    append(model.encode(chunk))
                except ValueError as error:
                    raise ValueError(f"{path}, after row {rows}: {error}") from None
                rows += chunk.shape[0]
                progress.show((before + position) / total, rows)
            before += source.size
    progress.show(1.0, rows, final=True)
    seconds = time.perf_counter() - started
    report(
        args,
        {
            "rows": rows,
            "bits": model.n_bits,
            "bytes_per_code": -(-model.n_bits // 8),
            "seconds": seconds,
            "rows_per_second": rows / seconds,
            "output": args.output,
        },
    )


@contextlib.contextmanager
def codes_file(path, width):
    """A function that appends codes to an .npy of as yet unknown length; the file appears when all is written."""
    with replacing(path) as file:
        n = 0

        def header():
            about = {"descr": "|u1", "fortran_order": False, "shape": (n, width)}
            np.lib.format.write_array_header_1_0(file, about)
            return file.tell()

        start = header()

        def append(codes):
            nonlocal n
            file.write(codes.tobytes())
            n += len(codes)

        yield append
        file.seek(0)
        if header() != start:  # numpy leaves room for 21 digits
            raise OSError("the header of the codes did not fit its place")


def read_codes(path, width):
    """The codes that ``encode`` wrote, (n, width)."""
    try:
        codes = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise SourceError(f"{path} cannot be read as codes: {error}") from None
    if codes.dtype != np.uint8 or codes.ndim != 2 or codes.shape[1] != width:
        raise SourceError(f"{path} must hold uint8 codes of {width} bytes, got {codes.dtype} {codes.shape}")
    return codes


def search(args):
    """Nearest codes of the rows of a file."""
    as_integer(args.k, "-k", 1)
    as_integer(args.show, "--show", 0)
    if args.output:
        writable(args.output)
    model = load_model(args.model, (SketchHash,))
    codes = read_codes(args.codes, -(-model.n_bits // 8))
    source = open_source(args.queries, n_features=model.n_features, zero_based=args.zero_based)
    with limited(args.threads):
        asked = [model.encode(chunk) for chunk, _ in source.chunks()]
        asked = np.concatenate(asked) if asked else np.empty((0, codes.shape[1]), np.uint8)
        started = time.perf_counter()
        distances, indices = fs.hamming_topk(asked, codes, args.k)
        seconds = time.perf_counter() - started
    if args.output:
        with replacing(args.output) as file:
            np.savez(file, indices=indices, distances=distances)
    facts = {"queries": len(asked), "codes": len(codes), "bits": model.n_bits, "seconds": seconds}
    if args.output:
        facts["output"] = args.output
    if args.json:
        print(json.dumps({**facts, "indices": indices.tolist(), "distances": distances.tolist()}))
        return
    report(args, facts)
    for query in range(min(args.show, len(asked))):
        found = "  ".join(f"{i} ({d})" for i, d in zip(indices[query], distances[query], strict=True))
        print(f"  query {query}: {found}")
