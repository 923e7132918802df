"""search: the nearest rows of an index, or codes of a model."""

import time
from argparse import Namespace
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.validation import as_integer
from fastsketch.cli._coding import NO_CODER, Coder
from fastsketch.cli._output import Output, output_of
from fastsketch.cli._reading import how_read, load_model, matrix, read_ids
from fastsketch.data.sources import naming, open_rows
from fastsketch.neighbours.index import CodeIndex

Neighbours = tuple[NDArray[Any], NDArray[np.int64]]


def search(args: Namespace) -> None:
    """Find the rows of an index, or the codes of a model, nearest to the rows of a file."""
    with output_of(args, ".npz") as out:
        as_integer(args.k, "-k", 1)
        as_integer(args.show, "--show", 0)
        options: dict[str, Any] = {"k": args.k, "oversample": args.oversample}
        if args.allow:
            options["allow"] = read_ids(args.allow)
        if args.rescore is not None:
            options["rescore"] = False if args.rescore == "none" else matrix(args.rescore)
        if args.probes is not None:
            options["probes"] = args.probes
        model = load_model(args.where, Coder | CodeIndex, NO_CODER)
        if isinstance(model, CodeIndex):
            _search_index(args, out, model, options)
        else:
            _search_codes(args, out, model, options)


def _search_codes(args: Namespace, out: Output, model: Coder, options: dict[str, Any]) -> None:
    if args.codes is None:
        raise ValueError(f"{args.where} is a model: --codes CODES.npy says among which codes it searches")
    if args.probes is not None:
        raise ValueError(f"--probes is for an index in cells: {args.where} is a model")
    codes = matrix(args.codes, np.uint8)
    options["metric"] = args.metric or "euclidean"
    if options.get("rescore") is False:
        del options["rescore"]
    if args.ids:
        options["ids"] = read_ids(args.ids)
    facts = {"codes": len(codes), "metric": options["metric"]}
    answer(args, out, model.n_features, lambda rows: model.search(rows, codes, **options), facts)


def _search_index(args: Namespace, out: Output, index: CodeIndex, options: dict[str, Any]) -> None:
    for flag in ("codes", "ids", "metric"):
        if getattr(args, flag) is not None:
            raise ValueError(f"--{flag} is for a model and its codes: {args.where} is an index, which has its own")

    def find(rows: Any) -> Neighbours:
        try:
            distances, ids = index.search(rows, **options, pad=False)
            named: Any = ids.astype(np.str_) if ids.dtype == object else ids
            return distances, named
        except IndexError as error:
            raise ValueError(str(error)) from None

    answer(args, out, index.n_features, find, {"n_rows": len(index), "metric": index.metric})


def answer(
    args: Namespace, out: Output, n_features: int | None, find: Callable[[Any], Neighbours], facts: dict[str, Any]
) -> None:
    """Search for the rows of args.queries, then print and save what it gives."""
    source = open_rows(args.queries, **how_read(args, n_features))
    answers: list[Neighbours] = []
    row, seconds = 0, 0.0
    for chunk, _ in source.chunks():
        started = time.perf_counter()
        try:
            answers.append(find(chunk))
        except ValueError as error:
            if not str(error).startswith("queries"):  # it is about the codes, or what else was given
                raise
            with naming(source, row):
                raise
        seconds += time.perf_counter() - started
        row += chunk.shape[0]
    answers = answers or [find(np.empty((0, source.n_features)))]
    distances, indices = (np.concatenate(part) for part in zip(*answers, strict=True))
    facts = {"queries": row, **facts, "seconds": seconds}
    if args.output:
        with out.writing() as file:
            np.savez(file, indices=indices, distances=distances)
    if args.json:
        out.report({**facts, "indices": indices.tolist(), "distances": distances.tolist()})
        return
    out.report(facts)
    for query in range(min(args.show, row)):
        near = "  ".join(f"{i} ({d:.6g})" for i, d in zip(indices[query], distances[query], strict=True))
        out.say(f"  query {query}: {near}")
