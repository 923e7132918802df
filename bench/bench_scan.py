"""Scans of a million codes beside faiss: 4-bit codes and PQ fast scan, codes with factors and RaBitQ, Hamming."""

import numpy as np

import fastsketch as fs
from bench_tools import interleaved, table
from fastsketch._kernels.codes import scan as kernel


class Number:
    """A factor of a code, as the kernel reads it: fastsketch.codes has the checked form."""

    def __init__(self, n_bytes=0, mantissa_bits=0, unit=1.0):
        self.n_bytes, self.mantissa_bits, self.unit = n_bytes, mantissa_bits, unit


class Layout:
    def __init__(self, n_tables, offset=None, scale=None):
        self.n_tables, self.offset, self.scale = n_tables, offset or Number(), scale or Number()
        self.width = (n_tables + 1) // 2 + self.offset.n_bytes + self.scale.n_bytes


def steep(rng, n, d):
    """Rows whose directions fall off as one over their number, in clusters of a hundredth of the rows."""
    spread = 1 / np.sqrt(1 + np.arange(d))
    return ((rng.standard_normal((100, d)) * 2)[rng.integers(0, 100, n)] + rng.standard_normal((n, d))) * spread


def uniform_codes(rows, bits):
    """Codes of nibbles from levels at equal distances: 4 bits a column, or 8 (two nibbles, the low one first)."""
    low, high = rows.min(axis=0), rows.max(axis=0)
    step = (high - low) / (2**bits - 1)
    levels = np.round((rows - low) / step).astype(np.uint8)
    codes = levels if bits == 8 else levels[:, ::2] | (levels[:, 1::2] << 4)
    return np.ascontiguousarray(codes), low, step


def uniform_tables(queries, low, step, bits):
    """-2 q r of every level r of every nibble: the sums are squared distances less two constants, with offsets."""
    c = np.arange(16)
    at = -2 * queries[:, :, np.newaxis]
    if bits == 4:
        return np.ascontiguousarray(at * (low[:, np.newaxis] + step[:, np.newaxis] * c), np.float32)
    pairs = np.stack([low[:, np.newaxis] + step[:, np.newaxis] * c, step[:, np.newaxis] * 16 * c], axis=1)
    return np.ascontiguousarray((at[:, :, np.newaxis] * pairs).reshape(len(queries), -1, 16), np.float32)


def ours(queries_tables, codes, layout, k=10, **rule):
    blocks = kernel.pack(codes, layout)
    rule = {"alpha": 1.0, "beta": 1.0, **rule}
    return {
        "ours": lambda t: kernel.topk(t, blocks, layout, k, in_blocks_of=len(codes), **rule),
        "rows": lambda t: kernel.topk(t, codes, layout, k, **rule),
    }


def pq_fast_scan(faiss, rng, n):
    """(layout, codes, tables of queries, faiss's search of queries): the same codes on both sides."""
    d, m = 64, 32
    rows = rng.standard_normal((n, d)).astype(np.float32)
    index = faiss.IndexPQ(d, m, 4)
    index.train(rows[:20_000])
    index.add(rows)
    fast = faiss.IndexPQFastScan(index)
    codes = faiss.vector_to_array(index.codes).reshape(n, m // 2)
    centres = faiss.vector_to_array(index.pq.centroids).reshape(m, 16, d // m)

    def tables(queries):
        parts = queries.reshape(len(queries), m, 1, d // m)
        return np.ascontiguousarray(((parts - centres) ** 2).sum(axis=3), np.float32)

    return Layout(m), codes, tables, fast, rng.standard_normal((100, d)).astype(np.float32)


def rabitq(faiss, rng, n, d):
    rows = steep(rng, n, d).astype(np.float32)
    index = faiss.IndexRaBitQFastScan(d)
    index.train(rows[:20_000])
    index.add(rows)
    return index, rows, steep(rng, 100, d).astype(np.float32)


def scan(args):
    """Milliseconds a query over a million codes, k = 10: ours in blocks and as rows, beside faiss on as many bytes."""
    import faiss

    rng = np.random.default_rng(0)
    n = 100_000 if args.quick else 1_000_000
    cases = []
    layout, codes, tables, fast, queries = pq_fast_scan(faiss, rng, n)
    t = tables(queries)
    cases.append(["32 nibbles, PQ32x4fs", 16, 16, layout, codes, t, fast, queries, {"alpha": 0.0}])
    for d in (64, 128, 256):
        index, rows, queries = rabitq(faiss, rng, n, d)
        width = int(index.code_size)
        layout = Layout(2 * (width - 2), Number(1, 5, 0.25), Number(1, 5, 0.25))
        codes = rng.integers(0, 256, (n, width), dtype=np.uint8)
        body = width - 2
        columns = rows[:, : 2 * body] if 2 * body <= d else np.tile(rows, -(-2 * body // d))[:, : 2 * body]
        codes[:, :body], low, step = uniform_codes(columns, 4)
        asked = queries[:, : 2 * body] if 2 * body <= d else np.tile(queries, -(-2 * body // d))[:, : 2 * body]
        t = uniform_tables(asked, low, step, 4)
        cases.append([f"{2 * body} nibbles + 2, RaBitQ {d}", width, width, layout, codes, t, index, queries, {}])
    out = []
    for name, mine, theirs, layout, codes, t, index, queries, rule in cases:
        blocks = kernel.pack(codes, layout)
        rule = {"alpha": 1.0, "beta": 1.0, **rule}
        for threads in (1, 2):
            faiss.omp_set_num_threads(threads)
            for m in (1, 100):
                part, asked = t[:m], queries[:m]
                with fs.thread_limit(threads):
                    times = interleaved(
                        {
                            "blocks": lambda: kernel.topk(part, blocks, layout, 10, in_blocks_of=len(codes), **rule),
                            "rows": lambda: kernel.topk(part, codes, layout, 10, **rule),
                            "faiss": lambda: index.search(asked, 10),
                        },
                        5 if args.quick else 9,
                    )
                ms = {key: value[0] / m * 1e3 for key, value in times.items()}
                out.append(
                    [name, f"{mine} / {theirs}", threads, m, *(f"{ms[key]:.3f}" for key in ("blocks", "rows", "faiss"))]
                    + [f"{ms['faiss'] / ms['blocks']:.2f}"]
                )
                print(out[-1], flush=True)
    columns = ["codes", "bytes, ours / faiss", "threads", "queries at once", "ms a query", "plain codes", "faiss"]
    text = table(out, [*columns, "our rate / faiss's"])
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "scan.md").write_text(text + "\n")
