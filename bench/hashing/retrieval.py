"""Hashing: codes by the protocol of FROSH section 5.2, training times as its Table II, search against faiss.

"FROSH" and "OSH" are the papers' setting, rotation="random"; with ", itq" the rotation is the default of SketchHash.
"""

import time

import numpy as np

import bench_data
import fastsketch as fs
from bench_data import sift5k
from bench_tools import few, interleaved, least, rival, seconds, spread, table
from fastsketch import papers
from fastsketch.reference import baselines
from hashing.gist import cifar10_gist
from hashing.ordinal import OrdinalConstraint
from hashing.sample import UniformSample

BITS = (32, 64, 128)
# As many runs as the paper has, of the batch methods fewer: each has queries, seeds and an order of rows of its own.
RUNS = 10
SLOW, SLOW_RUNS = ("ITQ", "faiss ITQ", "SGH", "OCH"), 3
GIST = "CIFAR-10, GIST"


def mnist():
    """All 70,000 images as rows of 784, float32 in [0, 1]; None if they are absent."""
    found = bench_data.mnist("all")
    return None if found is None else found[0] / np.float32(255)


SETS = {"MNIST": mnist, GIST: cifar10_gist, "sift5k": sift5k}


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


def dfrosh(n_bits, rows, parts=5, **options):
    """FROSH on five machines, here in turn: the model, seconds of the slowest part, seconds of the merge."""
    models, times = [], []
    for part, piece in enumerate(np.array_split(rows, parts)):
        start = time.process_time()
        models.append(fs.SketchHash(n_bits, **{"rotation": "random", **options}, part=part).update(piece).seal())
        times.append(time.process_time() - start)
    start = time.process_time()
    whole = models[0]
    for model in models[1:]:
        whole.merge(model)
    return whole, max(times), time.process_time() - start


def methods(n_bits, rows, seed):
    """{name: function that returns a trained model} of the comparison."""

    def sketch(**options):
        return lambda: fs.SketchHash(n_bits, seed=seed, **options).update(rows)

    def sample(size, rotation):
        return lambda: UniformSample(n_bits, size, rotation, seed).update(rows).seal()

    out = {
        "LSH": lambda: baselines.LSH(n_bits, seed=seed).update(rows),
        "PCA": lambda: baselines.PCAHash(n_bits).update(rows),
        "OSH": sketch(method="fd", rotation="random"),
        "FROSH": sketch(rotation="random"),
        "DFROSH(5)": lambda: dfrosh(n_bits, rows, seed=seed)[0],
        "FROSH, no rotation": lambda: papers.frosh(n_bits, seed=seed).update(rows),
        "FROSH, itq": sketch(rotation="itq"),
        "exact, itq": sketch(method="exact", rotation="itq"),
        "ITQ": lambda: baselines.ITQ(n_bits, seed=seed).update(rows),
        "SGH": lambda: baselines.SGH(n_bits, seed=seed).update(rows),
        "OCH": lambda: OrdinalConstraint(n_bits, seed).update(rows),
        "PCA of 1,000 rows": sample(1000, "random"),
        "PCA of 1,000 rows, itq": sample(1000, "itq"),
        "PCA of 2,000 rows, itq": sample(2000, "itq"),
    }
    if rival("faiss"):
        out["faiss ITQ"] = lambda: FaissITQ(n_bits).update(rows)
    return out


def retrieval(args):
    """MAP and precision-recall curves of every method (FROSH Figures 5 and 6)."""
    bits, runs, n_queries = BITS[:1] if args.quick else BITS, 1 if args.quick else RUNS, few(100, 50)
    out, lines = [], []
    for name, make_rows in SETS.items():
        rows = make_rows()
        if rows is None:
            continue
        scores, curves = {}, {}
        for run in range(runs):
            order = np.random.default_rng(run).permutation(len(rows))
            queries, base = rows[order[:n_queries]], rows[order[n_queries:]]
            relevant = neighbours(queries, base)
            at = np.unique(np.geomspace(10, len(base) - 1, 40).astype(int))
            for n_bits in bits:
                for method, make in methods(n_bits, base, run).items():
                    if method in SLOW and run >= SLOW_RUNS:
                        continue
                    model = make()
                    distances = fs.hamming_distances(model.encode(queries), model.encode(base))
                    found, precision, recall = average_precision(distances, relevant)
                    scores.setdefault((method, n_bits), []).append(float(found.mean()))
                    if n_bits == BITS[-1]:
                        curves.setdefault(method, []).append(
                            [recall[:, at].mean(axis=0), precision[:, at].mean(axis=0)]
                        )
            print(name, run, {key: f"{values[-1]:.3f}" for key, values in scores.items()}, flush=True)
        for method in dict.fromkeys(method for method, _ in scores):
            out.append([name, method, *(spread(scores[method, n_bits], 3) for n_bits in bits)])
        for method, found in curves.items():
            lines += [[name, method, *(f"{v:.4f}" for v in point)] for point in np.mean(found, axis=0).T[::2]]
    of = f"{runs} runs, of ITQ, SGH and OCH {min(runs, SLOW_RUNS)}"
    columns = ["set", "method", *(f"MAP, {b} bits" for b in bits)]
    table(out, columns, "main", runs=f"{of}, mean +- standard deviation")
    if lines:
        table(lines, ["set", "method", "recall", "precision"], "curves", runs=f"{of}, means", note="128 bits.")


def mean_average_precision(model, queries, base, relevant):
    codes, asked, found = model.encode(base), model.encode(queries), []
    for start in range(0, len(queries), 100):
        part = slice(start, start + 100)
        found.append(average_precision(fs.hamming_distances(asked[part], codes), relevant[part])[0])
    return float(np.concatenate(found).mean())


def rounds(args):
    """MAP after each tenth of a set (FROSH Figure 4), and how many bits of old codes an anchor keeps."""
    bits, runs = BITS[:1] if args.quick else BITS, 1 if args.quick else RUNS
    out, moved = [], []
    for name, make_rows in SETS.items():
        rows = make_rows()
        if rows is None or name == "sift5k":
            continue
        found = [_rounds(rows, bits, run, anchored=name == "MNIST") for run in range(runs)]
        for key in found[0][0]:
            values = np.array([scores[key] for scores, _ in found])
            out.append([name, *key, *(spread(values[:, k], 3) for k in range(10))])
        for key in found[0][1]:
            free, held, kept = np.array([anchors[key] for _, anchors in found]).T
            moved.append([*key, spread(100 * free, 1), spread(100 * held, 1), spread(kept, 3)])
    of = f"{runs} runs, mean +- standard deviation"
    table(out, ["set", "bits", "method", *(f"round {i}" for i in range(1, 11))], "main", runs=of)
    columns = ["bits", "method", "bits changed since half the stream, %", "with an anchor there, %"]
    table(moved, [*columns, "MAP with the anchor"], "anchor", runs=of, note="MNIST.")


def _rounds(rows, bits, run, *, anchored):
    """{(bits, method): MAP after each tenth}, {(bits, method): shares of bits that change, MAP with the anchor}."""
    order = np.random.default_rng(run).permutation(len(rows))
    queries, base = rows[order[: few(100, 50)]], rows[order[few(1000, 50) :]]
    relevant = neighbours(queries, base)
    scores, anchors = {}, {}
    for n_bits in bits:
        models = {
            "LSH": baselines.LSH(n_bits, seed=run),
            "OSH": fs.SketchHash(n_bits, method="fd", rotation="random", seed=run),
            "FROSH": fs.SketchHash(n_bits, rotation="random", seed=run),
            "FROSH, itq": fs.SketchHash(n_bits, rotation="itq", seed=run),
        }
        held = {}
        for number, part in enumerate(np.array_split(base, 10), 1):
            for name, model in models.items():
                model.update(part)
                scores.setdefault((n_bits, name), []).append(mean_average_precision(model, queries, base, relevant))
                if anchored and number == 5 and name != "LSH":
                    held[name] = model.copy().anchor(), model.encode(base)
                elif name in held:
                    held[name][0].update(part)
        for name, (model, old) in held.items():
            changed = [np.unpackbits(m.encode(base) ^ old, axis=1)[:, :n_bits].mean() for m in (models[name], model)]
            anchors[n_bits, name] = [*changed, mean_average_precision(model, queries, base, relevant)]
        print(run, n_bits, {name: values[-1] for name, values in scores.items()}, flush=True)
    return scores, anchors


def training(args):
    """Seconds to learn the hash functions (FROSH Table II), least and median: rows as float64, one thread."""
    bits, repeats, out = BITS[: few(3, 1)], 2 if args.quick else 5, []
    for name, make_rows in SETS.items():
        rows = make_rows()
        if rows is None or name == "sift5k":
            continue
        rows = rows.astype(np.float64)[: 20_000 if args.quick else None]
        times = {b: _trained(rows, b, repeats, slow=not args.quick) for b in bits}
        for method in times[bits[0]]:
            cells = [times[b][method] for b in bits]
            ratios = [times[b][method][0] / times[b]["FROSH"][0] for b in bits]
            shown = (f"{low * 1e3:,.0f} ({middle * 1e3:,.0f})" for low, middle in cells)
            out.append([name, method, *shown, *(f"{value:.1f}" for value in ratios)])
    columns = ["set", "method", *(f"{b} bits, ms" for b in bits), *(f"{b} bits / FROSH" for b in bits)]
    table(out, columns, "main", runs=f"least and (median) of {repeats} in turn; SGH and OCH 1, DFROSH 3")


def _trained(rows, n_bits, repeats, *, slow):
    """{method: (least, median) seconds} to learn the functions of so many bits."""

    def trained(method, size=None):
        options = {"method": method, "sketch_size": size, "rotation": "random"}
        return lambda: fs.SketchHash(n_bits, **options).update(rows).projection

    def sample(size, rotation):
        return lambda: UniformSample(n_bits, size, rotation).update(rows).projection

    # n_bits kept rows, as many as FROSH keeps, are the fewest that serve
    runs = {
        "OSH": trained("fd"),
        "OSH, l / 2 kept rows": trained("fd", n_bits + 1),
        "exact PCA": trained("exact"),
        "FROSH": trained("srht"),
        "countsketch": trained("countsketch"),
        "sparse": trained("sparse"),
        "gaussian": trained("gaussian"),
        "FROSH, itq": lambda: fs.SketchHash(n_bits, rotation="itq").update(rows).projection,
        "numpy A'A + eigh": lambda: _plain_pca(rows, n_bits),
        "PCA of 1,000 rows": sample(1000, "random"),
        "PCA of 1,000 rows, itq": sample(1000, "itq"),
        "PCA of 2,000 rows": sample(2000, "random"),
        "PCA of 2,000 rows, itq": sample(2000, "itq"),
    }
    times = interleaved(runs, repeats)
    if slow:
        times["SGH"] = (seconds(lambda: baselines.SGH(n_bits).update(rows)),) * 2
        times["OCH"] = (seconds(lambda: OrdinalConstraint(n_bits).update(rows)),) * 2
    found = [sum(dfrosh(n_bits, rows)[1:]) for _ in range(few(3, 1))]
    times["DFROSH(5): slowest part + merge"] = min(found), float(np.median(found))
    return times


def _plain_pca(rows, r):
    from scipy.linalg import eigh

    mean = rows.mean(axis=0)
    moment = rows.T @ rows - len(rows) * np.outer(mean, mean)
    return eigh(moment, subset_by_index=(len(moment) - r, len(moment) - 1))[1]


def search(args):
    """Exact top-10 among a million codes against faiss.IndexBinaryFlat, milliseconds a query, one thread."""
    faiss = rival("faiss")
    if faiss is None:
        return
    rng = np.random.default_rng(0)
    out = []
    n = few(100_000 if args.quick else 1_000_000, 2000)
    for n_bits in (32, 64, 104, 128, 256):
        codes = rng.integers(0, 256, (n, n_bits // 8), dtype=np.uint8)
        index = faiss.IndexBinaryFlat(n_bits)
        index.add(codes)
        for n_queries in (1, 100):
            queries = rng.integers(0, 256, (n_queries, n_bits // 8), dtype=np.uint8)
            ways = {
                "ours": lambda c=codes, q=queries: fs.hamming_topk(q, c, k=10),
                "faiss": lambda i=index, q=queries: i.search(q, 10),
            }
            times = least(ways)
            ours, theirs = fs.hamming_topk(queries, codes, k=10)[0], index.search(queries, 10)[0]
            same = np.array_equal(ours, np.sort(theirs, axis=1))
            a, b = times["ours"], times["faiss"]
            out.append(
                {
                    "codes x bits": f"{n:,} x {n_bits}",
                    "queries at once": n_queries,
                    "ms a query": f"{a / n_queries * 1e3:.2f}",
                    "faiss": f"{b / n_queries * 1e3:.2f}",
                    "ours / faiss": f"{a / b:.2f}",
                    "same distances": "yes" if same else "NO",
                }
            )
    table(out, name="main", runs="the least of 5 in turn")
