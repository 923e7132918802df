"""Where PCA("arpack") is as exact as SketchedPCA().fit and faster: every set of `components`, and flat noise.

What is asked of both is k components of rows in memory; SketchedPCA also keeps what streams and merges go on from, and
intervals. Each fit has a process of its own; seconds are of the processor, ways in turn. ``noise`` has flat noise of
4,000 x 4,000, once, with IncrementalPCA and PCA as it comes beside.
"""

import numpy as np
from sklearn.decomposition import PCA

from bench_component_sets import QUICK, SETS, truth_of
from bench_component_ways import apart, as_it_comes, incremental
from bench_tools import few, table

COUNTS = (10, 32)
AS_EXACT = 10  # times the error of ours, or to 1e-10
WAYS = {
    "SketchedPCA, fit": as_it_comes,
    "PCA arpack": lambda rows, k, limit: PCA(k, svd_solver="arpack", random_state=0).fit(rows),
    "IncrementalPCA": incremental,
    "PCA": lambda rows, k, limit: PCA(k, random_state=0).fit(rows),
}
BOTH = [*WAYS][:2]


def fitted(way, rows, truth, k):
    """A function for a process of its own: the fit, then its worst relative error of k variances beyond the clock."""

    def function():
        model = WAYS[way](rows, k, np.inf)
        model.components_, model.explained_variance_  # noqa: B018 (SketchedPCA reads them when they are asked for)
        real = truth.eigenvalues[:k] / (rows.shape[0] - 1)
        return lambda: float(np.abs(model.explained_variance_ / real - 1).max())

    return function


def measured(rows, ways, repeats):
    """{(k, way): (median seconds, worst error)} of a set."""
    truth = apart(lambda: truth_of(rows, max(COUNTS))).result
    runs = {(k, way): [] for k in COUNTS for way in ways}
    for _ in range(repeats):
        for (k, way), found in runs.items():
            found.append(apart(fitted(way, rows, truth, k)))
    return {key: (float(np.median([run.seconds for run in found])), found[0].result) for key, found in runs.items()}


def arpack(args):
    """Seconds and worst errors on all sets, ours and arpack."""
    lines = []
    names = QUICK[: few(len(QUICK), 1)] if args.quick else SETS
    for name in names:
        rows = SETS[name].make()
        if rows is None:
            continue
        results = measured(rows, BOTH, 1 if args.quick else 3)
        for k in COUNTS:
            (ours, error), (theirs, other) = (results[k, way] for way in BOTH)
            exact = other <= max(AS_EXACT * error, 1e-10)
            lines.append([name, "{:,} x {:,}".format(*rows.shape), k, f"{ours:.3g}", f"{error:.1e}", f"{theirs:.3g}"])
            lines[-1] += [f"{other:.1e}", f"{ours / theirs:.2f}", "yes" if exact and theirs < ours else "no"]
            print(*lines[-1], flush=True)
    head = ["set", "rows", "k", "fit, s", "worst error", "arpack, s", "its worst error", "times its seconds"]
    table(lines, [*head, "arpack as exact and faster"], "main", runs="median of 3 in turn")


def noise(args):
    """Seconds and worst errors of all ways on flat noise."""
    side = few(600 if args.quick else 4000, 200)
    results = measured(np.random.default_rng(0).standard_normal((side, side)), WAYS, 1)
    lines = [[k, way, f"{seconds:.3g}", f"{error:.1e}"] for (k, way), (seconds, error) in results.items()]
    table(lines, ["k", "way", "s", "worst error"], runs=1, note=f"Flat noise, {side:,} x {side:,}.")
