"""Ratings under the absolute loss, as in the GLRL paper (Table 4): ratings less their mean over their spread."""

import time

import numpy as np

import fastsketch as fs
from bench_choice import Comparison, Way, chosen, less, seconds_of, spread, write
from bench_lowrank_sets import halves, matrix, ratings_of
from bench_tools import table
from fastsketch.baselines import ADMML1, WibergL1

# The paper's algorithm: whole steps, no sweeps after them, neither biases nor degree scaling; a singular pair of h in
# each step of Algorithm 3, to the lowest point along it.
GREEDY = {"loss": "absolute", "learning_rate": 1.0, "sweeps": 0, "max_inner_rank": 1, "inner_criterion": "current"}
BARE = {**GREEDY, "biases": False, "scaling": False}
PRINTED = {**BARE, "step_rule": "inverse_sqrt"}
MOST = 10  # ranks, as in the paper
STEPS, BIASES, RIDGES = (0.5, 1.0, 2.0, 4.0, 8.0), (0.5, 1.0, 2.0, 4.0, 8.0), (3.0, 6.0, 12.0, 24.0)


def stars(args):
    """Half for training, five splits; every setting by the error of a fifth of the training entries."""
    out = []
    for name in ("ML-100K",) if args.quick else ("ML-100K", "ML-1M"):
        found = ratings_of(name)
        if found is not None:
            out += _compared(name, found, [*_ways(name), *_admm(name, args)], 2 if args.quick else 5)
    small = ratings_of("ML-100K")
    if small is not None:
        small = _busiest(small, 150, 100)
        out += _compared("ML-100K, 150 x 100", small, _few(args), 2 if args.quick else 5)
    pair = "less biases alone, spreads"
    head = ["set", "method", "MABS, spreads", pair, "MABS, stars", "s, processor", "s, clock", "chosen"]
    write(args, "stars", table(out, head))


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
def _ranks(most, **fixed):
    """(fit, along) of a model whose rank is chosen: one fit has them all."""

    def fit(x, rank, **options):
        return fs.LowRankModel(rank, **fixed, **options).fit(x).decision_function

    def along(x, **options):
        model = fs.LowRankModel(most, **fixed, **options).fit(x)
        for line in model.history:
            rank = line["rank"]
            yield {"rank": rank}, lambda rows, columns, rank=rank: model.decision_function(rows, columns, rank=rank)

    return {"fit": fit, "along": along}


def _ways(name):
    def alone(x, **options):
        return fs.LowRankModel(0, loss="absolute", **options).fit(x).decision_function

    def swept(x, rank, **options):
        return fs.LowRankModel(rank, **{**GREEDY, "sweeps": 2}, **options).fit(x).decision_function

    def median(x):
        middle = float(np.median(x.data))
        return lambda rows, columns: np.full(len(rows), middle)

    yield Way("median alone", median)
    yield Way("biases alone", alone, {"bias_ridge": BIASES})
    yield Way("GLRL, printed step", **_ranks(MOST, **PRINTED), grid={"step_size": STEPS})
    yield Way("GLRL, line search", **_ranks(MOST, **BARE))
    yield Way("biases + GLRL", **_ranks(MOST, **GREEDY), grid={"bias_ridge": BIASES})
    grid = {"rank": (2, 4, 6), "ridge": RIDGES, "bias_ridge": BIASES}
    yield Way("biases + GLRL + 2 sweeps", swept, grid, once=name == "ML-1M")
