"""A precision instead of a size: the l that it ends with, and its cost, beside the smallest l and knowing it."""

import time

import numpy as np
from scipy import sparse

import bench_tools
import fastsketch as fs
from bench_data import dataset
from bench_tools import few, table

RUNS = 5
REAL = ("MNIST", "Isolet", "a9a", "w8a", "madelon", "news20", "farm-ads")


def streams():
    """Four that are made to be hard."""
    rng = np.random.default_rng(1)
    turn = np.linalg.qr(rng.standard_normal((500, 500)))[0]
    yield "flat noise", rng.standard_normal((few(5000, 200), 500))
    if bench_tools.tiny:
        return
    slow = np.vstack(
        [
            3 * rng.standard_normal((1000, 60)) @ turn[:60],
            2 * rng.standard_normal((5000, 10)) @ turn[60:70] + 0.3 * rng.standard_normal((5000, 500)),
        ]
    )
    yield "slow drift", slow
    late = (rng.standard_normal((6000, 40)) * np.linspace(3, 0.5, 40)) @ turn[:40]
    late[5000:] = (rng.standard_normal((1000, 3)) * [20, 15, 10]) @ turn[100:103]
    yield "late drift", late + 0.1 * rng.standard_normal((6000, 500))
    yield "power law", (rng.standard_normal((6000, 500)) * np.arange(1, 501) ** -1.0) @ turn


def sets():
    """(name, rows): real ones that are there, then the streams."""
    for name in REAL[: few(9, 2)]:
        rows = dataset(name)
        if rows is None:
            continue
        rows = rows[:4000] if rows.shape[1] > 10_000 else rows[:10_000]
        yield name, sparse.csr_array(rows) if sparse.issparse(rows) else np.asarray(rows, np.float64)
    yield from streams()


def smallest(rows, share, **parameters):
    """The smallest l that meets a tolerance, by runs of fixed l and bisection."""

    def meets(size):
        sketch = fs.FrequentDirections(size, **parameters).update(rows)
        return sketch.error_bound <= share * sketch.squared_norm

    low, high = 1, 8
    while not meets(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if meets(middle) else (middle, high)
    return high


def cost(make, rows):
    """Seconds of the processor for one pass and its read-out."""
    start = time.process_time()
    make().update(rows).error_bound  # noqa: B018
    return time.process_time() - start


def tolerance(args):
    """Smallest l, the l in use at the end, rows of the read-out, and cost over knowing l (median, least, most)."""
    out = []
    parameters = {"solver": "gram"}
    for share in (0.02, 0.005)[: few(2, 1)] if args.quick else (0.05, 0.02, 0.01, 0.005):
        for name, rows in sets():
            least = smallest(rows, share, **parameters)
            sketch = fs.FrequentDirections(tolerance=share, **parameters).update(rows)
            ratios = sorted(
                cost(lambda s=share: fs.FrequentDirections(tolerance=s, **parameters), rows)
                / cost(lambda s=least: fs.FrequentDirections(s, **parameters), rows)
                for _ in range(RUNS)
            )
            used, kept = sketch.resolved["sketch_size"], len(sketch.singular_values)
            out.append(
                {
                    "set": name,
                    "tolerance": share,
                    "bound": f"{sketch.error_bound / sketch.squared_norm:.4f}",
                    "smallest l": least,
                    "rows read out": kept,
                    "l in use": used,
                    "in use / smallest": f"{used / least:.2f}",
                    "cost": f"{ratios[RUNS // 2]:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})",
                }
            )
            print(*out[-1].values(), flush=True)
    table(out, name="main", runs=f"{RUNS} ratios, median (least to most)")
