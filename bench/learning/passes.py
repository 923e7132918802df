"""How often `fit` learns from few rows: one pass and what held-out rows choose, on test rows of sets of few rows."""

import time
import warnings

import numpy as np
from scipy import sparse
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bench_tools import few, table
from fastsketch.sklearn import AdaptiveSubgradientClassifier, SketchedNewtonClassifier
from learning.sets import SPLITS, task_of

SMALL = ("iris", "wine", "digits")  # of scikit-learn
SETS = ("breast cancer", "mushrooms", "madelon", "farm-ads", "Isolet")
LEARNERS = {
    "SketchedNewtonClassifier()": lambda x: SketchedNewtonClassifier(),
    "SketchedNewtonClassifier(epochs=1)": lambda x: SketchedNewtonClassifier(epochs=1),
    "AdaptiveSubgradientClassifier()": lambda x: AdaptiveSubgradientClassifier(),
    "AdaptiveSubgradientClassifier(epochs=1)": lambda x: AdaptiveSubgradientClassifier(epochs=1),
    "LogisticRegression(), scaled": lambda x: make_pipeline(_scaler(x), LogisticRegression(max_iter=1000)),
    "SGDClassifier('log_loss'), scaled": lambda x: make_pipeline(_scaler(x), SGDClassifier("log_loss", random_state=0)),
}


def passes(args):
    """Log loss, errors and seconds of fits of few rows, five splits: one pass, passes as chosen, rivals."""
    warnings.simplefilter("ignore")  # that iterations of a rival have ended
    lines = []
    for name in few((*SMALL, *SETS), SMALL[:1]):
        found = [split(name, seed) for seed in range(1 if args.quick else SPLITS)]
        if None in found:
            continue
        for label, make in LEARNERS.items():
            runs = np.array([measured(make, *parts) for parts in found])
            cells = [
                f"{column.mean():.{digits}f} +- {_error(column):.{digits}f}"
                for column, digits in zip(runs.T, (4, 2), strict=False)
            ]
            made = "" if np.isnan(runs[:, 3]).any() else ", ".join(f"{n:.0f}" for n in runs[:, 3])
            lines.append([name, f"{found[0][0].shape[0]:,}", label, *cells, f"{runs[:, 2].mean():.2f}", made])
            print(*lines[-1], flush=True)
    columns = ["set", "rows", "learner", "log loss", "wrong, %", "s", "passes"]
    runs = f"{1 if args.quick else SPLITS} splits, mean and its error; seconds of one thread, mean"
    table(lines, columns, "main", runs=runs)


def split(name, seed):
    """(rows, labels, test rows, test labels), or None where the set is absent."""
    if name in SMALL:
        import sklearn.datasets

        rows, labels = getattr(sklearn.datasets, f"load_{name}")(return_X_y=True)
        x, test, y, truth = train_test_split(rows, labels, test_size=0.3, random_state=seed, stratify=labels)
        return x, y, test, truth
    task = task_of(name, seed)
    return None if task is None else (task.x, task.y, task.test, task.truth)


def measured(make, x, y, test, truth):
    """(log loss, % wrong, seconds, passes or NaN) of a learner."""
    start = time.process_time()
    model = make(x).fit(x, y)
    seconds = time.process_time() - start
    chances = np.clip(model.predict_proba(test), 1e-15, 1)
    made = float(model.n_iter_) if hasattr(model, "model_") else np.nan
    return log_loss(truth, chances, labels=np.unique(y)), 100 * np.mean(model.predict(test) != truth), seconds, made


def _scaler(x):
    return StandardScaler(with_mean=not sparse.issparse(x))


def _error(values):
    return values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
