"""Codes of rows whose distribution moves: one generation of codes against several, old rows and new ones."""

import numpy as np
from scipy.linalg import expm

import fastsketch as fs
from bench_code_sets import nearest
from bench_tools import few, table

N_FEATURES, N_BYTES = 128, 16
# Parts of the stream, and how many of them a generation lasts.
PARTS, GENERATION = 10, 2
QUERIES = 200


def stream(n, seed=0):
    """`PARTS` pieces of n rows and of QUERIES: clusters with falling variances, that turn and move from part to part.

    Within a part as `generated` of the sets. From the first to the last part the rotation goes by up to a right angle
    in every plane of a random set, and the mean by the length of a row.
    """
    rng = np.random.default_rng(seed)
    d = N_FEATURES
    scale = np.arange(1, d + 1) ** -0.5
    centres = scale * rng.standard_normal((200, d))
    spread = 0.7 * scale * np.exp(0.5 * rng.standard_normal((200, d)))
    base = np.linalg.qr(rng.standard_normal((d, d)))[0]
    planes = np.linalg.qr(rng.standard_normal((d, d)))[0]
    skew = np.zeros((d, d))
    pairs = np.arange(0, d, 2)
    skew[pairs, pairs + 1] = np.pi / 2 / (PARTS - 1)
    skew[pairs + 1, pairs] = -skew[pairs, pairs + 1]
    step = expm(planes @ skew @ planes.T)
    away = rng.standard_normal(d)
    away *= np.sqrt((scale**2).sum()) / np.linalg.norm(away) / (PARTS - 1)
    turn = base
    for part in range(PARTS):
        which = rng.integers(0, len(centres), n + QUERIES)
        rows = (centres[which] + spread[which] * rng.standard_normal((n + QUERIES, d))) @ turn + part * away
        yield rows[QUERIES:].astype(np.float32), rows[:QUERIES].astype(np.float32)
        turn = turn @ step


def quantizer():
    return fs.SketchQuantizer(N_BYTES)


def one_of_the_first(parts):
    """All rows are encoded by what was learned from the first."""
    index = fs.CodeIndex(quantizer().update(parts[0]))
    for rows in parts:
        index.add(rows)
    return index


def anchored(parts):
    """A model that learns on, held by an anchor: every row encoded as it comes, all searched by the last encoder."""
    model, codes = quantizer().update(parts[0]), []
    model.anchor()
    for number, rows in enumerate(parts):
        if number:
            model.update(rows)
        codes.append(model.encode(rows))
    index = fs.CodeIndex(model)
    index.add_codes(np.concatenate(codes), fingerprint=model.encoder().fingerprint)
    return index


def several(parts, *, fresh=False):
    """A new generation every GENERATION parts, of a model that learns on, or of a new one."""
    model, index = quantizer(), None
    for number, rows in enumerate(parts):
        if fresh and number % GENERATION == 0:
            model = quantizer()
        model.update(rows)
        if number % GENERATION == 0:
            index = fs.CodeIndex(model) if index is None else index.renew(model)
        index.add(rows)
    return index


def of_all(parts):
    """What a job that reads all rows twice gets: everything learned, then everything encoded."""
    model = quantizer()
    for rows in parts:
        model.update(rows)
    index = fs.CodeIndex(model)
    for rows in parts:
        index.add(rows)
    return index


WAYS = {
    "one generation, learned from the first part": one_of_the_first,
    "one generation, anchored at the first part": anchored,
    "five generations of a model that learns on": several,
    "five generations, each of a model of its own": lambda parts: several(parts, fresh=True),
    "the second, then reencode() from the rows": lambda parts: _again(several(parts), parts),
    "learned from all, then all encoded (two passes)": of_all,
}


def _again(index, parts):
    rows = np.concatenate(parts)
    return index.reencode(lambda ids: rows[ids])


def codedrift(args):
    """Recall of the ten nearest of queries from the first, the middle and the last part, among the rows of all."""
    n = few(2_000 if args.quick else 20_000, 300)
    parts, queries = zip(*stream(n), strict=True)
    rows = np.concatenate(parts)
    asked = {"first": queries[0], "middle": queries[PARTS // 2], "last": queries[-1]}
    truth = {when: nearest(q, rows, 10) for when, q in asked.items()}
    lines = []
    for name, way in WAYS.items():
        index, cells = way(parts), []
        for when, q in asked.items():
            found = index.search(q, k=100, rescore=False)[1]
            raw, wide = (np.mean([(np.isin(t, f[:c])).mean() for t, f in zip(truth[when], found, strict=True)])
                         for c in (10, 100))  # fmt: skip
            cells.append(f"{raw:.3f} / {wide:.3f}")
        lines.append([name, len([g for g in index.generations if g["n_rows"]]), *cells])
    note = (
        f"{len(rows):,} rows of {N_FEATURES} features in {PARTS} parts, {N_BYTES} bytes a row: recall@10, raw / of 100."
    )
    columns = ["way", "generations", *(f"queries of the {when} part" for when in asked)]
    table(lines, columns, "main", runs=f"1 stream, {len(queries[0])} queries of each part", note=note)
