"""Anomalies among rows: sets of normal rows with a few others among them, and estimators that score rows.

A fiftieth of the training rows are anomalies; no estimator is told which. The settings of the tuned ones are chosen by
the area under the ROC curve on a quarter of the training rows, whose labels the choice alone looks at.

No choice was made on these sets. ``alarms`` counts how many of new rows lie beyond a threshold that is to be exceeded
by 10%, 5% or 1% of them.
"""

import time
import warnings
from typing import NamedTuple

import numpy as np
from sklearn.covariance import EmpiricalCovariance, LedoitWolf
from sklearn.decomposition import PCA
from sklearn.ensemble import IsolationForest
from sklearn.metrics import roc_auc_score

from bench_data import matlab, mnist, sift5k, svmlight
from bench_tools import few, table
from components.sets import patches
from fastsketch.sklearn import SketchedCovariance
from hashing.gist import cifar10_classes, cifar10_gist

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


def alike(run, d=50, n=10_000):
    """Rows of unit variance; anomalies are all near one place, which is as far from their mean as they are."""
    rng = np.random.default_rng([run, d])
    place = rng.standard_normal(d)
    others = 0.3 * rng.standard_normal((1000, d)) + 0.95 * np.sqrt(d) * place / np.linalg.norm(place)
    return watched(rng.standard_normal((n, d)), others, rng)


def a_tenth_off(run, n=1000):
    """Five lognormal columns and their sum; in an anomaly it is 10% more."""
    rng = np.random.default_rng([run, 6])
    columns = np.exp(rng.standard_normal((n, 5)) + 2)
    rows, wrong = np.column_stack([columns, columns.sum(axis=1)]), np.arange(n) % 5 == 0
    rows[wrong, -1] *= 1.1
    return watched(rows[~wrong], rows[wrong], rng)


SETS = {
    "MNIST, one digit is normal": one_digit,
    "mushrooms": mushrooms,
    "breast cancer": tumours,
    "patches of two photographs": photographs,
    "ten factors and noise": factors,
}
# By these, generated, scores were designed, too; `headline` does not have them.
MADE = {"rows of one place among noise": alike, "a sum that is a tenth off": a_tenth_off}


def one_of(rows, labels):
    """Return a set of rows and labels: the class of the run is normal."""
    kinds = np.unique(labels)
    return lambda run: watched(
        rows[labels == kinds[run % len(kinds)]], rows[labels != kinds[run % len(kinds)]], np.random.default_rng(run)
    )


def sums(run):
    """scikit-learn's diabetes with the sum of its columns, which is wrong in a third of the rows."""
    from sklearn.datasets import load_diabetes

    rng, rows = np.random.default_rng(run), load_diabetes(return_X_y=True)[0]
    rows = rows[rng.permutation(len(rows))]
    total, wrong = rows.sum(axis=1), np.arange(len(rows)) % 3 == 0
    total[wrong] += total.std() * rng.choice([-1, 1], wrong.sum()) * rng.uniform(0.3, 1.3, wrong.sum())
    rows = np.column_stack([rows, total])
    return watched(rows[~wrong], rows[wrong], rng)


def real_sets():
    """{name: set} of those that the design of scores has not seen; absent where files are."""
    from sklearn.datasets import load_digits, load_iris, load_wine

    out = {"digits, one is normal": one_of(*load_digits(return_X_y=True)), "wines": one_of(*load_wine(return_X_y=True))}
    out |= {"iris, one is normal": one_of(*load_iris(return_X_y=True)), "diabetes and its columns' sum": sums}
    for name in ("a9a", "w8a"):
        if (found := svmlight(name)) is not None:
            rows, labels = found[0][:10_000].toarray(), found[1][:10_000]
            common = np.where(labels == -1, 0, 1)
            out[f"{name}, the common class is normal"] = lambda run, rows=rows, common=common: watched(
                rows[common == 0], rows[common == 1], np.random.default_rng(run)
            )
    if (found := matlab("Isolet")) is not None:
        rows, letters = found
        # five letters are normal
        out["Isolet, five letters are normal"] = lambda run: one_of(rows, (letters - 1) // 5 == run)(1)
    if (descriptors := cifar10_gist()) is not None:
        out["CIFAR-10 (JPEG), GIST, one class is normal"] = one_of(descriptors, cifar10_classes())
    return out


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


def scores(train, test, run):
    return -SketchedCovariance().fit(train).score_samples(test)


WAYS = {
    "SketchedCovariance()": scores,
    "SketchedCovariance, distance": distances(SketchedCovariance),
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
        # of samples asked for that are not there, of singular matrices, of parts without an anomaly (--tiny: nan)
        warnings.simplefilter("ignore")
        scores = way(data.train, data.test, run, **options)
        taken = time.process_time() - start
        return roc_auc_score(data.wrong, scores), taken


def chosen(way, candidates, data):
    """The candidate with the largest area on training rows."""
    part = data.within()
    return max(candidates, key=lambda options: scored(way, part, 0, **options)[0])


# -- commands ----------------------------------------------------------------------------------------------------------
RUNS = 3
DRAWS = 5  # of the rows, for shares of alarms
LEVELS = (0.1, 0.05, 0.01)
KEPT = (100, 500, 3000)
COMPARED = {name: WAYS[name] for name in ("SketchedCovariance()", "SketchedCovariance, distance", "IsolationForest")}


def anomalies(args):
    """Areas under ROC curves, and shares of false alarms."""
    lines = []
    for sets in (SETS, MADE, real_sets()):
        for name in [*sets][: few(len(sets), 1)]:
            lines.append(areas(name, sets[name], few(2 if args.quick else RUNS, 1)))
    head = [
        "area under the ROC curve",
        *COMPARED,
        "residual of PCA, tuned",
        "ours less the better of distance, residual",
    ]
    table([line for line in lines if line], head, "areas", runs=f"mean of {RUNS} runs")
    alarms(quick=args.quick)


def areas(name, make, runs):
    """A line of the table; None where files are absent."""
    found = {way: [] for way in (*COMPARED, "residual")}
    for run in range(runs):
        data = make(run)
        if data is None:
            return None
        for way, function in COMPARED.items():
            found[way].append(scored(function, data, run)[0])
        way, candidates = TUNED["residual of PCA, tuned"]
        settings = chosen(way, candidates, data)
        found["residual"].append(scored(way, data, run, **settings)[0])
    ours, distance, _, left = means = [float(np.mean(values)) for values in found.values()]
    return [name, *(f"{mean:.3f}" for mean in means), f"{ours - max(distance, left):+.3f}"]


def plain_sets():
    """{name: rows} whose labels nobody looks at; absent where files are."""
    from sklearn.datasets import load_breast_cancer, load_digits

    found = {name: svmlight(name) for name in ("mushrooms", "a9a", "w8a")}
    out = {name: pair[0].toarray() for name, pair in found.items() if pair is not None}
    out |= {name: pair[0] for name in ("Isolet", "madelon") if (pair := matlab(name)) is not None}
    images = mnist()
    out |= {} if images is None else {"MNIST": images[0][:14_000] / 255.0}
    out |= {} if (descriptors := sift5k()) is None else {"sift5k": descriptors.astype(float)}
    if (descriptors := cifar10_gist()) is not None:
        out["CIFAR-10 (JPEG), GIST"] = descriptors[np.random.default_rng(0).permutation(len(descriptors))[:14_000]]
    out |= {"photographs": patches(0), "digits": load_digits().data, "breast cancer": load_breast_cancer().data}
    return out


def alarms(*, quick):
    """Shares of new rows beyond the thresholds, after learning from 100, 500 and 3,000 rows of each set."""
    lines, within = [], {}
    for name, rows in [*plain_sets().items()][-few(11, 2) :]:  # the last are there without files, too
        for n in KEPT:
            if 1.3 * n > len(rows):
                continue
            shares = {level: [] for level in LEVELS}
            for seed in range(few(2 if quick else DRAWS, 1)):
                for level, found in _alarms(rows, n, seed):
                    shares[level].append(found)
            for level, found in shares.items():
                within.setdefault((n, level), []).extend(
                    (level / 1.5 <= ours <= 1.5 * level, level / 1.5 <= theirs <= 1.5 * level, perfect, inside)
                    for ours, theirs, perfect, inside in found
                )
                spread = [
                    f"{np.mean(x):.2%} ({min(x):.2%} .. {max(x):.2%})" for x in list(zip(*found, strict=True))[:2]
                ]
                lines.append([name, n, f"{level:.0%}", *spread])
    head = ["set", "rows", "asked for", "SketchedCovariance (range)", "IsolationForest (range)"]
    table(lines, head, "alarms", runs=f"mean and range of {DRAWS} draws")
    lines = [
        [n, f"{level:.0%}", len(found), *(f"{share:.0%}" for share in np.mean(found, axis=0))]
        for (n, level), found in within.items()
    ]
    head = [
        "rows",
        "asked for",
        "fits",
        "ours within 1.5 times",
        "IsolationForest within 1.5 times",
        "a perfect threshold within 1.5 times",
        "ours in its interval",
    ]
    table(lines, head, "held", runs=f"{DRAWS} draws of every set")


def _alarms(rows, n, seed):
    """Yield (level, (our share, that of IsolationForest, how often an exact order statistic of n exchangeable scores is
    within 1.5 times on so many test rows, whether ours is in its interval)) of one draw of n rows.
    """
    from scipy.stats import betabinom

    order = np.random.default_rng(seed).permutation(len(rows))
    train, test = rows[order[:n]], rows[order[n : n + 10_000]]
    model = SketchedCovariance().fit(train)
    forest = IsolationForest(random_state=seed).fit(train)
    of_train, of_test = forest.score_samples(train), forest.score_samples(test)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of rows that are too few for 1%
        for level in LEVELS:
            ours = float(np.mean(model.set_params(contamination=level).predict(test) < 0))
            low, high = model.alarm_interval_
            slack = 2 * np.sqrt(level * (1 - level) / len(test))  # what so many test rows may add
            # as contamination=level does it
            theirs = float(np.mean(of_test < np.percentile(of_train, 100 * level)))
            law = betabinom(len(test), level * (n + 1), (1 - level) * (n + 1))
            most, least = np.floor(1.5 * level * len(test)), np.ceil(level / 1.5 * len(test))
            perfect = float(law.cdf(most) - law.cdf(least - 1))
            yield level, (ours, theirs, perfect, low - slack <= ours <= high + slack)
