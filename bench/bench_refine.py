"""Refinement of coefficients (GLRL equations 6, 7): how many steps, what they gain, and whether they overfit."""

import time

import numpy as np

import fastsketch as fs
from bench_lowrank_sets import links_of, matrix
from bench_tools import table

FOLDS = 5
STEPS = (1, 2, 5, None)
# What holds overfitting back, and what does not. With sweeps only the last rank is left.
WAYS = {
    "whole steps": {"learning_rate": 1.0, "sweeps": 0},
    "learning_rate=0.3": {"learning_rate": 0.3, "sweeps": 0},
    "sweeps=4, own ridge": {},
}


def refinement(args):
    """Signed links, logistic loss: five folds of the links; a tenth of the others chooses the rank.

    Objectives are shares of that of the biases, on the entries fitted.
    """
    out = []
    sets = (("bitcoin-OTC", 20),) if args.quick else (("bitcoin-OTC", 20), ("Epinions", 40))
    for name, rank in sets:
        found = links_of(name)
        if found is None:
            continue
        few = name == "Epinions"
        for way, options in WAYS.items():
            for refine in ("economic",) if "sweeps" not in options and few else ("economic", "full"):
                for steps in (2, None) if few else STEPS:
                    model = {"rank": rank, "refine": refine, "max_refine_steps": steps, **options}
                    out.append([name, way, refine, steps, *_folds(found, model, 2 if args.quick else FOLDS)])
                    print(*out[-1], flush=True)
    columns = [
        "set",
        "way",
        "refine",
        "steps",
        "f, rank 1",
        "f, rank 5",
        "f, last",
        "rank chosen",
        "validation, log loss",
    ]
    columns += ["test, log loss", "test, %", "last rank: log loss", "%", "s"]
    runs = f"{2 if args.quick else FOLDS} folds, mean +- standard deviation; seconds: the least"
    table(out, columns, "main", runs=runs)


def _folds(found, options, folds):
    rows, columns, labels, _ = found
    parts = np.random.default_rng(0).permutation(len(labels)) % FOLDS
    lines, times = [], []
    for fold in range(folds):
        test, rest = np.flatnonzero(parts == fold), np.flatnonzero(parts != fold)
        held = np.random.default_rng(fold + 1).random(len(rest)) < 0.1
        x, validation = matrix(found, rest[~held]), matrix(found, rest[held])
        start = time.process_time()
        model = fs.LowRankModel(loss="logistic", dtype="float32", **options).fit(x, validation=validation)
        times.append(time.process_time() - start)
        f = np.array([line["objective"] for line in model.history])
        path = [f[min(k, len(f) - 1)] / f[0] for k in (1, 5, len(f) - 1)]
        chosen, line = model.selected_rank, model.facts()
        ends = []
        for rank in (chosen, len(f) - 1 if model.sweeps == 0 else chosen):
            z = model.decision_function(rows[test], columns[test], rank=rank).astype(float)
            right = np.where(z == 0, np.sign(labels.mean()), np.sign(z)) == labels[test]
            ends += [np.logaddexp(0, -labels[test] * z).mean(), 100 * right.mean()]
        lines.append([*path, chosen, line["validation"], *ends])
    mean, spread = np.mean(lines, axis=0), np.std(lines, axis=0)
    digits = (3, 3, 3, 1, 4, 4, 2, 4, 2)
    cells = [f"{m:.{d}f} +- {s:.{d}f}" for m, s, d in zip(mean, spread, digits, strict=True)]
    return [*cells, f"{min(times):.2f}"]
