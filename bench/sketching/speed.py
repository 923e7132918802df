"""Rows per second of dense sketches."""

import time

import numpy as np

import fastsketch as fs
from bench_tools import few, gemm_rate, interleaved, least, seconds, table
from benchmarks.rows import frosh_rows
from fastsketch import reference
from fastsketch.sketching._engines import exact_pays

SIZES = [(512, 32), (2048, 32), (2048, 64), (2048, 128), (2048, 256), (8192, 64), (8192, 128)]


def _rate(make, rows, limit=3.0, repeats=5):
    """Rows per second of make().update(...) on all of rows, or on as many as fit in `limit` seconds."""
    probe = rows[: max(256, len(rows) // 16)]
    sketch = make()
    sketch.update(probe)
    guess = seconds(lambda: sketch.update(probe)) / len(probe)
    count = min(len(rows), max(len(probe), int(limit / repeats / max(guess, 1e-9))))

    def run():
        sketch.update(rows[:count])

    return run, count


def _pca_rates(rows, k, budget):
    """IncrementalPCA at several batch sizes, one pass over as many rows as the budget allows: its best rate."""
    from sklearn.decomposition import IncrementalPCA

    best, at = 0.0, None
    for batch in (2 * k, 5 * k, 1024, 2048):
        if batch < k or batch > len(rows):
            continue
        model = IncrementalPCA(n_components=k, batch_size=batch)
        model.partial_fit(rows[:batch])
        done, start = 0, time.process_time()
        for first in range(0, len(rows) - batch + 1, batch):
            model.partial_fit(rows[first : first + batch])
            done += batch
            if time.process_time() - start > budget:
                break
        rate = done / (time.process_time() - start)
        if rate > best:
            best, at = rate, batch
    return best, at


def speed(args):
    """The table of rows/s, with the share of the GEMM limit and the strongest alternatives."""
    rng = np.random.default_rng(0)
    sizes = SIZES[: few(2, 1)] if args.quick else SIZES
    out, repeats = [], 3 if args.quick else 7
    for d, size in sizes:
        n = few(max(3000 if d > 4000 else 6000, 24 * size), 800)
        base = frosh_rows(n, d, rng)
        for dtype in (np.float64, np.float32):
            rows = base.astype(dtype)
            limit = gemm_rate(dtype)
            runs, counts = {}, {}
            for solver in ("gram", "svd", "exact"):
                if solver == "exact" and d > 2048:
                    continue
                runs[solver], counts[solver] = _rate(
                    lambda s=solver, k=size: fs.FrequentDirections(k, method="fd", solver=s), rows
                )
            times = interleaved(runs, repeats)
            limit = max(limit, gemm_rate(dtype))
            rate = {name: counts[name] / times[name][0] for name in runs}
            share = 7 * d * size * rate["gram"] / limit
            pca, batch = _pca_rates(rows, size, few(1.5, 0.05)) if dtype == np.float64 else (0.0, None)
            ref = ""
            if dtype == np.float64 and d <= 2048 and size <= 64:
                count = few(4 * size, 48)
                slow = seconds(lambda r=rows, c=count, k=size: reference.frequent_directions(r[:c], k))
                ref = f"{(count - size) / slow:,.0f}"
            sketch = fs.FrequentDirections(size, method="fd", solver="gram").update(rows)
            quality = sketch.error_bound / sketch.squared_norm
            out.append(
                {
                    "d": d,
                    "l": size,
                    "dtype": np.dtype(dtype).name,
                    "GEMM GF/s": f"{limit / 1e9:.1f}",
                    "gram rows/s": f"{rate['gram']:,.0f}",
                    "of GEMM limit": f"{share:.0%}",
                    "svd rows/s": f"{rate['svd']:,.0f}",
                    "gram/svd": f"{rate['gram'] / rate['svd']:.1f}",
                    "exact rows/s": f"{rate['exact']:,.0f}" if "exact" in rate else "",
                    "IncrementalPCA rows/s (batch)": f"{pca:,.0f} ({batch})" if pca else "",
                    "gram/IPCA": f"{rate['gram'] / pca:.1f}" if pca else "",
                    "reference rows/s": ref,
                    "bound/||A||_F^2": f"{quality:.2e}",
                }
            )
            print(*out[-1].values(), flush=True)
    table(out, name="main", runs=f"the least of {repeats} in turn; IncrementalPCA and reference 1")


def exact(args):
    """Gram against exact around their crossing, and the choice of solver='auto'."""
    rng = np.random.default_rng(0)
    out = []
    for size in (16, 64)[: few(2, 1)] if args.quick else (16, 32, 64, 128):
        for ratio in (0.4, 0.7, 0.9, 1.1, 1.4):
            d = int(ratio * (11 * size + 300)) // 8 * 8
            rows = frosh_rows(few(max(4000, 24 * size), 600), d, rng)
            runs = {}
            for solver in ("gram", "exact"):
                sketch = fs.FrequentDirections(size, solver=solver).update(rows[:512])
                runs[solver] = lambda s=sketch, r=rows: s.update(r)
            times = least(runs, 5)
            chosen = "exact" if exact_pays(d, size) else "gram"
            rates = [f"{len(rows) / times[k]:,.0f}" for k in ("gram", "exact")]
            out.append([size, d, *rates, chosen, f"{min(times.values()) / times[chosen]:.0%}"])
    columns = ["l", "d", "gram rows/s", "exact rows/s", "auto", "of the better"]
    table(out, columns, "main", runs="the least of 5 in turn")
