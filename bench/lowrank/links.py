"""GLRL Table 2 at the paper's setting: rank 40, 30 power iterations, 5 steps of refinement, no setting is chosen."""

from functools import partial

import numpy as np

import fastsketch as fs
from bench_tools import few, spread, table
from bench_tools import seconds as seconds_of
from fastsketch import papers
from lowrank.sets import links_of, matrix, tenths
from store import Parts

PAPER = {  # %
    "Epinions": {"GLRL, no update": "92.4 +- 0.1", "GLRL": "93.6 +- 0.1", "EGLRL": "93.6 +- 0.1"},
    "Slashdot": {"GLRL, no update": "82.6 +- 0.3", "GLRL": "84.1 +- 0.4", "EGLRL": "84.4 +- 0.3"},
}
PURSUITS = {"GLRL, no update": partial(papers.glrl, refine="none"), "GLRL": papers.glrl, "EGLRL": papers.eglrl}
# Sections 5.1 and 3.1 of the paper.
EXPERIMENT = {"loss": "logistic", "max_power_iterations": 30, "max_refine_steps": 5}
RANKS = (5, 10, 20, 40)
FOLDS = 10


def learners(rank):
    """Return {method: an unfitted model}."""
    models = {name: call(rank, dtype="float32", **EXPERIMENT) for name, call in PURSUITS.items()}
    models["biases alone"] = fs.LowRankModel(0, loss="logistic", dtype="float32")
    models["LowRankModel, as it comes"] = fs.LowRankModel(10, loss="logistic", dtype="float32")
    return models


def one(found, split, method, ranks):
    """Return the accuracy in % on the test links at these ranks, or of the whole model alone, and seconds to fit."""
    train, test = split
    signs, model = found[2], learners(ranks[-1])[method]
    x, often = matrix(found, train), np.sign(signs[train].mean())
    taken = seconds_of(lambda: model.fit(x))
    most = model.history[-1]["rank"] if method in PURSUITS else None
    line = []
    for rank in ranks if method in PURSUITS else ranks[-1:]:
        chosen = {} if most is None else {"rank": min(rank, most)}
        z = model.decision_function(found[0][test], found[1][test], **chosen)
        line.append(100 * np.mean(np.where(z > 0, 1, np.where(z < 0, -1, often)) == signs[test]))
    return line, taken


def links(args):
    """Accuracy on tenths of the links at ranks up to 40."""
    parts, out, ranks = Parts(args), [], tuple(few(rank, 4) for rank in RANKS[:: few(1, 4)])
    for name in PAPER:
        found, splits = links_of(name), 1 if args.quick else FOLDS
        if found is None:
            continue
        right, seconds = {}, {}
        for fold, split in enumerate(tenths(found, splits)):
            for method in learners(ranks[-1]):
                line, taken = parts.of(f"{name} {fold} {method}", one, found, split, method, ranks)
                right.setdefault(method, []).append(line)
                seconds.setdefault(method, []).append(taken)
                print(name, method, *(f"{value:.2f}" for value in line), f"{taken:.1f} s", flush=True)
        for method, lines in right.items():
            values = np.array(lines)
            low = [f"{v:.1f}" for v in values[:, :-1].mean(axis=0)] or [""] * (len(ranks) - 1)
            paper = PAPER[name].get(method, "")
            cells = [paper, spread(values[:, -1], 1), len(values), *low]
            out.append([name, method, *cells, f"{np.mean(seconds[method]):.1f}"])
    columns = ["set", "method", "paper, %", "accuracy, %", "folds"]
    columns += [*(f"rank {rank}" for rank in ranks[:-1]), "s, processor"]
    table(out, columns, "main", runs="folds of ten, mean +- standard deviation; other ranks and seconds: means")
