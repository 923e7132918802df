"""The jobs of `headline` that learn a model to answer with: neighbours, recommending, learning from clicks."""

import dataclasses
import time
from functools import partial

import numpy as np

import fastsketch as fs
from bench_tools import rival
from codes import sets
from codes.codes import SAMPLE, Ours
from codes.peers import Faiss, peers
from headline.data import SPLITS, halves
from learning.learners import log_loss
from learning.peers import LEARNERS, NEWTON, adagrad, river, sgd, vowpal
from learning.sets import task_of, within
from recommending import splits as ranking
from recommending.methods import METHODS

BYTES = 20
CANDIDATES = 40  # what CodeIndex ranks by rows for the ten nearest, as it comes


# -- neighbours --------------------------------------------------------------------------------------------------------
def neighbours(board, runs, quick):
    """Recall of the ten nearest by codes of 20 bytes, and when the best 40 candidates are ranked by their rows."""
    if rival("faiss") is None:
        return
    for name in ("sift5k",) if quick else SPLITS:
        picked = {} if quick else None
        for run in range(runs):
            data = halves(name, run)
            if data is None:
                break
            d = data.base.shape[1]
            if picked is None:
                picked = _picked(data)
                fs.SketchQuantizer(BYTES).update(data.base[:500]).encode(data.base[:1])  # what first calls take
            ours = {
                f"SketchQuantizer({BYTES})": Ours(lambda: fs.SketchQuantizer(BYTES)),
                f"SketchQuantizer({BYTES}) of {SAMPLE:,} rows": Ours(lambda: fs.SketchQuantizer(BYTES), sampled=True),
            }
            for tool, method in ours.items():
                _codes(board, name, tool, method, data)
            theirs = peers(d, BYTES)["PCA, SQ4"] if quick else _opq(d, 4)
            _codes(
                board, name, "faiss PCA, SQ4" if quick else "faiss OPQ", theirs, data, "" if quick else "80 directions"
            )
            for tool, (words, make) in picked.items():
                _codes(board, name, tool, make(), data, words)
    note = f"Codes have {BYTES} bytes a row, and the seconds are for learning."
    board.show(f"{note} OPQ learns from at most {OPQ_ROWS:,} rows")


OPQ_ROWS = 5000
NARROW = 256  # columns up to which OPQ's directions are chosen too: a choice takes a minute each beyond


class FewRows(Faiss):
    """Trained on the first OPQ_ROWS rows, which are in random order: all of them would take minutes."""

    def fit(self, rows):
        return super().fit(rows[:OPQ_ROWS])


def _opq(d, each):
    return FewRows(f"OPQ{BYTES}_{min(each * BYTES, d // BYTES * BYTES)},PQ{BYTES}np")


def _picked(data):
    """{tool: (words, function that makes it)}: the best on queries that are cut from the rows."""
    part, d = data.for_choice(), data.base.shape[1]
    each_of = (2, 3, 4) if d <= NARROW else ()
    opq = {f"{each * BYTES} directions": partial(_opq, d, each) for each in each_of}
    simple = {name: partial(lambda key: peers(d, BYTES)[key], name) for name in peers(d, BYTES) if name != "OPQ"}
    out = {}
    for tool, candidates in (("faiss OPQ, tuned", opq), ("faiss, the best of the others", simple)):
        if not candidates:
            continue
        recall = {words: _recall(make(), part)[0] for words, make in candidates.items()}
        best = max(recall, key=recall.get)
        out[tool] = best, candidates[best]
    return out


def _recall(method, data):
    """(recall@10, the same with CANDIDATES ranked by their rows, seconds of learning)."""
    start = time.process_time()
    method.fit(data.base)
    taken = time.process_time() - start
    method.add(data.base)
    found = method.search(data.queries, CANDIDATES)
    return *(sets.share(found, data.near, 10, among) for among in (10, CANDIDATES)), taken


def _codes(board, name, tool, method, data, words=""):
    *recalls, taken = _recall(method, data)
    board.add(name, tool, recalls, taken, words)


# -- recommending ------------------------------------------------------------------------------------------------------
# Of implicit's ALS the ridge and the weight are chosen, with as many factors as the sketch has rows.
FACTORS = 256


def _methods():
    by_name = {method.name: method for method in METHODS}
    als = by_name["implicit ALS"]
    grids = {key: als.grids[key] for key in ("regularization", "alpha")}
    start = {"regularization": 10.0, "alpha": 2.0}
    als = dataclasses.replace(als, fit=partial(_als, als.fit), grids=grids, start=start, coarse={})
    names = ("popularity", "item-knn", "EASE, exact", f"SketchedEASE, l = {FACTORS}")
    return [*(by_name[name] for name in names), als]


def _als(fit, split, kept, **parameters):
    return fit(split, kept, **{"factors": FACTORS, "iterations": 15, **parameters})


def recommending(board, runs, quick):
    """NDCG@20 of users who were not learned from."""
    name = "ML-100K" if quick else "ML-1M"
    entries = ranking.entries_of(name)
    if entries is None:
        return
    ours = f"SketchedEASE, l = {FACTORS}, as it comes"
    chosen, lines = ranking.choose(name, "users", entries, _methods())
    words = {line[0]: line[1] for line in lines}
    chosen.sort(key=lambda item: item[0] != ours)
    for run in range(runs):
        split = ranking.split_of(entries, "users", run)
        for label, method, parameters in chosen:
            start = time.process_time()
            fitted = method.fit(split, {}, **parameters)
            taken = time.process_time() - start
            ndcg = ranking.measured(split, fitted.recommend(split))[0]
            label = "SketchedEASE()" if label == ours else label
            tuned = "" if label in ("SketchedEASE()", "popularity") or label.endswith("comes") else words[method.name]
            board.add(f"{name}, new users", label, (np.nanmean(ndcg),), taken, tuned)
    board.show("The seconds are for learning, and implicit's BPR cannot recommend to users on whom it was not trained")


# -- learning ----------------------------------------------------------------------------------------------------------
LEARNED = ("a9a", "farm-ads", "w8a", "clicks")
FIXED = {
    "SketchedNewton()": NEWTON,
    "SGDClassifier, log_loss": None,
    "Vowpal Wabbit, logistic": "Vowpal Wabbit, logistic",
    "river, defaults": "river, defaults",
    "LogisticRegression, many passes": "LogisticRegression / Ridge, converged",
}
PACKAGES = {"Vowpal Wabbit": "vowpalwabbit", "river": "river"}
GRIDS = {
    "SGDClassifier, tuned": {
        f"alpha {alpha:g}, average {average}": partial(sgd, loss="log_loss", alpha=alpha, average=average)
        for alpha in (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
        for average in (False, True)
    },
    "Vowpal Wabbit, tuned": {
        f"-l {rate:g}": partial(vowpal, f"--loss_function logistic -l {rate:g}") for rate in (0.05, 0.15, 0.5, 1.5, 5.0)
    },
    "river, tuned": {
        "defaults": partial(river, False, False),
        "AdaGrad(0.1)": partial(river, False, True),
        "StandardScaler, AdaGrad(0.1)": partial(river, True, True),
    },
    "AdaGrad in a loop, tuned": {f"rate {rate:g}": partial(adagrad, rate) for rate in (0.01, 0.03, 0.1, 0.3, 1.0)},
}


def learning(board, runs, quick):
    """Log loss and errors of test rows after one pass over the others."""
    by_label = {learner.label: learner.learn for learner in LEARNERS}
    for name in ("farm-ads",) if quick else LEARNED:
        ways = None
        for run in range(runs):
            task = task_of(name, run)
            if task is None:
                break
            if ways is None:
                ways = [(tool, "", by_label.get(label)) for tool, label in FIXED.items() if _there(tool)]
                ways = [(t, w, learn or sgd(loss="log_loss")) for t, w, learn in ways]
                ways += [(tool, *_best(grid, within(task))) for tool, grid in GRIDS.items() if _there(tool)]
            for tool, words, learn in ways:
                answer = learn(task, run)
                wrong = 100 * float(np.mean(answer.predicted != task.truth))
                board.add(name, tool, (log_loss(task, answer.chances), wrong), answer.seconds, words)
    board.show(
        "All learners but LogisticRegression, whose scaling and strength are tuned, make one pass, "
        "and the seconds are for learning"
    )


def _there(tool):
    """Whether the library of a tool is installed."""
    needed = [package for name, package in PACKAGES.items() if tool.startswith(name)]
    return all(map(rival, needed))


def _best(grid, part):
    losses = {}
    for words, make in grid.items():
        answer = make()(part, 0)
        losses[words] = log_loss(part, answer.chances)
    best = min(losses, key=losses.get)
    return best, grid[best]()
