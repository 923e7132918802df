"""Low-rank models: the loops over entries against scipy, and a fit to ten million observations."""

import json
import sys
import time
from pathlib import Path

import numpy as np
from scipy import sparse

import fastsketch as fs
from bench_tools import few, fresh, resident, table


def ten_million(args):
    """10 million observations of MovieLens-10M's shape, rank 20: seconds, and memory beside the input."""
    m, n, count = 69_878, 10_677, few(1_000_000 if args.quick else 10_000_000, 20_000)
    rng = np.random.default_rng(0)
    users, films = (np.cumsum(1 / np.arange(1, size + 1.0) ** power) for size, power in ((m, 0.5), (n, 0.8)))
    rows = np.searchsorted(users / users[-1], rng.random(int(1.3 * count))).astype(np.int64)
    columns = np.searchsorted(films / films[-1], rng.random(int(1.3 * count)))
    keys = np.unique(rows * n + columns)
    keys = np.sort(rng.permutation(keys)[:count])
    rows, columns = (keys // n).astype(np.int32), (keys % n).astype(np.int32)
    one, two = rng.standard_normal((m, 20)).astype(np.float32), rng.standard_normal((n, 20)).astype(np.float32)
    values = np.empty(len(keys), np.float32)
    for start in range(0, len(keys), 10**6):
        part = slice(start, start + 10**6)
        values[part] = 3.5 + 0.15 * np.einsum("kq,kq->k", one[rows[part]], two[columns[part]])
    values += 0.5 * rng.standard_normal(len(keys)).astype(np.float32)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=m))]).astype(np.int32)
    x = sparse.csr_array((values, columns, indptr), shape=(m, n))
    path = args.scratch / "fastsketch-ten-million.npz"
    np.savez(path, data=x.data, indices=x.indices, indptr=x.indptr)
    out = []
    try:
        for label, options in (
            ("rank 20, economic", {"sweeps": 0}),
            ("rank 20 and 1 sweep, ridge=1", {"sweeps": 1, "max_power_iterations": 4, "ridge": 1.0}),
            ("rank 20, as it comes", {}),
        ):
            # in a process of its own: what making the matrix took would hide what the fit takes
            out.append([label, *fresh(Path(__file__), path, json.dumps(options))])
            print(*out[-1], flush=True)
    finally:
        path.unlink()
    columns = ["model", "observations", "s", "MB of input", "MB beside it", "ratio", "RMSE of training"]
    table(out, columns, "main", runs=1)


class _Peak:
    """Largest resident memory until stop(), looked at every few milliseconds."""

    def __init__(self):
        import threading

        self.peak, self.on = resident(), True
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()

    def _watch(self):
        while self.on:
            self.peak = max(self.peak, resident())
            time.sleep(0.005)

    def stop(self):
        self.on = False
        self.thread.join()
        return self.peak


def _fit_once(path, options):
    """Fit the matrix of a file and print entries, seconds, memory."""
    with np.load(path) as file:
        x = sparse.csr_array((file["data"], file["indices"], file["indptr"]), shape=(69_878, 10_677))
    size = x.data.nbytes + x.indices.nbytes + x.indptr.nbytes
    fs.LowRankModel(2, sweeps=1).fit(x[:100])  # compile
    before, peak = resident(), _Peak()
    start = time.perf_counter()
    model = fs.LowRankModel(20, learning_rate=0.7, dtype="float32", **options).fit(x)
    taken, used = time.perf_counter() - start, peak.stop() - before
    few = x.indptr[1000]
    e = model.predict(np.repeat(np.arange(1000), np.diff(x.indptr[:1001])), x.indices[:few]) - x.data[:few]
    line = [f"{x.nnz:,}", f"{taken:.1f}", f"{size / 1e6:.0f}", f"{used / 1e6:.0f}", f"{used / size:.2f}"]
    print(json.dumps([*line, f"{np.sqrt(np.mean(e**2)):.3f}"]))


if __name__ == "__main__":
    _fit_once(sys.argv[1], json.loads(sys.argv[2]))
