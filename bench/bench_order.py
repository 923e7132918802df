"""What the order of labelled rows does: the warning's two rates, and learners on sets shuffled, in runs and sorted."""

import json
import warnings

import numpy as np
from sklearn.linear_model import SGDClassifier

import fastsketch as fs
import store
from bench_learner_sets import CLASSIFIED, SPLITS, subset, task_of
from bench_tools import few, table
from fastsketch.online._labels import LOOK, ClassTally
from fastsketch.sklearn import AdaptiveSubgradientClassifier, SketchedNewtonClassifier

SHARES = {
    "1%, 99%": (0.01, 0.99),
    "5%, 95%": (0.05, 0.95),
    "20%, 80%": (0.2, 0.8),
    "50%, 50%": (0.5, 0.5),
    "1%, 1%, 98%": (0.01, 0.01, 0.98),
    "10% each": (0.1,) * 10,
    "5% each": (0.05,) * 20,
    "half, a quarter, ... of 20": tuple(0.5 ** min(k, 19) for k in range(1, 21)),
}
RUNS = (1, 2, 4, 8, 32, 1000)
N = 8192
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
    """Alarms in shuffled streams and in runs; accuracy on test rows after training rows in three orders."""
    file = store.partial(args)
    kept = json.loads(file.read_text()) if file.exists() else {}
    for name in args.sets.split(",") if args.sets else few(list(CLASSIFIED), ["breast cancer"]):
        if not (args.keep and name in kept):
            lines = measured(name, 1 if args.quick else SPLITS)
            if lines:
                kept[name] = lines
                file.write_text(json.dumps(kept, indent=1) + "\n")
    alarms(few(2000, 20))
    columns = ["set", "rows", "learner", "shuffled, %", f"runs of {RUN:,}", "sorted", "runs - shuffled"]
    runs = f"{1 if args.quick else SPLITS} seeds, paired differences with the error of their mean"
    lines = [line for name in CLASSIFIED for line in kept.get(name, [])]
    table(lines, [*columns, "sorted - shuffled"], "sets", runs=runs)


def sorted_splits(args):
    """Sorted less shuffled rows by `fit` on Isolet, where five splits show a difference: on more, by more seeds.

    `fit` shuffles both, so that what differs is luck.
    """
    splits, lines = few(2 if args.quick else 20, 2), []
    for make in (SketchedNewtonClassifier, AdaptiveSubgradientClassifier):
        found = {"one seed for all splits": [], "a seed for each split": []}
        for seed in range(splits):
            task = task_of("Isolet", seed)
            if task is None:
                return
            at = orders(subset(task, few(FEWER["Isolet"], 200)).y, seed)
            for way, state in zip(found, (0, seed), strict=True):
                learn = make(random_state=state, epochs=1).fit
                found[way].append(100 * (accuracy(learn, task, at["sorted"]) - accuracy(learn, task, at["shuffled"])))
        for way, gaps in found.items():
            parts = [np.array(part) for part in (gaps[:SPLITS], gaps[SPLITS:], gaps)]
            cells = [f"{x.mean():.2f} +- {x.std(ddof=1) / np.sqrt(len(x)):.2f}" for x in parts if len(x) > 1]
            cells += [""] * (len(parts) - len(cells))
            lines.append([make.__name__, way, *cells])
            print(*lines[-1], flush=True)
    columns = ["learner", "shuffled by", "first five splits", "the others", "all"]
    table(lines, columns, "main", runs=f"{splits} splits, points of accuracy, mean and its error")


def measured(name, n_seeds):
    """Lines of the table of a set, one for each way; none where it is absent."""
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
    """{name: places of the rows}: as they come, sorted by label, and in runs of RUN sorted rows."""
    by_label = np.argsort(y, kind="stable")
    parts = [by_label[first : first + RUN] for first in range(0, len(y), RUN)]
    mixed = np.random.default_rng(seed).permutation(len(parts))
    return {"shuffled": np.arange(len(y)), "runs": np.concatenate([parts[i] for i in mixed]), "sorted": by_label}


def accuracy(learn, task, at):
    """Accuracy on the test rows after the training rows at these places."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that labels come in runs
        return float(np.mean(learn(task.x[at], task.y[at]).predict(task.test) == task.truth))


def alarms(n_streams):
    """Share of streams in which a warning comes, looking every LOOK rows."""
    rng, lines = np.random.default_rng(0), []
    for name, shares in SHARES.items():
        cells = []
        for run in RUNS:
            n = n_streams if run == 1 else max(20, n_streams // 20)
            found = sum(warns(drawn(rng, shares, run), len(shares)) for _ in range(n))
            cells.append(f"{found} of {n:,}")
        lines.append([name, *cells])
        print(*lines[-1], flush=True)
    columns = ["shares of the classes", "shuffled", *(f"runs of {run}" for run in RUNS[1:])]
    note = f"Streams of {N:,} rows in which a model warns; runs: a class is drawn anew after so many rows."
    table(lines, columns, "alarms", runs=f"{n_streams:,} shuffled streams", note=note)


def drawn(rng, shares, run):
    """Class numbers (N,), a class drawn by its share for every `run` rows."""
    return np.repeat(rng.choice(len(shares), N // run + 1, p=np.array(shares) / sum(shares)), run)[:N]


def warns(numbers, n_classes):
    tally = ClassTally([0] * n_classes)
    for first in range(0, few(N, 512), LOOK):
        tally = tally.with_rows(numbers[first : first + LOOK], n_classes)
        if tally.is_sorted():
            return True
    return False
