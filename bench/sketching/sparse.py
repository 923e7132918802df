"""CSR streams."""

import time

import numpy as np

import fastsketch as fs
from bench_tools import few, fresh, interleaved, seconds, table
from benchmarks.rows import random_csr


def _per_second(step, batch, n, budget):
    """Rows per second of a function of (first, last) row, for at most `budget` seconds."""
    done, start = 0, time.perf_counter()
    while done + batch <= n:
        step(done, done + batch)
        done += batch
        if time.perf_counter() - start > budget:
            break
    return done / (time.perf_counter() - start)


def sparse(args):
    """The table of rows/s on CSR rows."""
    from sklearn.decomposition import IncrementalPCA

    rng = np.random.default_rng(0)
    out = []
    cases = [(47_000, 0.001, 20), (47_000, 0.001, 100)]
    cases = cases[: few(2, 1)]
    if not args.quick:
        cases += [(20_000, 0.002, 50), (5_000, 0.01, 50)]
    for d, density, size in cases:
        rows = random_csr(few(20_000, 400), d, density, rng)
        sketch = fs.FrequentDirections(size, method="fd", solver="gram").update(rows[:1000])
        times = interleaved({"csr": lambda s=sketch, r=rows: s.update(r)}, 3)
        rate = len(np.diff(rows.indptr)) / times["csr"][0]
        narrow = fs.FrequentDirections(size, method="fd", solver="gram").update(rows[:1000].astype(np.float32))
        rows32 = rows.astype(np.float32)
        rate32 = rows.shape[0] / min(seconds(lambda s=narrow, r=rows32: s.update(r)) for _ in range(3))
        dense = fs.FrequentDirections(size, method="fd", solver="svd", buffer_size=size)
        dense_svd = _per_second(
            lambda a, b, s=dense, r=rows: s.update(r[a:b].toarray()), 2 * size, rows.shape[0], few(8, 0.2)
        )
        dense = fs.FrequentDirections(size, method="fd", solver="gram")
        dense.update(rows[:1].toarray())
        dense_gram = _per_second(
            lambda a, b, s=dense, r=rows: s.update(r[a:b].toarray()), 2 * size, rows.shape[0], few(4, 0.2)
        )
        model = IncrementalPCA(n_components=size)
        pca = _per_second(
            lambda a, b, m=model, r=rows: m.partial_fit(r[a:b].toarray()), 5 * size, rows.shape[0], few(8, 0.2)
        )
        again = fs.FrequentDirections(size, method="fd", solver="gram").update(rows)
        out.append(
            {
                "d": f"{d:,}",
                "density": f"{density:.2%}",
                "l": size,
                "CSR rows/s": f"{rate:,.0f}",
                "CSR f32": f"{rate32:,.0f}",
                "densify + gram": f"{dense_gram:,.0f}",
                "CSR / gram": f"{rate / dense_gram:.1f}",
                "densify + gesdd": f"{dense_svd:,.0f}",
                "CSR / gesdd": f"{rate / dense_svd:.0f}",
                "IncrementalPCA": f"{pca:,.0f}",
                "CSR / IncrementalPCA": f"{rate / pca:.0f}",
                "bound/||A||_F^2": f"{again.error_bound / again.squared_norm:.2e}",
            }
        )
        print(*out[-1].values(), flush=True)
    table(out, name="main", runs="CSR: the least of 3, the others 1")


# In a fresh process: CSR rows of 10 entries among some columns of d.
OF_WIDTH = """
import json, sys, time, tracemalloc
import numpy as np
from scipy.sparse import csr_array
import fastsketch as fs

d, occur, n = map(int, sys.argv[1:])
rng = np.random.default_rng(0)
columns = np.arange(occur) * (d // occur)
first = rng.integers(0, occur, (n, 1))
places = np.sort((first + np.arange(10) * (occur // 10) + rng.integers(0, occur // 10, (n, 10))) % occur, axis=1)
rows = csr_array((rng.standard_normal(10 * n), columns[places].ravel(), np.arange(n + 1) * 10), shape=(n, d))
rows.sum_duplicates()
sketch = fs.FrequentDirections(20).update(rows)
start = time.process_time()
sketch.update(rows)
learning = time.process_time() - start
start = time.process_time()
b = sketch.sketch(sparse=True)
reading = time.process_time() - start
tracemalloc.start()
fs.FrequentDirections(20).update(rows).sketch(sparse=True)
peak = tracemalloc.get_traced_memory()[1]
print(json.dumps([1e6 * learning / n, 1e3 * reading, peak / 1e6, len(sketch.to_bytes()) / 1e6]))
"""


def columns(args):
    """CSR rows of more and more columns of which as many occur, beside all columns of a narrow matrix."""
    out = []
    n = few(20_000, 500)
    occur = few(20_000, 1000)
    cases = [(10_000, 10_000)] + [(d, occur) for d in (occur, 10**5, 10**6, 10**7, 10**8)]
    for d, here in cases[: few(6, 2)]:
        learning, reading, peak, size = np.median([fresh(OF_WIDTH, d, here, n) for _ in range(few(3, 1))], axis=0)
        out.append(
            {
                "d": f"{d:,}",
                "occur": f"{here:,}",
                "us a row": f"{learning:.1f}",
                "sketch(sparse=True), ms": f"{reading:.0f}",
                "peak, MB": f"{peak:.0f}",
                "state file, MB": f"{size:.1f}",
            }
        )
        print(*out[-1].values(), flush=True)
    table(
        out,
        name="main",
        runs="the median of 3 processes",
        note="The sketch has l = 20 rows, and learns 20,000 rows of 10 entries twice.",
    )
