"""What each rank or iteration is worth (GLRL, Figures 1 and 2): accuracy and error against seconds of the processor."""

import time

import numpy as np

import fastsketch as fs
from bench_tools import few, spread, table
from fastsketch import papers
from fastsketch.reference.baselines import ADMML1, AISImpute, AltMin
from lowrank.links import PURSUITS, learners
from lowrank.sets import halves, links_of, matrix, ratings_of, tenths
from lowrank.stars import BARE, EXPERIMENT, GREEDY, MOST
from store import Parts

FOLDS, FEWER = 10, {"AltMin": 1, "AIS-Impute": 1}  # these take minutes a fold
PENALTIES = {"Epinions": 6.0, "Slashdot": 6.5}  # an output of rank about 40, which is how the paper chooses them
STEPS = {"ML-100K": 4.0, "ML-1M": 8.0}  # what `stars` chose on training entries


def paths(args):
    """The paper's setting and sets, fold by fold: training and test, rank by rank or iteration by iteration."""
    parts, sets, walks = Parts(args), {}, {}
    for name in ("Epinions", "Slashdot", "ML-100K", "ML-1M"):
        stars = name.startswith("ML")
        found = ratings_of(name) if stars else links_of(name)
        if found is not None:
            splits = list((halves if stars else tenths)(found, 1 if args.quick else FOLDS))
            sets[name] = found, splits, _of_stars(name) if stars else _of_links(name), stars
    wanted = [(name, label) for name, (_, _, methods, _) in sets.items() for label in methods]
    for name, label in sorted(wanted, key=lambda pair: pair[1] in FEWER):
        found, splits, methods, stars = sets[name]
        for fold, split in enumerate(splits[: FEWER.get(label, FOLDS)]):
            walk = parts.of(f"{name} {fold} {label}", walked, found, split, methods[label], stars)
            walks.setdefault((name, label), []).append(walk)
            print(name, fold, label, len(walk), *walk[-1], flush=True)
    out, lines = [], []
    for name, label in filter(walks.get, wanted):
        out.append([name, label, *_ends(walks[name, label], sets[name][3])])
        lines += _curves(name, label, walks[name, label], sets[name][3])
    columns = ["set", "method", "folds", "points", "training", "test"]
    columns += ["test, best on the way", "after, s", "s, processor"]
    note = (
        "For links the table has the accuracy in %, on folds of ten; for stars it has the mean "
        "absolute error in standard deviations, on random halves."
    )
    table(out, columns, "main", runs="as many folds as the table says, mean +- standard deviation", note=note)
    table(lines, ["what", "method", "s", "value"], "curves", runs="means over the folds")


def _of_links(name):
    """{method: () -> an unfitted model} of GLRL Figure 1, and biases alone beside them."""
    labels = (*PURSUITS, "biases alone")
    methods = {label: lambda label=label: learners(few(40, 4))[label] for label in labels}
    methods["AltMin"] = lambda: AltMin(few(40, 4), loss="logistic", ridge=0.7, max_iterations=few(300, 5))
    penalty, most = PENALTIES[name], few(60, 4)
    methods["AIS-Impute"] = lambda: AISImpute(penalty, max_rank=most, loss="logistic", max_iterations=few(300, 5))
    return methods


def _of_stars(name):
    """The same of Figure 2; ADMM has the singular values of a dense matrix in each iteration."""
    methods = {
        "GLRL, printed step": lambda: papers.glrl_nonsmooth(MOST, **EXPERIMENT, step_size=STEPS[name]),
        "GLRL, line search": lambda: fs.LowRankModel(MOST, sweeps=0, **BARE),
        "biases + GLRL": lambda: fs.LowRankModel(MOST, sweeps=0, **GREEDY),
    }
    if name == "ML-100K":
        methods["ADMM"] = lambda: ADMML1(16.0, max_iterations=few(25, 2))
    return methods


def walked(found, split, make, stars):
    """Return [seconds of the processor, training, test] after each rank or iteration, less the time to score these."""
    rows, columns, values, _ = found
    mean, width = (values[split[0]].mean(), values[split[0]].std()) if stars else (0.0, 1.0)
    x = matrix(found, split[0], ((values - mean) / width).astype(np.float32))
    often = np.sign(values[split[0]].mean())  # of links without a score

    def figures(scores):
        z = [np.asarray(scores(rows[part], columns[part]), dtype=np.float64) for part in split]
        if stars:
            pairs = zip(z, split, strict=True)
            return [float(np.abs(np.clip(mean + width * s, 1, 5) - values[p]).mean() / width) for s, p in pairs]
        signs = [np.where(s > 0, 1, np.where(s < 0, -1, often)) for s in z]
        return [100 * float(np.mean(s == values[p])) for s, p in zip(signs, split, strict=True)]

    made = np.sign(np.random.default_rng(0).standard_normal((60, 50))).astype(np.float32)
    make().fit(made)  # what a first call compiles is no rank's
    model = make()
    walk = _ranks if isinstance(model, fs.LowRankModel) else _iterations
    return [[round(float(f"{value:.5g}"), 5) for value in line] for line in walk(model, x, figures)]


def _ranks(model, x, figures):
    """The library's models keep every rank; where sweeps follow, only the end is what is in use."""
    start, seconds = time.process_time(), {}

    def at(line):
        seconds[line["rank"]] = time.process_time() - start

    model.fit(x, callback=at)
    if model.parameters["sweeps"] != 0:
        return [[time.process_time() - start, *figures(model.decision_function)]]
    return [[s, *figures(lambda i, j, r=rank: model.decision_function(i, j, rank=r))] for rank, s in seconds.items()]


def _iterations(model, x, figures):
    """The rivals show their factors to a callback."""
    out, start, paused = [], time.process_time(), [0.0]

    def at(line):
        began, (a, b) = time.process_time(), line["factors"]
        out.append([began - start - paused[0], *figures(lambda i, j: _products(a, b, i, j))])
        paused[0] += time.process_time() - began

    model.fit(x, callback=at)
    return out


def _products(a, b, rows, columns, block=50_000):
    """Return a_i'b_j, a part of the pairs at a time."""
    parts = [slice(k, k + block) for k in range(0, len(rows), block)]
    return np.concatenate([np.einsum("kq,kq->k", a[rows[p]], b[columns[p]]) for p in parts])


def _ends(runs, stars):
    """Folds, points, figures at the end, the best of the mean curve and its seconds, seconds of all."""
    ends, digits = np.array([run[-1] for run in runs]), 3 if stars else 1
    mean = _mean(runs)
    best = (np.argmin if stars else np.argmax)(mean[:, 2])
    figures = [spread(ends[:, k], digits) for k in (1, 2)]
    points = f"{np.mean([len(run) for run in runs]):.0f}"
    return [len(runs), points, *figures, f"{mean[best, 2]:.{digits}f}", f"{mean[best, 0]:.2f}", spread(ends[:, 0], 2)]


def _mean(runs):
    """The mean of the folds point by point, as far as all of them go."""
    least = min(len(run) for run in runs)
    return np.array([run[:least] for run in runs]).mean(axis=0)


def _curves(name, label, runs, stars):
    """Lines of the table of curves: a panel of training and one of test."""
    figure = "error, spreads" if stars else "accuracy, %"
    mean = _mean(runs)
    mean = mean[np.unique(np.linspace(0, len(mean) - 1, 41).astype(int))]  # iterations of rivals are hundreds
    return [
        [f"{name}, {part}: {figure}", label, f"{line[0]:.4g}", f"{line[k]:.4g}"]
        for k, part in ((1, "training"), (2, "test"))
        for line in mean
    ]
