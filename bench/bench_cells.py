"""An index in cells beside inverted lists and graphs of faiss: recall, milliseconds of the processor, bytes."""

from math import isqrt

import fastsketch as fs
from bench_code_sets import generated, nearest, patches, share
from bench_tools import few, least, rival, seconds, table
from store import Parts

N_BYTES, K, CANDIDATES, N_QUERIES = 16, 10, 100, 300
PROBES = (4, 16, 64)
GRAPH_ROWS = 1_000_000  # more are hours and gigabytes for a graph
KINDS = {
    "CodeIndex": {},
    "CodeIndex in cells": {"partitions": "auto"},
    "CodeIndex in cells, rows kept": {"partitions": "auto", "rows": "float16"},
}


def ours(rows, queries):
    """Yield (name, probes, search(k), bytes a row, seconds to build) without cells, with, and with rows to rescore."""
    model = fs.SketchQuantizer(N_BYTES).update(rows)
    for name, options in KINDS.items():
        index = fs.CodeIndex(model, **options)
        built = seconds(lambda index=index: index.add(rows))
        if index.partitions is not None:
            built += seconds(index.compact)
            print(index.facts()["cells"], flush=True)
        size = index.facts()["n_bytes"] / len(rows)
        for probes in ("-",) if index.partitions is None else ("default", *PROBES)[: few(4, 2)]:
            asked = {"probes": probes} if isinstance(probes, int) else {}
            yield name, probes, lambda k, i=index, a=asked: i.search(queries, k, **a)[1], size, built


def theirs(faiss, rows, queries):
    """Yield the same of faiss's lists of as many bytes, of the rows as bytes, and of its graph of the rows."""
    cells, d = isqrt(len(rows)), rows.shape[1]
    kinds = [f"IVF{cells},SQ8", f"IVF{cells},PQ{N_BYTES}", f"OPQ{N_BYTES},IVF{cells},PQ{N_BYTES}"]
    kinds += [f"IVF{cells},PQ{2 * N_BYTES}x4fs"] if d % (2 * N_BYTES) == 0 else []
    kinds += ["HNSW32"] if len(rows) <= GRAPH_ROWS else []
    # codebooks and graphs take minutes of whatever rows: the tiny form has the first kind alone
    for kind in kinds[: few(len(kinds), 1)]:
        index = faiss.index_factory(rows.shape[1], kind)

        def build(index=index):
            index.train(rows[:: max(1, len(rows) // (64 * cells))])
            index.add(rows)

        built = seconds(build)
        size = len(faiss.serialize_index(index)) / len(rows)
        for probes in PROBES[: few(3, 1)]:

            def search(k, index=index, probes=probes):
                if hasattr(index, "hnsw"):
                    index.hnsw.efSearch = max(probes, k)
                else:
                    faiss.ParameterSpace().set_index_parameter(index, "nprobe", probes)
                return index.search(queries, k)[1]

            yield kind, probes, search, size, built


def of_set(faiss, name, make):
    """Return a line for each way on one set."""
    rows, queries, _ = make()
    queries, out = queries[:N_QUERIES], []
    near = nearest(queries, rows, K)
    ways = list(ours(rows, queries)) + (list(theirs(faiss, rows, queries)) if faiss else [])
    whole = ways[0][2](K)
    with fs.thread_limit(1):
        ms = least({i: lambda search=way[2]: search(K) for i, way in enumerate(ways)}, 7)
    for i, (way, probes, search, size, built) in enumerate(ways):
        found, candidates = search(K), search(CANDIDATES)
        of_all = f"{share(found, whole, K, K):.4f}" if way in ("CodeIndex", "CodeIndex in cells") else "-"
        recalls = [f"{share(found, near, K, K):.3f}", f"{share(candidates, near, K, CANDIDATES):.3f}"]
        out.append([name, way, probes, f"{ms[i] / len(queries) * 1e3:.3f}", *recalls, of_all])
        out[-1] += [f"{size:.0f}", f"{built:.1f}"]
        print(out[-1], flush=True)
    return out


def of_residuals(faiss, name, make):
    """Return lines of codes of rows, and of what middles of cells leave of them, by what the codes stand for."""
    rows, queries, _ = make()
    queries, cells = queries[:N_QUERIES], isqrt(len(rows))
    near = nearest(queries, rows, CANDIDATES)
    means = faiss.Kmeans(rows.shape[1], cells, niter=10, seed=0)
    means.train(rows[:: max(1, len(rows) // (64 * cells))])
    middles = means.centroids[means.index.search(rows, 1)[1][:, 0]]
    out, whole = [], ((rows - rows.mean(axis=0)) ** 2).sum(dtype=float)
    for way, base in (("rows", 0), ("rows less the middle of their cell", middles)):
        model = fs.SketchQuantizer(N_BYTES).update(rows - base)
        decoded = (base + model.decode(model.encode(rows - base))).astype(rows.dtype)
        found = nearest(queries, decoded, CANDIDATES)
        recalls = [f"{share(found, near, K, K):.3f}", f"{share(found, near, K, CANDIDATES):.3f}"]
        out.append([name, f"codes of {way}", *recalls, f"{((rows - decoded) ** 2).sum(dtype=float) / whole:.3f}"])
        print(out[-1], flush=True)
    return out


COLUMNS = ["rows", "way", "cells looked at", "ms a query", "recall@10", "among 100 candidates"]
COLUMNS += ["of the 10 without cells", "bytes a row", "s to build"]


def cells(args):
    """Recall of the 10 nearest by milliseconds a query: 64 columns in clusters, patches of photographs; one thread.

    Ten million rows, and residuals, have tables of their own: --sets "ten million" --join stores one beside the others.
    """
    faiss, parts = rival("faiss"), Parts(args)
    n, m = few(100_000 if args.quick else 1_000_000, 3000), few(100_000, 3000)
    million = f"{n:,} x 64 in clusters", lambda: generated(n, 64)
    sets = {"million": million, "patches": (f"{m:,} patches", lambda: patches(m))}
    if not args.quick:
        sets["ten million"] = f"{10 * n:,} x 64 in clusters", lambda: generated(10 * n, 64)
    sets["residuals"] = million
    tables = {}
    for key, (name, make) in sets.items():
        if (args.sets and key not in args.sets.split(",")) or (key == "residuals" and faiss is None):
            continue
        lines = parts.of(key, of_residuals if key == "residuals" else of_set, faiss, name, make)
        tables.setdefault("main" if key in ("million", "patches") else key.replace(" ", "-"), []).extend(lines)
    for name, lines in tables.items():
        if name == "residuals":
            table(lines, ["rows", "way", "recall@10", "among 100 candidates", "squared error"], name, runs=1)
        else:
            table(lines, COLUMNS, name, runs="the least of 7 in turn, 300 queries at once, by the processor's clock")
