"""A million items: rows/s and memory of SketchedEASE, a new user's projection, scores against one read of the items."""

import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from bench_tools import few, fresh, resident, seconds, table

# of the items' shares, which fall as (rank + 10)^-0.8; entries of a user
POWER, LEAST, MOST = 0.8, 20, 50
BATCH = 2000


def events(n_users, n_items, rng):
    """Users (n_users, n_items) who each have 20 to 50 items, drawn by a power law, of which some fall together."""
    counts = rng.integers(LEAST, MOST + 1, n_users)
    shares = np.cumsum((np.arange(n_items) + 10.0) ** -POWER)
    drawn = np.searchsorted(shares, rng.random(int(counts.sum())) * shares[-1])
    drawn = rng.permutation(n_items)[np.minimum(drawn, n_items - 1)]
    key = np.unique(np.repeat(np.arange(n_users), counts) * n_items + drawn)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(key // n_items, minlength=n_users))])
    columns = (key % n_items).astype(np.int32)
    return csr_array((np.ones(len(key), np.float32), columns, indptr), (n_users, n_items))


def cost(function, repeats=3):
    """CPU milliseconds, the least: others may use the cores."""
    return 1e3 * min(seconds(function) for _ in range(repeats))


def child(folder, size, n_items):
    """What one process of its own measures, as JSON."""
    import fastsketch as fs
    from fastsketch._kernels import pool
    from fastsketch._kernels.linalg.best import best_columns
    from fastsketch._kernels.recommending.items import project

    pool.use(1)
    folder = Path(folder)
    parts = [np.load(folder / f"{name}.npy") for name in ("data", "indices", "indptr")]
    rows = csr_array(tuple(parts), (len(parts[2]) - 1, n_items))
    model = fs.SketchedEASE(size, seed=0)
    fs.SketchedEASE(4).update(rows[:50, :100]).recommend(rows[:1, :100])
    before, out = resident("VmHWM"), {}
    start = time.process_time()
    for first in range(0, rows.shape[0], BATCH):
        model.update(rows[first : first + BATCH])
    out["rows/s (CPU)"] = rows.shape[0] / (time.process_time() - start)
    out["MB, update"] = (resident("VmHWM") - before) / 1e6
    start = time.process_time()
    one, some = rows[:1], rows[:64]
    model.recommend(one)
    out["read-out s (CPU)"] = time.process_time() - start
    out["MB, with read-out"] = (resident("VmHWM") - before) / 1e6
    out["recommend 1, ms"] = cost(lambda: model.recommend(one), 5)
    out["recommend 64, ms a user"] = cost(lambda: model.recommend(some)) / 64
    # the kernels behind it, on an item matrix of their own
    rng = np.random.default_rng(0)
    items, inner = rng.standard_normal((n_items, size), np.float32), rng.standard_normal((size, size), np.float32)
    scale = rng.random(n_items, np.float32)

    def best(x):
        found, values = np.empty((len(x), 10), np.int64), np.empty((len(x), 10))
        best_columns(x, items, found, values, scale=scale)

    arrays = one.indptr.astype(np.int64), one.indices.astype(np.int32), one.data
    out["project, ms"] = cost(lambda: [project(*arrays, items, inner) for _ in range(100)]) / 100
    x = project(some.indptr.astype(np.int64), some.indices.astype(np.int32), some.data, items, inner)
    out["read items, ms"] = cost(lambda: np.add.reduce(items, axis=None))
    out["largest item, ms"] = cost(items.max)
    out["best 1, ms"] = cost(lambda: best(x[:1]))
    out["best 64, ms"] = cost(lambda: best(x))
    tile, z = items[:1024], np.empty((64, 1024), np.float32)
    out["gemm 64, ms"] = cost(lambda: [np.matmul(x, tile.T, out=z) for _ in range(n_items // 1024)])
    print(json.dumps(out))


def items(args):
    """200,000 users x 1,000,000 items, l = 128, float32."""
    n_users, n_items, size = (few(20_000, 500), few(200_000, 5_000), 64) if args.quick else (200_000, 1_000_000, 128)
    with tempfile.TemporaryDirectory(dir=args.scratch) as folder:
        rows = events(n_users, n_items, np.random.default_rng(0))
        for name in ("data", "indices", "indptr"):
            np.save(Path(folder) / f"{name}.npy", getattr(rows, name))
        found = fresh(Path(__file__), folder, size, n_items)
    found["best 1 / read"] = found["best 1, ms"] / found["read items, ms"]
    found["gemm / best 64"] = found["gemm 64, ms"] / found["best 64, ms"]
    lines = [[name, f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"] for name, value in found.items()]
    note = f"{n_users:,} users x {n_items:,} items, {rows.nnz:,} events, l = {size}."
    table(lines, ["what", "measured"], "main", runs=1, note=note)


if __name__ == "__main__":
    child(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
