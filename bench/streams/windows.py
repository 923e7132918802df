"""Windows of blocks beside decay, an exact window and refits; comparisons of sketches beside tests of the rows."""

import time
from functools import partial

import numpy as np

import fastsketch as fs
from bench_tools import few, least, rival, table

D, TOP, BLOCK, BLOCKS, SIZE = 100, 5, 200, 10, 24
VARIANCES = 10.0 / np.arange(1, D + 1)
HALF_LIVES = tuple(share * BLOCK * BLOCKS for share in (0.125, 0.25, 0.5))  # in rows


# -- windows ---------------------------------------------------------------------------------------------------------
def moving(kind, n_blocks, seed):
    """Yield (rows of a block, their covariance) of a stream whose covariance moves from block to block."""
    rng = np.random.default_rng(seed)
    turn, other = (np.linalg.qr(rng.standard_normal((D, D)))[0] for _ in range(2))
    for block in range(n_blocks):
        if kind == "jumps" and block and block % 17 == 0:
            turn, other = other, np.linalg.qr(rng.standard_normal((D, D)))[0]
        q, variances = turn, VARIANCES
        if kind == "slow drift":  # the leading directions turn into the last ones, by three degrees a block
            angle = np.deg2rad(3 * block)
            q = turn.copy()
            q[:, :TOP] = np.cos(angle) * turn[:, :TOP] + np.sin(angle) * turn[:, -TOP:]
            q[:, -TOP:] = np.cos(angle) * turn[:, -TOP:] - np.sin(angle) * turn[:, :TOP]
        if kind == "seasons":  # the variances of two groups of directions come and go
            wave = 1 + 0.9 * np.sin(2 * np.pi * block / 40) * np.where(np.arange(D) % 2, 1, -1)
            variances = VARIANCES * wave
        yield rng.standard_normal((BLOCK, D)) * np.sqrt(variances) @ q.T, q * variances @ q.T


class ExactWindow:
    """Rows of the window, and the sum of their products with rows taken out of it again."""

    def __init__(self):
        self.rows, self.gram = [], np.zeros((D, D))

    def update(self, rows):
        self.rows.append(rows)
        self.gram += rows.T @ rows
        if len(self.rows) > BLOCKS:
            old = self.rows.pop(0)
            self.gram -= old.T @ old

    def read(self):
        values, vectors = np.linalg.eigh(self.gram)
        return values[::-1][:TOP] / sum(map(len, self.rows)), vectors[:, ::-1][:, :TOP].T

    def n_bytes(self):
        return self.gram.nbytes + sum(rows.nbytes for rows in self.rows)


class Ours:
    """A sketch, in a window or with a decay."""

    def __init__(self, window, half_life=None):
        decay = 1.0 if half_life is None else 0.5 ** (1 / half_life)
        model = fs.FrequentDirections(SIZE, method="tfd", solver="gram", decay=decay)
        self.model = fs.Window(model, BLOCKS, every=BLOCK) if window else model

    def update(self, rows):
        self.model.update(rows)

    def read(self):
        model = self.model.model if isinstance(self.model, fs.Window) else self.model
        spectrum = model.spectrum()
        return spectrum.values[:TOP] / model.total_weight, spectrum.vectors[:TOP]

    def n_bytes(self):
        return len(self.model.to_bytes())


class Incremental:
    """IncrementalPCA of scikit-learn, refitted to the window after each block, or never forgetting."""

    def __init__(self, refitted):
        self.refitted, self.rows = refitted, []

    def update(self, rows):
        from sklearn.decomposition import IncrementalPCA

        if self.refitted:
            self.rows = [*self.rows, rows][-BLOCKS:]
            self.pca = IncrementalPCA(TOP, batch_size=BLOCK).fit(np.vstack(self.rows))
        else:
            if not self.rows:
                self.pca, self.rows = IncrementalPCA(TOP), [rows[:0]]
            self.pca.partial_fit(rows)

    def read(self):
        return self.pca.explained_variance_, self.pca.components_

    def n_bytes(self):
        return self.pca.components_.nbytes + sum(rows.nbytes for rows in self.rows)


def followed(make, kind, n_blocks, seed):
    """Errors of a way over a stream: (blocks, 3) against the rows of the window and against the covariance now."""
    way, exact, errors, spent = make(), ExactWindow(), [], 0.0
    for rows, now in moving(kind, n_blocks, seed):
        start = time.process_time()
        way.update(rows)
        spent += time.process_time() - start
        exact.update(rows)
        if len(exact.rows) < BLOCKS:
            continue
        values, vectors = way.read()
        truth = np.linalg.eigvalsh(now)[::-1][:TOP]
        held = np.trace(vectors @ now @ vectors.T) / truth.sum()
        errors.append([np.max(np.abs(values / true - 1)) for true in (exact.read()[0], truth)] + [1 - held])
    return np.array(errors), spent / (n_blocks * BLOCK), way.n_bytes()


def windows(args):
    """Errors over four streams, then what a window costs beside its model."""
    seeds, n_blocks = (1, few(30, 12)) if args.quick else (5, 102)
    lines = []
    for kind in ("still", "jumps", "slow drift", "seasons"):
        tried = {  # on a stream of its own
            half: np.median(followed(partial(Ours, False, half), kind, n_blocks, 1000)[0][:, 1]) for half in HALF_LIVES
        }
        best = min(tried, key=tried.get)
        ways = {
            "Window": partial(Ours, True),
            f"decay, best half-life ({best:.0f} rows)": partial(Ours, False, best),
            "all rows": partial(Ours, False),
            "exact window, rows kept": ExactWindow,
        }
        if rival("sklearn"):
            ways["IncrementalPCA, refitted to the rows"] = partial(Incremental, True)
            ways["IncrementalPCA, partial_fit"] = partial(Incremental, False)
        for name, make in ways.items():
            found = [followed(make, kind, n_blocks, seed) for seed in range(seeds)]
            each = np.concatenate([errors for errors, _, _ in found])
            cells = [f"{100 * np.median(e):.2g} / {100 * e.max():.2g}" for e in each.T]
            us = [1e6 * spent for _, spent, _ in found]
            lines.append([kind, name, *cells, f"{np.median(us):.2f}", f"{found[0][2] / 1e3:.0f}"])
    heads = ["stream", "way", "% off the window's variances", "% off today's", "% of today's variance lost"]
    note = (
        f"Streams have {n_blocks} blocks of {BLOCK} rows of {D} columns, and windows "
        f"{BLOCKS} blocks; l = {SIZE}; errors are median / largest."
    )
    table(lines, [*heads, "us/row", "kB"], "streams", runs=f"{seeds} seeds", note=note)
    _cost(args)


def _cost(args):
    """Seconds of an update beside the model's own, and of the window's model: after every block, for the first time."""
    lines = []
    cases = [("rfd", 100, 32, 200), ("fd", 100, 32, 200), ("tfd", 100, 32, 200), ("rfd", 100, 32, 1000)]
    cases += [("rfd", 784, 64, 250), ("rfd", 784, 64, 1000), ("rfd", 3072, 64, 1000), ("ridge", 100, 0, 200)]
    for method, d, size, every in cases[:1] if args.quick else cases:
        rng, blocks, n_parts = np.random.default_rng(0), 24, 8
        rows = rng.standard_normal((few(every, 50) * n_parts, d)) * np.arange(1, d + 1) ** -0.7
        of_ridge = method == "ridge"
        template = fs.SketchedRidge() if of_ridge else fs.FrequentDirections(size, method=method, solver="gram")
        targets = (rows @ np.ones(d) + rng.standard_normal(len(rows)),) if of_ridge else ()
        parts = [[x[part] for x in (rows, *targets)] for part in np.split(np.arange(len(rows)), n_parts)]
        window, own = fs.Window(template, blocks, every=every), template.copy()
        while window.n_rows < 2 * blocks * every and not args.quick:
            window.update(rows, *targets)
        ways = {
            "own": lambda o=own, p=parts: [o.update(*part) for part in p],
            "window": lambda w=window, p=parts: [w.update(*part) for part in p],
            "read": lambda w=window, p=parts: [w.update(*part).model for part in p],
        }
        spent = least(ways, 1 if args.quick else 9, time.process_time)
        again = fs.from_bytes(window.to_bytes())
        start = time.process_time()
        again.model  # noqa: B018
        ms = [1e3 * spent[name] / n_parts for name in ways]
        cells = [f"{ms[0]:.2f}", f"{ms[1]:.2f}", f"{ms[1] / ms[0]:.2f}", f"{ms[2] - ms[1]:.2f}"]
        mb = [f"{len(model.to_bytes()) / 1e6:.2f}" for model in (window, own)]
        lines.append([method, d, size or "exact", every, *cells, f"{1e3 * (time.process_time() - start):.1f}", *mb])
    heads = ["model", "d", "l", "rows of a block", "model, ms/block", "window, ms/block", "to one"]
    heads += ["its model after each block, ms", "for the first time, ms", "window, MB", "model, MB"]
    note = (
        "Windows have 24 blocks, batches are one block each, and the ridge "
        "model is SketchedRidge with default settings."
    )
    table(lines, heads, "cost", runs=f"the least of {1 if args.quick else 9} in turn", note=note)


# -- comparisons -------------------------------------------------------------------------------------------------------
N_BLOCKS, ROWS, COLUMNS = 8, 250, 60


def drawn(kind, seed):
    """Rows before and after, N_BLOCKS * ROWS of each."""
    rng = np.random.default_rng(seed)
    n, scales = N_BLOCKS * ROWS, np.arange(1, COLUMNS + 1) ** -0.6
    noise = rng.standard_t(3, (2 * n, COLUMNS)) if kind == "t(3), nothing" else rng.standard_normal((2 * n, COLUMNS))
    if kind == "AR(.8), nothing":
        for i in range(1, len(noise)):
            noise[i] = 0.8 * noise[i - 1] + 0.6 * noise[i]
    before, after = np.split(noise * scales, 2)
    if kind == "first column x 1.1":
        after[:, 0] *= 1.1
    elif kind == "40th column x 2":
        after[:, 39] *= 2.0
    elif kind == "correlation, same columns":
        mixed = after[:, 10] / scales[10]
        after[:, 11] = scales[11] * (0.5 * mixed + np.sqrt(0.75) * after[:, 11] / scales[11])
    elif kind == "a weak direction over all":
        after += 0.35 * rng.standard_normal((n, 1)) * np.linalg.qr(rng.standard_normal((COLUMNS, 1)))[0].T
    return before, after


KINDS = ("normal, nothing", "t(3), nothing", "AR(.8), nothing", "first column x 1.1", "40th column x 2")
KINDS += ("correlation, same columns", "a weak direction over all")


def by_sketches(before, after, seed, *, solver="gram"):
    """The p-value of the largest change, and microseconds a row of the sketches, seconds of the comparison."""
    start = time.process_time()
    sides = [
        [fs.FrequentDirections(16, method="tfd", solver=solver).update(part) for part in np.split(rows, N_BLOCKS)]
        for rows in (before, after)
    ]
    learned = time.process_time()
    p = fs.compare(*sides, permutations=199, seed=seed).p_value
    return p, learned - start, time.process_time() - learned


def by_columns(before, after, test):
    """The least p-value of a test of each column, times their number (Bonferroni)."""
    start = time.process_time()
    p = min(test(a, b) for a, b in zip(before.T, after.T, strict=True)) * before.shape[1]
    return min(p, 1.0), 0.0, time.process_time() - start


def kolmogorov(a, b):
    from scipy.stats import ks_2samp

    return ks_2samp(a, b, method="asymp").pvalue


def welch(a, b):
    """Welch's t of the mean squares of the blocks."""
    from scipy.stats import ttest_ind

    return ttest_ind(*((x.reshape(N_BLOCKS, -1) ** 2).mean(axis=1) for x in (a, b)), equal_var=False).pvalue


def changes(args):
    """Shares of streams in which a change is said at p <= .05: false where there is none."""
    ways = {
        "compare, l = 16": by_sketches,
        'compare, solver="exact"': partial(by_sketches, solver="exact"),
        "Kolmogorov-Smirnov of each column": lambda a, b, seed: by_columns(a, b, kolmogorov),
        "Welch's t of each column's blocks": lambda a, b, seed: by_columns(a, b, welch),
    }
    n, lines = (few(20, 2), []) if args.quick else (200, [])
    for kind in KINDS:
        found = {name: [] for name in ways}
        for seed in range(n):
            sides = drawn(kind, seed)
            for name, way in ways.items():
                found[name].append(way(*sides, seed))
        for name, cells in found.items():
            p, learned, compared = np.array(cells).T
            shares = [f"{100 * np.mean(p <= level):.1f}" for level in (0.05, 0.01)]
            lines.append([kind, name, *shares, f"{1e3 * np.median(learned):.0f}", f"{1e3 * np.median(compared):.0f}"])
    heads = ["change", "way", "% of streams at p <= .05", "at .01", "ms to learn", "ms to compare"]
    note = f"Each side has {N_BLOCKS} blocks of {ROWS} rows of {COLUMNS} columns."
    table(lines, heads, "main", runs=f"{n} streams", note=note)
