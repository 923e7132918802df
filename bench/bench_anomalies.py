"""Anomalies among rows: sets of normal rows with a few others among them, and estimators that score rows.

A fiftieth of the training rows are anomalies; no estimator is told which. The settings of the tuned ones are chosen by
the area under the ROC curve on a quarter of the training rows, whose labels the choice alone looks at.
"""

import time
import warnings
from typing import NamedTuple

import numpy as np
from sklearn.covariance import EmpiricalCovariance, LedoitWolf
from sklearn.decomposition import PCA
from sklearn.ensemble import IsolationForest
from sklearn.metrics import roc_auc_score

from bench_component_sets import patches
from bench_data import mnist, svmlight
from fastsketch.sklearn import SketchedCovariance

SHARE = 0.02  # of anomalies among the training rows
SAMPLE = 1000


class Watched(NamedTuple):
    """strange, wrong: labels, 1 for an anomaly; those of training rows are for choices of settings alone."""

    train: np.ndarray
    strange: np.ndarray
    test: np.ndarray
    wrong: np.ndarray

    def within(self):
        """The same on training rows alone: the last quarter is scored."""
        cut = 3 * len(self.train) // 4
        return Watched(self.train[:cut], self.strange[:cut], self.train[cut:], self.strange[cut:])


def watched(normal, others, rng):
    """60% of the normal rows with some of the others among them to learn from; the rest is scored."""
    normal, others = normal[rng.permutation(len(normal))], others[rng.permutation(len(others))]
    cut = int(0.6 * len(normal))
    few = min(max(round(SHARE * cut), 4), len(others) // 2)
    train = np.concatenate([normal[:cut], others[:few]])
    strange = np.repeat([0, 1], [cut, few])
    order = rng.permutation(len(train))
    test = np.concatenate([normal[cut:], others[few : few + 5000]])
    held = len(normal) - cut
    return Watched(train[order], strange[order], test, np.repeat([0, 1], [held, len(test) - held]))


# -- sets: function of the run -> Watched, None where files are absent -------------------------------------------------
def one_digit(run):
    """MNIST's training images: the digit of the run is normal, the nine others are not."""
    found = mnist()
    if found is None:
        return None
    rows, labels = found[0] / 255.0, found[1]
    return watched(rows[labels == run], rows[labels != run][:20_000], np.random.default_rng(run))


def mushrooms(run):
    found = svmlight("mushrooms")
    if found is None:
        return None
    rows, labels = found[0].toarray(), found[1]
    common = labels == np.unique(labels)[0]
    return watched(rows[common], rows[~common], np.random.default_rng(run))


def tumours(run):
    """scikit-learn's breast cancer: the benign are normal."""
    from sklearn.datasets import load_breast_cancer

    rows, benign = load_breast_cancer(return_X_y=True)
    return watched(rows[benign == 1], rows[benign == 0], np.random.default_rng(run))


def photographs(run):
    """Patches of one photograph among those of another."""
    return watched(patches(0), patches(1), np.random.default_rng(run))


def factors(run, d=300, n=10_000):
    """Ten factors and unit noise; an anomaly is a row that is 6 too far in a direction of its own."""
    rng = np.random.default_rng([run, d])
    loadings = np.linspace(5, 1, 10)[:, np.newaxis] * rng.standard_normal((10, d))
    rows = rng.standard_normal((n + 1000, 10)) @ loadings + rng.standard_normal((n + 1000, d))
    away = rng.standard_normal((1000, d))
    rows[n:] += 6 * away / np.linalg.norm(away, axis=1)[:, np.newaxis]
    return watched(rows[:n], rows[n:], rng)


SETS = {
    "MNIST, one digit is normal": one_digit,
    "mushrooms": mushrooms,
    "breast cancer": tumours,
    "patches of two photographs": photographs,
    "ten factors and noise": factors,
}


# -- estimators: function of (train, test, run) -> scores of the test rows, higher for what is stranger ----------------
def distances(make):
    return lambda train, test, run: make().fit(train).mahalanobis(test)


def of_a_sample(train, test, run):
    some = np.random.default_rng(run).choice(len(train), min(SAMPLE, len(train)), replace=False)
    return LedoitWolf().fit(train[some]).mahalanobis(test)


def forest(train, test, run, **options):
    return -IsolationForest(random_state=run, **options).fit(train).score_samples(test)


def residual(train, test, run, k=0.95):
    """What `k` principal components leave of a row."""
    model = PCA(k, random_state=run).fit(train)
    centred = test - model.mean_
    return (centred**2).sum(axis=1) - ((centred @ model.components_.T) ** 2).sum(axis=1)


WAYS = {
    "SketchedCovariance()": distances(SketchedCovariance),
    "SketchedCovariance, gram": distances(lambda: SketchedCovariance(solver="gram")),
    "EmpiricalCovariance": distances(EmpiricalCovariance),
    "LedoitWolf": distances(LedoitWolf),
    f"LedoitWolf of {SAMPLE:,} rows": of_a_sample,
    "IsolationForest": forest,
}
TUNED = {
    "IsolationForest, tuned": (
        forest,
        [{"n_estimators": n, "max_samples": m} for n in (100, 300) for m in (256, 2048)],
    ),
    "residual of PCA, tuned": (residual, [{"k": k} for k in (0.5, 0.8, 0.9, 0.95, 0.99)]),
}


def scored(way, data, run, **options):
    """(area under the ROC curve, processor seconds of fit and scores)."""
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of samples asked for that are not there, of singular matrices
        scores = way(data.train, data.test, run, **options)
    taken = time.process_time() - start
    return roc_auc_score(data.wrong, scores), taken


def chosen(way, candidates, data):
    """The candidate with the largest area on training rows."""
    part = data.within()
    return max(candidates, key=lambda options: scored(way, part, 0, **options)[0])
