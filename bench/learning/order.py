"""What the order of labelled rows does: learners on rows that are shuffled, in runs, and sorted by label."""

import warnings

import numpy as np
from sklearn.linear_model import SGDClassifier

import fastsketch as fs
from bench_tools import few, table
from fastsketch.sklearn import AdaptiveSubgradientClassifier, SketchedNewtonClassifier
from learning.sets import CLASSIFIED, SPLITS, subset, task_of
from store import Parts

ROWS = 4000  # of the training rows of a set, at most
FEWER = {"news20": 1500, "MNIST": 1500, "Isolet": 1500}  # of many classes
RUN = 1000
WAYS = {
    "SketchedNewtonClassifier, fit": lambda *a: SketchedNewtonClassifier(epochs=1).fit(*a),
    "SketchedNewton, update": lambda *a: fs.SketchedNewton().update(*a),
    "AdaptiveSubgradientClassifier, fit": lambda *a: AdaptiveSubgradientClassifier(epochs=1).fit(*a),
    "AdaptiveSubgradient, update": lambda *a: fs.AdaptiveSubgradient().update(*a),
    "SGDClassifier(), fit": lambda *a: SGDClassifier(random_state=0).fit(*a),
    "SGDClassifier(), partial_fit": lambda x, y: SGDClassifier(random_state=0).partial_fit(x, y, classes=np.unique(y)),
}


def order(args):
    """Accuracy on test rows after training rows in three orders."""
    parts, seeds = Parts(args), 1 if args.quick else SPLITS
    lines = [
        line for name in few(list(CLASSIFIED), ["breast cancer"]) for line in parts.of(name, measured, name, seeds)
    ]
    columns = ["set", "rows", "learner", "shuffled, %", f"runs of {RUN:,}", "sorted", "runs - shuffled"]
    runs = f"{seeds} seeds, paired differences with the error of their mean"
    table(lines, [*columns, "sorted - shuffled"], "sets", runs=runs)


def measured(name, n_seeds):
    """Lines of the table of a set, one for each learner; none where it is absent."""
    found, lines, rows = {}, [], FEWER.get(name, ROWS)
    for seed in range(n_seeds):
        task = task_of(name, seed)
        if task is None:
            return []
        for how, at in orders(subset(task, few(rows, 200)).y, seed).items():
            for way, learn in WAYS.items():
                found.setdefault(way, {}).setdefault(how, []).append(100 * accuracy(learn, task, at))
    for way, by_order in found.items():
        each = {how: np.array(values) for how, values in by_order.items()}
        gaps = [each[how] - each["shuffled"] for how in ("runs", "sorted")]
        shown = [f"{gap.mean():.2f} +- {gap.std(ddof=1) / np.sqrt(n_seeds) if n_seeds > 1 else 0:.2f}" for gap in gaps]
        means = [f"{values.mean():.2f}" for values in each.values()]
        lines.append([name, f"{min(rows, len(task.y)):,}", way, *means, *shown])
        print(*lines[-1], flush=True)
    return lines


def orders(y, seed):
    """{name: places of the rows}: as they come, in runs of RUN sorted rows, and sorted by label."""
    by_label = np.argsort(y, kind="stable")
    parts = [by_label[first : first + RUN] for first in range(0, len(y), RUN)]
    mixed = np.random.default_rng(seed).permutation(len(parts))
    return {"shuffled": np.arange(len(y)), "runs": np.concatenate([parts[i] for i in mixed]), "sorted": by_label}


def accuracy(learn, task, at):
    """Accuracy on the test rows after the training rows at these places."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that labels come in runs
        return float(np.mean(learn(task.x[at], task.y[at]).predict(task.test) == task.truth))
