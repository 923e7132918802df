"""Newton learners: accuracy, error curves and costs as in the RFD paper."""

import time
from functools import partial

import numpy as np

import fastsketch as fs
from bench_data import farm_ads, matlab, mnist, svmlight
from bench_papers import adaptive
from bench_papers import newton as newton_of
from bench_tools import few, seconds, spread, table
from fastsketch import papers
from fastsketch.reference import full_online_newton
from learning.sketched_steps import Oja, RandomProjection
from store import Parts

SPLITS = 5
SIZES = {"a9a": (5, 10, 20), "mushrooms": (5, 10, 20), "farm-ads": (20, 30, 50), "farm-ads, unit rows": (20, 30, 50)}
ALPHAS = tuple(10.0**k for k in range(-3, 7))
METHODS = {method: partial(newton_of, method) for method in ("rfd", "fd", "pfd")}
METHODS |= {"rp": RandomProjection, "oja": Oja}


def labelled(name):
    """(CSR rows, labels -1 and +1) of a data set, or None with a word about it."""
    from scipy import sparse

    found = farm_ads() if name.startswith("farm-ads") else svmlight(name)
    if found is None:
        return None
    rows, labels = found
    if "unit" in name:
        length = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
        rows = sparse.csr_array(sparse.diags_array(1 / np.maximum(length, 1e-12)) @ rows)
    return rows, np.where(labels == labels.max(), 1.0, -1.0)


def split(rows, labels, seed):
    order = np.random.default_rng(seed).permutation(rows.shape[0])
    cut = int(0.7 * len(order))
    return rows[order[:cut]], labels[order[:cut]], rows[order[cut:]], labels[order[cut:]]


def accuracy(model, rows, labels):
    return float(np.mean((model.decision_function(rows) > 0) == (labels > 0)))


class FullNewton:
    """FULL-ON by the reference, behind what is asked of a model here."""

    def __init__(self, alpha0):
        self.alpha0 = alpha0

    def update(self, rows, labels):
        rows = rows.toarray() if hasattr(rows, "toarray") else rows
        self.coef, _, self.last_scores = full_online_newton(
            rows, labels, alpha0=self.alpha0, loss="square", loss_scale=2.0
        )

    def decision_function(self, rows):
        return rows @ self.coef


def newton(args):
    """Test accuracy after one pass over 70%, mean and spread of 5 splits; microseconds a round; alpha0 grid."""
    out, grid = [], []
    warm = np.eye(12)
    for method in ("rfd", "fd"):
        for rows in (warm, _sparse(warm)):
            fs.SketchedNewton(3, method=method, alpha0=1.0).update(rows, np.ones(12))
    for name in list(SIZES)[:1] if args.quick else SIZES:
        found = labelled(name)
        if found is None:
            continue
        for size in SIZES[name]:
            scores, times = {}, {}
            for seed in range(few(SPLITS, 1)):
                x, y, test, truth = split(*found, seed)
                models = {"RFD0": papers.rfd_son(size)}
                for method, make in METHODS.items():
                    for alpha0 in (1.0, 100.0):
                        models[f"{method}, alpha0 = {alpha0:g}"] = make(size, alpha0=alpha0)
                for label, model in models.items():
                    start = time.process_time()
                    try:
                        model.update(x, y)
                        scores.setdefault(label, []).append(accuracy(model, test, truth))
                    except FloatingPointError:
                        scores.setdefault(label, []).append(np.nan)
                    times.setdefault(label, []).append((time.process_time() - start) / len(y))
            for label, values in scores.items():
                shown = spread(100 * np.array(values), 2)
                line = [name, size, label, "diverges" if np.isnan(values).any() else shown]
                out.append([*line, f"{1e6 * min(times[label]):.1f}", f"{1 / min(times[label]):,.0f}"])
            print(name, size, {k: f"{100 * np.mean(v):.2f}" for k, v in scores.items()}, flush=True)
        x, y, test, truth = split(*found, 0)
        for method in ("rfd", "fd"):
            cells = []
            for alpha0 in ALPHAS:
                try:
                    model = METHODS[method](SIZES[name][1], alpha0=alpha0).update(x, y)
                    cells.append(f"{100 * accuracy(model, test, truth):.2f}")
                except FloatingPointError:
                    cells.append("diverges")
            grid.append([name, SIZES[name][1], method, *cells])
    runs = f"{SPLITS} splits, mean +- standard deviation; times: the least"
    table(out, ["set", "m", "method", "accuracy, %", "us a round", "examples/s"], "main", runs=runs)
    table(grid, ["set", "m", "method", *(f"alpha0 = {a:g}" for a in ALPHAS)], "alpha0", runs="1 split")


def _sparse(rows):
    from scipy.sparse import csr_array

    return csr_array(np.hstack([rows, np.zeros((len(rows), 60))]))


# Sets of the RFD paper, or what is nearest to those that are not free, and the sizes of its sketches.
FIGURES = ("a9a", "mushrooms", "farm-ads", "news20", "Isolet", "MNIST")
WIDE = ("farm-ads", "news20")
WITHOUT_FULL = (*WIDE, "MNIST")  # d^2 a round: twenty minutes on MNIST, hours on the others
POINTS = 25  # of a curve


def two_classes(name):
    """(rows, signs) of any set: of more classes the first half against the second."""
    if name in SIZES:
        return labelled(name)
    found = {"news20": lambda: svmlight("news20"), "Isolet": lambda: matlab("Isolet"), "MNIST": mnist}[name]()
    if found is None:
        return None
    rows, labels = found
    if name == "MNIST":
        rows, labels = rows[:12_000] / 255.0, labels[:12_000]
    return rows, np.where(labels <= np.median(np.unique(labels)), 1.0, -1.0)


def errors(args):
    """RFD paper, Figures 3 to 11: test error against alpha0, online error curves, RFD0 against FULL-ON."""
    parts, out, lines = Parts(args), [], []
    for name in FIGURES[:1] if args.quick else FIGURES:
        found = two_classes(name)
        if found is None:
            continue
        parted = split(*found, 0)
        sizes = SIZES["farm-ads" if name in WIDE else "a9a"][: 1 if args.quick else None]
        cases = [(size, label) for size in sizes for label in ("RFD0", *METHODS)]
        cases += [("any", label) for label in ("full", "adagrad")[name in WITHOUT_FULL :]]
        for size, label in cases:
            online, cells, curve = parts.of(f"{name} {size} {label}", _grid, parted, size, label)
            out.append([name, size, SHOWN[label], online, *cells])
            print(*out[-1], flush=True)
            if size in (sizes[len(sizes) // 2], "any"):
                lines += [[name, at, SHOWN[label], f"{share:.5f}"] for at, share in curve]
    heads = [f"alpha0 = {a:g}" for a in ALPHAS]
    table(out, ["set", "m", "method", "online error, best", *heads], "main", runs="1 split")
    note = "Share of mistakes so far, with the best alpha0 and the middle one of the sizes."
    table(lines, ["set", "examples", "method", "online error"], "curves", runs="1 split", note=note)


SHOWN = {"RFD0": "RFD0-SON", **{method: f"{method.upper()}-SON" for method in METHODS}}
SHOWN |= {"full": "FULL-ON", "adagrad": "ADAGRAD"}


def _grid(parted, size, label):
    """(the least online error in %, test errors in % for every alpha0, [(rows, share of mistakes until then)])."""
    x, y, test, truth = parted
    if label == "RFD0":
        models = [papers.rfd_son(size)]
    elif label == "full":
        models = [FullNewton(alpha) for alpha in ALPHAS]
    elif label == "adagrad":
        models = [adaptive("ada_diag", 2, loss="square", loss_scale=2.0, learning_rate=alpha) for alpha in ALPHAS]
    else:
        models = [METHODS[label](size, alpha0=alpha) for alpha in ALPHAS]
    cells, best = [], None
    for model in models:
        try:
            model.update(x, y)
        except FloatingPointError:
            cells.append("diverges")
            continue
        wrong = np.cumsum(model.last_scores * y <= 0) / np.arange(1, len(y) + 1)
        cells.append(f"{100 * (1 - accuracy(model, test, truth)):.2f}")
        best = wrong if best is None or wrong[-1] < best[-1] else best
    cells += ["same"] * (len(ALPHAS) - len(cells))
    if best is None:
        return "", cells, []
    places = np.unique(np.geomspace(20, len(y), POINTS).astype(int))
    return f"{100 * best[-1]:.2f}", cells, [(int(at), float(best[at - 1])) for at in places]


def cost(args):
    """Time of a round against d, the nonzeros of a row and the sketch size, and the exponents that fit it."""
    from scipy import sparse

    rng, n = np.random.default_rng(0), few(600, 20)
    makers = {
        "SketchedNewton": papers.rfd_son,
        "ADA-FFD": lambda m: fs.AdaptiveSubgradient(m, loss="absolute"),
        "ADA-DIAG": lambda m: fs.AdaptiveSubgradient(m, method="ada_diag", loss="absolute"),
    }

    def sparse_rows(d, nnz):
        # a popular feature is popular in all rows, as words are
        places = np.minimum((d * rng.random((n, nnz)) ** 4).astype(np.int32), d - 1)
        rows = sparse.csr_array(
            (rng.standard_normal(n * nnz), places.ravel(), np.arange(0, n * nnz + 1, nnz)), shape=(n, d)
        )
        rows.sum_duplicates()
        return rows

    studies = {
        "d, dense": [(d, 10, rng.standard_normal((n, d)) / np.sqrt(d)) for d in (1000, 2000, 4000, 8000, 16000)],
        "d, 50 nonzeros": [(d, 10, sparse_rows(d, 50)) for d in (4000, 16_000, 64_000, 256_000)],
        "nonzeros, d = 20,000": [(k, 10, sparse_rows(20_000, k)) for k in (25, 50, 100, 200, 400)],
        "m, dense, d = 4,000": [(m, m, rng.standard_normal((n, 4000)) / 60) for m in (5, 10, 20, 40)],
    }
    out = []
    for study, cases in studies.items():
        for label, make in makers.items():
            if label == "ADA-DIAG" and study.startswith("m,"):
                continue
            times = []
            for _, m, rows in cases:
                y = np.sign(rng.standard_normal(n))
                model = make(m).update(rows, y)
                times.append(min(seconds(lambda a=model, r=rows, t=y: a.update(r, t)) for _ in range(4)) / n)
            slope = np.polyfit(np.log([case[0] for case in cases]), np.log(times), 1)[0]
            shown = ", ".join(f"{case[0]:,}: {1e6 * t:.1f}" for case, t in zip(cases, times, strict=True))
            out.append([study, label, shown, f"{slope:.2f}"])
            print(*out[-1], flush=True)
    table(out, ["what grows", "method", "us a round", "exponent"], "main", runs="the least of 4")
