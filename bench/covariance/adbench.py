"""Anomalies in ADBench's sets, beside the plain distance of the same model and IsolationForest.

Of a random sample of at most 5,000 rows of a set, 60% of the normal rows and of the anomalies are learned from, without
labels; the others are scored. A set with a run in which no anomaly is scored is left out. Whether the concentration
steps are the default was decided on the tables 1 to 14 (``DESIGN``); all other sets were measured after that.
"""

import warnings

import numpy as np
from sklearn.ensemble import IsolationForest
from sklearn.metrics import average_precision_score, roc_auc_score

import bench_data
from bench_tools import few, table
from fastsketch.sklearn import SketchedCovariance

MAX_ROWS = 5000
RUNS = 3
DESIGN = range(1, 15)  # numbers of tables
MEASURES = {"AUC": roc_auc_score, "average precision": average_precision_score}
OURS, PLAIN, FOREST = SCORES = ("SketchedCovariance()", "support_fraction=1", "IsolationForest")


def adbench(args):
    """Areas under ROC curves and average precisions of each set, and their means by kind of set."""
    if (folder := bench_data.located("ADBench", "adbench", "the .npz files of github.com/Minqi824/ADBench")) is None:
        return
    found, lines = {}, []
    for path in sorted(folder.glob("*/*.npz"), key=set_order)[: few(1000, 2)]:
        kind, robust = kind_of(path), []
        runs = [measured(path, run, robust) for run in range(few(1 if args.quick else RUNS, 1))]
        if None in runs:
            print(f"{path.stem}: too few anomalies in a sample of {MAX_ROWS:,} rows")
            continue
        values = np.mean(runs, axis=0)
        found.setdefault(kind, []).append(values)
        with np.load(path) as arrays:
            shape = arrays["X"].shape
        cells = [f"{value:.3f}" for value in values.ravel()]
        lines.append([kind, f"{path.parent.name}, {path.stem}", *shape, f"{sum(robust)} of {len(robust)}", *cells])
    head = [f"{name}, {measure}" for name in SCORES for measure in MEASURES]
    table(lines, ["kind", "set", "rows", "columns", "trimmed", *head], "sets", runs=f"mean of {RUNS} runs")
    lines = [line for kind, values in found.items() for line in summarised(kind, np.array(values))]
    less = [f"ours less {rival}, {measure}" for rival in ("plain", "forest") for measure in MEASURES]
    table(lines, ["kind", "sets", "score", *MEASURES, *less], "means", runs=f"mean of {RUNS} runs of each set")


def kind_of(path):
    """Return "design", "tables" or "embeddings"."""
    if path.parent.name != "Classical":
        return "embeddings"
    return "design" if int(path.stem.partition("_")[0]) in DESIGN else "tables"


def set_order(path):
    """Return the key that sorts tables before embeddings, and tables by number."""
    table_number = int(path.stem.partition("_")[0]) if path.parent.name == "Classical" else 1000
    return table_number, path.parent.name, path.stem


def measured(path, run, robust):
    """Return AUC and average precision of the scores, (3, 2), or None if no scored row is an anomaly.

    Whether ours trims rows is appended to `robust`.
    """
    rng = np.random.default_rng(run)
    with np.load(path) as arrays:
        order = rng.permutation(len(arrays["X"]))[:MAX_ROWS]
        rows, wrong = arrays["X"][order].astype(np.float64), arrays["y"][order].astype(bool)
    learned = np.zeros(len(rows), bool)
    for label in (False, True):
        indices = np.flatnonzero(wrong == label)
        learned[indices[: round(0.6 * len(indices))]] = True
    train, test = rows[learned], rows[~learned]
    if not wrong[~learned].any():
        return None
    model = SketchedCovariance().fit(train)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of sets with fewer rows than a tree takes
        scores = [model.score_samples(test)]
        robust.append(model.robust_)
        scores.append(model.set_params(support_fraction=1.0).score_samples(test))
        scores.append(IsolationForest(random_state=run).fit(train).score_samples(test))
    return [[measure(wrong[~learned], -score) for measure in MEASURES.values()] for score in scores]


def summarised(kind, values):
    """Return the lines of a kind of sets; `values` are (sets, scores, measures)."""
    ours, n = values[:, SCORES.index(OURS)], len(values)
    for score, name in enumerate(SCORES):
        cells = [f"{mean:.3f}" for mean in values[:, score].mean(axis=0)]
        if name == OURS:
            for rival in (PLAIN, FOREST):
                less = ours - values[:, SCORES.index(rival)]
                errors = less.std(axis=0, ddof=min(1, n - 1)) / np.sqrt(n)
                cells += [f"{m:+.3f} +- {e:.3f}" for m, e in zip(less.mean(axis=0), errors, strict=True)]
        yield [kind, n, name, *cells, *[""] * (3 * len(MEASURES) - len(cells))]
