"""Scans of a million codes beside faiss: 4-bit codes and PQ fast scan, codes with factors and RaBitQ, Hamming."""

import time

import numpy as np

import fastsketch as fs
from bench_tools import LEVELS, at_level, few, least, rival, table
from fastsketch._kernels.codes import scan as kernel


class Number:
    """A factor of a code, as the kernel reads it: fastsketch.neighbours.codes has the checked form."""

    def __init__(self, n_bytes=0, mantissa_bits=0, unit=1.0):
        self.n_bytes, self.mantissa_bits, self.unit = n_bytes, mantissa_bits, unit


class Layout:
    def __init__(self, n_tables, offset=None, scale=None):
        self.n_tables, self.offset, self.scale = n_tables, offset or Number(), scale or Number()
        self.width = (n_tables + 1) // 2 + self.offset.n_bytes + self.scale.n_bytes


def rows_in_clusters(rng, n, d):
    """Rows float32 (n, d) in a hundred clusters, whose directions fall off as one over the root of their number."""
    spread = (1 / np.sqrt(1 + np.arange(d))).astype(np.float32)
    centres = 2 * rng.standard_normal((100, d), np.float32)
    return (centres[rng.integers(0, 100, n)] + rng.standard_normal((n, d), np.float32)) * spread


def of_product_quantizer(faiss, rng, n):
    """The same codes of 32 nibbles on both sides: (name, layout, codes, tables, queries, faiss's index, rule)."""
    d, m = 64, 32
    rows, queries = rows_in_clusters(rng, n, d), rows_in_clusters(np.random.default_rng(0), 100, d)
    index = faiss.IndexPQ(d, m, 4)
    index.train(rows[:20_000])
    index.add(rows)
    codes = faiss.vector_to_array(index.codes).reshape(n, m // 2)
    centres = faiss.vector_to_array(index.pq.centroids).reshape(m, 16, d // m)
    tables = ((queries.reshape(100, m, 1, d // m) - centres) ** 2).sum(axis=3)
    fast = faiss.IndexPQFastScan(index)
    return "PQ32x4fs", Layout(m), codes, tables.astype(np.float32), queries, fast, {"alpha": 0.0, "beta": 1.0}


def of_factors(faiss, rng, n, d):
    """As many bytes as RaBitQ's: 4 bits for each of the leading directions, and the norm and a scale in a byte each."""
    rows, queries = rows_in_clusters(rng, n, d), rows_in_clusters(np.random.default_rng(0), 100, d)
    index = faiss.IndexRaBitQFastScan(d)
    index.train(rows[:20_000])
    index.add(rows)
    kept = 2 * (index.code_size - 2)
    low, high = rows[:, :kept].min(axis=0), rows[:, :kept].max(axis=0)
    step = (high - low) / 15
    norms = (rows**2).sum(axis=1)
    offset = Number(1, 5, float(np.float32(norms.max() / 128)))
    layout = Layout(kept, offset, Number(1, 8, 0.75))
    codes = np.empty((n, index.code_size), np.uint8)
    levels = np.round((rows[:, :kept] - low) / step).astype(np.uint8)
    codes[:, : kept // 2] = levels[:, ::2] | (levels[:, 1::2] << 4)
    codes[:, -2] = np.clip(32 * np.log2(np.maximum(norms / offset.unit, 1)), 0, 255)
    codes[:, -1] = rng.integers(70, 100, n)
    tables = queries[:, :kept, np.newaxis] * (low[:, np.newaxis] + step[:, np.newaxis] * np.arange(16))
    rule = {"alpha": 1.0, "beta": -2.0}
    return f"RaBitQFastScan, d = {d}", layout, codes, tables.astype(np.float32), queries, index, rule


def ways_of(t, blocks, codes, layout, queries, index, rule):
    """What is measured in turn, by name."""
    n = len(codes)
    return {
        "blocks": lambda: kernel.topk(t, blocks, layout, 10, in_blocks_of=n, **rule),
        "rows": lambda: kernel.topk(t, codes, layout, 10, **rule),
        "thousand": lambda: kernel.topk(t, blocks, layout, 1000, in_blocks_of=n, **rule),
        "faiss": lambda: index.search(queries, 10),
    }


def ways_to_run(quick):
    """(name of the level, threads, clock): with one thread the processor's time, which others on it do not lengthen."""
    yield from ((level, 1, time.process_time) for level in (["best"] if quick else LEVELS))
    if not quick:
        yield "best", 2, time.perf_counter


def scan(args):
    """Milliseconds a query over a million codes, k = 10: ours in blocks and as rows, beside faiss on as many bytes."""
    faiss = rival("faiss")
    if faiss is None:
        return
    rng = np.random.default_rng(1)
    n = few(100_000 if args.quick else 1_000_000, 4_000)
    cases = [lambda: of_product_quantizer(faiss, rng, n)]
    if hasattr(faiss, "IndexRaBitQFastScan"):  # faiss 1.13
        cases += [lambda d=d: of_factors(faiss, rng, n, d) for d in (64, 128, 256)]
    out = []
    for case in cases:
        name, layout, codes, tables, queries, index, rule = case()
        blocks = kernel.pack(codes, layout)
        for level, threads, clock in ways_to_run(args.quick):
            faiss.omp_set_num_threads(threads)
            for m in (1, 100):
                ways = ways_of(tables[:m], blocks, codes, layout, queries[:m], index, rule)
                with at_level(*LEVELS[level]), fs.thread_limit(threads):
                    times = least(ways, 101 if m == 1 else 5, clock)
                ms = {key: value / m * 1e3 for key, value in times.items()}
                shown = [f"{ms[key]:.3f}" for key in ("blocks", "rows", "thousand", "faiss")]
                out.append([name, layout.width, level, threads, m, *shown, f"{ms['faiss'] / ms['blocks']:.2f}"])
                print(out[-1], flush=True)
        del codes, blocks, index
    columns = ["beside", "bytes", "instructions", "threads", "queries at once"]
    columns += ["ms a query", "plain codes", "k = 1,000", "faiss", "our rate / faiss's"]
    table(out, columns, "main", runs="the least in turn: of 101 for one query, of 5 for 100")
