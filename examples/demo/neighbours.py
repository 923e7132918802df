"""Neighbours of patches by Hamming distances of hashes, by codes with rescoring, and by exact distances."""

# matplotlib's own annotations leave many arguments without a type:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fastsketch as fs
from demo.page import Section
from demo.patches import Image, Patches, normalised, normalised_stream
from demo.plot import figure, square

BITS = 64
CODE_BYTES = 20
SHOWN = 9
QUERIES = 4
# Candidates for each query in the picture. Many neighbours overlap the patch, and only SHOWN that do not are drawn.
CANDIDATES = 4000
# Number of random queries, and of their nearest neighbours, for the measured recall.
MEASURED, NEAREST = 40, 100
OVERSAMPLE = 10
# Labels of the lines of the picture; the line breaks at the first space.
WAYS = ("Hamming, 64 bits", "codes, then rows", "in truth")
# Gap between two queries in patch heights; size of the lines and of their labels in patches.
GAP, WIDTH = 0.35, SHOWN + 1 + 2


def find_neighbours(patches: Patches, folder: Path) -> Section:
    """Measure recall and time of two searches by codes of all patches, compared with all exact distances."""
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
    hashes.save(folder / "hash.fsk")
    np.save(folder / "codes.npy", codes)

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
    shown = [
        [(name, apart(patches, [query, *ids.tolist()])) for name, ids in zip(WAYS, each, strict=True)]
        for query, *each in zip(drawn.tolist(), hamming, many, truth, strict=False)
    ]
    draw(patches, shown, folder / "neighbours.png")
    first = len(drawn)
    recalls = [recall(proposed, truth[first:]) for proposed in (hamming[first:], estimated[first:], few)]
    facts: dict[str, Any] = {
        "hash_bits": BITS,
        "quantizer_bytes": CODE_BYTES,
        "quantizer_rows_per_second": patches.n_rows / seconds,
        "encode_rows_per_second": patches.n_rows / encoding,
        "code_bytes": CODE_BYTES * patches.n_rows,
        "search_ms_per_query": 1e3 * searching / len(measured),
        "neighbour_queries": len(measured),
        "neighbours_wanted": NEAREST,
        "hamming_recall": recalls[0],
        "codes_recall": recalls[1],
        "rescored_recall": recalls[2],
    }
    return Section(
        "Neighbours: codes propose, rows decide",
        "neighbours.png",
        "For each of four patches three lines of neighbours: those by Hamming distance are loosely alike, those by "
        "codes and rows are the same as the true ones, framed in green, but for a few.",
        [
            ("codes of all patches", f"{facts['code_bytes'] / 1e6:.1f} MB"),
            (f"of the {NEAREST} nearest, by {BITS} bits", f"{recalls[0]:.0%}"),
            (f"by {CODE_BYTES}-byte codes alone", f"{recalls[1]:.0%}"),
            ("codes, then rows", f"{recalls[2]:.1%}"),
            ("a query", f"{facts['search_ms_per_query']:.1f} ms"),
            ("rows learned a second", f"{patches.n_rows / seconds:,.0f}"),
        ],
        f"A code of {CODE_BYTES} bytes estimates distances well enough to propose {OVERSAMPLE * NEAREST:,} of "
        f"{patches.n_rows:,} patches. Their rows are read, and their true distances decide.",
        f"Measured on {len(measured)} patches drawn at random, against all distances. Estimates have no "
        "bound; how many of the nearest are found depends on the rows: measure it on yours.",
        [
            ("nearest neighbours", "jobs/neighbours.md"),
            ("what an estimate means", "choices/neighbours.md#what-an-estimate-means"),
        ],
        facts,
    )


def draw(patches: Patches, shown: list[list[tuple[str, list[int]]]], path: Path) -> None:
    """Draw three lines for each query: the query and its neighbours by hashes, by rescored codes, and exactly."""
    lines = [(*line, set(ways[-1][1])) for ways in shown for line in ways]
    heights = np.arange(len(lines)) + GAP * (np.arange(len(lines)) // len(WAYS))
    made, axes = figure(figsize=(7.5, 7.2 / WIDTH * (heights[-1] + 1) + 0.4))
    for top, (name, ids, true) in zip(heights, lines, strict=True):
        for column, patch in enumerate(patches.at(np.array(ids)).reshape(-1, patches.side, patches.side, 3)):
            extent = (column + 0.04, column + 0.96, top + 0.96, top + 0.04)
            axes.imshow(patch, extent=extent, interpolation="nearest", aspect="auto")
            if column == 0 or (name != WAYS[-1] and ids[column] in true):
                colour = "tab:red" if column == 0 else "tab:green"
                axes.add_patch(square(column + 0.04, top + 0.04, 0.92, lw=2, ec=colour))
        axes.text(SHOWN + 1.15, top + 0.5, name.replace(" ", "\n", 1), va="center", fontsize=10)
    axes.set_xlim(0, WIDTH)
    axes.set_ylim(heights[-1] + 1, 0)
    axes.set_axis_off()
    axes.set_title("red: queries, then their nearest; green: among the nearest in truth", fontsize=10)
    made.savefig(path, dpi=120)


def nearest(patches: Patches, queries: Image, k: int) -> NDArray[np.int64]:
    """Return the exact k nearest patches of each query (n, k), nearest first."""
    squares = np.concatenate(
        [np.einsum("ij,ij->i", rows, rows) - 2 * (queries @ rows.T) for rows in normalised_stream(patches)], axis=1
    )
    some = np.argpartition(squares, k - 1, axis=1)[:, :k]
    order = np.take_along_axis(squares, some, axis=1).argsort(axis=1, kind="stable")
    return np.take_along_axis(some, order, axis=1)


def recall(proposed: NDArray[np.int64], truth: NDArray[np.int64]) -> float:
    """Return the recall: the share of the exact NEAREST neighbours among the first NEAREST that were found."""
    pairs = zip(proposed[:, :NEAREST], truth[:, :NEAREST], strict=True)
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
    """Select at most SHOWN patches in order, the first one and those that overlap no patch selected before."""
    spots, kept = patches.places, [indices[0]]
    for i in indices[1:]:
        same = [spots[k] for k in kept if spots[k][0] == spots[i][0]]
        if all(max(abs(p[1] - spots[i][1]), abs(p[2] - spots[i][2])) >= patches.side for p in same):
            kept.append(i)
        if len(kept) > SHOWN:
            break
    return kept
