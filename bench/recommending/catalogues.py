"""Recommending from sparse catalogues: SketchedEASE as it comes beside what people would pick, each in its own process.

Gowalla's check-ins as LightGCN splits them, all users asked; the trust links of Epinions, Slashdot's and MovieLens-1M,
a fifth of the events held out, two seeds, 4,000 users asked. Rivals have the defaults of their packages, and
parameters chosen by NDCG@20 of 4,000 users on a fifth of the first split's training events; nothing of ours is tuned.
One thread each; a process holds the split, its method and nothing else, so that its peak is what the method takes.
"""

import json
import pickle
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy import sparse
from scipy.linalg.lapack import spotrf, spotri
from scipy.sparse.linalg import svds

import fastsketch as fs
from bench_tools import fresh, resident, table
from recommending.methods import METHODS as ON_MOVIELENS
from recommending.methods import Fitted, Method, by_blocks, nearest, sketched
from recommending.splits import Result, choose, compared, entries_of, measured, split_of

PLAN = {"Gowalla": ("published", 1), "Epinions": ("random", 5), "Slashdot": ("random", 5), "ML-1M": ("random", 5)}
FILTERED = 256  # singular vectors of GF-CF, as in its paper
ITEMS = 16384  # of which EASE's weights take a gigabyte, and are made where they lie
BLOCK = 2048
SECONDS = "The seconds are of the processor (of the clock)."


# -- rivals ------------------------------------------------------------------------------------------------------------
def bm25(split, kept, neighbours, k1, b):
    from implicit.nearest_neighbours import BM25Recommender

    model = BM25Recommender(K=neighbours, K1=k1, B=b, num_threads=1)
    model.fit(split.matrix(split.train), show_progress=False)
    near = model.similarity
    return Fitted(by_blocks(lambda shown, places: (shown @ near).toarray()), near.data.nbytes + near.indices.nbytes)


def rp3(split, kept, neighbours, beta):
    """Walk from items to users and on to items, each as likely; the targets' chances over popularity^beta (RP3beta)."""
    x = split.train
    users, items = np.diff(x.indptr).clip(1), np.bincount(x.indices, minlength=x.shape[1]).clip(1)
    left = sparse.csc_array(x @ sparse.diags_array(1.0 / items))
    right = sparse.csc_array(sparse.diags_array(1.0 / users) @ x @ sparse.diags_array(items**-beta))
    near = nearest(left, right, lambda block, columns: block.data, neighbours)
    return Fitted(by_blocks(lambda shown, places: (shown @ near).toarray()), near.data.nbytes + near.indices.nbytes)


def gf_cf(split, kept, alpha):
    """Filter rows by R'R + alpha D^-1/2 V V' D^1/2 (GF-CF, Shen et al. 2021), R = X scaled by both degrees^-1/2."""
    x = split.train.astype(np.float32)
    users, items = np.diff(x.indptr).clip(1), np.bincount(x.indices, minlength=x.shape[1]).clip(1)
    scale = items.astype(np.float32) ** -0.5
    r = sparse.csr_array(sparse.diags_array(users.astype(np.float32) ** -0.5) @ x @ sparse.diags_array(scale))
    if "filter" not in kept:
        kept["filter"] = svds(r, min(FILTERED, min(r.shape) - 1), random_state=0)[2]
    v, turned = kept["filter"], sparse.csr_array(r.T)

    def scores(shown, places):
        low = alpha * ((shown * scale) @ v.T) @ v / scale
        return (shown @ turned @ r).toarray() + low

    return Fitted(by_blocks(scores), r.data.nbytes + r.indices.nbytes + v.nbytes)


def ease(split, kept, ridge):
    """Solve EASE in float32 for the items of most users, as many as fit; half of them where a ridge is looked for."""
    counts = np.bincount(split.train.indices, minlength=split.train.shape[1])
    most = np.sort(np.argsort(-counts, kind="stable")[: ITEMS // 2 if kept.get("tuning") else ITEMS])
    x = sparse.csc_array(split.train[:, most])
    p = np.empty((len(most), len(most)), np.float32, order="F")
    for start in range(0, len(most), BLOCK):
        p[:, start : start + BLOCK] = (x.T @ x[:, start : start + BLOCK]).toarray()
    p[np.diag_indices_from(p)] += ridge
    p, failed = spotri(spotrf(p, lower=1, overwrite_a=1)[0], lower=1, overwrite_c=1)
    assert not failed
    for start in range(0, len(most), BLOCK):  # its other half
        rows = p[start : start + BLOCK]
        rows[:, start : start + BLOCK] = np.tril(rows[:, start : start + BLOCK], -1).T + np.tril(
            rows[:, start : start + BLOCK]
        )
        rows[:, start + BLOCK :] = p[start + BLOCK :, start : start + BLOCK].T
    weights = p.T  # of C order, and symmetric
    weights /= -np.diag(p).copy()
    np.fill_diagonal(weights, 0.0)

    def scores(shown, places):
        out = np.full(shown.shape, -np.inf, np.float32)
        out[:, most] = shown[:, most] @ weights
        return out

    return Fitted(by_blocks(scores), weights.nbytes)


EVERYWHERE = {"sets": ("ML-100K", *PLAN), "kinds": ("random", "published")}
POPULARITY, ITEM_KNN, ALS = (
    replace(method, **EVERYWHERE)
    for name in ("popularity", "item-knn", "implicit ALS")
    for method in ON_MOVIELENS
    if method.name == name
)
METHODS = [
    POPULARITY,
    replace(
        ITEM_KNN,
        name="item-knn, cosine",
        grids={"neighbours": (20, 100, 500), "shrink": (0.0, 10.0, 100.0)},
        start={"neighbours": 100, "shrink": 10.0},
    ),
    Method(
        "item-knn, BM25",
        bm25,
        {"neighbours": (20, 100, 500), "k1": (0.1, 0.3, 1.2, 5.0), "b": (0.2, 0.5, 0.75, 1.0)},
        {"neighbours": 100, "k1": 1.2, "b": 0.75},
        asis={"neighbours": 20, "k1": 1.2, "b": 0.75},
        needs="implicit",
        **EVERYWHERE,
    ),
    Method(
        "RP3beta",
        rp3,
        {"neighbours": (50, 200, 1000), "beta": (0.0, 0.2, 0.4, 0.6)},
        {"neighbours": 200, "beta": 0.4},
        **EVERYWHERE,
    ),
    Method("GF-CF", gf_cf, {"alpha": (0.0, 0.1, 0.3, 1.0)}, {"alpha": 0.3}, asis={"alpha": 0.3}, **EVERYWHERE),
    Method("EASE of 16,384 items", ease, {"ridge": (100.0, 300.0, 1000.0)}, {"ridge": 300.0}, **EVERYWHERE),
    replace(
        ALS,
        grids={
            "regularization": (0.01, 0.1, 1.0, 10.0, 100.0),
            "alpha": (1.0, 3.0, 10.0, 30.0),
            "factors": (64, 256),
            "iterations": (10,),
        },
        start={"regularization": 1.0, "alpha": 3.0, "factors": 64, "iterations": 10},
        coarse={},
    ),
    Method("SketchedEASE, no walks", sketched(256, kept_events=0), asis={}, **EVERYWHERE),
    Method("SketchedEASE", sketched(256), asis={}, **EVERYWHERE),
]
OURS = "SketchedEASE, as it comes"


# -- the tables --------------------------------------------------------------------------------------------------------
def catalogues(args):
    """Choose rivals' parameters, then measure all in fresh processes: lists, seconds, peak memory."""
    wanted = [name for name in args.sets.split(",") if name] or (["ML-100K"] if args.quick else list(PLAN))
    for name in wanted:
        kind, splits = PLAN.get(name, ("random", 1))
        entries = entries_of(name)
        if entries is None:
            continue
        chosen, lines = choose(name, kind, entries, METHODS)
        results = {label: Result([], [], [], [], []) for label, _, _ in chosen}
        for seed in range(splits):
            split = split_of(entries, kind, seed)
            with tempfile.TemporaryDirectory(dir=args.scratch) as folder:
                add(results, split, chosen, Path(folder))
        note = (
            f"{name} has {entries.shape[0]} users x {entries.shape[1]} items, {int(np.sum(entries.stars >= 4))} events"
        )
        columns = ["method", "chosen", "NDCG@20 there", "fits", "s", "values"]
        table(
            lines,
            columns,
            f"{name}-chosen".lower(),
            runs=1,
            note=f"{note}; parameters are chosen on validation events.",
        )
        show(name, results, splits, f"{note}, and lists for {len(split.users)} users. {SECONDS}")


def add(results, split, chosen, folder):
    """Add what a process of each method measures on a split; one whose parameters are its defaults runs once."""
    (folder / "split").write_bytes(pickle.dumps(split._replace(entries=None)))
    figures = {}
    for label, method, parameters in chosen:
        key = method.name, json.dumps(parameters)
        if key not in figures:
            costs = fresh(Path(__file__), folder, *key)
            figures[key] = *measured(split, np.load(folder / "items.npy")), costs["fit"], costs["answer"], costs["peak"]
        for values, figure in zip(results[label], figures[key], strict=True):
            values.append(figure)
        print(label, f"{np.nanmean(figures[key][0]):.4f}", *figures[key][2:], flush=True)


def show(name, results, splits, note):
    """Write the table of a set."""
    lines = []
    for label, result in results.items():
        fit, answer = (np.median(seconds, axis=0) for seconds in (result.fit, result.answer))
        lines.append(
            {
                "method": label,
                **compared(result, results[OURS], OURS, splits),
                "s, fit": f"{fit[0]:.1f} ({fit[1]:.1f})",
                "s, all lists": f"{answer[0]:.1f} ({answer[1]:.1f})",
                "MB at the peak": f"{max(result.bytes) / 1e6:.0f}",
            }
        )
    runs = f"{splits} splits, mean +- standard deviation; seconds: median" if splits > 1 else "1 split"
    table(lines, name=name.lower(), runs=runs, note=note)


def child(folder, name, parameters):
    """Fit a method to a split and write its lists; print seconds of the processor and of the clock, peak memory."""
    split = pickle.loads((folder / "split").read_bytes())
    method = next(method for method in METHODS if method.name == name)
    with fs.thread_limit(1):
        times = [(time.process_time(), time.perf_counter())]
        fitted = method.fit(split, {}, **parameters)
        times.append((time.process_time(), time.perf_counter()))
        items = fitted.recommend(split)
        times.append((time.process_time(), time.perf_counter()))
    np.save(folder / "items.npy", items)
    fit, answer = np.diff(times, axis=0).tolist()
    print(json.dumps({"fit": fit, "answer": answer, "peak": resident("VmHWM")}))


if __name__ == "__main__":
    child(Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]))
