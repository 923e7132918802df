"""SketchedCovariance: how often it calls normal rows outliers, and how likely held-out rows are under it.

Peers: scikit-learn's EmpiricalCovariance, LedoitWolf and OAS.
"""

import time
import warnings
from functools import partial

import numpy as np
from scipy import sparse
from scipy.stats import chi2
from sklearn.covariance import OAS, EmpiricalCovariance, LedoitWolf

from bench_data import dataset, sift5k
from bench_tools import few, table
from fastsketch.sklearn import SketchedCovariance

SEEDS = 3
SIZES = (32, 64, 128)
FACTORS = 10


def covariance(args):
    """Both tables."""
    shapes = [(100, 20_000), (300, 60_000), (1000, 100_000), (1000, 20_000)]
    calibration(shapes[:1] if args.quick else shapes)
    likelihood(quick=args.quick)


def covariance_few(args):
    """Rows that are few for their columns: eight factors, five seeds."""
    calibration([(300, 400)] if args.quick else [(300, 400), (800, 3000)], factors=8, seeds=5)


# -- calibration -------------------------------------------------------------------------------------------------------
def calibration(shapes, factors=FACTORS, seeds=SEEDS):
    """Share of new rows of the same law beyond the chi-squared thresholds: some factors and unit noise."""
    lines = []
    for d, n in shapes:
        n = few(n, 500)
        found = {}
        for seed in range(few(seeds, 1)):
            for name, shares in _shares(d, n, seed, factors).items():
                found.setdefault(name, []).append(shares)
        for name, shares in found.items():
            low, middle, high = (f(np.array(shares), axis=0) * 100 for f in (np.min, np.median, np.max))
            cells = [f"{middle[k]:.2f}% ({low[k]:.2f} .. {high[k]:.2f})" for k in (0, 1)]
            lines.append([d, n, name, *cells, f"{np.mean([s[2] for s in shares]):.1e}"])
    head = ["d", "rows", "estimator", f"beyond 1%, median of {seeds} seeds (range)", "beyond 5%", "shrinkage_"]
    table(lines, head, "outliers", runs=f"{seeds} seeds, median and range")


def _shares(d, n, seed, factors):
    rng = np.random.default_rng([seed, d, n])
    loadings = np.linspace(5, 1, factors)[:, np.newaxis] * rng.standard_normal((factors, d))

    def rows(count):
        return rng.standard_normal((count, factors)) @ loadings + rng.standard_normal((count, d))

    models = {"auto (exact)": SketchedCovariance()}
    for size in SIZES:
        models[f"gram, l = {size}"] = SketchedCovariance(size, solver="gram")
    for start in range(0, n, 5000):
        batch = rows(min(5000, n - start))
        for model in models.values():
            model.partial_fit(batch)
    exact = models["auto (exact)"]
    assert exact.sketch_.resolved["solver"] == "exact"
    test = rows(few(20_000, 300))
    out = {name: _beyond(model, test) for name, model in models.items()}
    for shrinkage in (None, "ledoit-wolf", 0.1):
        out[f"exact, shrinkage={shrinkage!r}"] = _beyond(exact.set_params(shrinkage=shrinkage), test)
    return out


def _beyond(model, rows):
    distances = model.mahalanobis(rows)
    d = rows.shape[1]
    return [*(float(np.mean(distances > chi2.isf(level, d))) for level in (0.01, 0.05)), model.shrinkage_]


# -- likelihood --------------------------------------------------------------------------------------------------------
CANDIDATES = {
    "EmpiricalCovariance": EmpiricalCovariance,
    "LedoitWolf": LedoitWolf,
    "OAS": OAS,
    "exact, shrinkage=None": partial(SketchedCovariance, shrinkage=None),
    "exact, shrinkage='ledoit-wolf'": partial(SketchedCovariance, shrinkage="ledoit-wolf"),
    "auto (exact)": SketchedCovariance,
}
for _size in SIZES:
    CANDIDATES[f"gram, l = {_size}"] = partial(SketchedCovariance, _size, solver="gram")
for _options in ({"shrinkage": "ledoit-wolf"}, {"beta": 0.1}, {"method": "rfd"}):
    _name = ", ".join(f"{key}={value!r}" for key, value in _options.items())
    CANDIDATES[f"gram, l = 64, {_name}"] = partial(SketchedCovariance, 64, solver="gram", **_options)


def real_sets(*, quick):
    """{name: dense rows}."""
    out = {"sift5k": sift5k(), "Isolet": dataset("Isolet")}
    if not quick:
        out["madelon"] = dataset("madelon")
        mnist = dataset("MNIST")
        out["MNIST"] = None if mnist is None else mnist[:20_000]
        out["a9a"] = dataset("a9a")
        ads = dataset("farm-ads")  # the columns that most rows have
        out["farm-ads, 1,500 columns"] = None if ads is None else ads[:, np.argsort(-ads.sum(axis=0))[:1500]]
    return {
        name: np.asarray(x.toarray() if sparse.issparse(x) else x, np.float64)
        for name, x in out.items()
        if x is not None
    }


def likelihood(*, quick):
    """Mean log-density of validation and of test rows: 60%, 20%, 20% of three permutations."""
    scores, seconds, sets = {}, {}, real_sets(quick=quick)
    for name, rows in sets.items():
        for seed in range(few(SEEDS, 1)):
            order = np.random.default_rng(seed).permutation(len(rows))
            train, validation, test = np.split(rows[order], [int(0.6 * len(rows)), int(0.8 * len(rows))])
            for label, make in CANDIDATES.items():
                start = time.process_time()
                with warnings.catch_warnings(), np.errstate(all="ignore"):
                    warnings.simplefilter("ignore")  # of singular matrices
                    model = make().fit(train)
                    found = [model.score(part) for part in (validation, test)]
                seconds.setdefault((label, name), []).append(time.process_time() - start)
                scores.setdefault((label, name), []).append(found)
    runs = f"{SEEDS} permutations, mean +- standard deviation"
    for k, part in enumerate(("validation", "test")):
        lines = [[label, *(_cell(np.array(scores[label, name])[:, k]) for name in sets)] for label in CANDIDATES]
        head = [f"log-likelihood of {part} rows", *(f"{name}, d = {rows.shape[1]}" for name, rows in sets.items())]
        table(lines, head, part, runs=runs)
    lines = [[label, *(f"{min(seconds[label, name]):.2f}" for name in sets)] for label in CANDIDATES]
    table(lines, ["CPU seconds, fit and scores", *sets], "seconds", runs=f"the least of {SEEDS}")


def _cell(values):
    kept = values[np.isfinite(values)]
    singular = f" ({len(values) - len(kept)} of {len(values)} singular)" if len(kept) < len(values) else ""
    return (f"{kept.mean():.1f} +- {kept.std():.1f}" if len(kept) else "") + singular
