"""Ratings under the absolute loss, as in the GLRL paper (Table 4): ratings less their mean over their spread."""

import numpy as np

import fastsketch as fs
from bench_tools import few, seconds, spread, table
from fastsketch import papers
from fastsketch.reference.baselines import ADMML1, WibergL1
from lowrank.choice import Comparison, Way, chosen, less, ranks, seconds_of
from lowrank.sets import halves, matrix, ratings_of
from store import Parts

# Sections 5.1 and 5.2 of the paper, whose step size is far too small for these ratings: it is chosen here.
EXPERIMENT = {"loss": "absolute", "inner_tolerance": 0.99, "max_power_iterations": 30}
# Pursuits that the paper does not have: along one singular pair of the subgradient to the lowest point.
GREEDY = {"loss": "absolute", "learning_rate": 1.0, "max_inner_rank": 1, "inner_criterion": "current"}
BARE = {**GREEDY, "biases": False, "scaling": False}
MOST = 10  # ranks, as in the paper
STEPS, BIASES = (1.0, 2.0, 4.0, 8.0, 16.0), (0.5, 1.0, 2.0, 4.0, 8.0)


def stars(args):
    """Half for training, five splits; every setting by the error of a fifth of the training entries."""
    out = []
    splits = 2 if args.quick else 5
    small, large = ratings_of("ML-100K"), None if args.quick else ratings_of("ML-1M")
    if small is not None:
        # a dense matrix, and its singular values again and again
        slow = [] if args.quick else _admm((8.0, 16.0, 32.0), once=True)
        out += _compared("ML-100K", small, [*_ways(once=False), *slow], splits)
        ways = [way for way in _few() if not (args.quick and "Wiberg" in way.name)]
        out += _compared("ML-100K, 150 x 100", _busiest(small, 150, 100), ways, splits)
    if large is not None:
        out += _compared("ML-1M", large, list(_ways(once=True)), splits)
    pair = "less biases alone, spreads"
    head = ["set", "method", "MABS, spreads", pair, "MABS, stars", "s, processor", "s, clock", "chosen"]
    runs = f"{splits} splits, mean +- standard deviation; seconds: mean"
    table(out, head, "main", runs=runs)


def _compared(name, found, ways, splits):
    values = found[2]

    def scale(train):
        return values[train].mean(), values[train].std()

    def target(train):
        mean, spread = scale(train)
        return ((values - mean) / spread).astype(np.float32)

    def measure(z, train, test):
        mean, spread = scale(train)
        error = float(np.abs(np.clip(mean + spread * z, 1, 5) - values[test]).mean())
        return [error / float(spread), error]

    results = Comparison(found, target, measure).run(ways, halves(found, splits))
    out = []
    for label, result in results.items():
        pair = "" if label == "biases alone" else less(result, results["biases alone"], 0)
        errors = [spread([e[k] for e in result.errors]) for k in (0, 1)]
        out.append([name, label, errors[0], pair, errors[1], *seconds_of(result), chosen(result)])
    return out


# -- methods -----------------------------------------------------------------------------------------------------------
def _ways(*, once):
    def alone(x, **options):
        return fs.LowRankModel(0, loss="absolute", **options).fit(x).decision_function

    def swept(x, rank, **options):
        return fs.LowRankModel(rank, **GREEDY, sweeps=2, **options).fit(x).decision_function

    yield Way("median alone", _median)
    yield Way("biases alone", alone, {"bias_ridge": BIASES})
    yield Way("GLRL, printed step", **ranks(MOST, papers.glrl_nonsmooth, **EXPERIMENT), grid={"step_size": STEPS})
    yield Way("GLRL, line search", **ranks(MOST, **BARE))
    yield Way("biases + GLRL", **ranks(MOST, **GREEDY), grid={"bias_ridge": BIASES})
    grid = {"rank": (2, 4, 6), "ridge": (0.5, 0.7, 1.0, 1.4), "bias_ridge": BIASES}
    yield Way("biases + GLRL + 2 sweeps", swept, grid, once=once)


def _median(x):
    middle = float(np.median(x.data))
    return lambda rows, _: np.full(len(rows), middle)


def _admm(penalties, *, once):
    def fit(x, penalty, **options):
        return ADMML1(penalty, max_iterations=25, **options).fit(x).decision_function

    yield Way("ADMM", fit, {"penalty": penalties}, once=once)
    grid = {"penalty": penalties, "bias_ridge": BIASES}
    yield Way("ADMM with biases", lambda x, **o: fit(x, biases=True, **o), grid, once=once)


def _few():
    """What can be tried on few users and films."""

    def wiberg(x, rank, **options):
        return WibergL1(rank, max_iterations=4, **options).fit(x).decision_function

    yield from _ways(once=False)
    yield from _admm((2.0, 4.0, 8.0, 16.0), once=False)
    yield Way("Wiberg", wiberg, {"rank": (1, 2, 3)}, once=True)
    grid = {"rank": (1, 2, 3), "bias_ridge": BIASES}
    yield Way("Wiberg with biases", lambda x, **o: wiberg(x, biases=True, **o), grid, once=True)


def _busiest(found, users, films):
    """The entries of the users and films with the most ratings: linear programs grow with both."""
    rows, columns, values, _ = found
    most = (np.argsort(-np.bincount(ids))[:size] for ids, size in ((rows, users), (columns, films)))
    inside = np.logical_and(*(np.isin(ids, some) for ids, some in zip((rows, columns), most, strict=True)))
    part = [np.unique(ids[inside], return_inverse=True)[1] for ids in (rows, columns)]
    return *part, values[inside], (users, films)


# -- Wiberg on more users and films ------------------------------------------------------------------------------------
SIZES = ((100, 70), (150, 100), (250, 170))


def wiberg(args):
    """Seconds and error of Wiberg at rank 2 as users and films grow, beside simple models; nothing is chosen."""
    found = ratings_of("ML-100K")
    if found is None:
        return
    parts, out = Parts(args), []
    for users, films in SIZES[: 1 if args.quick else None]:
        for name in GROWING[: few(9, 3)]:
            out.append(parts.of(f"{users} {films} {name}", _of_size, found, (few(users, 20), few(films, 20)), name))
            print(*out[-1], flush=True)
    columns = ["users x films", "ratings", "method", "MABS, spreads", "s, processor"]
    note = (
        "The users and films are those with the most ratings in ML-100K; half of "
        "their ratings are for training, and the rank is 2."
    )
    table(out, columns, "main", runs="1 split", note=note)


PRINTED = "GLRL, printed step"
GROWING = ("median alone", "biases alone", PRINTED, "ADMM", "Wiberg")
STEP = 4.0  # what `stars` chose on training entries of ML-100K


def _of_size(found, size, name):
    """A line of the table of sizes."""
    part = _busiest(found, *size)
    values, (train, test) = part[2], next(iter(halves(part, 1)))
    mean, width = values[train].mean(), values[train].std()
    x = matrix(part, train, ((values - mean) / width).astype(np.float32))
    models = {
        "median alone": lambda: _median(x),
        "biases alone": lambda: fs.LowRankModel(0, loss="absolute").fit(x).decision_function,
        PRINTED: lambda: papers.glrl_nonsmooth(2, **EXPERIMENT, step_size=STEP).fit(x).decision_function,
        "ADMM": lambda: ADMML1(8.0, max_iterations=25).fit(x).decision_function,
        "Wiberg": lambda: WibergL1(2, max_iterations=4).fit(x).decision_function,
    }
    answers = [models[name]() for _ in range(name != "Wiberg")]  # what a first call compiles does not count
    taken = seconds(lambda: answers.append(models[name]()))
    z = answers[-1](part[0][test], part[1][test])
    error = np.abs(np.clip(mean + width * z, 1, 5) - values[test]).mean() / width
    return [f"{size[0]} x {size[1]}", f"{len(values):,}", name, f"{error:.4f}", f"{taken:.2g}"]
