"""search, and what it shares with a search of an index."""

import json
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch._validation import as_integer
from fastsketch.cli._coding import load_coder
from fastsketch.cli._job import limited
from fastsketch.cli._output import Output, output_of
from fastsketch.cli._reading import how_read
from fastsketch.cli._report import report
from fastsketch.io import SourceError
from fastsketch.sources import naming, open_rows
from fastsketch.sources._npy import read_npy_header

Found = tuple[NDArray[Any], NDArray[np.int64]]


def search(args: Namespace) -> None:
    """Nearest codes of the rows of a file."""
    with output_of(args, ".npz") as out:
        model = load_coder(args.model)
        codes = matrix(args.codes, np.uint8)
        options = {**asked(args), "metric": args.metric}
        if args.rescore:
            options["rescore"] = matrix(args.rescore)
        if args.ids:
            options["ids"] = read_ids(args.ids)
        facts = {"codes": len(codes), "metric": args.metric}
        answer(args, out, model.n_features, lambda rows: model.search(rows, codes, **options), facts)


def asked(args: Namespace) -> dict[str, Any]:
    """The arguments that every search takes."""
    as_integer(args.k, "-k", 1)
    as_integer(args.show, "--show", 0)
    options = {"k": args.k, "oversample": args.oversample}
    return {**options, "allow": read_ids(args.allow)} if args.allow else options


def answer(
    args: Namespace, out: Output, n_features: int | None, find: Callable[[Any], Found], facts: dict[str, Any]
) -> None:
    """Search for the rows of args.queries, then print and save what was found."""
    source = open_rows(args.queries, **how_read(args, n_features))
    found: list[Found] = []
    row, seconds = 0, 0.0
    with limited(args.threads):
        for chunk, _ in source.chunks():
            started = time.perf_counter()
            try:
                found.append(find(chunk))
            except ValueError as error:
                if not str(error).startswith("queries"):  # it is about the codes, or what else was given
                    raise
                with naming(source, row):
                    raise
            seconds += time.perf_counter() - started
            row += chunk.shape[0]
    if not found:
        found = [find(np.empty((0, source.n_features)))]
    distances, indices = (np.concatenate(part) for part in zip(*found, strict=True))
    facts = {"queries": row, **facts, "seconds": seconds}
    if args.output:
        with out.writing() as file:
            np.savez(file, indices=indices, distances=distances)
        facts["output"] = args.output
    if args.json:
        out.say(json.dumps({**facts, "indices": indices.tolist(), "distances": distances.tolist()}))
        return
    report(args, facts, out)
    for query in range(min(args.show, row)):
        near = "  ".join(f"{i} ({d:.6g})" for i, d in zip(indices[query], distances[query], strict=True))
        out.say(f"  query {query}: {near}")


# -- arrays in files ---------------------------------------------------------------------------------------------------
def matrix(path: str, dtype: Any = None) -> NDArray[Any]:
    """A C-ordered matrix of an .npy file, mapped; of one dtype if it is given."""
    header = _header(path)
    wanted = header.dtype if dtype is None else np.dtype(dtype)
    if header.dtype != wanted or len(header.shape) != 2 or header.fortran:
        what = "a matrix" if dtype is None else f"a matrix of {wanted}"
        how = ", Fortran-ordered" if header.fortran else ""
        raise SourceError(f"{path} must hold {what}, a row after the other, got {header.dtype} {header.shape}{how}")
    return _mapped(path, header)


def read_ids(path: str) -> NDArray[Any]:
    """Integers of an .npy file, or of text with one in every line."""
    if path.endswith(".npy"):
        header = _header(path)
        if header.dtype.kind not in "iu" or len(header.shape) != 1:
            raise SourceError(f"{path} must hold one integer for each row, got {header.dtype} {header.shape}")
        return np.array(_mapped(path, header))
    found: list[int] = []
    try:
        with Path(path).open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                try:
                    found.append(int(line))
                except ValueError:
                    text = line.strip()[:40]
                    raise SourceError(f"{path}, line {number}: an id must be an integer, got {text!r}") from None
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise SourceError(f"{path} must be text with an integer in every line, or an .npy file") from None
    try:
        return np.array(found, np.int64)
    except OverflowError:
        raise SourceError(f"{path}: ids must be integers of 64 bits") from None


def _header(path: str) -> Any:
    try:
        return read_npy_header(Path(path))
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror or error}") from None


def _mapped(path: str, header: Any) -> NDArray[Any]:
    shape: tuple[int, ...] = header.shape
    found: NDArray[Any] = (
        np.memmap(path, header.dtype, "r", header.offset, shape)
        if all(shape)  # or there is nothing to map
        else np.empty(shape, header.dtype)
    )
    return found
