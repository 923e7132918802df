"""Recall against all bytes of a row: our codes, the same learned from sampled rows, faiss's."""

import json
import time

import numpy as np

import bench_code_sets as sets
import fastsketch as fs
import store
from bench_code_peers import peers
from bench_tools import few, rival, table

BYTES = (8, 16, 20, 32)
# Rows of "PCA of sampled rows": everything is learned from these.
SAMPLE = 1000
# Rows that are encoded at a time.
BATCH = 50_000
# Queries of a table; sets up to this size are searched by the queries of choices as well.
QUERIES, CHOICE_ROWS = 1000, 100_000


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
    """Learn from the base; positions found of the set's own queries and of those of choices; what it cost."""
    start = time.process_time()
    method.fit(data.base)
    learned = time.process_time() - start
    cut = len(data.base) - data.n_choice
    start = time.process_time()
    method.add(data.base[:cut])
    encoded = time.process_time() - start
    found = {}
    if len(data.base) <= CHOICE_ROWS:
        found["choice"] = method.search(data.base[cut:], sets.DEPTH)
    method.add(data.base[cut:])
    found["test"] = method.search(data.queries[:QUERIES], sets.DEPTH)
    return found, {"bytes": method.bytes, "train_s": learned, "encode_rows_s": cut / encoded}


class Kept:
    """Results by set, method and bytes, in a file that is written after each."""

    def __init__(self, path):
        self.path = path
        self.results = json.loads(path.read_text()) if path.exists() else []

    def get(self, name, method, n_bytes, where="test"):
        for one in self.results:
            if (one["set"], one["method"], one["asked"], one["where"]) == (name, method, n_bytes, where):
                return one
        return None

    def put(self, name, method, n_bytes, where, result):
        old = self.get(name, method, n_bytes, where)
        if old is not None:
            self.results.remove(old)
        self.results.append({"set": name, "method": method, "asked": n_bytes, "where": where, **result})

    def write(self):
        self.path.parent.mkdir(parents=True, exist_ok=True)
        rest = self.path.with_suffix(".tmp")
        rest.write_text(json.dumps(self.results, indent=0))
        rest.replace(self.path)


def codes(args):
    """Measure what is asked for and print the tables of all that was measured."""
    kept = Kept(store.partial(args))
    chosen = args.sets.split(",") if args.sets else list(sets.QUICK if args.quick else sets.SETS)
    sizes = [int(n) for n in args.bytes.split(",")] if args.bytes else BYTES[: few(99, 1)]
    for name in chosen:
        data = sets.load(name, args.scratch)
        if data is None:
            continue
        data = data._replace(base=np.array(data.base))
        for n_bytes in sizes:
            for method, untrained in _methods(data.base.shape[1], n_bytes, args.only).items():
                if not (args.keep and kept.get(name, method, n_bytes)):
                    _measure(kept, data, method, untrained, n_bytes)
        _tables(kept, name)


def _methods(d, n_bytes, only):
    found = {} if only == "peers" else ours(d, n_bytes)
    if only != "ours" and rival("faiss"):
        found |= peers(d, n_bytes)
    return {name: one for name, one in found.items() if only in ("", "ours", "peers") or only in name}


def _measure(kept, data, method, untrained, n_bytes):
    found, cost = measured(untrained, data)
    for where, near in (("choice", data.choice_near), ("test", data.near)):
        if where in found:
            recalls = sets.recalls(found[where], near[: len(found[where])])
            kept.put(data.name, method, n_bytes, where, {**cost, "recalls": recalls})
    kept.write()
    recall = kept.get(data.name, method, n_bytes)["recalls"]
    print(f"{data.name}, {method}, {cost['bytes']} bytes: 10: {recall['10']:.3f}, of 30: {recall['10 of 30']:.3f}; "
          f"{cost['train_s']:.2f} s, {cost['encode_rows_s']:,.0f} rows/s", flush=True)  # fmt: skip


def _tables(kept, name):
    """Raw and rescored recall of a set by bytes, and what each method costs."""
    mine = [one for one in kept.results if one["set"] == name and one["where"] == "test"]
    sizes = sorted({one["asked"] for one in mine})
    methods = list(dict.fromkeys(one["method"] for one in mine))
    kinds = {
        "": ("recall@10, raw / of 30 candidates rescored / of 100", ("10", "10 of 30", "10 of 100")),
        "-first": ("recall@1, raw / of 30 rescored", ("1", "1 of 30")),
        "-hundred": ("recall@100, raw", ("100",)),
    }
    columns = ["method", *(f"{n} bytes" for n in sizes)]
    for kind, (note, whats) in kinds.items():
        lines = [[m, *(_cell(kept.get(name, m, n), whats) for n in sizes)] for m in methods]
        table(lines, columns, _name(name) + kind, runs="1 split", note=f"{name}: {note}.")
    costs = [[m, *(_cost(kept.get(name, m, n)) for n in sizes)] for m in methods]
    note = f"{name}: seconds of learning, thousands of rows encoded a second; one core."
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
