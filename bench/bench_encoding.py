"""Codes of a given number of bytes: rows encoded a second, beside faiss's codes of as many bytes."""

from functools import partial

import numpy as np

import fastsketch as fs
from bench_tools import interleaved, table

N_BYTES = (8, 16, 32)
TRAINING_ROWS = 20_000


def falling(n, d, rng):
    """Rows in a random basis, the variance of direction j = 1 .. d falling like 1 / j."""
    turn = np.linalg.qr(rng.standard_normal((d, d)))[0].astype(np.float32)
    return (rng.standard_normal((n, d), dtype=np.float32) / np.sqrt(np.arange(1, d + 1, dtype=np.float32))) @ turn


def encoders(rows, n_bytes):
    """{name: function of rows that returns codes}, all trained on the same rows."""
    d = rows.shape[1]
    out = {"SketchQuantizer": fs.SketchQuantizer(n_bytes).update(rows).encoder().encode}
    try:
        import faiss
    except ImportError:
        print("faiss: absent; pip install faiss-cpu")
        return out
    kinds = {"PQ": f"PQ{n_bytes}np", "OPQ": f"OPQ{n_bytes},PQ{n_bytes}np", "PCA, SQ4": f"PCA{min(2 * n_bytes, d)},SQ4"}
    for name, factory in kinds.items():
        index = faiss.index_factory(d, factory)
        index.train(rows)
        out[name] = index.sa_encode
    return out


def threads_of_all(n):
    """A context in which all use n threads."""
    try:
        import faiss

        faiss.omp_set_num_threads(n)
    except ImportError:
        pass
    return fs.thread_limit(n)


def encoding(args):
    """Rows/s of one thread and of two, float32 rows of d columns."""
    sizes, out = [(128, 50_000 if args.quick else 400_000)], []
    if not args.quick:
        sizes.append((784, 60_000))
    for d, n in sizes:
        rows = falling(n, d, np.random.default_rng(0))
        for n_bytes in N_BYTES[1:2] if args.quick else N_BYTES:
            ways = encoders(rows[:TRAINING_ROWS], n_bytes)
            rates = {}
            for threads in (1, 2):
                with threads_of_all(threads):
                    found = interleaved({name: partial(way, rows) for name, way in ways.items()}, 3)
                rates[threads] = {name: n / best / 1e6 for name, (best, _) in found.items()}
            for name in ways:
                cells = (f"{rates[threads][name]:.2f}" for threads in (1, 2))
                out.append([d, n_bytes, name, *cells, f"{rates[1][name] / rates[1]['SketchQuantizer']:.2f}"])
    text = table(out, ["d", "bytes", "codes", "million rows/s", "two threads", "of SketchQuantizer's"])
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "encoding.md").write_text(text + "\n")
