"""decay="auto" on a market row by row, and on test rows of sets that do not change."""

import warnings

import numpy as np

import fastsketch as fs
from bench_data import elec
from bench_tools import few, rival, table
from learning.learners import log_loss
from learning.sets import CLASSIFIED, SPLITS, subset, task_of

DECAYS = (1.0, 0.999, 0.99, 0.98, 0.95)
KINDS = {"SketchedNewton": fs.SketchedNewton, "AdaptiveSubgradient": fs.AdaptiveSubgradient}
ROWS = 10_000  # of the training rows of a set, at most


def drifting(args):
    """A market row by row, beside constant decays and river's; and test rows of eleven shuffled sets."""
    warnings.simplefilter("ignore")  # that labels come in runs
    market(few(50_000, 300))
    columns = ["set", "decay 1: accuracy, %", "auto - 1, points", "decay 1: log loss", "auto - 1"]
    names = ["mushrooms"] if args.tiny else list(CLASSIFIED)
    for kind, learner in KINDS.items():
        lines = [still(name, learner, 1 if args.quick else SPLITS) for name in names]
        runs = f"{1 if args.quick else SPLITS} seeds, mean, paired differences with the error of their mean"
        table([line for line in lines if line], columns, f"still-{kind}", runs=runs, note=f"{kind}, one shuffled pass.")


def market(n):
    """Accuracy and log loss on elec of scores from before each row was learned from."""
    found = elec()
    if found is None:
        return
    rows, labels = found[0][:n], found[1][:n]
    chances = {}
    for name, learner in KINDS.items():
        for decay in ("auto", *DECAYS):
            scores = learner(classes=[0, 1], decay=decay).update(rows, labels).last_scores
            chances[f"{name}(decay={decay!r})"] = 1 / (1 + np.exp(-scores))
    if rival("river"):
        for rate in (0.01, 0.1, 0.5):
            chances[f"river, scaled logistic regression, SGD({rate})"] = river_chances(rows, labels, rate)
    same = np.concatenate([[0.5], labels[:-1]])
    times, kept = np.arange(1, len(labels) + 1), np.cumsum(np.abs(same - labels) < 0.5)
    share = np.concatenate([[0.5], ((kept + 1) / (times + 2))[:-1]])  # of labels that were those before, so far
    chances["the label before, as likely as it has been right"] = np.where(same > 0.5, share, 1 - share)
    lines = []
    for name, p in chances.items():
        p = np.clip(np.where(labels > 0, p, 1 - p), 2**-52, 1)
        lines.append([name, f"{100 * np.mean(p > 0.5):.2f}", f"{-np.mean(np.log(p)):.4f}"])
    table(lines, ["learner", "accuracy, %", "log loss"], "elec", runs=1, note=f"elec, {len(labels):,} rows in order.")


def river_chances(rows, labels, rate):
    """Probabilities (n,) of the positive class, each from before its row was learned from."""
    from river import linear_model, optim, preprocessing

    model = preprocessing.StandardScaler() | linear_model.LogisticRegression(optim.SGD(rate), intercept_lr=rate)
    out = []
    for row, label in zip(rows.tolist(), labels.tolist(), strict=True):
        x = dict(enumerate(row))
        out.append(model.predict_proba_one(x).get(True, 0.5))
        model.learn_one(x, bool(label))
    return np.array(out)


def still(name, learner, n_seeds):
    """Line of the table of a set; None where it is absent."""
    found = []
    for seed in range(n_seeds):
        task = task_of(name, seed)
        if task is None:
            return None
        task = subset(task, few(ROWS, 200))
        models = [learner(classes=task.classes, decay=decay).update(task.x, task.y) for decay in (1.0, "auto")]
        right = [100 * np.mean(model.predict(task.test) == task.truth) for model in models]
        found.append([*right, *(log_loss(task, model.predict_proba(task.test)) for model in models)])
    a, b, c, d = np.array(found).T
    gaps = [(gap.mean(), gap.std(ddof=1) / np.sqrt(n_seeds) if n_seeds > 1 else 0) for gap in (b - a, d - c)]
    points, losses = (
        f"{mean:+.{digits}f} +- {error:.{digits}f}" for (mean, error), digits in zip(gaps, (2, 4), strict=True)
    )
    return [name, f"{a.mean():.2f}", points, f"{c.mean():.4f}", losses]
