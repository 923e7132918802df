"""Adaptive subgradients: the ADA-FD paper's sections 5.2 (regression) and 5.3 (classification)."""

import time

import numpy as np

from adaptive.grid import TOGETHER, AdaptiveGrid
from bench_data import matlab, mnist
from bench_papers import adaptive
from bench_tools import few, seconds, spread, table
from fastsketch import reference
from store import Parts

RATES = (1e-4, 1e-3, 1e-2, 0.1, 1.0)
DELTAS = (1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0)
# The paper's choice of delta: fixed for ADA-FD and ADA-FFD at tau = 20 and the diagonal methods, searched for the rest.
FIXED = {
    "ada_ffd": {"mirror_descent": 1.0, "dual_averaging": 10.0},
    "ada_fd": {"mirror_descent": 1.0, "dual_averaging": 10.0},
    "ada_diag": 1e-8,
    "adam": 1e-8,
    "ogd": 1.0,
}
NAMES = {
    "ada_full": "ADA-FULL",
    "ada_ffd": "ADA-FFD",
    "ada_fd": "ADA-FD",
    "ada_diag": "ADA-DIAG",
    "ada_lr": "ADA-LR",
    "radagrad": "RADAGRAD",
    "fd_son": "FD-SON",
    "ogd": "OGD",
    "adam": "ADAM",
}
TARGETS = {
    ("ada_full", "mirror_descent"): 216,
    ("ada_ffd", "mirror_descent"): 291,
    ("ada_ffd", "dual_averaging"): 418,
    ("ada_fd", "mirror_descent"): 319,
    ("ada_fd", "dual_averaging"): 424,
    ("ada_diag", "mirror_descent"): 983,
    ("ada_diag", "dual_averaging"): 1060,
    ("ogd", "mirror_descent"): 1041,
    ("adam", "mirror_descent"): 909,
}
STREAMS = {"ada_full": 1, "ada_lr": 2}  # where five take minutes; --quick: one of each
SIZES = {  # with a buffer of twice as many directions ADA-FFD never shrinks from 251 on, ADA-FD not from 501 on
    "ada_ffd": (20, 40, 60, 80, 250, 251),
    "ada_fd": (20, 40, 60, 80, 250, 501),
    "ada_lr": (20, 40, 60, 80),
    "radagrad": (20, 40, 60, 80),
    "fd_son": (20, 40, 60, 80),
}
EVERY = 500  # rounds between two points of a curve
CASES = [
    (method, form)
    for form in ("mirror_descent", "dual_averaging")
    for method in NAMES
    if form == "mirror_descent" or method in ("ada_ffd", "ada_fd", "ada_diag", "ada_full")
]


def deltas(method, form):
    found = FIXED.get(method, DELTAS)
    return (found[form],) if isinstance(found, dict) else (found,) if isinstance(found, float) else found


def stream(seed, rounds=10_000):
    """Section 5.2: mean 1, eigenvalues 100 / j^2 along random directions, targets by a unit vector."""
    rounds, d = few(rounds, 1000), few(500, 30)
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
    rows = 1 + (rng.standard_normal((rounds, d)) * np.sqrt(100.0 * np.arange(1, d + 1.0) ** -2)) @ basis.T
    truth = rng.standard_normal(d)
    return rows, rows @ (truth / np.linalg.norm(truth))


def regression(args):
    """Total regret (the best weights have none) with the best step sizes of the papers' grids; time of a round."""
    if args.only not in ("", "tau"):
        raise SystemExit(f"--only {args.only}: there is tau")
    parts = Parts(args)
    if args.only != "tau":
        _streams(args, parts)
    _sizes(args, parts)


def _streams(args, parts):
    """Regrets of all streams by method, step size and round, and the time beside NumPy (Figures 1 and 2)."""
    out, by_eta, curves = [], {}, {}
    for method, form in CASES[: few(99, 2)]:
        of_streams = [
            parts.of(f"{method} {form} {seed}", _of_stream, method, form, seed)
            for seed in range(1 if args.quick else STREAMS.get(method, 5))
        ]
        losses = np.array([found["losses"] for found in of_streams])
        by_eta[method, form], least = losses.min(axis=2).mean(axis=0), losses.min(axis=(1, 2))
        first = of_streams[0]
        curves[method, form] = first["curve"]
        out.append(
            {
                "method": NAMES[method],
                "form": form,
                "streams": len(losses),
                "regret": spread(least, 0) if len(least) > 1 else f"{least[0]:.0f}",
                "target": TARGETS.get((method, form), ""),
                "best learning rate": f"{first['best'][0]:g}",
                "delta": f"{first['best'][1]:g}",
                "us a round": f"{first['us']:.1f}",
            }
        )
        print(*out[-1].values(), flush=True)
    table(out, name="main", runs="as many streams as the table says, mean +- standard deviation")
    table(
        [[NAMES[m], f, *(f"{v:.0f}" for v in means)] for (m, f), means in by_eta.items()],
        ["method", "form", *(f"rate {rate:g}" for rate in RATES)],
        "rates",
        runs="the same streams, means",
    )
    table(
        [[EVERY * k, *(f"{curve[k]:.0f}" for curve in curves.values())] for k in range(len(first["curve"]))],
        ["rounds", *(f"{NAMES[method]}, {form}" for method, form in curves)],
        "curves",
        runs=1,
        note="Regret of the stream with seed 0, best step sizes.",
    )
    columns = ["method", "us a round", "NumPy, us", "ratio"]
    table(parts.of("NumPy", _speed), columns, "numpy", runs="the least of 3 (NumPy: of 2)")


def _of_stream(method, form, seed):
    """Losses (rates, deltas) of one stream, the best point, its regret as rounds go by, microseconds a round."""
    rows, y = stream(seed)
    grid = AdaptiveGrid(RATES, deltas(method, form), sketch_size=20, method=method, form=form)
    curve = []
    for start in range(0, len(rows), EVERY):
        grid.update(rows[start : start + EVERY], y[start : start + EVERY])
        curve.append(grid.cumulative_loss)
    losses, best = curve[-1], grid.best()
    i, j = np.unravel_index(np.argmin(losses), losses.shape)
    found = {"losses": losses.tolist(), "best": best, "curve": [0.0, *(float(part[i, j]) for part in curve)]}
    if seed == 0:
        options = {"method": method, "form": form, "learning_rate": best.learning_rate, "delta": best.delta}
        found["us"] = 1e6 * _round(rows, y, 100 if method in ("ada_full", "ada_lr") else 3000, **options)
    return found


def _round(rows, y, n, tau=20, **options):
    """Seconds a round, of n after the first 600, by which a full H is full; without a model of its own, of the loop."""
    if options["method"] in TOGETHER and options["method"] != "ada_full":
        grid = AdaptiveGrid([options["learning_rate"]], [options["delta"]], method=options["method"], sketch_size=tau)
        grid.update(rows[:1], y[:1])
        return seconds(lambda: grid.update(rows[1 : n + 1], y[1 : n + 1])) / n
    model = adaptive(sketch_size=tau, loss="absolute", **options).update(rows[:600], y[:600])
    return min(seconds(lambda: model.copy().update(rows[:n], y[:n])) for _ in range(3)) / n


def _speed():
    """One round of this library against the papers' algorithms in NumPy, d = 500, tau = 20."""
    rows, y = stream(0, 3000)
    d = rows.shape[1]

    def subgradient(t, beta):
        r = rows[t - 1] @ beta - y[t - 1]
        return abs(r), np.sign(r) * rows[t - 1]

    common = {"subgradient": subgradient, "learning_rate": 0.01, "delta": 1.0}
    ffd, fd = reference.adaptive_fast_frequent_directions, reference.adaptive_frequent_directions
    out = []
    for method, n, call in (
        ("ada_ffd", 1000, lambda: ffd(d, 1000, sketch_size=20, **common)),
        ("ada_fd", 300, lambda: fd(d, 300, sketch_size=20, **common)),
        ("ada_full", 20, lambda: reference.adaptive_full(d, 20, **common)),
    ):
        ours = _round(rows, y, 100 if method == "ada_full" else 3000, method=method, learning_rate=0.01, delta=1.0)
        theirs = min(seconds(call) for _ in range(2)) / n
        out.append([NAMES[method], f"{1e6 * ours:.1f}", f"{1e6 * theirs:.0f}", f"{theirs / ours:.1f}"])
    return out


def _sizes(args, parts):
    """Regret and time against tau (Figures 3 and 4)."""
    out = []
    for tau in sorted({tau for sizes in SIZES.values() for tau in sizes if tau <= 80 or not args.quick})[: few(9, 1)]:
        for method in (method for method, sizes in SIZES.items() if tau in sizes):
            out.append(parts.of(f"tau {tau} {method}", _of_size, tau, method))
            print(*out[-1].values(), flush=True)
    note = (
        "To save hours, only learning rates of 0.01 and 0.1 were tried from tau = 40 on, and "
        "beyond tau = 80 only a learning rate and a delta of 0.01."
    )
    table(out, name="tau", runs="1 stream; times of a round: the least of 3, beyond tau = 80 of 1", note=note)


def _of_size(tau, method):
    """A line of the table of sizes."""
    rows, y = stream(0)
    start = time.process_time()
    searched = deltas(method, "mirror_descent") if tau == 20 else DELTAS
    points = (RATES, searched) if tau == 20 else ((0.01, 0.1), searched) if tau <= 80 else ((0.01,), (0.01,))
    grid = AdaptiveGrid(*points, sketch_size=tau, method=method).update(rows, y)
    taken = time.process_time() - start
    best = grid.best()
    one = taken / len(rows)  # beyond 80, where there is one point
    if tau <= 80:
        one = _round(rows, y, 1000, tau, method=method, learning_rate=best.learning_rate, delta=best.delta)
    return {
        "tau": tau,
        "method": NAMES[method],
        "regret": f"{grid.cumulative_loss.min():.0f}",
        "best learning rate": f"{best.learning_rate:g}",
        "delta": f"{best.delta:g}",
        "us a round": f"{1e6 * one:.0f}",
        "s for the whole grid": f"{taken:.1f}",
    }


# -- section 5.3 -----------------------------------------------------------------------------------------------------
def _classes(name):
    """(train, labels, test, labels) with rows scaled into [0, 1] or to mean 0, or None."""
    if name == "MNIST":
        parts = mnist(), mnist("t10k")
        if None in parts:
            return None
        (x, y), (test, truth) = ((rows / 255.0, labels) for rows, labels in parts)
        return x, y, test, truth
    found = matlab("Isolet")
    if found is None:
        return None
    rows, labels = found
    order = np.random.default_rng(0).permutation(len(labels))
    cut = int(0.7 * len(order))
    return rows[order[:cut]], labels[order[:cut]], rows[order[cut:]], labels[order[cut:]]


def classification(args):
    """One pass, one model against the rest for each class, squared hinge: online mistakes, test accuracy, seconds."""
    cases = [
        ("ada_ffd", "mirror_descent"),
        ("ada_ffd", "dual_averaging"),
        ("ada_fd", "mirror_descent"),
        ("ada_diag", "mirror_descent"),
        ("ada_diag", "dual_averaging"),
        ("radagrad", "mirror_descent"),
        ("fd_son", "mirror_descent"),
        ("ogd", "mirror_descent"),
        ("adam", "mirror_descent"),
    ]
    parts, out = Parts(args), []
    for name in ("Isolet",) if args.quick else ("Isolet", "MNIST"):
        found = _classes(name)
        if found is None:
            continue
        for method, form in cases[: few(99, 2)]:
            best = parts.of(f"{name} {method} {form}", _steps, found, method, form)
            results = [
                parts.of(f"{name} {method} {form} {seed}", _of_order, found, method, form, best, seed)
                for seed in range(1 if args.quick else _orders(name, method))
            ]
            mistakes, right, taken = zip(*results, strict=True)
            out.append(
                {
                    "set": name,
                    "method": NAMES[method],
                    "form": form,
                    "learning rate": f"{best[0]:g}",
                    "delta": f"{best[1]:g}",
                    "mistakes a class": spread(mistakes, 0),
                    "test accuracy, %": spread(right, 2),
                    "orders": len(results),
                    "s": f"{np.mean(taken):.1f}",
                    "us a round": f"{1e6 * np.mean(taken) / len(found[0]) / len(np.unique(found[1])):.1f}",
                }
            )
            print(*out[-1].values(), flush=True)
    table(out, name="main", runs="as many orders of the rows as the table says, mean +- standard deviation")


def _steps(found, method, form):
    """Step sizes of the fewest mistakes on 2,000 rows, for three of the classes."""
    x, y = (part[:2000] for part in found[:2])
    classes = np.unique(found[1])
    some = classes[:: max(1, len(classes) // 3)]
    return min(
        ((eta, delta) for eta in RATES for delta in deltas(method, form)),
        key=lambda point: _mistakes(x, y, some, method, form, *point)[0],
    )


def _of_order(found, method, form, best, seed):
    """Mistakes a class, test accuracy in %, seconds, of the rows in one order."""
    x, y, test, truth = found
    classes, order = np.unique(y), np.random.default_rng(seed).permutation(len(x))
    start = time.process_time()
    mistakes, models = _mistakes(x[order], y[order], classes, method, form, *best)
    taken = time.process_time() - start
    scores = np.stack([test @ coef for coef in models], axis=1)
    right = classes[scores.argmax(axis=1)] == truth
    return mistakes / len(classes), 100 * np.mean(right), taken


def _orders(name, method):
    """How many orders: the paper's twenty, fewer of what takes minutes an order."""
    if method != "radagrad":
        return 20
    return 1 if name == "MNIST" else 5


def _mistakes(x, y, classes, method, form, eta, delta):
    """(mistakes of all classes, coefficients of each)."""
    coefs, total = [], 0
    for label in classes:
        if method == "radagrad":
            mistakes, coef = _radagrad(x, np.where(y == label, 1.0, -1.0), eta, delta)
            total += mistakes
            coefs.append(coef)
            continue
        model = adaptive(method, 20, loss="squared_hinge", form=form, learning_rate=eta, delta=delta)
        try:
            model.update(x, np.where(y == label, 1.0, -1.0))
            total += round(model.progress["error_rate"] * len(x))
        except FloatingPointError:
            total += len(x)
        coefs.append(model.coef)
    return total, coefs


def _radagrad(x, y, eta, delta):
    """(mistakes, coefficients) of RADAGRAD under the squared hinge, in NumPy."""
    mistakes = 0

    def subgradient(t, beta):
        nonlocal mistakes
        row, target = x[t - 1], y[t - 1]
        short = max(0.0, 1.0 - target * float(row @ beta))
        mistakes += short >= 1.0
        return short * short, -2.0 * short * target * row

    random = np.random.default_rng(0)
    steps = {"sketch_size": 20, "learning_rate": eta, "delta": delta, "rng": random}
    try:
        coef, _ = reference.radagrad(x.shape[1], len(x), subgradient=subgradient, **steps)
    except np.linalg.LinAlgError:  # the steps have left the range of numbers
        return len(x), np.zeros(x.shape[1])
    return mistakes, coef
