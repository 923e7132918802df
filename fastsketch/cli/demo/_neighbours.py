"""Neighbours of a patch: by Hamming distance of its bits, by codes and then rows, and in truth."""

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import fastsketch as fs
from fastsketch.cli.demo._patches import Image, Patches, normalised, normalised_stream

BITS = 64
CODE_BYTES = 20
SHOWN = 9
QUERIES = 4
# Candidates per query that is drawn: neighbours of a patch overlap it, so many are found before SHOWN that do not.
CANDIDATES = 4000
# Queries drawn at random, and of their nearest so many, for the figures.
MEASURED, NEAREST = 40, 100
OVERSAMPLE = 10
# What a line of the picture shows; the first blank breaks it.
HAMMING, RESCORED, TRUE = "Hamming, 64 bits", "codes, then rows", "in truth"


class PatchPlace(NamedTuple):
    """A patch to draw."""

    image: int
    top: int
    left: int


class PatchNeighbours(NamedTuple):
    """Results of this part of the demo."""

    facts: dict[str, Any]
    hashes: fs.SketchHash
    codes: NDArray[np.uint8]
    shown: list[dict[str, list[PatchPlace]]]  # of each query, by way: the query, then its neighbours


def find_neighbours(patches: Patches) -> PatchNeighbours:
    """Return codes of all patches, normalised, two ways to search them, and all distances beside."""
    hashes, quantizer, seconds = fs.SketchHash(BITS), fs.SketchQuantizer(CODE_BYTES), 0.0
    for rows in normalised_stream(patches):
        hashes.update(rows)
        start = time.perf_counter()
        quantizer.update(rows)
        seconds += time.perf_counter() - start
    index, encoding = fs.CodeIndex(quantizer), 0.0
    bits: list[NDArray[np.uint8]] = []
    for rows in normalised_stream(patches):
        bits.append(hashes.encode(rows))
        start = time.perf_counter()
        index.add(rows)
        encoding += time.perf_counter() - start
    codes = np.concatenate(bits)

    def rows_of(ids: NDArray[np.int64]) -> Image:
        return normalised(patches.at(ids))

    drawn = chosen_queries(patches)
    measured = np.random.default_rng(0).choice(patches.n_rows, min(MEASURED, patches.n_rows), replace=False)
    numbers = np.concatenate([drawn, measured])
    queries = rows_of(numbers)
    k = min(CANDIDATES, patches.n_rows)
    truth = nearest(patches, queries, k)
    hamming = hashes.search(queries, codes, k=k, metric="hamming")[1]
    estimated = index.search(queries, k=NEAREST)[1]
    start = time.perf_counter()
    few = index.search(queries[len(drawn) :], k=NEAREST, rescore=rows_of, oversample=OVERSAMPLE)[1]
    searching = time.perf_counter() - start
    many = index.search(queries[: len(drawn)], k=k, rescore=rows_of, oversample=1)[1]
    facts: dict[str, Any] = {
        "hash_bits": BITS,
        "quantizer_bytes": CODE_BYTES,
        "quantizer_rows_per_second": patches.n_rows / seconds,
        "encode_rows_per_second": patches.n_rows / encoding,
        "code_bytes": CODE_BYTES * patches.n_rows,
        "search_ms_per_query": 1e3 * searching / len(measured),
        "neighbour_queries": len(measured),
        "neighbours_wanted": NEAREST,
        "hamming_recall": recall(hamming[len(drawn) :], truth[len(drawn) :]),
        "codes_recall": recall(estimated[len(drawn) :], truth[len(drawn) :]),
        "rescored_recall": recall(few, truth[len(drawn) :]),
    }
    shown: list[dict[str, list[PatchPlace]]] = []
    for i, query in enumerate(drawn.tolist()):
        ways = {HAMMING: hamming[i], RESCORED: many[i], TRUE: truth[i]}
        shown.append({name: places(patches, apart(patches, [query, *ids.tolist()])) for name, ids in ways.items()})
    return PatchNeighbours(facts, hashes, codes, shown)


def nearest(patches: Patches, queries: Image, k: int) -> NDArray[np.int64]:
    """Return the k nearest patches of each query (n, k), nearest first: all distances."""
    squares = np.concatenate(
        [np.einsum("ij,ij->i", rows, rows) - 2 * (queries @ rows.T) for rows in normalised_stream(patches)], axis=1
    )
    some = np.argpartition(squares, k - 1, axis=1)[:, :k]
    order = np.take_along_axis(squares, some, axis=1).argsort(axis=1, kind="stable")
    return np.take_along_axis(some, order, axis=1)


def recall(found: NDArray[np.int64], truth: NDArray[np.int64]) -> float:
    """Return the share of the NEAREST nearest in truth that are among the first NEAREST found."""
    pairs = zip(found[:, :NEAREST], truth[:, :NEAREST], strict=True)
    return float(np.mean([np.isin(true, some).mean() for some, true in pairs]))


def chosen_queries(patches: Patches) -> NDArray[np.intp]:
    """Return in each half of each photograph the patch of the largest contrast, on a grid of its size."""
    spots, side = patches.places, patches.side
    of_each = QUERIES // len(patches.images)
    out: list[int] = []
    for number, image in enumerate(patches.images):
        grid = np.flatnonzero((spots[:, 0] == number) & (spots[:, 1] % side == 0) & (spots[:, 2] % side == 0))
        contrast = patches.at(grid).std(axis=1)
        part = spots[grid, 2] * of_each // image.shape[1]
        out += [int(grid[np.where(part == k, contrast, -1).argmax()]) for k in range(of_each)]
    return np.array(out)


def apart(patches: Patches, indices: Sequence[int]) -> list[int]:
    """Return the first patch, and of the others, in order, those that overlap none before them, SHOWN at most."""
    spots, kept = patches.places, [indices[0]]
    for i in indices[1:]:
        same = [spots[k] for k in kept if spots[k][0] == spots[i][0]]
        if all(max(abs(p[1] - spots[i][1]), abs(p[2] - spots[i][2])) >= patches.side for p in same):
            kept.append(i)
        if len(kept) > SHOWN:
            break
    return kept


def places(patches: Patches, indices: Sequence[int]) -> list[PatchPlace]:
    """Return where patches are."""
    return [PatchPlace(*patches.places[i].tolist()) for i in indices]
