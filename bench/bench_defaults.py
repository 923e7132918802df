"""What default parameters should be: the library as it comes against other values of its parameters.

Whatever is chosen is chosen by the column "validation"; "test" stands beside it, for data that no choice has seen.
+- is the standard deviation over SPLITS splits. The first candidate of a table is the library as it comes.
"""

import time
from functools import partial

import numpy as np
from scipy import sparse

import fastsketch as fs
from bench_data import dataset, sift5k
from bench_hashing import mean_average_precision, mnist, neighbours
from bench_lowrank_sets import links_of, matrix, ratings_of
from bench_online import labelled, two_classes
from bench_tools import few, spread, table
from store import Parts

SPLITS = 3
RUNS = f"{SPLITS} splits, mean +- standard deviation"


def order_of(n, n_test, split):
    """An order of n rows for a split: the last n_test are the same rows in all of them, none of which chooses."""
    fixed = np.random.default_rng(1000).permutation(n)
    return np.concatenate([np.random.default_rng(split).permutation(fixed[: n - n_test]), fixed[n - n_test :]])


class Scores:
    """(validation, test, seconds) of every split, by problem and candidate.

    A split that raised FloatingPointError has NaN: it is counted, and in means over problems it has `worst`.
    """

    def __init__(self, head, measure, *, digits=4, worst=np.nan, runs=RUNS):
        self.head, self.measure, self.digits, self.worst, self.runs = head, measure, digits, worst, runs
        self.found = {}

    def add(self, problem, candidate, *line):
        self.found.setdefault(problem, {}).setdefault(candidate, []).append(line)

    def cells(self, values):
        """Validation and test of (splits, 3) values."""
        ended = values[np.isfinite(values[:, 0])]
        raised = f" ({len(values) - len(ended)} raised)" if len(ended) < len(values) else ""
        if len(values) == 1 and len(ended):
            return [f"{value:.{self.digits}f}" for value in ended[0, :2]]
        return [(spread(ended[:, k], self.digits) if len(ended) else "") + raised for k in (0, 1)]

    def each(self, name="each"):
        """The table of all problems."""
        out = []
        for problem, lines in self.found.items():
            base = min(line[2] for line in next(iter(lines.values())))
            for candidate, values in lines.items():
                values = np.array(values)
                out.append([*problem, candidate, *self.cells(values), f"{values[:, 2].min() / base:.1f}"])
        head = ["candidate", f"{self.measure}, validation", "test", "time / first"]
        table(out, [*self.head, *head], name, runs=self.runs)

    def means(self, name="means"):
        """The table of means over the problems; of times, the geometric one."""
        out, problems = [], list(self.found.values())
        for candidate in problems[0] if problems else ():
            values = np.array([lines[candidate] for lines in problems])  # (problems, splits, 3)
            base = np.array([next(iter(lines.values())) for lines in problems])
            ratio = np.exp(np.mean(np.log(values[:, :, 2].min(axis=1) / base[:, :, 2].min(axis=1))))
            mean = np.nan_to_num(values[:, :, :2], nan=self.worst).mean(axis=0)
            raised = int(np.isnan(values[:, :, 0]).sum())
            cells = [spread(mean[:, k], self.digits) for k in (0, 1)]
            out.append([candidate, *cells, f"{ratio:.1f}", raised or ""])
        columns = ["candidate", f"mean {self.measure}, validation", "test", "time / first", "raised"]
        table(out, columns, name, runs=self.runs)


def named(cls, *choices):
    """{what differs from the defaults: function that makes the estimator or model}; one pass unless it says more."""
    once = {"epochs": 1} if hasattr(cls, "epochs") else {}
    return {
        ", ".join([cls.__name__, *(f"{name}={value!r}" for name, value in options.items())]): partial(
            cls, **once | options
        )
        for options in choices
    }


# -- sketches ----------------------------------------------------------------------------------------------------------
METHODS = {"rfd": {}, "fd": {"method": "fd"}, "pfd, beta=0.2": {"method": "pfd", "beta": 0.2}}
RIDGE = 0.01  # of the largest eigenvalue, where systems are solved


def sketch_defaults(args):
    """The method of FrequentDirections: relative error of A'A, and of (A'A + ridge I)^-1 v, on halves of the rows."""
    measures = [Scores(["set", "l"], what) for what in ("error of A'A", "error of solve, v = rows", "v random")]
    for name in ("a9a",) if args.quick else ("Isolet", "a9a", "MNIST"):
        rows = dataset(name)
        if rows is None:
            continue
        for split in range(few(SPLITS, 1)):
            half = min(rows.shape[0] // 2, 8_000)  # the first half, of other rows in each split, chooses
            order = order_of(rows.shape[0], half, split)
            halves = [rows[part] for part in (order[:half], order[-half:])]
            for size in (16, 64):
                for label, options in METHODS.items():
                    errors = [_sketch_errors(half, size, options) for half in halves]
                    for k, scores in enumerate(measures):
                        scores.add((name, size), label, *(half[k] for half in errors), errors[0][-1])
    for name, scores in zip(("error", "solve-rows", "solve-random"), measures, strict=True):
        scores.means(f"{name}-means")
        scores.each(f"{name}-each")


def _sketch_errors(rows, size, options):
    """(error of A'A, error of solutions for some of the rows, for random vectors, seconds)."""
    rows = rows.toarray() if sparse.issparse(rows) else rows
    start = time.process_time()
    model = fs.FrequentDirections(size, solver="gram", **options).update(rows)
    taken = time.process_time() - start
    exact = rows.T @ rows
    largest = np.linalg.norm(exact, 2)
    ridge = RIDGE * largest
    asked = np.hstack([rows[:20].T, np.random.default_rng(1).standard_normal((len(exact), 20))])
    truth = np.linalg.solve(exact + ridge * np.eye(len(exact)), asked)
    if options:  # a fixed regulariser is added at the end; that of RFD is where it begins
        found = [model.solve(v, alpha=ridge) for v in asked.T]
    else:
        begun = fs.FrequentDirections(size, solver="gram", alpha0=ridge).update(rows)
        if not np.array_equal(begun.sketch(), model.sketch()):
            raise SystemExit("the sketch depends on alpha0")
        found = [begun.solve(v) for v in asked.T]
    apart = np.column_stack(found) - truth
    wrong = [np.linalg.norm(apart[:, part]) / np.linalg.norm(truth[:, part]) for part in np.s_[:20, 20:]]
    return np.linalg.norm(exact - model.gram(), 2) / largest, *wrong, taken


# -- hash functions ----------------------------------------------------------------------------------------------------
HASHES = {  # sketch_size in bits
    "as it comes": {},
    "rotation='random'": {"rotation": "random"},
    "rotation=None": {"rotation": None},
    "sketch_size=4 n_bits": {"sketch_size": 4},
    "sketch_size=8 n_bits": {"sketch_size": 8},
    "method='auto'": {"method": "auto"},
    "method='exact'": {"method": "exact"},
    "reservoir_size=10_000": {"reservoir_size": 10_000},
}


def hash_defaults(args):
    """Rotation, method, sketch_size and reservoir_size of SketchHash: MAP of 300 queries for validation and 300 more.

    The queries of MNIST for testing are from its test images.
    """
    scores = Scores(["set", "bits"], "MAP", digits=3)
    for name in ("sift5k",) if args.quick else ("sift5k", "MNIST"):
        for split in range(few(SPLITS, 1)):
            found = _vectors(name, split)
            if found is None:
                break
            base, *queries = found
            relevant = [neighbours(asked, base) for asked in queries]
            for n_bits in (32,) if args.quick else (32, 64, 128):
                for label, options in HASHES.items():
                    size = options.get("sketch_size", 2) * n_bits
                    model = fs.SketchHash(n_bits, seed=split, **{**options, "sketch_size": size})
                    start = time.process_time()
                    model.update(base).projection  # noqa: B018
                    taken = time.process_time() - start
                    precision = [
                        mean_average_precision(model, asked, base, near)
                        for asked, near in zip(queries, relevant, strict=True)
                    ]
                    scores.add((name, n_bits), label, *precision, taken)
    scores.means()
    scores.each()


def _vectors(name, split):
    """(rows to learn from and to search in, queries for validation, queries for testing), or None."""
    rng, rows = np.random.default_rng(split), sift5k() if name == "sift5k" else mnist()
    if rows is None or name == "sift5k":
        return None if rows is None else np.split(rows[order_of(len(rows), 300, split)], [-600, -300])
    train, test = (part[rng.permutation(len(part))[:10_300]] for part in np.split(rows, [60_000]))
    return train[300:], train[:300], test[:300]


# -- linear learners ---------------------------------------------------------------------------------------------------
def _estimators(scores, name, rows, targets, candidates, score):
    """All candidates: learning from 56% of the rows, validation on 14%, test on 30%."""
    for split in range(few(SPLITS, 1)):
        n = rows.shape[0]
        first, second = int(0.56 * n), int(0.7 * n)
        order = order_of(n, n - second, split)
        train, *others = [(rows[part], targets[part]) for part in np.split(order, [first, second])]
        for label, make in candidates.items():
            start = time.process_time()
            try:
                model = make().fit(*train)
                found = [score(model, *part) for part in others]
            except FloatingPointError:
                found = [np.nan, np.nan]
            scores.add((name,), label, *found, time.process_time() - start)


SETS = ("a9a", "mushrooms", "w8a", "farm-ads", "news20", "breast cancer", "breast cancer, scaled")


def online_defaults(args):
    """Loss, stages, sketch_size, alpha0, learning_rate, delta of the classifiers: balanced error of one pass."""
    from fastsketch.sklearn import AdaptiveSubgradientClassifier, SketchedNewtonClassifier

    common = ({"scale": None}, {"blend": False}, {"calibrate": False})
    common += ({"fit_intercept": False}, {"sketch_size": 10}, {"loss": "squared_hinge"})
    newton = named(SketchedNewtonClassifier, {}, {"alpha0": 0.0}, {"alpha0": 1.0}, *common)
    rates = [{"learning_rate": rate} for rate in (0.03, 0.3)]
    adaptive = named(AdaptiveSubgradientClassifier, {}, {"delta": 1.0}, *rates, *common)
    scores = Scores(["set"], "error, %", digits=2, worst=50.0)
    for name in SETS[:2] if args.quick else SETS:
        found = two_kinds(name)
        if found is not None:
            _estimators(scores, name, *found, newton | adaptive, _balanced_error)
    scores.means()
    scores.each()


def two_kinds(name):
    """(rows, signs) of a set, or None; at most 5,000 rows where they have many columns."""
    if not name.startswith("breast"):
        found = two_classes(name) if name == "news20" else labelled(name)
        if found is None or found[0].shape[1] < 10_000:
            return found
        few = np.random.default_rng(7).permutation(found[0].shape[0])[:5000]
        return found[0][few], found[1][few]
    from sklearn.datasets import load_breast_cancer

    rows, labels = load_breast_cancer(return_X_y=True)
    return _scaled(rows) if "scaled" in name else rows, np.where(labels > 0, 1.0, -1.0)


def _scaled(rows):
    return (rows - rows.mean(axis=0)) / rows.std(axis=0)


def _balanced_error(model, rows, y):
    """Mean over both classes of the share that is wrong, in per cent: classes may be of very different sizes."""
    right = model.predict(rows) == y
    return 100 * (1 - np.mean([right[y > 0].mean(), right[y < 0].mean()]))


def regression_defaults(args):
    """Loss, scale, blend, alpha0, learning_rate, delta and epochs of the regressors: R^2, least squares beside them."""
    from sklearn.linear_model import LinearRegression

    from fastsketch.sklearn import AdaptiveSubgradientRegressor, SketchedNewtonRegressor

    common = (
        {"epochs": 3},
        {"scale": None},
        {"blend": False},
        {"loss": "huber"},
        {"loss": "absolute"},
        {"sketch_size": 10},
    )
    newton = named(SketchedNewtonRegressor, {}, {"alpha0": 1.0}, *common)
    rates = [{"learning_rate": rate} for rate in (0.1, 1.0)]
    adaptive = named(AdaptiveSubgradientRegressor, {}, {"delta": 1.0}, *rates, *common)
    scores = Scores(["set"], "R^2", digits=3, worst=0.0)
    for name, (rows, y) in real_targets().items():
        candidates = newton | adaptive | {"least squares": LinearRegression}
        _estimators(scores, name, rows, y, candidates, lambda model, *part: model.score(*part))
        if args.quick:
            break
    scores.means()
    scores.each()


def real_targets():
    """{name: (rows, targets)}: scikit-learn's diabetes as it comes and standardised, houses made up, a linear one."""
    from sklearn.datasets import load_diabetes

    rows, y = load_diabetes(return_X_y=True)
    out = {"diabetes": (rows, y), "diabetes, scaled": (_scaled(rows), y)}
    rng = np.random.default_rng(3)
    income, rooms, age, crowd = (np.exp(0.45 * rng.standard_normal(6000)) for _ in range(4))
    place = rng.random((6000, 2))
    price = 40 * income + 10 * rooms - 12 * crowd * income + 5 * age
    price += 60 * np.exp(-8 * ((place - 0.4) ** 2).sum(axis=1))
    price = np.minimum(price * np.exp(0.25 * rng.standard_normal(6000)), 250)  # skewed, and cut as house prices are
    rows = np.column_stack([income, rooms, age, crowd, income * rooms, 1 / crowd, place])
    out["houses, scaled"] = _scaled(rows), price
    rows = rng.standard_normal((3000, 30)) * np.geomspace(1, 0.1, 30)
    noise = np.where(rng.random(3000) < 0.05, 10, 0.3) * rng.standard_normal(3000)
    out["linear, 5% outliers"] = rows, rows @ rng.standard_normal(30) + noise
    return out


# -- low-rank models ---------------------------------------------------------------------------------------------------
OWN = "as it comes"
RIDGES = {f"ridge={ridge:g}": {"ridge": ridge} for ridge in (0.35, 0.5, 0.7, 1.4, 2.0)}
BIAS_RIDGES = {f"bias_ridge={ridge:g}": {"bias_ridge": ridge} for ridge in (1.0, 2.0, 5.0, 10.0)}
OTHERS = {"sweeps=0": {"sweeps": 0}, "sweeps=2": {"sweeps": 2}, "learning_rate=1": {"learning_rate": 1.0}}
MODELS = {OWN: {}, **RIDGES, **BIAS_RIDGES, **OTHERS}


def lowrank_defaults(args):
    """Ridges, sweeps and learning_rate of LowRankModel: RMSE, or deviance of labels and counts, of unseen entries."""
    runs = f"{SPLITS} splits (ML-1M and the absolute loss: 1), mean +- standard deviation"
    parts, scores = Parts(args), Scores(["set", "loss", "rank"], "error", runs=runs)
    for name, found, loss, ranks, share in _problems(args):
        for split in range(few(1 if loss == "absolute" or name == "ML-1M" else SPLITS, 1)):  # minutes a split
            for rank in ranks:
                lines = parts.of(f"{name} {loss} {rank} {split}", _of_models, found, loss, rank, share, split)
                for label, line in lines.items():
                    scores.add((name, loss, rank), label, *line)
                print(name, loss, rank, split, flush=True)
    _own_against_others(scores)
    scores.each()


def _of_models(found, loss, rank, share, split):
    """{model: (error in validation, in the test, seconds)}; of the entries a share is for learning."""
    rows, columns, values, _ = found
    n, out = len(values), {}
    cut, inner = int(share * n), int((0.8 * share if share < 0.9 else 2 * share - 1) * n)
    order = order_of(n, n - cut, split)
    for label, options in MODELS.items():
        line, start = [], time.process_time()
        for train, held in ((order[:inner], order[inner:cut]), (order[:cut], order[cut:])):
            x = matrix(found, train, values.astype(np.float32))
            model = fs.LowRankModel(rank, loss=loss, **options).fit(x)
            z = model.decision_function(rows[held], columns[held])
            line.append(float(_error(loss, z, values[held].astype(np.float64))))
        out[label] = [*line, time.process_time() - start]
    return out


def _own_against_others(scores):
    """The table of each problem: the defaults, the ridge and the bias_ridge that are best in validation, no sweeps."""
    out = []
    for problem, lines in scores.found.items():
        found = {label: np.array(values) for label, values in lines.items()}
        best = [min(some, key=lambda label: found[label][:, 0].mean()) for some in (RIDGES, BIAS_RIDGES)]
        cells = [scores.cells(found[label]) for label in (OWN, *best, "sweeps=0")]
        names = [label.split("=")[1] for label in best]
        out.append([*problem, *cells[0], names[0], *cells[1], names[1], *cells[2], *cells[3]])
    head = []
    for what in (OWN, "other ridge", "other bias_ridge", "sweeps=0"):
        head += [what] * what.startswith("other") + [f"{what}, validation", f"{what}, test"]
    table(out, [*scores.head, *head], "own", runs=scores.runs)


def _problems(args):
    """(name, entries, loss, ranks, share for learning) one after the other."""
    for noise in (0.0, 0.5):
        for loss in ("square", "huber"):
            yield f"rank 3, noise {noise:g}", product(noise), loss, (3, 10), 0.5
    links, stars = links_of("bitcoin-OTC"), ratings_of("ML-100K")
    if links is not None:
        yield "bitcoin-OTC", links, "logistic", (5, 20), 0.9
    if args.quick:
        return
    if stars is not None:
        few = np.random.default_rng(5).permutation(len(stars[2]))[:20_000]
        yield "ML-100K, a fifth", part_of(stars, few), "square", (5, 20), 0.5
        for loss in ("square", "huber", "absolute"):
            yield "ML-100K", stars, loss, (10,), 0.5
    links, found, stars = links_of("Epinions"), counts(), ratings_of("ML-1M")
    if links is not None:
        users = np.random.default_rng(5).permutation(links[3][0])[:10_000]
        yield "Epinions, 10,000 users", part_of(links, np.isin(links[0], users)), "logistic", (10,), 0.9
    if found is not None:
        yield "news20, counts", found, "poisson", (5, 20), 0.9
    if stars is not None:
        for loss in ("square", "huber"):
            yield "ML-1M", stars, loss, (10,), 0.5


def _error(loss, z, o):
    """RMSE, mean absolute error of the absolute loss, mean deviance of labels and counts."""
    if loss == "logistic":
        return np.logaddexp(0, -o * z).mean()
    if loss == "poisson":
        return (np.exp(np.minimum(z, 50)) - o * z + o * np.log(np.maximum(o, 1)) - o).mean()
    return np.abs(z - o).mean() if loss == "absolute" else np.sqrt(np.mean((z - o) ** 2))


def part_of(found, chosen):
    """These entries alone; rows and columns without any are left out."""
    rows, columns = (np.unique(ids[chosen], return_inverse=True)[1] for ids in found[:2])
    return rows, columns, found[2][chosen], (rows.max() + 1, columns.max() + 1)


def product(noise):
    """200 x 40 of rank 3, with noise of this spread: what a newcomer tries first."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal((200, 3)) @ rng.standard_normal((3, 40)) + noise * rng.standard_normal((200, 40))
    rows, columns = np.indices(x.shape)
    return rows.ravel(), columns.ravel(), x.ravel(), x.shape


def counts():
    """Counts of 800 words in 3,000 texts of news20: all that are not 0, and as many zeros."""
    words = dataset("news20")
    if words is None:
        return None
    words = sparse.csc_array(words)
    x = sparse.csr_array(words[:, np.argsort(-np.diff(words.indptr))[100:900]])[:3000].toarray()
    some = np.random.default_rng(1).permutation(np.flatnonzero(x == 0))[: np.count_nonzero(x)]
    at = np.sort(np.concatenate([np.flatnonzero(x), some]))
    return at // x.shape[1], at % x.shape[1], x.ravel()[at].astype(np.float32), x.shape
