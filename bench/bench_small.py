"""What small and single calls cost: a read-out after one row, merges of many, wide sparse rows, hashes, a loss."""

import numpy as np
from scipy import sparse
from scipy.linalg import svd

import bench_data
import fastsketch as fs
from bench_lowrank_sets import halves, ratings_of
from bench_sparse import OF_WIDTH
from bench_tools import few, fresh, interleaved, spread, table

REPEATS = 5


def small(args):
    """Milliseconds of each, and of what else does the same or is a part of it."""
    lines = [*_read_outs(), *_merges(), *_widths(args), *_hashes(args)]
    runs = f"least and (median) of {REPEATS} in turn; CSR the median of 3 processes"
    table(lines, ["what", "ms", "beside it", "that, ms"], "main", runs=runs)
    if stars := _losses(args):
        columns = ["set", "loss", "RMSE", "mean absolute error", "s, processor"]
        table(stars, columns, "losses", runs="2 halves, mean +- standard deviation")


def _timed(runs):
    """Cells of functions run in turn: least and median milliseconds."""
    return [f"{1e3 * low:.1f} ({1e3 * middle:.1f})" for low, middle in interleaved(runs, REPEATS).values()]


def _read_outs():
    out = []
    for d, size in ((2048, 64), (8192, 64), (2048, 128))[: few(3, 1)]:
        sketch = fs.FrequentDirections(size, solver="gram")
        sketch.update(np.random.default_rng(0).standard_normal((3 * size, d)))
        row, rows = np.ones(d), sketch.sketch()

        def read(sketch=sketch, row=row):
            sketch.update(row).sketch()

        def decomposed(rows=rows):
            svd(rows, full_matrices=False, check_finite=False)

        now, theirs = _timed({"read": read, "svd": decomposed})
        out.append([f"sketch() after one row, {d:,} x {size}", now, "LAPACK's SVD of its rows", theirs])
    return out


def _merges():
    out, n = [], few(1000, 70)
    for d, size, solver in ((64, 16, "gram"), (64, 16, "auto"), (200, 64, "gram"), (200, 64, "auto")):
        parts = np.random.default_rng(0).standard_normal((n, 50, d))

        def empty(size=size, solver=solver):
            return fs.FrequentDirections(size, solver=solver)

        sketches = [empty().update(part) for part in parts]
        held = [sketch.copy()._engine.settled_rows() for sketch in sketches]
        runs = {
            "merge": lambda some=sketches: fs.merge(some),
            "rows": lambda some=held, make=empty: make().update(np.concatenate(some)),
        }
        name = f"merge of {n:,} sketches, {d} columns, l = {size}" + (", exact sums" if solver == "auto" else "")
        now, theirs = _timed(runs)
        out.append([name, now, "one update of the rows they hold", theirs])
    return out


def _widths(args):
    out, occur, n = [], few(20_000, 1000), few(20_000, 500)
    narrow = np.median([fresh(OF_WIDTH, occur, occur, n) for _ in range(few(3, 1))], axis=0)
    for d in (10**6, 10**7)[: few(2, 1)]:
        wide = np.median([fresh(OF_WIDTH, d, occur, n) for _ in range(few(3, 1))], axis=0)
        name = f"CSR rows of {occur:,} columns that occur, d = {d:,}, us a row"
        out.append([name, f"{wide[0]:.1f}", f"d = {occur:,}", f"{narrow[0]:.1f}"])
        out.append([f"sketch(sparse=True) of these, d = {d:,}", f"{wide[1]:.1f}", f"d = {occur:,}", f"{narrow[1]:.1f}"])
    return out


def _hashes(args):
    found, out = bench_data.mnist("all"), []
    if found is None:
        return out
    rows = np.ascontiguousarray(found[0] / np.float32(255))[: few(5000 if args.quick else len(found[0]), 300)]
    for bits in (32, 128)[: few(2, 1)]:
        for rotation, name in (("random", ", random rotation"), ("itq", "")):

            def learn(bits=bits, rotation=rotation):
                return fs.SketchHash(bits, rotation=rotation).update(rows).projection

            def pca(bits=bits):
                some = rows[np.random.default_rng(0).choice(len(rows), few(2000, 200), replace=False)]
                svd(some - some.mean(axis=0), full_matrices=False, check_finite=False)

            now, theirs = _timed({"learn": learn, "pca": pca})
            what = f"SketchHash({bits}) of MNIST, {len(rows):,} x {rows.shape[1]}{name}"
            out.append([what, now, "SVD of 2,000 of its rows", theirs])
    return out


def _losses(args):
    found, out = ratings_of("ML-100K" if args.quick else "ML-1M"), []
    if found is None:
        return out
    rows, columns, stars, shape = found
    cells = {}
    for train, test in halves(found, 2):
        x = sparse.csr_array((stars[train], (rows[train], columns[train])), shape=shape)
        for loss in ("square", "huber", "absolute"):
            models = []

            def fit(x=x, loss=loss, models=models):
                models.append(fs.LowRankModel(10, loss=loss, dtype="float32").fit(x))

            took = interleaved({"fit": fit}, 1)["fit"][0]
            error = np.clip(models[-1].decision_function(rows[test], columns[test]), 1, 5) - stars[test]
            cells.setdefault(loss, []).append([np.sqrt(np.mean(error**2)), np.abs(error).mean(), took])
    name = "ML-100K" if args.quick else "ML-1M"
    return [[name, loss, *(spread(column) for column in np.transpose(values))] for loss, values in cells.items()]
