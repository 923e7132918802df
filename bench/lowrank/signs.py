"""Signed links, logistic loss, as in the GLRL paper (Table 2): accuracy on held-out tenths."""

import numpy as np

import fastsketch as fs
from bench_tools import spread, table
from fastsketch.reference.baselines import AISImpute, AltMin
from lowrank.choice import Comparison, Way, chosen, less, ranks, seconds_of
from lowrank.links import EXPERIMENT, PURSUITS
from lowrank.sets import links_of, tenths

SETS = "bitcoin-OTC", "Epinions"
# Pursuits that the paper does not have: with biases, and with whole steps along degree-scaled gradients.
GREEDY = {"loss": "logistic", "dtype": "float32"}
BARE = {**GREEDY, "learning_rate": 1.0, "biases": False, "scaling": False}
BIASES, UNITS = (0.5, 1.0, 2.0, 4.0, 8.0), (0.5, 0.7, 1.0, 1.4, 2.0)
BASE = "biases alone"


def signs(args):
    """Three tenths, each tested on once; every setting by the accuracy on a fifth of the training entries."""
    out = []
    for name in SETS[: 1 if args.quick else 2]:
        found = links_of(name)
        if found is not None:
            out += _signs(name, found, 2 if args.quick else 3)
    head = ["set", "method", "accuracy, %", f"less {BASE}", "s, processor", "s, clock", "chosen"]
    runs = f"{2 if args.quick else 3} splits, mean +- standard deviation; seconds: mean"
    table(out, head, "main", runs=runs)


def _signs(name, found, splits):
    labels = found[2]
    print(name, found[3], len(labels), flush=True)

    def measure(z, train, test):
        often = np.sign(labels[train].mean())  # of pairs without a score
        right = np.where(z > 0, 1, np.where(z < 0, -1, often)) == labels[test]
        return [100 - 100 * float(np.mean(right))]

    large = len(labels) > 100_000
    comparison = Comparison(found, lambda _: labels, measure, looks=1 if large else 3)
    results = comparison.run([*_ours(large=large), *([] if large else _baselines(large=large))], tenths(found, splits))
    out = []
    for label, result in results.items():
        accuracy = spread([100 - e[0] for e in result.errors], 2)
        pair = "" if label == BASE else less(results[BASE], result, 0, 2)  # of errors, the other way round
        out.append([name, label, accuracy, pair, *seconds_of(result), chosen(result)])
    return out


def _ours(*, large):
    most = 40 if large else 20

    def alone(x, **options):
        return fs.LowRankModel(0, **GREEDY, **options).fit(x).decision_function

    def swept(x, rank, **options):
        return fs.LowRankModel(rank, **GREEDY, **options).fit(x).decision_function

    yield Way(BASE, alone, {"bias_ridge": BIASES})
    for name, call in PURSUITS.items():
        yield Way(name, **ranks(most, call, **EXPERIMENT, dtype="float32"), once=large)
    yield Way("EGLRL, degree scaling", **ranks(most, **{**BARE, "scaling": True}), once=large)
    grid = {"learning_rate": (0.1, 0.3, 0.7), "bias_ridge": BIASES}
    yield Way("biases + EGLRL", **ranks(20, **GREEDY), grid=grid, once=large)
    yield Way("LowRankModel, as it comes", lambda x: swept(x, 10))
    yield Way(
        "biases + EGLRL + 4 sweeps", swept, {"rank": (5, 10, 20), "ridge": UNITS, "bias_ridge": BIASES}, once=large
    )


def _baselines(*, large):
    """With biases and without; fits of tens of seconds choose on the first split alone, for all."""

    def alternating(x, rank, **options):
        return AltMin(rank, loss="logistic", max_iterations=40, **options).fit(x).decision_function

    def impute(x, penalty, **options):
        return AISImpute(penalty, max_rank=30, loss="logistic", max_iterations=60, **options).fit(x).decision_function

    penalties = (2.0, 4.0, 8.0, 12.0) if large else (0.5, 1.0, 2.0, 4.0)
    for name, fit, grid in (
        ("AltMin", alternating, {"rank": (5, 10, 20), "ridge": UNITS}),
        ("AIS-Impute", impute, {"penalty": penalties}),
    ):
        yield Way(name, fit, grid, once=large)
        biased = {**grid, "bias_ridge": BIASES}
        yield Way(f"{name} with biases", lambda x, fit=fit, **o: fit(x, biases=True, **o), biased, once=large)
