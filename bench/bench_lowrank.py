"""Low-rank models: signed links and ratings as in the GLRL paper (Tables 2 and 4), against other libraries, kernels."""

import gzip
import json
import resource
import subprocess
import sys
import time

import numpy as np
from scipy import sparse

import fastsketch as fs
from bench_tools import DATA, interleaved, seconds, table
from fastsketch.baselines import ADMML1, AISImpute, AltMin, WibergL1

# The paper's algorithms: whole steps, and no sweeps after them. With BARE also no biases and no degree scaling.
GREEDY = {"learning_rate": 1.0, "sweeps": 0}
BARE = {**GREEDY, "biases": False, "scaling": False}
# A singular pair of h in each step of Algorithm 3, to the lowest point along it.
ONE = {"max_inner_rank": 1, "inner_criterion": "current", "step_rule": "line_search"}
PRINTED = {**BARE, **ONE, "step_rule": "inverse_sqrt", "step_size": 4.0}


# -- data --------------------------------------------------------------------------------------------------------------
def _there(*paths):
    for path in paths:
        if not path.exists():
            print(f"{path.name}: absent ({path}); set FASTSKETCH_DATA")
            return False
    return True


def ratings_of(name):
    """(rows, columns, stars, shape) of MovieLens, or None."""
    if name == "ML-100K":
        path = DATA / "ml-100k" / "u.data.gz"
        if not _there(path):
            return None
        with gzip.open(path, "rt") as file:
            lines = np.loadtxt(file, dtype=np.int64)
        rows, columns = (np.unique(lines[:, k], return_inverse=True)[1] for k in (0, 1))
        return rows, columns, lines[:, 2].astype(np.float32), (rows.max() + 1, columns.max() + 1)
    path = DATA / "ml-1m" / "movielens1m.mat"
    if not _there(path):
        return None
    from scipy.io import loadmat

    found = loadmat(path, spmatrix=False)["data"].tocoo()
    return found.row.astype(np.int64), found.col.astype(np.int64), found.data.astype(np.float32), found.shape


def links_of(name):
    """(rows, columns, signs, shape) of a signed network, users with fewer than two observations dropped; or None."""
    path = DATA / ("epinions/soc-sign-epinions.txt.gz" if name == "Epinions" else "signed-small/bitcoin-OTC.txt.gz")
    if not _there(path):
        return None
    with gzip.open(path, "rt") as file:
        parts = [line.replace(",", " ").split()[:3] for line in file if line[0] != "#"]
    lines = np.array([[int(part) for part in line] for line in parts if len(line) == 3])
    rows, columns, signs = lines[:, 0], lines[:, 1], np.where(lines[:, 2] > 0, 1.0, -1.0)
    keys = np.unique(rows * (columns.max() + 1) + columns, return_index=True)[1]  # a pair that stands twice counts once
    rows, columns, signs = rows[keys], columns[keys], signs[keys]
    for _ in range(1):
        for side in (0, 1):
            ids = (rows, columns)[side]
            many = np.bincount(ids)[ids] >= 2
            rows, columns, signs = rows[many], columns[many], signs[many]
    rows, columns = (np.unique(ids, return_inverse=True)[1] for ids in (rows, columns))
    return rows, columns, signs, (rows.max() + 1, columns.max() + 1)


def matrix(found, chosen, values=None):
    rows, columns, stars, shape = found
    values = stars if values is None else values
    return sparse.csr_array(sparse.coo_array((values[chosen], (rows[chosen], columns[chosen])), shape=shape))


# -- Table 2 and Figure 1 ----------------------------------------------------------------------------------------------
def signs(args):
    """Sign prediction, logistic loss, rank 40, 10 folds: accuracy on the held-out tenth, seconds."""
    out = []
    for name, rank in (("bitcoin-OTC", 20),) if args.quick else (("bitcoin-OTC", 20), ("Epinions", 40)):
        found = links_of(name)
        if found is not None:
            out += _signs(name, rank, found, 2 if args.quick else 10)
    text = table(out, ["set", "method", "accuracy, %", "s", "folds"])
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "signs.md").write_text(text + "\n")


def _signs(name, rank, found, few):
    out = []
    rows, columns, labels, shape = found
    print(name, shape, len(labels), flush=True)
    folds = np.random.default_rng(0).permutation(len(labels)) % 10

    def pursuit(refine, **options):
        return lambda x: fs.LowRankModel(rank, loss="logistic", refine=refine, dtype="float32", **options).fit(x)

    methods = {
        "AIS-Impute": lambda x: AISImpute(AIS[name], max_rank=60, loss="logistic", max_iterations=100).fit(x),
        "AltMin": lambda x: AltMin(rank, loss="logistic", ridge=1.0, max_iterations=100).fit(x),
        "GLRL, no update": pursuit("none", **BARE),
        "GLRL": pursuit("full", **BARE),
        "EGLRL": pursuit("economic", **BARE),
        "EGLRL, degree scaling": pursuit("economic", **GREEDY, biases=False),
        "biases alone": lambda x: fs.LowRankModel(0, loss="logistic", dtype="float32").fit(x),
        "biases + EGLRL, learning rate 0.3": pursuit("economic", learning_rate=0.3, sweeps=0),
    }
    for label, fit in methods.items():
        scores, times = [], []
        slow = label in ("AltMin", "AIS-Impute")
        for fold in range(min(few, 3 if len(labels) < 100_000 else 1) if slow else few):
            inside = folds != fold
            x = matrix(found, inside)
            start = time.perf_counter()
            model = fit(x)
            times.append(time.perf_counter() - start)
            z = model.decision_function(rows[~inside], columns[~inside])
            scores.append(
                100 * np.mean(np.where(z > 0, 1, np.where(z < 0, -1, np.sign(labels.mean()))) == labels[~inside])
            )
        out.append([name, label, f"{np.mean(scores):.2f} +- {np.std(scores):.2f}", f"{min(times):.2f}", len(times)])
        print(*out[-1], flush=True)
    return out


# Penalty that leaves AIS-Impute about the rank of the others.
AIS = {"Epinions": 15.0, "bitcoin-OTC": 2.0}


# -- Table 4 and Figure 2 ----------------------------------------------------------------------------------------------
def stars(args):
    """The absolute loss as in the paper: ratings less their mean over their spread; half of them, five splits."""
    out = []
    for name in ("ML-100K",) if args.quick else ("ML-100K", "ML-1M"):
        found = ratings_of(name)
        if found is not None:
            out += _stars(name, found)
    small = ratings_of("ML-100K")
    if small is not None:
        out += _wiberg(small)
    text = table(out, ["set", "method", "MABS, spreads", "MABS, stars", "s", "splits"])
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "stars.md").write_text(text + "\n")


def _stars(name, found):
    out = []
    rows, columns, values, _ = found
    methods = {
        "GLRL, printed step, c2 = 4": lambda x: fs.LowRankModel(10, loss="absolute", **PRINTED).fit(x),
        "GLRL, line search": lambda x: fs.LowRankModel(10, loss="absolute", **BARE, **ONE).fit(x),
        "biases + GLRL": lambda x: fs.LowRankModel(10, loss="absolute", **GREEDY, **ONE).fit(x),
        "biases + GLRL + 2 sweeps": lambda x: fs.LowRankModel(6, loss="absolute", **ONE, sweeps=2, ridge=3.0).fit(x),
        "biases alone": lambda x: fs.LowRankModel(0, loss="absolute").fit(x),
        "median alone": None,
    }
    if name == "ML-100K":
        methods["ADMM"] = lambda x: ADMML1(8.0, max_iterations=60).fit(x)
    for label, fit in methods.items():
        errors, times = [], []
        for seed in range(5 if fit is None or label != "ADMM" else 2):
            order = np.random.default_rng(seed).permutation(len(values))
            train, test = order[: len(order) // 2], order[len(order) // 2 :]
            mean, spread = values[train].mean(), values[train].std()
            x = matrix(found, train, ((values - mean) / spread).astype(np.float32))
            start = time.perf_counter()
            if fit is None:
                z = np.full(len(test), np.median(x.data))
            else:
                z = fit(x).decision_function(rows[test], columns[test])
            times.append(time.perf_counter() - start)
            errors.append(np.abs(np.clip(mean + spread * z, 1, 5) - values[test]).mean())
        out.append(
            [
                name,
                label,
                f"{np.mean(errors) / spread:.4f} +- {np.std(errors) / spread:.4f}",
                f"{np.mean(errors):.4f}",
                f"{min(times):.2f}",
                len(times),
            ]
        )
        print(*out[-1], flush=True)
    return out


def _wiberg(found):
    """On the 150 users and 100 films with the most ratings: its linear programs grow with both."""
    rows, columns, values, _ = found
    users, films = (np.argsort(-np.bincount(ids))[:size] for ids, size in ((rows, 150), (columns, 100)))
    inside = np.isin(rows, users) & np.isin(columns, films)
    part = [np.unique(ids[inside], return_inverse=True)[1] for ids in (rows, columns)]
    shape = tuple(int(ids.max()) + 1 for ids in part)
    some = (*part, values[inside], shape)
    order = np.random.default_rng(0).permutation(inside.sum())
    train, test = order[: len(order) // 2], order[len(order) // 2 :]
    mean, spread = some[2][train].mean(), some[2][train].std()
    x = matrix(some, train, ((some[2] - mean) / spread).astype(np.float64))
    out = []
    for label, fit in (
        ("Wiberg, rank 3", lambda: WibergL1(3, max_iterations=6).fit(x)),
        ("ADMM", lambda: ADMML1(6.0, max_iterations=100).fit(x)),
        ("GLRL, line search, rank 3", lambda: fs.LowRankModel(3, loss="absolute", **BARE, **ONE).fit(x)),
        ("biases + GLRL, rank 3", lambda: fs.LowRankModel(3, loss="absolute", **GREEDY, **ONE).fit(x)),
    ):
        start = time.perf_counter()
        z = fit().decision_function(some[0][test], some[1][test])
        taken = time.perf_counter() - start
        error = np.abs(np.clip(mean + spread * z, 1, 5) - some[2][test]).mean()
        out.append(
            [f"ML-100K, {shape[0]} x {shape[1]}", label, f"{error / spread:.4f}", f"{error:.4f}", f"{taken:.2f}", 1]
        )
        print(*out[-1], flush=True)
    return out


def paths(args):
    """Accuracy against seconds, rank by rank (GLRL Figures 1 and 2): a fold of Epinions, a split of MovieLens-1M."""
    panels = {}
    links = links_of("bitcoin-OTC" if args.quick else "Epinions")
    if links is not None:
        rows, columns, labels, _ = links
        inside = np.random.default_rng(0).permutation(len(labels)) % 10 != 0
        x, plain = matrix(links, inside), {**BARE, "dtype": "float32"}

        def right(z):
            return 100 * np.mean(np.where(z >= 0, 1, -1) == labels[~inside])  # a tie goes to the more frequent sign

        lines = {}
        for label, refine, options in (
            ("GLRL, no update", "none", plain),
            ("EGLRL", "economic", plain),
            ("GLRL", "full", plain),
            ("biases + EGLRL", "economic", {"learning_rate": 0.5, "sweeps": 0}),
        ):
            model = fs.LowRankModel(40, loss="logistic", refine=refine, **options).fit(x)
            lines[label] = [
                (line["seconds"], right(model.decision_function(rows[~inside], columns[~inside], rank=line["rank"])))
                for line in model.history
            ]
        for label, model in (
            ("AltMin", AltMin(40, loss="logistic", ridge=1.0, max_iterations=60)),
            ("AIS-Impute", AISImpute(AIS["Epinions"], max_rank=60, loss="logistic", max_iterations=40)),
        ):
            points = []

            def keep(line, points=points):
                a, b = line["factors"]
                points.append((line["seconds"], right(np.einsum("kq,kq->k", a[rows[~inside]], b[columns[~inside]]))))

            model.fit(x, callback=keep)
            lines[label] = points
        panels["signed links: accuracy, %"] = lines
    found = ratings_of("ML-100K" if args.quick else "ML-1M")
    if found is not None:
        rows, columns, values, _ = found
        order = np.random.default_rng(0).permutation(len(values))
        train, test = order[: len(order) // 2], order[len(order) // 2 :]
        mean, spread = values[train].mean(), values[train].std()
        y = matrix(found, train, ((values - mean) / spread).astype(np.float32))
        lines = {}
        for label, options in (
            ("printed step", PRINTED),
            ("line search", {**BARE, **ONE}),
            ("biases + line search", {**GREEDY, **ONE}),
        ):
            model = fs.LowRankModel(10, loss="absolute", **options).fit(y)
            lines[label] = []
            for line in model.history:
                z = model.decision_function(rows[test], columns[test], rank=line["rank"])
                error = np.abs(np.clip(mean + spread * z, 1, 5) - values[test]).mean() / spread
                lines[label].append((line["seconds"], error))
        panels["stars, absolute loss: MABS in spreads"] = lines
    out = [
        [
            panel,
            label,
            f"{points[-1][0]:.2f}",
            f"{points[-1][1]:.4g}",
            f"{(max if 'accuracy' in panel else min)(p[1] for p in points):.4g}",
        ]
        for panel, lines in panels.items()
        for label, points in lines.items()
    ]
    text = table(out, ["what", "method", "s", "at the end", "best"])
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "paths.md").write_text(text + "\n")
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for axis, (panel, lines) in zip(axes, panels.items(), strict=False):
        for label, points in lines.items():
            axis.semilogx(*zip(*((max(t, 1e-3), v) for t, v in points), strict=True), marker=".", label=label)
        axis.set(xlabel="seconds", title=panel)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
    if "signed links: accuracy, %" in panels:
        axes[0].set_ylim(bottom=80)
    figure.savefig(args.out / "paths.png", dpi=110)
    print(args.out / "paths.png")


# -- in practice -------------------------------------------------------------------------------------------------------
def ratings(args):
    """Raw stars, half for training, one thread: MAE, RMSE and seconds against cmfrec and scikit-surprise."""
    out = []
    for name in ("ML-100K",) if args.quick else ("ML-100K", "ML-1M"):
        found = ratings_of(name)
        if found is not None:
            out += _ratings(name, found)
    text = table(out, ["set", "method", "MAE", "RMSE", "s, fit and predict"])
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "ratings.md").write_text(text + "\n")


def _ratings(name, found):
    out = []
    rows, columns, values, shape = found
    order = np.random.default_rng(0).permutation(len(values))
    train, test = order[: len(order) // 2], order[len(order) // 2 :]
    x = matrix(found, train)
    predictions, runs = {}, {}

    def ours(label, rank, **options):
        def run():
            model = fs.LowRankModel(rank, **options).fit(x)
            predictions[label] = model.predict(rows[test], columns[test])
            return model

        runs[label] = run

    ours("LowRankModel(10, loss='huber') as it comes", 10, loss="huber")
    whole = {"learning_rate": 0.7, "clip": (1, 5), "ridge": 11.0, "max_power_iterations": 30}
    few = {**whole, "max_power_iterations": 4}
    ours("biases alone", 0, **whole)
    ours("LowRankModel, rank 8, no sweeps", 8, sweeps=0, **whole)
    ours("LowRankModel, rank 6, 1 sweep", 6, sweeps=1, **few)
    ours("LowRankModel, rank 6, 2 sweeps", 6, sweeps=2, **few)
    ours("LowRankModel, rank 6, 3 sweeps", 6, sweeps=3, **few)
    ours("LowRankModel, rank 8, 5 sweeps", 8, sweeps=5, **few)
    try:
        import cmfrec

        coo = sparse.coo_matrix((values[train], (rows[train], columns[train])), shape=shape)
        for k, iterations in ((10, 5), (10, 10), (20, 10), (40, 10)):

            def theirs(k=k, iterations=iterations):
                model = cmfrec.CMF(
                    k=k, lambda_=10.0 if k <= 20 else 15.0, niter=iterations, nthreads=1, use_float=True, verbose=False
                ).fit(coo)
                predictions[f"cmfrec, k = {k}, {iterations} iterations"] = model.predict(rows[test], columns[test])

            runs[f"cmfrec, k = {k}, {iterations} iterations"] = theirs
    except ImportError:
        print("cmfrec: absent")
    if name == "ML-100K":
        try:
            import surprise

            data = surprise.Dataset.load_from_df(
                _frame(rows[train], columns[train], values[train]), surprise.Reader(rating_scale=(1, 5))
            ).build_full_trainset()

            def svd():
                model = surprise.SVD(random_state=0).fit(data)
                predictions["scikit-surprise SVD"] = np.array(
                    [model.predict(u, i).est for u, i in zip(rows[test], columns[test], strict=True)]
                )

            runs["scikit-surprise SVD"] = svd
        except ImportError:
            print("scikit-surprise: absent")
    for run in runs.values():
        run()
    times = interleaved({k: v for k, v in runs.items() if "surprise" not in k}, 3)
    # predictions are part of each run: their time is taken off
    for label in runs:
        e = np.clip(predictions[label], 1, 5) - values[test]
        taken = times[label][0] if label in times else seconds(runs[label])
        out.append([name, label, f"{np.abs(e).mean():.4f}", f"{np.sqrt((e**2).mean()):.4f}", f"{taken:.3f}"])
    return out


def _frame(rows, columns, values):
    import pandas

    return pandas.DataFrame({"user": rows, "item": columns, "rating": values})


# -- kernels -----------------------------------------------------------------------------------------------------------
def products(args):
    """A'(A v) per nonzero against scipy: one vector and eight; the other loops of a rank."""
    found = ratings_of("ML-1M")
    if found is None:
        return
    out = [line for dtype in (np.float32, np.float64) for line in _products(found, dtype)]
    text = table(out, ["dtype", "loop", "ns a nonzero and vector", "times scipy's speed"])
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "products.md").write_text(text + "\n")


def _products(found, dtype):
    from fastsketch._kernels.linalg.block import gram_block
    from fastsketch._kernels.losses import LOGISTIC, SQUARE
    from fastsketch._kernels.lowrank import entries
    from fastsketch._kernels.lowrank import gradients as kernel

    out = []
    a = matrix(found, slice(None)).astype(dtype)
    a.sort_indices()
    a = sparse.csr_array((a.data, a.indices.astype(np.int32), a.indptr.astype(np.int32)), shape=a.shape)
    where = a.indptr.astype(np.uint32), a.indices.astype(np.uint32)
    (m, n), rng = a.shape, np.random.default_rng(0)
    v, u, w = rng.standard_normal(n).astype(dtype), np.empty(m, dtype), np.empty(n, dtype)
    vs = np.ascontiguousarray(rng.standard_normal((n, 8)).astype(dtype))
    us, ws = np.empty((m, 8), dtype), np.empty((n, 8), dtype)
    z, g, none = np.zeros(a.nnz, dtype), np.empty(a.nnz, dtype), np.empty(0, dtype)
    losses, dots = (a.data, none, np.ones(m, dtype), np.ones(n, dtype)), np.empty(6)
    runs = {
        "A'(A v), one vector": lambda: kernel.gram_product(*where, a.data, v, u, w),
        "A'(A v), scipy": lambda: a.T @ (a @ v),
        "A'(A V), eight": lambda: gram_block(*where, a.data, vs, us, ws),
        "A'(A V), scipy": lambda: a.T @ (a @ vs),
        "gradient and objective, square": lambda: kernel.gradient(SQUARE, 0.0, *where, z, *losses, g),
        "gradient and objective, logistic": lambda: kernel.gradient(LOGISTIC, 0.0, *where, z, *losses, g),
        "five dots": lambda: entries.five_dots(SQUARE, 0.0, *where, z, *losses, dtype(1), dtype(0), u, v, dots),
        "weighted median": lambda: entries.weighted_median(a.data.astype(np.float64), np.ones(a.nnz)),
    }
    for run in runs.values():
        run()
    times = interleaved(runs, 9)
    for label, (low, _) in times.items():
        each = 8 if "V)" in label else 1
        peer = times.get("A'(A V), scipy" if each == 8 else "A'(A v), scipy" if "(A v)" in label else None)
        out.append(
            [np.dtype(dtype).name, label, f"{1e9 * low / a.nnz / each:.3f}", f"{peer[0] / low:.2f}" if peer else ""]
        )
    return out


def ten_million(args):
    """10 million observations of MovieLens-10M's shape, rank 20: seconds, and memory beside the input."""
    m, n, count = 69_878, 10_677, 1_000_000 if args.quick else 10_000_000
    rng = np.random.default_rng(0)
    users, films = (np.cumsum(1 / np.arange(1, size + 1.0) ** power) for size, power in ((m, 0.5), (n, 0.8)))
    rows = np.searchsorted(users / users[-1], rng.random(int(1.3 * count))).astype(np.int64)
    columns = np.searchsorted(films / films[-1], rng.random(int(1.3 * count)))
    keys = np.unique(rows * n + columns)
    keys = np.sort(rng.permutation(keys)[:count])
    rows, columns = (keys // n).astype(np.int32), (keys % n).astype(np.int32)
    one, two = rng.standard_normal((m, 20)).astype(np.float32), rng.standard_normal((n, 20)).astype(np.float32)
    values = np.empty(len(keys), np.float32)
    for start in range(0, len(keys), 10**6):
        part = slice(start, start + 10**6)
        values[part] = 3.5 + 0.15 * np.einsum("kq,kq->k", one[rows[part]], two[columns[part]])
    values += 0.5 * rng.standard_normal(len(keys)).astype(np.float32)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=m))]).astype(np.int32)
    x = sparse.csr_array((values, columns, indptr), shape=(m, n))
    path = args.scratch / "fastsketch-ten-million.npz"
    np.savez(path, data=x.data, indices=x.indices, indptr=x.indptr)
    out = []
    try:
        for label, options in (
            ("rank 20, economic", {"sweeps": 0}),
            ("rank 20 and 1 sweep", {"sweeps": 1, "max_power_iterations": 4}),
        ):
            # in a process of its own: what making the matrix took would hide what the fit takes
            done = subprocess.run(
                [sys.executable, __file__, str(path), json.dumps(options)], check=True, capture_output=True, text=True
            )
            out.append([label, *json.loads(done.stdout)])
            print(*out[-1], flush=True)
    finally:
        path.unlink()
    text = table(out, ["model", "observations", "s", "MB of input", "MB beside it", "ratio", "RMSE of training"])
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "ten_million.md").write_text(text + "\n")


def _resident():
    with open("/proc/self/statm") as file:  # noqa: PTH123
        return int(file.read().split()[1]) * resource.getpagesize()


class _Peak:
    """Largest resident memory until stop(), looked at every few milliseconds."""

    def __init__(self):
        import threading

        self.peak, self.on = _resident(), True
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()

    def _watch(self):
        while self.on:
            self.peak = max(self.peak, _resident())
            time.sleep(0.005)

    def stop(self):
        self.on = False
        self.thread.join()
        return self.peak


def _fit_once(path, options):
    """Fit the matrix of a file and print entries, seconds, memory."""
    with np.load(path) as file:
        x = sparse.csr_array((file["data"], file["indices"], file["indptr"]), shape=(69_878, 10_677))
    size = x.data.nbytes + x.indices.nbytes + x.indptr.nbytes
    fs.LowRankModel(2, sweeps=1).fit(x[:100])  # compile
    before, peak = _resident(), _Peak()
    start = time.perf_counter()
    model = fs.LowRankModel(20, learning_rate=0.7, ridge=10.0, dtype="float32", **options).fit(x)
    taken, used = time.perf_counter() - start, peak.stop() - before
    few = x.indptr[1000]
    e = model.predict(np.repeat(np.arange(1000), np.diff(x.indptr[:1001])), x.indices[:few]) - x.data[:few]
    print(
        json.dumps(
            [
                f"{x.nnz:,}",
                f"{taken:.1f}",
                f"{size / 1e6:.0f}",
                f"{used / 1e6:.0f}",
                f"{used / size:.2f}",
                f"{np.sqrt(np.mean(e**2)):.3f}",
            ]
        )
    )


if __name__ == "__main__":
    _fit_once(sys.argv[1], json.loads(sys.argv[2]))
