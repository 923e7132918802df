"""Fast Frequent Directions beside Frequent Directions on real rows: errors of both, of the exact sum, of a sample.

As in `frosh`: both keep l / 2 rows, and the error is ||A'A - B'B||_2 / ||A||_F^2. FFD is measured over SEEDS seeds of
its random map, and so is a sample of rows drawn uniformly, scaled, and shrunk once to as many rows.
"""

import time
from functools import partial

import numpy as np
from scipy import sparse

import fastsketch as fs
from bench_tools import few, table
from benchmarks.rows import frosh_rows
from components.sets import SETS

SEEDS = 5
SIZES = (32, 64, 128)
TAUS = (1, 2, 4, 8)  # m in units of d
SAMPLE = 2000
NAMES = ("a9a", "w8a", "mushrooms", "Isolet", "madelon", "MNIST", "sift5k", "flower, patches", "news20", "farm-ads")
COLUMNS = 500  # of the sets of text: those that most rows have
GENERATED = "FROSH 5.1"
CENTRED = ", centred"  # the mean of the rows taken away beforehand


def rows_of(name):
    """Dense float64 rows of a set, None where it is absent."""
    if name == GENERATED:
        return frosh_rows(20_000, 256, np.random.default_rng(1))
    rows = SETS[name].make()
    if rows is None:
        return None
    if sparse.issparse(rows):
        if rows.shape[1] > 2000:
            counts = np.asarray((rows != 0).sum(axis=0)).ravel()
            rows = sparse.csr_array(rows)[:, np.argsort(-counts, kind="stable")[:COLUMNS]]
        rows = rows.toarray()
    return np.ascontiguousarray(rows, np.float64)


def ways(rows, q):
    """{way: function of a seed that returns a sketch}; a block of the map is never longer than half of the rows."""
    n, d = rows.shape

    def sampled(seed):
        some = np.sort(np.random.default_rng(seed).choice(n, min(SAMPLE, n // 2), replace=False))
        scaled = rows[some] * np.sqrt(n / len(some))
        return fs.FrequentDirections(q, method="fd", solver="exact").update(scaled)

    def mapped(m, seed):
        srht = fs.Compressor("srht", q, block_rows=m, seed=seed)
        return fs.FrequentDirections(q, method="fd", solver="gram", compressor=srht).update(rows)

    out = {
        "FD": lambda seed: fs.FrequentDirections(q, method="fd", solver="gram", buffer_size=q).update(rows),
        "exact": lambda seed: fs.FrequentDirections(q, method="fd", solver="exact").update(rows),
        "sample": sampled,
    }
    for tau in TAUS:
        if 2 * tau * d <= n:
            out[f"m = {tau} d"] = partial(mapped, max(tau * d, q))
    return out


def measured(rows, q, seeds):
    """{way: (errors, processor seconds)}, an entry for each seed; what has no seed has one error."""
    truth, norm = rows.T @ rows, float((rows**2).sum())
    found = {}
    for seed in range(seeds):
        for way, make in ways(rows, q).items():
            start = time.process_time()
            b = make(seed).sketch()
            taken = time.process_time() - start
            errors, seconds = found.setdefault(way, ([], []))
            seconds.append(taken)
            if seed == 0 or way not in ("FD", "exact"):
                errors.append(float(np.abs(np.linalg.eigvalsh(truth - b.T @ b)).max()) / norm)
    return found


def ffd_real(args):
    """Errors over those of FD, and processor time, on real sets and on the generator of the paper."""
    names = ("mushrooms", "sift5k")[: few(2, 1)] if args.quick else NAMES
    names, seeds = [*names, *(name + CENTRED for name in names)], 2 if args.quick else SEEDS
    names += [] if args.quick else [GENERATED]
    errors, times, ratios = [], [], {}
    for name in names:
        rows = rows_of(name.removesuffix(CENTRED))
        if rows is None:
            continue
        rows = rows - rows.mean(axis=0) if name.endswith(CENTRED) else rows
        shape = f"{rows.shape[0]:,} x {rows.shape[1]:,}"
        for size in SIZES[1:2] if name.endswith(CENTRED) else SIZES:
            found = measured(rows, size // 2, seeds)
            fd, taken = found["FD"][0][0], float(np.median(found["FD"][1]))
            cells = {way: np.array(held) / fd for way, (held, _) in found.items()}
            for way, values in cells.items():
                if way != "FD":
                    ratios.setdefault((_kind(name), way), []).extend(values)
            heads = [f"m = {tau} d" for tau in TAUS]
            shown = [_cell(cells[way]) if way in cells else "" for way in heads]
            errors.append([name, shape, size, f"{fd:.2e}", *shown, f"{cells['exact'][0]:.2f}", _cell(cells["sample"])])
            ways_timed = [*heads, "exact", "sample"]
            shown = [f"{taken / np.median(found[way][1]):.1f}" if way in found else "" for way in ways_timed]
            times.append([name, shape, size, f"{1e3 * taken:.0f}", *shown])
            print(errors[-1], flush=True)
    names = [f"m = {tau} d" for tau in TAUS]
    words = (
        "The table shows errors divided by that of FD, mean and (range) of the "
        f"seeds; a sample has {SAMPLE:,} rows or half of all."
    )
    runs = f"{seeds} seeds"
    table(errors, ["set", "rows", "l", "FD", *names, "exact", "sample"], "errors", runs=runs, note=words)
    words = "The table shows how many times as fast as FD each method is, by medians of processor time."
    table(times, ["set", "rows", "l", "FD, ms", *names, "exact", "sample"], "times", runs=runs, note=words)
    lines = [[*key, *(f"{f(values):.2f}" for f in (np.min, np.median, np.max))] for key, values in ratios.items()]
    words = "The table shows errors divided by the error of FD, over all data sets, sizes and seeds."
    table(sorted(lines), ["sets", "way", "least", "median", "most"], "summary", runs=runs, note=words)


def _kind(name):
    return "generated" if name == GENERATED else "real, centred" if name.endswith(CENTRED) else "real"


def _cell(values):
    return f"{values.mean():.2f} ({values.min():.2f} .. {values.max():.2f})"
