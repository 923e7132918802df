"""The second part of the demo: learn codes of all patches, search, compare with true distances."""

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import fastsketch as fs
from fastsketch.demo._patches import Image, Patches

BITS = 64
QUERIES = 6
SHOWN = 9
# Rows that exact PCA is timed on: its cost a row is the same for all.
PEER_ROWS = 20_000
# Candidates per query: neighbours of a patch overlap it, so many are found before SHOWN that do not overlap.
CANDIDATES = 4000
# Neighbours in truth: the closest 2% by Euclidean distance, as in the paper.
TRUE_SHARE = 0.02
# The length that a patch is compared with when it is normalised: flat ones stay near zero.
FLAT = 1.0


class Place(NamedTuple):
    """A patch to draw."""

    image: int
    top: int
    left: int
    distance: int  # of its code from the query's


class Hashed(NamedTuple):
    """Results of this part of the demo."""

    facts: dict[str, Any]
    model: fs.SketchHash
    codes: NDArray[np.uint8]
    shown: list[list[Place]]  # a line for each query: itself, then its neighbours


def normalised(rows: Image) -> Image:
    """Patches less their brightness, at about unit length: then likeness is of content, not of light."""
    rows = rows - rows.mean(axis=1, keepdims=True)
    return rows / (np.linalg.norm(rows, axis=1, keepdims=True) + np.float32(FLAT))


def normalised_stream(patches: Patches) -> Iterator[Image]:
    """All patches, normalised."""
    return map(normalised, patches.stream())


def hash_patches(patches: Patches) -> Hashed:
    """Codes of all patches, normalised, and the neighbours of a few."""
    model = fs.SketchHash(BITS)
    seconds = 0.0
    for rows in normalised_stream(patches):
        start = time.perf_counter()
        model.update(rows)
        seconds += time.perf_counter() - start
    n = model.n_rows
    start = time.perf_counter()
    model.projection  # noqa: B018  the work that is left once all rows are there
    seconds += time.perf_counter() - start
    start = time.perf_counter()
    codes = np.concatenate([model.encode(rows) for rows in normalised_stream(patches)])
    encoding = time.perf_counter() - start

    chosen = chosen_queries(patches)
    queries = normalised(patches.at(chosen))
    start = time.perf_counter()
    distances, indices = model.search(queries, codes, k=CANDIDATES, metric="hamming")
    searching = time.perf_counter() - start
    estimated = model.search(queries, codes, k=1000)[1]  # the same codes, the queries as they are
    peer = exact_rate(patches)
    facts: dict[str, Any] = {
        "hash_bits": BITS,
        "hash_rows_per_second": n / seconds,
        "exact_pca_rows_per_second": peer,
        "encode_rows_per_second": n / encoding,
        "code_bytes": codes.nbytes,
        "search_ms_per_query": 1e3 * searching / len(chosen),
        "true_neighbours_found": true_share(patches, queries, found=indices[:, :1000]),
        "true_neighbours_of_real_queries": true_share(patches, queries, found=estimated),
        "hash_speed_ratio": n / seconds / peer,
    }
    shown: list[list[Place]] = []
    for query, near, far in zip(chosen.tolist(), indices.tolist(), distances.tolist(), strict=True):
        away = dict(zip(near, far, strict=True))
        kept = apart(patches, [query, *near])
        images, tops, lefts = patches.places[kept].T.tolist()
        shown.append([Place(*place) for place in zip(images, tops, lefts, [away.get(i, 0) for i in kept], strict=True)])
    return Hashed(facts, model, codes, shown)


def chosen_queries(patches: Patches) -> NDArray[np.intp]:
    """In each third of each photograph the patch of the largest contrast, on a grid of its size."""
    places, side = patches.places, patches.side
    of_each = QUERIES // len(patches.images)
    out: list[int] = []
    for number, image in enumerate(patches.images):
        grid = np.flatnonzero((places[:, 0] == number) & (places[:, 1] % side == 0) & (places[:, 2] % side == 0))
        contrast = patches.at(grid).std(axis=1)
        third = places[grid, 2] * of_each // image.shape[1]
        out += [int(grid[np.where(third == k, contrast, -1).argmax()]) for k in range(of_each)]
    return np.array(out)


def apart(patches: Patches, indices: list[int]) -> list[int]:
    """The first patch, and of the others, in order, those that overlap none before them, SHOWN at most."""
    places, kept = patches.places, indices[:1]
    for i in indices[1:]:
        same = [places[k] for k in kept if places[k][0] == places[i][0]]
        if all(max(abs(p[1] - places[i][1]), abs(p[2] - places[i][2])) >= patches.side for p in same):
            kept.append(i)
        if len(kept) > SHOWN:
            break
    return kept


def exact_rate(patches: Patches) -> float:
    """Rows a second of exact PCA: a d x d sum of squares."""
    rows = normalised(patches.first(PEER_ROWS))
    model = fs.SketchHash(BITS, method="exact", rotation="random")
    start = time.perf_counter()
    model.update(rows)
    return len(rows) / (time.perf_counter() - start)


def true_share(patches: Patches, queries: Image, *, found: NDArray[np.int64]) -> float:
    """Share of the patches found (queries, k) that are among the closest 2% by Euclidean distance."""
    squares = np.concatenate(
        [np.einsum("ij,ij->i", rows, rows) - 2 * (queries @ rows.T) for rows in normalised_stream(patches)], axis=1
    )
    k = round(TRUE_SHARE * patches.n_rows)
    limit = np.partition(squares, k - 1, axis=1)[:, k - 1 : k]
    return float((np.take_along_axis(squares, found, axis=1) <= limit).mean())
