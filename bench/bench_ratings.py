"""Ratings of MovieLens in practice: raw stars, half of them for training, against other libraries and methods."""

import numpy as np
from scipy import sparse

import fastsketch as fs
from bench_choice import Comparison, Way, chosen, less, seconds_of
from bench_lowrank_sets import halves, ratings_of
from bench_tools import spread, table
from fastsketch.reference.baselines import AISImpute, AltMin

SETS = "ML-100K", "ML-1M"
REFERENCE = "cmfrec, 15 iterations"


def ratings(args):
    """RMSE, MAE and seconds of one thread over splits; settings by the RMSE of a fifth of the training entries."""
    out = []
    for name in SETS[: 1 if args.quick else 2]:
        found = ratings_of(name)
        if found is not None:
            out += _ratings(name, found, 2 if args.quick or name == "ML-1M" else 3)
    pair = f"less {REFERENCE}"
    head = ["set", "method", "MAE", f"MAE {pair}", "RMSE", f"RMSE {pair}", "s, processor", "s, clock", "chosen"]
    runs = f"{2 if args.quick else 3} splits (ML-1M: 2), mean +- standard deviation; seconds: mean"
    table(out, head, "main", runs=runs)


def _ratings(name, found, splits):
    stars = found[2]

    def measure(z, _, test):
        e = np.clip(z, 1, 5) - stars[test]
        return [float(np.sqrt(np.mean(e**2))), float(np.abs(e).mean())]

    comparison = Comparison(found, lambda _: stars, measure, repeats=2)
    once = len(stars) > 500_000
    ways = [*_ours(once=once), *_cmfrec(once=once)]
    if not once:
        ways += [*_surprise(once=True), *_baselines(once=True)]
    results = comparison.run(ways, halves(found, splits))
    out = []
    for label, result in results.items():
        other = results.get(REFERENCE)
        pairs = ["" if other is None or other is result else less(result, other, k) for k in (1, 0)]
        mae, rmse = (spread([e[k] for e in result.errors]) for k in (1, 0))
        out.append([name, label, mae, pairs[0], rmse, pairs[1], *seconds_of(result), chosen(result)])
    return out


# -- methods -----------------------------------------------------------------------------------------------------------
RANKS, BIASES = (4, 6, 8, 10, 14, 20), (0.5, 1.0, 2.0, 4.0, 8.0)
UNITS = (0.4, 0.5, 0.6, 0.75, 1.0, 1.3)  # ridges of ours, in noise levels
PENALTIES = (6.0, 8.0, 11.0, 15.0, 20.0)  # the same as others count them, in squares of stars


def _ours(*, once):
    def fit(x, rank, **options):
        return fs.LowRankModel(rank, clip=(1, 5), **options).fit(x).predict

    yield Way("biases alone", lambda x, **o: fit(x, 0, **o), {"bias_ridge": BIASES})
    yield Way("LowRankModel, as it comes", lambda x: fit(x, 10))
    for sweeps in (1, 3, 5, 10):
        yield Way(
            f"LowRankModel, {sweeps} sweep{'s' if sweeps > 1 else ''}",
            lambda x, sweeps=sweeps, **o: fit(x, sweeps=sweeps, max_power_iterations=4, **o),
            {"rank": RANKS, "ridge": UNITS, "bias_ridge": BIASES},
            once=once,
        )


def cmfrec_tuned(*, once, iterations=(15,)):
    """Yield cmfrec with its settings chosen."""
    for way in _cmfrec(once=once):
        if way.name in {f"cmfrec, {count} iterations" for count in iterations}:
            yield way


def _cmfrec(*, once):
    try:
        import cmfrec
    except ImportError:
        print("cmfrec: absent")
        return

    def fit(x, **options):
        return cmfrec.CMF(nthreads=1, use_float=True, verbose=False, **options).fit(sparse.coo_matrix(x)).predict

    def tuned(x, ridge, bias_ridge, **options):
        # of the biases of users and of items, the factors of both, and of side information; exact solutions instead of
        # conjugate gradients are faster at these ranks, and more accurate
        penalties = [bias_ridge, bias_ridge, ridge, ridge, ridge, ridge]
        return fit(x, lambda_=penalties, use_cg=False, **options)

    yield Way("cmfrec, as it comes", fit)
    for iterations in (15, 30):
        yield Way(
            f"cmfrec, {iterations} iterations",
            lambda x, iterations=iterations, **o: tuned(x, niter=iterations, **o),
            {"k": RANKS, "ridge": PENALTIES, "bias_ridge": BIASES},
            once=once,
        )


def _surprise(*, once):
    try:
        import surprise
    except ImportError:
        print("scikit-surprise: absent")
        return
    last = {}

    def training(x):
        """Its own form of x, of the last x kept: only the first of several fits is charged with it."""
        if id(x) not in last:
            entries = x.tocoo()
            lines = zip(entries.row.tolist(), entries.col.tolist(), entries.data.tolist(), [None] * x.nnz, strict=True)
            data = surprise.Dataset(surprise.Reader(rating_scale=(1, 5)))
            last.clear()
            last[id(x)] = x, data.construct_trainset(list(lines))
        return last[id(x)][1]

    def fit(x, **options):
        data = training(x)
        model = surprise.SVD(random_state=0, **options).fit(data)
        # its own prediction is a call of Python for each pair
        bu, pu = _spread(x.shape[0], data.to_raw_uid, model.bu, model.pu)
        bi, qi = _spread(x.shape[1], data.to_raw_iid, model.bi, model.qi)
        return lambda rows, columns: (
            data.global_mean + bu[rows] + bi[columns] + np.einsum("kq,kq->k", pu[rows], qi[columns])
        )

    yield Way("scikit-surprise, SVD as it comes", fit)
    grid = {"n_factors": (10, 20, 50, 100), "n_epochs": (20, 40), "reg_all": (0.02, 0.05, 0.1)}
    yield Way("scikit-surprise, SVD", fit, grid, once=once)


def _spread(count, raw, biases, factors):
    """Biases and factors by our numbers, zeros of what was not seen."""
    ids = [raw(k) for k in range(len(biases))]
    b, f = np.zeros(count), np.zeros((count, factors.shape[1]))
    b[ids], f[ids] = biases, factors
    return b, f


def _baselines(*, once):
    """The methods of the GLRL paper, with biases and without."""

    def alternating(x, rank, **options):
        return AltMin(rank, max_iterations=30, **options).fit(x).decision_function

    def impute(x, penalty, **options):
        return AISImpute(penalty, max_rank=40, max_iterations=50, **options).fit(x).decision_function

    for name, fit, grid in (
        ("AltMin", alternating, {"rank": (4, 8, 14), "ridge": UNITS}),
        ("AIS-Impute", impute, {"penalty": (*PENALTIES, 30.0)}),
    ):
        yield Way(name, fit, grid, once=once)
        biased = {**grid, "bias_ridge": BIASES}
        yield Way(f"{name} with biases", lambda x, fit=fit, **o: fit(x, biases=True, **o), biased, once=once)
