"""Recall against all bytes of a row: our codes, the same learned from sampled rows, faiss's."""

import time

import numpy as np

import fastsketch as fs
from bench_tools import few, rival, table
from codes import sets
from codes.peers import peers
from store import Parts

BYTES = (8, 16, 20, 32)
# Rows of "PCA of sampled rows": everything is learned from these.
SAMPLE = 1000
# Rows that are encoded at a time.
BATCH = 50_000
QUERIES = 1000


class Ours:
    """A model of ours; `metric` of its search, `sampled` whether it learns from SAMPLE rows only."""

    def __init__(self, make, *, metric="euclidean", sampled=False, **options):
        self.make, self.metric, self.sampled, self.options = make, metric, sampled, options

    def fit(self, rows):
        if self.sampled:
            rows = rows[np.sort(np.random.default_rng(0).choice(len(rows), min(SAMPLE, len(rows)), replace=False))]
        self.model, self.codes = self.make().update(rows), []
        self.bytes = self.model.encode(rows[:1], **self.options).shape[1]  # it reads what was learned
        return self

    def add(self, rows):
        for start in range(0, len(rows), BATCH):
            self.codes.append(self.model.encode(rows[start : start + BATCH], **self.options))

    def search(self, queries, k):
        return self.model.search(queries, np.concatenate(self.codes), k=k, metric=self.metric)[1]


def ours(d, n_bytes):
    """{name: untrained} of codes of n_bytes of rows with d columns."""
    out = {}
    if n_bytes <= d:
        out["SketchQuantizer"] = Ours(lambda: fs.SketchQuantizer(n_bytes))
        out["SketchQuantizer of 1,000 rows"] = Ours(lambda: fs.SketchQuantizer(n_bytes), sampled=True)
    if 8 * n_bytes <= d:
        out["SketchHash, Hamming"] = Ours(lambda: fs.SketchHash(8 * n_bytes), metric="hamming")
    n_bits = min(8 * (n_bytes - HASH_FACTORS), d // 8 * 8)
    out["SketchHash, real queries"] = Ours(lambda: fs.SketchHash(n_bits), factors=True)
    return out


# Bytes of the factors behind the bits of a hash.
HASH_FACTORS = 4


def measured(method, data):
    """Learn from the base and encode it; return the positions found for the queries, and what it cost."""
    start = time.process_time()
    method.fit(data.base)
    learned = time.process_time() - start
    start = time.process_time()
    method.add(data.base)
    encoded = time.process_time() - start
    found = method.search(data.queries[:QUERIES], sets.DEPTH)
    return found, {"bytes": method.bytes, "train_s": learned, "encode_rows_s": len(data.base) / encoded}


def codes(args):
    """Measure every method at every size, and make the tables of recall and costs of each set."""
    parts = Parts(args)
    for name in sets.QUICK if args.quick else sets.SETS:
        data = sets.load(name, args.scratch)
        if data is None:
            continue
        data, kept = data._replace(base=np.array(data.base)), {}
        for n_bytes in BYTES[: few(99, 1)]:
            methods = ours(data.base.shape[1], n_bytes)
            if rival("faiss"):
                methods |= peers(data.base.shape[1], n_bytes)
            for method, untrained in methods.items():
                found = parts.of(f"{name}, {method}, {n_bytes}", _measured, data, untrained)
                kept[method, n_bytes] = {**found, "asked": n_bytes}
                recall = found["recalls"]
                print(name, method, n_bytes, f"{recall['10']:.3f} {recall['10 of 30']:.3f}", flush=True)
        _tables(kept, name)


def _measured(data, untrained):
    """Measure a method by the queries of the tables: what it costs, and its recalls."""
    found, cost = measured(untrained, data)
    return {**cost, "recalls": sets.recalls(found, data.near[: len(found)])}


def _tables(kept, name):
    """Raw and rescored recall of a set by bytes, and what each method costs."""
    sizes = sorted({n_bytes for _, n_bytes in kept})
    methods = list(dict.fromkeys(method for method, _ in kept))
    kinds = {
        "": (
            "recall@10 by codes alone / after rescoring 30 candidates / after rescoring 100",
            ("10", "10 of 30", "10 of 100"),
        ),
        "-first": ("recall@1 by codes alone / after rescoring 30 candidates", ("1", "1 of 30")),
        "-hundred": ("recall@100 by codes alone", ("100",)),
    }
    columns = ["method", *(f"{n} bytes" for n in sizes)]
    for kind, (note, whats) in kinds.items():
        lines = [[m, *(_cell(kept.get((m, n)), whats) for n in sizes)] for m in methods]
        table(lines, columns, _name(name) + kind, runs="1 split", note=f"The table of {name} shows {note}.")
    costs = [[m, *(_cost(kept.get((m, n))) for n in sizes)] for m in methods]
    note = f"The table of {name} shows seconds of learning, and thousands of rows encoded a second, on one core."
    table(costs, columns, f"{_name(name)}-seconds", runs=1, note=note)


def _name(of_set):
    return of_set.lower().replace(", ", "-").replace(" ", "-")


def _cell(one, whats):
    if one is None:
        return ""
    note = "" if one["bytes"] == one["asked"] else f" ({one['bytes']} bytes)"
    return " / ".join(f"{one['recalls'][what]:.3f}" for what in whats) + note


def _cost(one):
    return "" if one is None else f"{one['train_s']:.2g} s, {one['encode_rows_s'] / 1000:,.0f}"
