"""Adaptive subgradients: the ADA-FD paper's sections 5.2 (regression), 5.3 (classification) and 5.4 (a small CNN)."""

import time

import numpy as np
from adaptive_grid import TOGETHER, AdaptiveGrid

import fastsketch as fs
from bench_papers import PLAIN
from bench_tools import DATA, read_idx, seconds, table
from fastsketch import reference

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
    ("ada_full", "dual_averaging"): 342,
    ("ada_ffd", "mirror_descent"): 291,
    ("ada_ffd", "dual_averaging"): 418,
    ("ada_fd", "mirror_descent"): 319,
    ("ada_fd", "dual_averaging"): 424,
    ("ada_diag", "mirror_descent"): 983,
    ("ada_diag", "dual_averaging"): 1060,
    ("ogd", "mirror_descent"): 1041,
    ("adam", "mirror_descent"): 909,
}
CASES = [
    (method, form)
    for form in ("mirror_descent", "dual_averaging")
    for method in NAMES
    if form == "mirror_descent" or method in ("ada_full", "ada_ffd", "ada_fd", "ada_diag")
]


def deltas(method, form):
    found = FIXED.get(method, DELTAS)
    return (found[form],) if isinstance(found, dict) else (found,) if isinstance(found, float) else found


def stream(seed, rounds=10_000, d=500):
    """Section 5.2: mean 1, eigenvalues 100 / j^2 along random directions, targets by a unit vector."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
    rows = 1 + (rng.standard_normal((rounds, d)) * np.sqrt(100.0 * np.arange(1, d + 1.0) ** -2)) @ basis.T
    truth = rng.standard_normal(d)
    return rows, rows @ (truth / np.linalg.norm(truth))


def regression(args):
    """Total regret (the best weights have none) with the best step sizes of the papers' grids; time of a round."""
    seeds = range(1 if args.quick else 5)
    out, by_eta, curves = [], {}, {}
    for method, form in CASES:
        losses, best, times = [], [], []
        slow = method in ("ada_full", "ada_lr")
        for seed in seeds if not slow else list(seeds)[:2]:
            rows, y = stream(seed)
            grid = AdaptiveGrid(RATES, deltas(method, form), sketch_size=20, method=method, form=form)
            curve = []
            for start in range(0, len(rows), 500):
                grid.update(rows[start : start + 500], y[start : start + 500])
                curve.append(grid.cumulative_loss)
            losses.append(grid.cumulative_loss.min())
            by_eta.setdefault((method, form), []).append(grid.cumulative_loss.min(axis=1))
            best.append(grid.best())
            if seed == 0:
                i, j = np.unravel_index(np.argmin(curve[-1]), curve[-1].shape)
                curves[method, form] = [0, *(part[i, j] for part in curve)]
                times = _round(
                    rows,
                    y,
                    100 if slow else 3000,
                    method=method,
                    form=form,
                    learning_rate=best[0].learning_rate,
                    delta=best[0].delta,
                )
        out.append(
            [
                NAMES[method],
                form,
                f"{np.mean(losses):.0f} +- {np.std(losses):.0f}",
                TARGETS.get((method, form), ""),
                f"{best[0][0]:g}",
                f"{best[0][1]:g}",
                f"{1e6 * times:.1f}",
            ]
        )
        print(*out[-1], flush=True)
    streams = f"{len(seeds)} streams (ADA-FULL and ADA-LR: 2), mean +- standard deviation"
    columns = ["method", "form", "regret", "target", "best learning rate", "delta", "us a round"]
    table(out, columns, "main", runs=streams)
    table(
        [[NAMES[m], f, *(f"{v:.0f}" for v in np.mean(v, axis=0))] for (m, f), v in by_eta.items()],
        ["method", "form", *(f"rate {rate:g}" for rate in RATES)],
        "rates",
        runs=f"{len(seeds)} streams (ADA-FULL and ADA-LR: 2), means",
    )
    table(
        [[500 * k, *(f"{curve[k]:.0f}" for curve in curves.values())] for k in range(len(rows) // 500 + 1)],
        ["rounds", *(f"{NAMES[method]}, {form}" for method, form in curves)],
        "curves",
        runs=1,
        note="Regret of the stream with seed 0, best step sizes.",
    )
    _speed()
    _sizes(args)


def _round(rows, y, n, tau=20, **options):
    """Seconds a round, of n after the first 600, by which a full H is full; without a model of its own, of the loop."""
    if options["method"] in TOGETHER and options["method"] != "ada_full":
        grid = AdaptiveGrid([options["learning_rate"]], [options["delta"]], method=options["method"], sketch_size=tau)
        grid.update(rows[:1], y[:1])
        return seconds(lambda: grid.update(rows[1 : n + 1], y[1 : n + 1])) / n
    model = fs.AdaptiveSubgradient(tau, loss="absolute", **PLAIN, **options).update(rows[:600], y[:600])
    return min(seconds(lambda: model.copy().update(rows[:n], y[:n])) for _ in range(3)) / n


def _speed():
    """One round of this library against the papers' algorithms in NumPy, d = 500, tau = 20."""
    rows, y = stream(0, 3000)

    def subgradient(t, beta):
        r = rows[t - 1] @ beta - y[t - 1]
        return abs(r), np.sign(r) * rows[t - 1]

    common = {"subgradient": subgradient, "learning_rate": 0.01, "delta": 1.0}
    ffd, fd = reference.adaptive_fast_frequent_directions, reference.adaptive_frequent_directions
    out = []
    for method, n, call in (
        ("ada_ffd", 1000, lambda: ffd(500, 1000, sketch_size=20, **common)),
        ("ada_fd", 300, lambda: fd(500, 300, sketch_size=20, **common)),
        ("ada_full", 20, lambda: reference.adaptive_full(500, 20, **common)),
    ):
        ours = _round(rows, y, 100 if method == "ada_full" else 3000, method=method, learning_rate=0.01, delta=1.0)
        theirs = min(seconds(call) for _ in range(2)) / n
        out.append([NAMES[method], f"{1e6 * ours:.1f}", f"{1e6 * theirs:.0f}", f"{theirs / ours:.1f}"])
    table(out, ["method", "us a round", "NumPy, us", "ratio"], "numpy", runs="the least of 3 (NumPy: of 2)")


def _sizes(args):
    """Regret and time against tau (Figures 3 and 4)."""
    rows, y = stream(0)
    out = []
    for tau in (20, 40, 60, 80) if args.quick else (20, 40, 60, 80, 120, 200, 250, 251):
        for method in ("ada_ffd", "ada_fd", "radagrad", "fd_son"):
            if tau > 80 and method in ("radagrad", "fd_son"):
                continue
            start = time.process_time()
            searched = deltas(method, "mirror_descent") if tau == 20 else DELTAS
            grid = AdaptiveGrid(RATES, searched, sketch_size=tau, method=method).update(rows, y)
            taken = time.process_time() - start
            best = grid.best()
            one = _round(rows, y, 1000, tau, method=method, learning_rate=best.learning_rate, delta=best.delta)
            out.append(
                [
                    tau,
                    NAMES[method],
                    f"{grid.cumulative_loss.min():.0f}",
                    f"{best.learning_rate:g}",
                    f"{best.delta:g}",
                    f"{1e6 * one:.0f}",
                    f"{taken:.1f}",
                ]
            )
            print(*out[-1], flush=True)
    columns = ["tau", "method", "regret", "best learning rate", "delta", "us a round", "s for the whole grid"]
    table(out, columns, "tau", runs="1 stream; times of a round: the least of 3")


# -- section 5.3 -----------------------------------------------------------------------------------------------------
def _classes(name):
    """(train, labels, test, labels) with rows scaled into [0, 1] or to mean 0, or None."""
    if name == "MNIST":
        files = [
            DATA / "mnist" / f"{part}-idx{k}-ubyte.gz"
            for part in ("train", "t10k")
            for part, k in ((f"{part}-images", 3), (f"{part}-labels", 1))
        ]
        if not all(path.exists() for path in files):
            print(f"MNIST: absent ({files[0]}); set FASTSKETCH_DATA")
            return None
        x, y, test, truth = (read_idx(path) for path in files)
        flat = [part.reshape(len(part), -1) / 255.0 for part in (x, test)]
        return flat[0][:12_000], y[:12_000], flat[1], truth
    from scipy.io import loadmat

    path = DATA / "asu-fs" / "Isolet.mat"
    if not path.exists():
        print(f"Isolet: absent ({path}); set FASTSKETCH_DATA")
        return None
    found = loadmat(path)
    rows, labels = found["X"].astype(float), found["Y"].ravel()
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
    out = []
    for name in ("Isolet",) if args.quick else ("Isolet", "MNIST"):
        found = _classes(name)
        if found is None:
            continue
        x, y, test, truth = found
        classes = np.unique(y)
        for method, form in cases:
            some = classes[:: max(1, len(classes) // 3)]  # step sizes are chosen on three of the classes
            few = min(len(x), 2000)
            best = min(
                ((eta, delta) for eta in RATES for delta in deltas(method, form)),
                key=lambda point: _mistakes(x[:few], y[:few], some, method, form, *point)[0],
            )
            results = []
            for seed in range(1 if args.quick else 3):
                order = np.random.default_rng(seed).permutation(len(x))
                start = time.process_time()
                mistakes, models = _mistakes(x[order], y[order], classes, method, form, *best)
                taken = time.process_time() - start
                scores = np.stack([test @ coef for coef in models], axis=1)
                right = classes[scores.argmax(axis=1)] == truth
                results.append((mistakes / len(classes), 100 * np.mean(right), taken))
            mean, spread = np.mean(results, axis=0), np.std(results, axis=0)
            out.append(
                [
                    name,
                    NAMES[method],
                    form,
                    f"{best[0]:g}",
                    f"{best[1]:g}",
                    f"{mean[0]:.0f} +- {spread[0]:.0f}",
                    f"{mean[1]:.2f} +- {spread[1]:.2f}",
                    f"{mean[2]:.1f}",
                    f"{1e6 * mean[2] / len(x) / len(classes):.1f}",
                ]
            )
            print(*out[-1], flush=True)
    table(
        out,
        ["set", "method", "form", "learning rate", "delta", "mistakes a class", "test accuracy, %", "s", "us a round"],
        "main",
        runs=f"{1 if args.quick else 3} orders of the rows, mean +- standard deviation",
    )


def _mistakes(x, y, classes, method, form, eta, delta):
    """(mistakes of all classes, coefficients of each)."""
    coefs, total = [], 0
    for label in classes:
        if method == "radagrad":
            mistakes, coef = _radagrad(x, np.where(y == label, 1.0, -1.0), eta, delta)
            total += mistakes
            coefs.append(coef)
            continue
        steps = {"method": method, "form": form, "learning_rate": eta, "delta": delta}
        model = fs.AdaptiveSubgradient(20, loss="squared_hinge", **PLAIN, **steps)
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


# -- section 5.4 -----------------------------------------------------------------------------------------------------
def cnn(args):
    """The 4-layer CNN of section 5.4 on MNIST: training loss and test accuracy, sketches on the convolutions."""
    import torch
    from torch import nn

    from fastsketch.torch import AdaFD, AdaFFD

    torch.set_num_threads(1)
    found = _classes("MNIST")
    if found is None:
        return
    n, epochs, seeds = (2000, 1, 1) if args.quick else (6000, 3, 2)
    x, y, test, truth = found
    x = torch.tensor(x[:n], dtype=torch.float32).reshape(-1, 1, 28, 28)
    test = torch.tensor(test[:5000], dtype=torch.float32).reshape(-1, 1, 28, 28)
    y, truth = torch.tensor(y[:n].astype(np.int64)), torch.tensor(truth[:5000].astype(np.int64))

    def network():
        return nn.Sequential(
            nn.Conv2d(1, 32, 3),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Dropout(0.25),
            nn.Flatten(),
            nn.Linear(64 * 144, 128),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(128, 10),
        )

    def groups(model, point):
        lr, delta = point
        return [
            {"params": [p for layer in (model[0], model[2]) for p in layer.parameters()], "lr": lr, "delta": delta},
            {
                "params": [p for layer in (model[7], model[10]) for p in layer.parameters()],
                "sketched": False,
                "lr": 0.01,
            },
        ]

    makers = {
        "AdaFFD": lambda model, lr: AdaFFD(groups(model, lr)),
        "AdaFD": lambda model, lr: AdaFD(groups(model, lr)),
        "AdaGrad": lambda model, lr: torch.optim.Adagrad(model.parameters(), lr=lr),
        "Adam": lambda model, lr: torch.optim.Adam(model.parameters(), lr=lr),
        "SGD": lambda model, lr: torch.optim.SGD(model.parameters(), lr=lr),
    }

    def run(make, lr, epochs, seed):
        torch.manual_seed(seed)
        model = network()
        optimizer, losses, start = make(model, lr), [], time.process_time()
        inside = 0.0
        for _ in range(epochs):
            model.train()
            order, total = torch.randperm(n), 0.0
            for part in order.split(128):
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(x[part]), y[part])
                if not torch.isfinite(loss):
                    return np.inf, 0.0, 0.0, 0.0
                loss.backward()
                before = time.process_time()
                optimizer.step()
                inside += time.process_time() - before
                total += loss.item() * len(part)
            losses.append(total / n)
        taken = time.process_time() - start
        model.eval()
        with torch.no_grad():
            right = sum(
                int((model(t).argmax(1) == g).sum()) for t, g in zip(test.split(500), truth.split(500), strict=True)
            )
        return losses[-1], 100 * right / len(test), taken / epochs, 1e3 * inside / epochs / -(-n // 128)

    out = []
    for name, make in makers.items():
        # the sketches' delta is searched too, coarsely: gradients are far shorter than the paper's delta = 1
        points = [(lr, delta) for lr in (0.03, 0.1, 0.3) for delta in (1e-3, 1e-2, 0.1, 1.0)]
        if not name.startswith("AdaF"):
            points = (1e-3, 1e-2, 0.1, 1.0) if name == "SGD" else (1e-4, 1e-3, 1e-2, 0.1)
        best = min(points, key=lambda point, make=make: run(make, point, 1, 0)[0])
        results = np.array([run(make, best, epochs, seed + 1) for seed in range(seeds)])
        mean, spread = results.mean(axis=0), results.std(axis=0)
        shown = f"{best:g}" if not isinstance(best, tuple) else f"{best[0]:g} (delta {best[1]:g})"
        out.append(
            [
                name,
                shown,
                f"{mean[0]:.4f} +- {spread[0]:.4f}",
                f"{mean[1]:.2f} +- {spread[1]:.2f}",
                f"{mean[2]:.1f}",
                f"{mean[3]:.2f}",
            ]
        )
        print(*out[-1], flush=True)
    columns = ["optimizer", "lr", "training loss", "test accuracy, %", "s an epoch", "ms a step of the optimizer"]
    table(out, columns, "main", runs=f"{seeds} seeds, mean +- standard deviation")
