"""Rows so wide that a d x d sum cannot be had, read from files: accuracy against readings, time and memory.

Every run has a process of its own, forked from one that holds nothing, and reads the rows from a file through a source
that counts the bytes; seconds are of the processor.
"""

import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.sparse.linalg import eigsh
from sklearn.decomposition import PCA, IncrementalPCA

from bench_tools import few, table
from components.ways import apart
from fastsketch.data.sources import Source
from fastsketch.sketching._rereading import Product, block_krylov
from fastsketch.sklearn import SketchedPCA

K, WIDTH = 10, 30  # components, and rows of the sketch: 2 K + 10
CHUNK = 60  # rows that are written, or read by a rival, at a time
PASSES = (1, 2, 3, 4)


class Case(NamedTuple):
    """One file of rows."""

    name: str
    text: str
    n: int
    d: int
    kind: str = "factors"
    exponent: float = -0.5  # of the standard deviations of 200 factors
    noise: float = 0.3
    change: str = ""  # "sorted", "outlying row"


CASES = (
    Case("slow", "slow decay", 2_000, 8_000, exponent=-0.25),
    Case("fast", "fast decay", 2_000, 8_000, exponent=-1.0),
    Case("sorted", "rows sorted by length, the longest first", 2_000, 8_000, change="sorted"),
    Case("outlier", "an outlying row, 100 times as long", 2_000, 8_000, change="outlying row"),
    Case("rank", "rank 5", 2_000, 8_000, kind="rank 5", noise=0.0),
    Case("genotypes", "genotypes, people in columns", 5_000, 2_000, kind="genotypes"),
    Case("widest", "factors and noise", 2_000, 24_000),
)


class Truth(NamedTuple):
    values: np.ndarray  # leading eigenvalues of A'A of the centred rows
    total: float
    mean: np.ndarray  # (d,) of the rows


class Quality(NamedTuple):
    worst: float  # relative error of a variance
    width: float  # the widest interval, in units of its variance
    captured: float  # ||A V'||^2 over that of the best K directions
    passes: float  # bytes read / bytes of the file
    note: str


class Counted(Source):
    """Rows of an .npy file, in chunks, which counts the bytes that are read."""

    waits = False

    def __init__(self, path):
        self._rows = np.load(path, mmap_mode="r")
        self.name, self.feature_names, self.sparse = str(path), None, False
        (self.n_rows, self.n_features), self.dtype = self._rows.shape, self._rows.dtype
        self.n_read = 0

    def read(self, start_row=0):
        for start in range(start_row, self.n_rows, CHUNK):
            rows = np.array(self._rows[start : start + CHUNK])
            self.n_read += rows.nbytes
            yield rows, start + len(rows)

    def columns(self, part):
        block = np.array(self._rows[:, part])
        self.n_read += block.nbytes
        return block

    def place(self, row):
        return self.name, row, None

    @property
    def passes(self):
        return self.n_read / self._rows.nbytes


# -- rows --------------------------------------------------------------------------------------------------------------
def write(case, path, seed):
    """Write the rows of a case to an .npy file, a chunk at a time."""
    rng = np.random.default_rng(seed)
    n, d = few(case.n, 300), few(case.d, 400)
    out = np.lib.format.open_memmap(path, "w+", np.float32, (n, d))
    if case.kind == "genotypes":  # rows are variants, columns people of eight populations (Balding and Nichols)
        shares, populations = rng.uniform(0.1, 0.9, n), rng.integers(0, 8, d)
        spread = (1 - 0.02) / 0.02
        for i, share in enumerate(shares):
            own = rng.beta(share * spread, (1 - share) * spread, 8)
            out[i] = rng.binomial(2, own[populations])
        return
    rank = 5 if case.kind == "rank 5" else 200
    factors = rng.standard_normal((rank, d), dtype=np.float32)
    scales = (np.arange(1, rank + 1) ** case.exponent).astype(np.float32)
    scores = rng.standard_normal((n, rank), dtype=np.float32) * scales
    if case.change == "sorted":
        scores = scores[np.argsort(-(scores**2).sum(axis=1))]
    for start in range(0, n, CHUNK):
        part = scores[start : start + CHUNK] @ factors
        part += np.float32(case.noise) * rng.standard_normal(part.shape, dtype=np.float32)
        out[start : start + CHUNK] = part
    if case.change == "outlying row":
        out[n // 2] *= 100


def by_columns(source):
    """Return the n x n products of centred rows, summed up by blocks of columns in one pass."""
    n = source.n_rows
    total = np.zeros((n, n))
    for start in range(0, source.n_features, 1000):
        block = source.columns(slice(start, start + 1000)).astype(np.float64)
        block -= block.mean(axis=0)
        total += block @ block.T
    return total


def truth_of(source):
    """Return the leading eigenvalues of the centred rows, from the smaller of the two matrices of products."""
    mean = sum(rows.sum(axis=0, dtype=np.float64) for rows, _ in source.read()) / source.n_rows
    if source.n_rows <= source.n_features:
        total = by_columns(source)
    else:
        total = sum((rows - mean).T @ (rows - mean) for rows, _ in source.read())
    start = np.random.default_rng(0).standard_normal(len(total))
    values = eigsh(total, K + 1, tol=0, v0=start, return_eigenvectors=False)
    return Truth(np.sort(values)[::-1], float(np.trace(total)), mean)


# -- ways: components (K, d), eigenvalues (K,), intervals (K, 2) or None, and a note -----------------------------------
def sketched(source, **options):
    model = SketchedPCA(K, **options).fit(source)
    return found_by(model, source.n_rows)


def found_by(model, n):
    kept = f"{model.solver_}, {model.n_passes_} passes, l = {model.sketch_.resolved['sketch_size']}"
    converged = "" if model.n_passes_ == 1 else f", converged_ {model.converged_}"
    intervals = model.explained_variance_interval_ * (n - 1)
    return model.components_, model.explained_variance_ * (n - 1), intervals, kept + converged


def in_memory(source, **options):
    rows = np.concatenate([rows for rows, _ in source.read()])
    start = time.process_time()
    found = found_by(SketchedPCA(K, **options).fit(rows), len(rows))
    return *found, time.process_time() - start


def pca(source, **options):
    rows = np.concatenate([rows for rows, _ in source.read()])
    start = time.process_time()
    model = PCA(K, random_state=0, **options).fit(rows)
    taken = time.process_time() - start
    return model.components_, model.explained_variance_ * (len(rows) - 1), None, "all rows in memory", taken


def incremental(source):
    model = IncrementalPCA(K)
    for rows, _ in source.read():
        if len(rows) >= K:
            model.partial_fit(rows)
    return model.components_, model.explained_variance_ * (source.n_rows - 1), None, f"batches of {CHUNK}"


def times(source, q, mean):
    """Return A'A q of the centred rows in one pass, and their mean, which a first pass subtracts by linearity."""
    out, sums, along = np.zeros(q.shape), np.zeros(source.n_features), np.zeros(q.shape[1])
    squares = 0.0
    for rows, _ in source.read():
        wide = rows.astype(np.float64)
        z = wide @ q - (0.0 if mean is None else mean @ q)
        out += wide.T @ z
        along += z.sum(axis=0)
        sums += wide.sum(axis=0)
        squares += float(np.einsum("ij,ij->", wide, wide))
    found = sums / source.n_rows
    out -= np.outer(found, along)
    return out, found, squares - source.n_rows * float(found @ found)


def randomized(source, *, passes):
    """Randomized subspace iteration of as many vectors as the sketch has rows; the last pass is read by Nystrom."""
    q = np.linalg.qr(np.random.default_rng(0).standard_normal((source.n_features, WIDTH)))[0]
    mean = None
    for turn in range(passes):
        y, mean, _ = times(source, q, mean)
        if turn < passes - 1:
            q = np.linalg.qr(y)[0]
    core = q.T @ y
    shift = 1e-12 * np.trace(core)
    factor = cholesky((core + core.T) / 2 + shift * np.eye(WIDTH), lower=True)
    u, s, _ = np.linalg.svd(solve_triangular(factor, y.T, lower=True).T, full_matrices=False)
    return u.T[:K], s[:K] ** 2, None, f"{WIDTH} vectors"


def krylov(source, *, passes):
    """The block Krylov method of the library from random directions."""
    q = np.linalg.qr(np.random.default_rng(0).standard_normal((source.n_features, WIDTH)))[0]
    held = {"mean": None}

    def multiply(block):
        y, held["mean"], squares = times(source, block, held["mean"])
        return Product(y, squares, source.n_rows, squares)

    space = block_krylov(multiply, q.T, K, width=K + 10, most_passes=passes, tol=0.0)
    values, turn = np.linalg.eigh(space.basis @ space.products.product)
    return turn[:, ::-1].T[:K] @ space.basis, values[::-1][:K], None, f"{len(space.basis)} directions"


def gram(source):
    total = by_columns(source)
    values, vectors = eigsh(total, K, v0=np.random.default_rng(0).standard_normal(len(total)))
    vt = np.zeros((K, source.n_features))
    return vt, np.sort(values)[::-1], None, "n x n; components would take another pass"


WAYS = {
    **{f"SketchedPCA, passes={p}": partial(sketched, passes=p, max_memory=0, solver="gram") for p in PASSES[:3]},
    "SketchedPCA": partial(sketched, max_memory=0),
    **{f"randomized, {p} passes": partial(randomized, passes=p) for p in PASSES},
    **{f"random Krylov, {p} passes": partial(krylov, passes=p) for p in PASSES[1:3]},
    "IncrementalPCA": incremental,
    "n x n sum": gram,
    "SketchedPCA of an array": in_memory,
    "PCA of an array": pca,
    **{f"PCA, iterated_power={p}": partial(pca, svd_solver="randomized", iterated_power=p) for p in (5, 6)},
}


def captured(source, vt, mean):
    """Return the squared length of the centred rows within the span of vt."""
    q = np.linalg.qr(vt.T.astype(np.float64))[0]
    return sum(float(((rows @ q - mean @ q) ** 2).sum()) for rows, _ in source.read())


def run(way, path, truth):
    """Return a function for a process of its own: the fit, then its quality beyond the clock."""

    def function():
        source = Counted(path)
        vt, values, intervals, note, *own = WAYS[way](source)
        passes = source.passes

        def quality():
            top = truth.values[:K]
            good = top > 1e-9 * top[0]
            worst = float(np.abs(values[good] / top[good] - 1).max())
            width = np.nan if intervals is None else float((np.ptp(intervals, axis=1)[good] / top[good]).max())
            share = captured(source, vt, truth.mean) / top.sum() if vt.any() else np.nan
            return Quality(worst, width, float(share), passes, note), *own

        return quality

    return function


def shown(value, form=".1e"):
    return "" if np.isnan(value) else format(value, form)


def wide(args):
    """Tables of every case, way by way."""
    path = Path(args.scratch) / "wide.npy"
    try:
        names = args.sets.split(",") if args.sets else [case.name for case in CASES[: 2 if args.quick else None]]
        for case in (case for case in CASES if case.name in names):
            write(case, path, seed=0)
            truth = apart(lambda: truth_of(Counted(path))).result
            lines = []
            for way in WAYS:
                found = apart(run(way, path, truth))
                if found.note:
                    lines.append([way, found.note, *[""] * 6])
                    continue
                quality, *own = found.result
                cells = [f"{own[0] if own else found.seconds:.2f}", f"{quality.passes:.2f}", f"{found.megabytes:.0f}"]
                cells += [shown(quality.worst), shown(quality.width), shown(1 - quality.captured), quality.note]
                lines.append([way, *cells])
            n, d = Counted(path)._rows.shape
            gaps = truth.values[:K] / np.maximum(truth.values[1 : K + 1], 1e-300)
            total = "infinitely many" if case.kind == "rank 5" else f"{truth.total / truth.values[K - 1]:.3g}"
            note = f"The table is for {n:,} x {d:,} float32 numbers: {case.text}. Variance {K} is {gaps[-1]:.3g} times "
            note += f"the next one, and the total variance is {total} times variance {K}."
            table(lines, COLUMNS, case.name, runs=1, note=note)
    finally:
        path.unlink(missing_ok=True)


COLUMNS = ["way", "s", "readings", "MB", "worst variance", "widest interval", "energy missed", "of it"]
