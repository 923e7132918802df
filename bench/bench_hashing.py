"""Hashing: codes by the protocol of FROSH section 5.2, training times as its Table II, search against faiss.

"FROSH" and "OSH" are the papers' setting, rotation="random"; with ", itq" the rotation is the default of SketchHash.
"""

import time

import numpy as np

import fastsketch as fs
from bench_sample_rivals import UniformSample
from bench_tools import DATA, interleaved, read_idx, seconds, table
from fastsketch.reference import baselines

BITS = (32, 64, 128)


def mnist():
    """All 70,000 images as rows of 784, float32 in [0, 1]; None if they are absent."""
    folder = DATA / "mnist"
    if not (folder / "train-images-idx3-ubyte.gz").exists():
        print(f"MNIST: absent ({folder}); set FASTSKETCH_DATA")
        return None
    parts = [read_idx(folder / f"{name}-images-idx3-ubyte.gz").reshape(-1, 784) for name in ("train", "t10k")]
    return (np.concatenate(parts) / np.float32(255)).astype(np.float32)


def sift():
    path = DATA / "sift5k" / "sift-dataset-5k.tsv.gz"
    if not path.exists():
        print(f"sift5k: absent ({path}); set FASTSKETCH_DATA")
        return None
    return np.loadtxt(path, dtype=np.float32)[:, :128]


def average_precision(distances, relevant):
    """Mean over queries of the area under the precision-recall curve; ties in the order of the collection."""
    if distances.dtype.kind == "i":
        distances = distances.astype(np.uint16)  # of bits that differ: sorted by counting
    order = np.argsort(distances, axis=1, kind="stable")
    hits = np.take_along_axis(relevant, order, axis=1)
    found = np.cumsum(hits, axis=1)
    precision = found / np.arange(1, hits.shape[1] + 1)
    return (precision * hits).sum(axis=1) / hits.sum(axis=1), precision, found / hits.sum(axis=1, keepdims=True)


def neighbours(queries, base, share=0.02):
    """The paper's ground truth: the closest 2% by Euclidean distance."""
    squares = (base**2).sum(axis=1) - 2 * (queries @ base.T)
    k = max(1, round(share * len(base)))
    out = np.zeros(squares.shape, bool)
    np.put_along_axis(out, np.argpartition(squares, k - 1, axis=1)[:, :k], True, axis=1)
    return out


class FaissITQ:
    """faiss's own ITQ (PCA, then the rotation, on all rows) with signs packed as ours are."""

    def __init__(self, n_bits):
        self.n_bits = n_bits

    def update(self, rows):
        import faiss

        self.transform = faiss.ITQTransform(rows.shape[1], self.n_bits, True)
        self.transform.train(np.ascontiguousarray(rows, np.float32))
        return self

    def encode(self, rows):
        return np.packbits(self.transform.apply(np.ascontiguousarray(rows, np.float32)) > 0, axis=1, bitorder="little")


def dfrosh(n_bits, rows, parts=5, rotation="random"):
    """FROSH on five machines, here in turn: the model, seconds of the slowest part, seconds of the merge."""
    models, times = [], []
    for part, piece in enumerate(np.array_split(rows, parts)):
        start = time.process_time()
        models.append(fs.SketchHash(n_bits, rotation=rotation, part=part).update(piece).seal())
        times.append(time.process_time() - start)
    start = time.process_time()
    whole = models[0]
    for model in models[1:]:
        whole.merge(model)
    return whole, max(times), time.process_time() - start


def methods(n_bits, rows):
    """{name: function that returns a trained model} of the comparison."""
    out = {
        "LSH": lambda: baselines.LSH(n_bits).update(rows),
        "PCA": lambda: baselines.PCAHash(n_bits).update(rows),
        "OSH": lambda: fs.SketchHash(n_bits, method="fd", rotation="random").update(rows),
        "FROSH": lambda: fs.SketchHash(n_bits, rotation="random").update(rows),
        "DFROSH(5)": lambda: dfrosh(n_bits, rows)[0],
        "FROSH, no rotation": lambda: fs.SketchHash(n_bits, rotation=None).update(rows),
        "FROSH, itq": lambda: fs.SketchHash(n_bits, rotation="itq").update(rows),
        "exact, itq": lambda: fs.SketchHash(n_bits, method="exact", rotation="itq").update(rows),
        "ITQ": lambda: baselines.ITQ(n_bits).update(rows),
        "SGH": lambda: baselines.SGH(n_bits).update(rows),
        "PCA of 1,000 rows": lambda: UniformSample(n_bits, 1000, "random").update(rows).seal(),
        "PCA of 1,000 rows, itq": lambda: UniformSample(n_bits, 1000, "itq").update(rows).seal(),
        "PCA of 2,000 rows, itq": lambda: UniformSample(n_bits, 2000, "itq").update(rows).seal(),
    }
    try:
        import faiss  # noqa: F401

        out["faiss ITQ"] = lambda: FaissITQ(n_bits).update(rows)
    except ImportError:
        print("faiss: absent; pip install faiss-cpu")
    return out


def retrieval(args):
    """MAP and precision-recall curves of every method (FROSH Figures 5 and 6)."""
    sets = {"MNIST": mnist(), "sift5k": sift()}
    curves, out = {}, []
    for name, rows in sets.items():
        if rows is None:
            continue
        order = np.random.default_rng(0).permutation(len(rows))
        n_queries = (200 if args.quick else 1000) if name == "MNIST" else 500
        queries, base = rows[order[:n_queries]], rows[order[n_queries:]]
        relevant = neighbours(queries, base)
        scores = {}
        for n_bits in BITS[:1] if args.quick else BITS:
            for method, make in methods(n_bits, base).items():
                model = make()
                codes, asked = model.encode(base), model.encode(queries)
                found, curve = [], np.zeros((2, 40))
                for start in range(0, n_queries, 100):
                    part = slice(start, start + 100)
                    ap, precision, recall = average_precision(fs.hamming_distances(asked[part], codes), relevant[part])
                    found.append(ap)
                    at = np.unique(np.geomspace(10, len(base) - 1, 40).astype(int))
                    curve[:, : len(at)] += [recall[:, at].sum(axis=0), precision[:, at].sum(axis=0)]
                scores.setdefault(method, []).append(float(np.concatenate(found).mean()))
                if n_bits == 128:
                    curves.setdefault(name, {})[method] = curve[:, : len(at)] / n_queries
                print(f"{name} {n_bits} {method}: {scores[method][-1]:.3f}", flush=True)
        out += [[name, method, *(f"{value:.3f}" for value in values)] for method, values in scores.items()]
    bits = BITS[:1] if args.quick else BITS
    table(out, ["set", "method", *(f"MAP, {b} bits" for b in bits)], "main", runs="1 split, 1 seed")
    lines = [
        [name, method, *(f"{value:.4f}" for value in point)]
        for name, found in curves.items()
        for method, curve in found.items()
        for point in curve.T[::2]
    ]
    if lines:
        table(lines, ["set", "method", "recall", "precision"], "curves", runs="1 split, 1 seed", note="128 bits.")


def mean_average_precision(model, queries, base, relevant):
    codes, asked, found = model.encode(base), model.encode(queries), []
    for start in range(0, len(queries), 100):
        part = slice(start, start + 100)
        found.append(average_precision(fs.hamming_distances(asked[part], codes), relevant[part])[0])
    return float(np.concatenate(found).mean())


def rounds(args):
    """MAP after each tenth of MNIST (FROSH Figure 4), and how many bits of old codes an anchor keeps."""
    rows = mnist()
    if rows is None:
        return
    order = np.random.default_rng(0).permutation(len(rows))
    queries, base = rows[order[:300]], rows[order[1000:]]
    relevant = neighbours(queries, base)
    out, kept = [], []
    for n_bits in BITS[:1] if args.quick else BITS:
        models = {
            "LSH": baselines.LSH(n_bits),
            "OSH": fs.SketchHash(n_bits, method="fd", rotation="random"),
            "FROSH": fs.SketchHash(n_bits, rotation="random"),
            "FROSH, itq": fs.SketchHash(n_bits, rotation="itq"),
        }
        scores = {name: [] for name in models}
        for number, part in enumerate(np.array_split(base, 10), 1):
            for name, model in models.items():
                model.update(part)
                scores[name].append(mean_average_precision(model, queries, base, relevant))
                if number == 5 and name != "LSH":
                    old = model.encode(base)
                    kept.append([n_bits, name, model, model.copy().anchor(), old])
            for _, name, _, held, _ in (row for row in kept if row[0] == n_bits):
                if number > 5 and models[name] is not held:
                    held.update(part)
        out += [[n_bits, name, *(f"{value:.3f}" for value in values)] for name, values in scores.items()]
        print(n_bits, {name: values[-1] for name, values in scores.items()}, flush=True)
    table(out, ["bits", "method", *(f"round {i}" for i in range(1, 11))], "main", runs="1 order, 1 seed")
    moved = []
    for n_bits, name, free, held, old in kept:
        changed = [float(np.unpackbits(m.encode(base) ^ old, axis=1)[:, :n_bits].mean()) for m in (free, held)]
        moved.append(
            [
                n_bits,
                name,
                *(f"{value:.1%}" for value in changed),
                f"{mean_average_precision(held, queries, base, relevant):.3f}",
            ]
        )
    columns = ["bits", "method", "bits changed since half the stream", "with an anchor there", "MAP with the anchor"]
    table(moved, columns, "anchor", runs="1 order, 1 seed")


def training(args):
    """Seconds to learn the hash functions (FROSH Table II), least and median: MNIST as float64, one thread."""
    rows = mnist()
    if rows is None:
        return
    rows = rows.astype(np.float64)
    if args.quick:
        rows = rows[:20_000]
    out, base = [], {}
    for n_bits in BITS:

        def trained(method, size=None, n_bits=n_bits):
            options = {"method": method, "sketch_size": size, "rotation": "random"}
            return lambda: fs.SketchHash(n_bits, **options).update(rows).projection

        # n_bits kept rows, as many as FROSH keeps, are the fewest that serve
        runs = {
            "OSH": trained("fd"),
            "OSH, l / 2 kept rows": trained("fd", n_bits + 1),
            "exact PCA": trained("exact"),
            "FROSH": trained("srht"),
            "countsketch": trained("countsketch"),
            "sparse": trained("sparse"),
            "gaussian": trained("gaussian"),
            "FROSH, itq": lambda b=n_bits: fs.SketchHash(b, rotation="itq").update(rows).projection,
            "numpy A'A + eigh": lambda b=n_bits: _plain_pca(rows, b),
            "PCA of 1,000 rows": lambda b=n_bits: UniformSample(b, 1000, "random").update(rows).projection,
            "PCA of 1,000 rows, itq": lambda b=n_bits: UniformSample(b, 1000, "itq").update(rows).projection,
            "PCA of 2,000 rows": lambda b=n_bits: UniformSample(b, 2000, "random").update(rows).projection,
            "PCA of 2,000 rows, itq": lambda b=n_bits: UniformSample(b, 2000, "itq").update(rows).projection,
        }
        times = interleaved(runs, 2 if args.quick else 5)
        if not args.quick:
            times["SGH"] = (seconds(lambda b=n_bits: baselines.SGH(b).update(rows)),) * 2
        found = [sum(dfrosh(n_bits, rows)[1:]) for _ in range(3)]
        times["DFROSH(5): slowest part + merge"] = min(found), float(np.median(found))
        base[n_bits] = times
    names = list(base[BITS[0]])
    for name in names:
        cells = [base[b][name] for b in BITS]
        ratios = [base[b][name][0] / base[b]["FROSH"][0] for b in BITS]
        shown = (f"{low * 1e3:,.0f} ({middle * 1e3:,.0f})" for low, middle in cells)
        out.append([name, *shown, *(f"{value:.1f}" for value in ratios)])
    columns = ["method", *(f"{b} bits, ms" for b in BITS), *(f"{b} bits / FROSH" for b in BITS)]
    table(out, columns, "main", runs=f"least and (median) of {2 if args.quick else 5} in turn; SGH 1, DFROSH 3")


def _plain_pca(rows, r):
    from scipy.linalg import eigh

    mean = rows.mean(axis=0)
    moment = rows.T @ rows - len(rows) * np.outer(mean, mean)
    return eigh(moment, subset_by_index=(len(moment) - r, len(moment) - 1))[1]


def search(args):
    """Exact top-10 among a million codes against faiss.IndexBinaryFlat, milliseconds a query, one thread."""
    import faiss

    faiss.omp_set_num_threads(1)
    rng = np.random.default_rng(0)
    out = []
    n = 100_000 if args.quick else 1_000_000
    for n_bits in (32, 64, 104, 128, 256):
        codes = rng.integers(0, 256, (n, n_bits // 8), dtype=np.uint8)
        index = faiss.IndexBinaryFlat(n_bits)
        index.add(codes)
        for n_queries in (1, 100):
            queries = rng.integers(0, 256, (n_queries, n_bits // 8), dtype=np.uint8)
            times = interleaved(
                {
                    "ours": lambda c=codes, q=queries: fs.hamming_topk(q, c, k=10),
                    "faiss": lambda i=index, q=queries: i.search(q, 10),
                },
                5,
            )
            ours, theirs = fs.hamming_topk(queries, codes, k=10)[0], index.search(queries, 10)[0]
            same = np.array_equal(ours, np.sort(theirs, axis=1))
            a, b = times["ours"][0], times["faiss"][0]
            out.append(
                [
                    f"{n:,} x {n_bits}",
                    n_queries,
                    f"{a / n_queries * 1e3:.2f}",
                    f"{b / n_queries * 1e3:.2f}",
                    f"{a / b:.2f}",
                    "yes" if same else "NO",
                ]
            )
    columns = ["codes x bits", "queries at once", "ms a query", "faiss", "ours / faiss", "same distances"]
    table(out, columns, "main", runs="the least of 5 in turn")
