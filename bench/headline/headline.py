"""The README's five jobs: the library as it comes beside the tools that people use for them, and a simple rival.

Every figure is of RUNS runs: of different seeds, orders or splits. Tools take turns within a run, on one thread;
seconds are of the processor, medians, with half their range. Settings of rivals that are tuned are chosen on training
rows of the first run, and are in the last column.
"""

from functools import partial

import numpy as np

from bench_tools import few, table
from components import ways as ways_of
from components.components import variances
from components.sets import SETS, truth_of
from components.ways import apart
from covariance.anomalies import SETS as WATCHED
from covariance.anomalies import TUNED, WAYS, chosen, scored
from headline import models

RUNS = 5
NOTE = (
    "The +- of a quality is its standard deviation over the runs, and the +- "
    "of s is half the range of the processor seconds"
)


class Board:
    """What was found of one job: {(set, tool): [(qualities, seconds), ...]}."""

    def __init__(self, name, *qualities, digits=3):
        self.name, self.qualities, self.digits, self.found, self.settings = name, qualities, digits, {}, {}

    def add(self, data, tool, qualities, seconds, settings=""):
        self.found.setdefault((data, tool), []).append((qualities, seconds))
        self.settings[data, tool] = settings
        shown = ", ".join(f"{quality:.4g}" for quality in qualities)
        print(f"{self.name}: {data}, {tool}: {shown}; {seconds:.3g} s", flush=True)

    def show(self, note=""):
        head = ["set", "tool"]
        for quality in self.qualities:
            head += [quality, f"{quality} +-"]
        head += ["s", "s +-", "runs", "settings"]
        lines = []
        for (data, tool), runs in self.found.items():
            seconds, line = np.array([taken for _, taken in runs]), [data, tool]
            for values in np.array([qualities for qualities, _ in runs]).T:
                line += [self._cell(values.mean()), self._cell(values.std(ddof=1) if len(values) > 1 else 0.0)]
            line += [f"{np.median(seconds):.3g}", f"{(seconds.max() - seconds.min()) / 2:.2g}", len(runs)]
            lines.append([*line, self.settings[data, tool]])
        table(lines, head, self.name, runs=RUNS, note=". ".join(filter(None, [NOTE, note])))

    def _cell(self, value):
        return f"{value:.{self.digits}f}"


# -- components --------------------------------------------------------------------------------------------------------
COMPONENTS = ("MNIST", "w8a", "flower, patches", "ten directions", "factors, 768 columns")
K = 10
BATCHES = (200, 500, 1000, 2000, 5000)


def of_a_sample(run, size=2000):
    def way(rows, k, limit):
        some = np.random.default_rng(run).choice(len(rows), size, replace=False)
        return ways_of.covariance_eigh(rows[some], k, limit)

    return way


def in_batches_of(size):
    def way(rows, k, limit):
        from sklearn.decomposition import IncrementalPCA

        return ways_of.in_batches(IncrementalPCA(n_components=k), rows, size, limit)

    return way


def as_pca_comes(rows, k, limit):
    from sklearn.decomposition import PCA

    return PCA(n_components=k, random_state=0).fit(rows)


def factors():
    """30 factors and noise in 768 columns, the width of many embeddings."""
    rng = np.random.default_rng(0)
    return rng.standard_normal((20_000, 30)) @ rng.standard_normal((30, 768)) + 0.3 * rng.standard_normal((20_000, 768))


def components(runs, quick):
    """Worst relative error of the first ten variances, the rows in another order in each run."""
    board = Board("components", "worst error, %", "MB", digits=2)
    for name in ("ten directions",) if quick else COMPONENTS:
        rows = factors() if name.startswith("factors") else SETS[name].make()
        if rows is None:
            continue
        rows = rows.toarray() if hasattr(rows, "toarray") else rows  # IncrementalPCA makes its batches dense
        truth, size = truth_of(rows, K), None
        for run in range(runs):
            mixed = rows[np.random.default_rng(run).permutation(len(rows))]
            if size is None:
                size = _batch(mixed[: len(mixed) // 2])
                as_pca_comes(mixed[:500], 2, np.inf), ways_of.as_it_comes(mixed[:500], 2, np.inf)  # first calls
            ways = {
                "SketchedPCA().fit": ways_of.as_it_comes,
                "SketchedPCA().partial_fit, 500 rows": ways_of.by_partial_fit,
                "IncrementalPCA": ways_of.incremental,
                "IncrementalPCA, 200 rows": in_batches_of(200),
                "IncrementalPCA, tuned": in_batches_of(size),
                "PCA": as_pca_comes,
                "PCA, covariance_eigh": ways_of.covariance_eigh,
                "PCA, randomized": ways_of.randomized,
                "PCA of 2,000 rows": of_a_sample(run),
            }
            for tool, way in ways.items():
                found = apart(_fitted(way, mixed, truth))
                if found.note:
                    raise SystemExit(f"{name}, {tool}: {found.note}")
                words = f"batches of {size:,} rows" if tool.endswith("tuned") else ""
                board.add(name, tool, (100 * found.result.worst, found.megabytes), found.seconds, words)
    note = (
        f"Errors are those of the first {K} variances, and 0.00 is below 0.005%. "
        "MB is the largest resident set beyond the rows"
    )
    board.show(f"{note}. The tuned size of batches is the one with the smallest error on half of the rows")


def _fitted(way, rows, truth):
    def function():
        model = way(rows, K, np.inf)
        model.components_, model.explained_variance_  # noqa: B018  (SketchedPCA reads them when they are asked for)
        return lambda: variances(model, rows, truth, K)

    return function


def _batch(rows):
    truth = truth_of(rows, K)
    return min(BATCHES, key=lambda size: apart(_fitted(in_batches_of(size), rows, truth)).result.worst)


# -- anomalies ---------------------------------------------------------------------------------------------------------
def anomalies(runs, quick):
    """Area under the ROC curve of test rows, and seconds of fit and scores."""
    board = Board("anomalies", "AUC")
    for name in ("breast cancer",) if quick else WATCHED:
        make = WATCHED[name]
        settings = {}
        for run in range(runs):
            data = make(run)
            if data is None:
                break
            for tool, way in WAYS.items():
                area, taken = scored(way, data, run)
                board.add(name, tool, (area,), taken)
            for tool, (way, candidates) in TUNED.items():
                if tool not in settings:
                    settings[tool] = chosen(way, candidates, data)
                area, taken = scored(way, data, run, **settings[tool])
                words = ", ".join(f"{key} {value:g}" for key, value in settings[tool].items())
                board.add(name, tool, (area,), taken, words)
    board.show("The seconds are for fit and scores. A fiftieth of the training rows are unmarked anomalies")


# -- the command -------------------------------------------------------------------------------------------------------
JOBS = {
    "components": components,
    "anomalies": anomalies,
    "neighbours": partial(models.neighbours, Board("neighbours", "recall@10", "rescored")),
    "recommending": partial(models.recommending, Board("recommending", "NDCG@20", digits=4)),
    "learning": partial(models.learning, Board("learning", "log loss", "error, %", digits=4)),
}


def headline(args):
    """One table for each job."""
    wanted = args.only.split(",") if args.only else list(JOBS)
    for name in wanted:
        JOBS[name](few(2, 1) if args.quick else RUNS, args.quick)
