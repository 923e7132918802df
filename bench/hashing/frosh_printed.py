"""FROSH's Algorithm 1 as printed, one stream of mixed chunks, beside the library's tree of blocks."""

from functools import partial

import numpy as np

import fastsketch as fs
from bench_data import svmlight
from bench_tools import few, seconds, spread, table
from fastsketch import papers
from fastsketch.reference import top_directions
from hashing.retrieval import mnist

SEEDS = 5
PRINTED = "FROSH, Algorithm 1 as printed"


def printed(rows, size, seed, m):
    """Return (B, mean) of Algorithm 1 for one block of rows: steps of `reference.frosh_sketch` with a fast transform.

    The last rows, fewer than m, wait in F for ever and are not in B.
    """
    q, mean = size // 2, rows.mean(axis=0)
    compressor, b = fs.Compressor("srht", q, block_rows=m, seed=seed), np.zeros((size, rows.shape[1]))
    for t, start in enumerate(range(0, len(rows) - m + 1, m)):
        b[size - q :] = compressor.compress(rows[start : start + m] - mean, t)
        _, sigma, vt = np.linalg.svd(b, full_matrices=False)
        b[: len(sigma)] = np.sqrt(np.maximum(sigma**2 - sigma[q - 1] ** 2, 0))[:, None] * vt
    return b, mean


def frosh_printed(args):
    """Share of the best variance in r directions, rows held, seconds: of Algorithm 1, the library, OSH, a sample."""
    sets = {
        "MNIST": lambda: mnist()[: few(20_000, 2000)] if mnist() is not None else None,
        "w8a": lambda: None if svmlight("w8a") is None else svmlight("w8a")[0].toarray(),
        "news20": lambda: None if svmlight("news20") is None else _busiest(svmlight("news20")[0]),
    }
    out = []
    for name in list(sets)[: few(3, 1)]:
        rows = sets[name]()
        if rows is None:
            continue
        rows = np.random.default_rng(0).permutation(np.ascontiguousarray(rows, np.float64))
        centred = rows - rows.mean(axis=0)
        values = np.linalg.eigvalsh(centred.T @ centred)
        for r in (8, 32)[: few(2, 1)]:
            shares, times = {}, {}
            for seed in range(few(2 if args.quick else SEEDS, 1)):
                for way, learned in _ways(rows, r, seed).items():
                    found = []
                    times.setdefault(way, []).append(
                        seconds(lambda learned=learned, found=found: found.append(learned()))
                    )
                    shares.setdefault(way, []).append(((centred @ found[0]) ** 2).sum() / values[-r:].sum())
            held = _rows_held(rows, r)
            for way, parts in shares.items():
                out.append([name, r, way, spread(parts, 3), held[way], f"{1e3 * min(times[way]):,.0f}"])
                print(*out[-1], flush=True)
    runs = f"{SEEDS} seeds, mean +- standard deviation; times: the least"
    note = "The buffer has l = 2 r rows, m is the next power of two from d, and the rows are in one random order."
    table(out, ["set", "r", "method", "share of the best variance", "rows held", "ms"], "main", runs=runs, note=note)


def _ways(rows, r, seed):
    """Return {way: function that returns r orthonormal directions (d, r)}."""

    def sampled():
        sample = rows[np.random.default_rng(seed).choice(len(rows), min(len(rows), 1000), replace=False)]
        return top_directions(sample - sample.mean(axis=0), r)

    return {
        PRINTED: lambda: top_directions(printed(rows, 2 * r, seed, _block(rows))[0], r),
        "FROSH, the library": lambda: _model("srht", rows, r, seed).update(rows).components.T,
        "OSH, the library": lambda: _model("fd", rows, r, seed).update(rows).components.T,
        "a sample of 1,000 rows": sampled,
    }


def _block(rows):
    return 1 << int(np.ceil(np.log2(rows.shape[1])))


def _model(method, rows, r, seed):
    sizes = {"sketch_size": 2 * r, "block_rows": _block(rows)}
    call = papers.frosh if method == "srht" else partial(fs.SketchHash, method=method, rotation=None)
    return call(r, seed=seed, dtype="float64", **sizes)


def _rows_held(rows, r):
    """Return {way: the most rows of d numbers that are held between batches of 500}, as text."""
    found = {PRINTED: f"{2 * r + _block(rows):,}; {3 * r} as in section 3.3", "a sample of 1,000 rows": "1,000"}
    for way, method in (("FROSH, the library", "srht"), ("OSH, the library", "fd")):
        model, most = _model(method, rows, r, 0), 0
        for start in range(0, len(rows), 500):
            most = max(most, len(model.update(rows[start : start + 500]).to_bytes()) // (8 * rows.shape[1]))
        found[way] = f"{most:,}"
    return found


def _busiest(rows, columns=1024):
    """Return the columns that occur most, as a dense array."""
    counts = np.bincount(rows.indices, minlength=rows.shape[1])
    return rows[:, np.sort(np.argsort(-counts)[:columns])].toarray()
