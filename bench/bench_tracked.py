"""Read-outs in one pass: what Tracked FD and its beta cost and give beside FD and PFD (docs/read-outs.md)."""

import numpy as np

import bench_tools
import fastsketch as fs
from bench_data import dataset
from bench_tools import few, table

# name: method, beta; the ledger with nothing spared is FD's B with tracked estimates
RULES = {
    "FD": ("fd", None),
    "FD and ledger": ("tfd", 1.0),
    "PFD 0.45": ("pfd", 0.45),
    **{f"TFD {beta}": ("tfd", beta) for beta in (0.35, 0.4, 0.45, 0.5)},
}


def slow_drift(weak, rng, d=500):
    """1,000 loud rows in 60 directions, then 5,000 in `weak` others that end up holding more, with some noise."""
    q = np.linalg.qr(rng.standard_normal((d, 60 + weak)))[0].T
    loud = 3 * rng.standard_normal((1000, 60)) @ q[:60]
    later = 2 * rng.standard_normal((5000, weak)) @ q[60:] + 0.3 * rng.standard_normal((5000, d))
    return np.vstack([loud, later])


def late_drift(rng, d=500):
    """5,000 rows of rank 40, then 1,000 in three directions that are louder than any."""
    q = np.linalg.qr(rng.standard_normal((d, 43)))[0].T
    rows = 0.1 * rng.standard_normal((6000, d))
    rows[:5000] += rng.standard_normal((5000, 40)) * np.linspace(3, 0.5, 40) @ q[:40]
    rows[5000:] += rng.standard_normal((1000, 3)) * [20, 15, 10] @ q[40:]
    return rows


def streams(quick):
    """(name, rows): generated ones, and every other row of real sets."""
    rng = np.random.default_rng(1)
    yield "noise, d = 500", rng.standard_normal((few(5000, 200), 500))
    if bench_tools.tiny:
        return
    yield "power law, d = 300", rng.standard_normal((6000, 300)) / np.arange(1, 301)
    yield "late drift", late_drift(rng)
    for weak in (10, 13, 32, 34):
        yield f"slow drift, {weak} weak", slow_drift(weak, rng)
    for name in ("Isolet",) if quick else ("Isolet", "MNIST", "a9a", "news20"):
        rows = dataset(name)
        if rows is not None:
            rows = rows[::2]
            rows = rows[:4000] if rows.shape[1] > 10_000 else rows[:10_000]
            yield f"{name}, {rows.shape[0]:,} rows", rows


def leading(rows, k):
    """The k largest eigenvalues of A'A."""
    gram = rows @ rows.T if rows.shape[0] < rows.shape[1] else rows.T @ rows
    return np.linalg.eigvalsh(gram if isinstance(gram, np.ndarray) else gram.toarray())[::-1][:k]


def tracked(args):
    """Worst error of k variances, lost variance over that of FD with a ledger, certificate over FD's; l = 2 k + 10."""
    for k in (10, 32)[: few(2, 1)]:
        lines = []
        for name, rows in streams(args.quick):
            true, cells, own, certificate = leading(rows, k), [], None, None
            found = {}
            for rule, (method, beta) in RULES.items():
                sketch = fs.FrequentDirections(2 * k + 10, method=method, beta=beta, solver="gram").update(rows)
                spectrum = sketch.spectrum()
                along = rows @ spectrum.vectors[:k].T
                worst = np.abs(spectrum.values[:k] / true - 1).max()
                found[rule] = worst, true.sum() - float((along**2).sum()), sketch.shrinkage
            own, certificate = found["FD and ledger"][1], found["FD"][2]
            for worst, lost, delta in found.values():
                cells.append(f"{100 * worst:.2g}%, {lost / own:.2g}, {delta / certificate:.2f}")
            lines.append([name, *cells])
        note = f"k = {k}, l = {2 * k + 10}: worst error, lost variance / that of FD and ledger, certificate / FD's."
        table(lines, ["stream", *RULES], f"k{k}", runs="1, deterministic", note=note)
