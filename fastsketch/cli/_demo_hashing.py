"""The second part of the demo: learn codes of all patches, search, compare with true distances, draw."""

import time

import numpy as np

import fastsketch as fs

BITS = 64
QUERIES = 6
SHOWN = 9
# Rows that exact PCA is timed on: its cost a row is the same for all.
PEER_ROWS = 20_000
# Candidates per query: neighbours of a patch overlap it, so many are found before SHOWN that do not overlap.
CANDIDATES = 4000
# Neighbours in truth: the closest 2% by Euclidean distance, as in the paper.
TRUE_SHARE = 0.02


# What the length of a patch is compared with when it is normalised: flat ones stay near zero.
FLAT = 1.0


def normalised(rows):
    """Patches less their brightness, at about unit length: what is alike is then what they show, not the light."""
    rows = rows - rows.mean(axis=1, keepdims=True)
    return rows / (np.linalg.norm(rows, axis=1, keepdims=True) + np.float32(FLAT))


def hash_patches(patch_stream, images, side):
    """(facts, model, codes, patches to draw) for the normalised patches of images."""

    def stream():
        return map(normalised, patch_stream(images))

    model = fs.SketchHash(BITS, rotation="itq")
    seconds = 0.0
    for rows in stream():
        start = time.perf_counter()
        model.update(rows)
        seconds += time.perf_counter() - start
    n = model.n_rows
    start = time.perf_counter()
    model.projection  # noqa: B018  what is left to do once all rows are seen
    seconds += time.perf_counter() - start
    start = time.perf_counter()
    codes = np.concatenate([model.encode(rows) for rows in stream()])
    encoding = time.perf_counter() - start

    places = patch_places(images, side)
    asked = chosen_queries(images, places, side)
    rows = normalised(patches_at(images, places[asked], side))
    start = time.perf_counter()
    distances, indices = model.search(rows, codes, CANDIDATES)
    searching = time.perf_counter() - start
    found = [apart(int(query), indices[q], places, side) for q, query in enumerate(asked)]
    facts = {
        "hash_bits": BITS,
        "hash_rows_per_second": n / seconds,
        "exact_pca_rows_per_second": exact_rate(stream),
        "encode_rows_per_second": n / encoding,
        "code_bytes": codes.nbytes,
        "search_ms_per_query": 1e3 * searching / len(asked),
        "true_neighbours_found": true_share(stream, rows, indices[:, :1000], n),
    }
    facts["hash_speed_ratio"] = facts["hash_rows_per_second"] / facts["exact_pca_rows_per_second"]
    away = [dict(zip(indices[q].tolist(), distances[q].tolist(), strict=True)) for q in range(len(asked))]
    shown = [[(*places[i].tolist(), away[q].get(i, 0)) for i in keep] for q, keep in enumerate(found)]
    return facts, model, codes, shown


def patch_places(images, side):
    """(image, top, left) of every patch in the order of the stream."""
    out = []
    for number, image in enumerate(images):
        top, left = np.mgrid[: image.shape[0] - side + 1, : image.shape[1] - side + 1]
        out.append(np.stack([np.full(top.size, number), top.ravel(), left.ravel()], axis=1))
    return np.concatenate(out)


def patches_at(images, places, side):
    """Patches as rows, as the stream has them."""
    return np.stack([images[i][top : top + side, left : left + side].ravel() for i, top, left in places])


def chosen_queries(images, places, side):
    """In each third of each photograph the patch of the largest contrast, on a grid of its size."""
    out = []
    for number, image in enumerate(images):
        grid = np.flatnonzero((places[:, 0] == number) & (places[:, 1] % side == 0) & (places[:, 2] % side == 0))
        contrast = patches_at(images, places[grid], side).std(axis=1)
        third = places[grid, 2] * (QUERIES // len(images)) // image.shape[1]
        out += [grid[np.where(third == k, contrast, -1).argmax()] for k in range(QUERIES // len(images))]
    return np.array(out)


def apart(query, indices, places, side):
    """Of the patches found, in order: those that overlap neither the query nor one before."""
    kept = [query]
    for i in indices:
        same = [places[k] for k in kept if places[k][0] == places[i][0]]
        if all(max(abs(p[1] - places[i][1]), abs(p[2] - places[i][2])) >= side for p in same):
            kept.append(int(i))
        if len(kept) > SHOWN:
            break
    return kept


def exact_rate(stream):
    """Rows a second of exact PCA: a d x d sum of squares, its eigenvectors once."""
    model, rows = fs.SketchHash(BITS, "exact"), []
    for batch in stream():
        rows.append(batch)
        if sum(map(len, rows)) >= PEER_ROWS:
            break
    rows = np.concatenate(rows)[:PEER_ROWS]
    start = time.perf_counter()
    model.update(rows)
    return len(rows) / (time.perf_counter() - start)


def true_share(stream, queries, indices, n):
    """Share of the patches found that are among the closest 2% by Euclidean distance, mean over queries."""
    squares = np.concatenate([np.einsum("ij,ij->i", rows, rows) - 2 * (queries @ rows.T) for rows in stream()], axis=1)
    k = round(TRUE_SHARE * n)
    limit = np.partition(squares, k - 1, axis=1)[:, k - 1 : k]
    return float((np.take_along_axis(squares, indices, axis=1) <= limit).mean())
