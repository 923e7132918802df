"""Codes of a given number of bytes: rows encoded a second, beside faiss's codes of as many bytes."""

from functools import partial

import numpy as np

import fastsketch as fs
from bench_code_peers import peers
from bench_tools import LEVELS, at_level, few, least, rival, table

N_BYTES = (8, 16, 32)
TRAINING_ROWS = 20_000
# faiss's are measured at this many bytes, trained on fewer rows: k-means is slow and encodes no faster for more.
PEERS_AT, PEERS_ROWS = 16, 3_000
NAMES = ("SketchQuantizer", "PQ", "OPQ", "PCA, SQ4")


def falling(n, d, rng):
    """Rows in a random basis, the variance of direction j = 1 .. d falling like 1 / j."""
    turn = np.linalg.qr(rng.standard_normal((d, d)))[0].astype(np.float32)
    return (rng.standard_normal((n, d), dtype=np.float32) / np.sqrt(np.arange(1, d + 1, dtype=np.float32))) @ turn


def encoders(rows, n_bytes):
    """{name: function of rows that returns codes}."""
    d = rows.shape[1]
    out = {"SketchQuantizer": fs.SketchQuantizer(n_bytes).update(rows).encoder().encode}
    if n_bytes != PEERS_AT:
        return out
    if rival("faiss") is None:
        return out
    theirs = peers(d, n_bytes)
    return out | {name: theirs[name].fit(rows[: few(PEERS_ROWS, 400)]).encode for name in NAMES if name in theirs}


def encoding(args):
    """Million rows/s of one thread, float32 rows of d columns, by processor time of runs in turn."""
    sizes, out = [(128, few(50_000, 3_000) if args.quick else 200_000)], []
    if not args.quick:
        sizes.append((784, 60_000))
    for d, n in sizes:
        rows = falling(n, d, np.random.default_rng(0))
        for n_bytes in N_BYTES[1:2] if args.quick else N_BYTES:
            ways = encoders(rows[:TRAINING_ROWS], n_bytes)
            for name, levels in LEVELS.items():
                with at_level(*levels), fs.thread_limit(1):
                    found = least({key: partial(way, rows) for key, way in ways.items()})
                rates = {key: n / best / 1e6 for key, best in found.items()}
                out.append([d, n_bytes, name, *(f"{rates[key]:.2f}" if key in rates else "" for key in NAMES)])
                print(out[-1], flush=True)
    table(out, ["d", "bytes", "instructions", *NAMES], "main", runs="the least of 5 in turn")
