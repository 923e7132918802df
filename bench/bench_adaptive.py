"""Adaptive subgradients: the ADA-FD paper's sections 5.2 (regression), 5.3 (classification) and 5.4 (a small CNN)."""

import time

import numpy as np
from adaptive_grid import TOGETHER, AdaptiveGrid

import fastsketch as fs
from bench_data import cifar10, matlab, mnist
from bench_papers import PLAIN
from bench_tools import few, seconds, spread, table
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
    seeds = range(1 if args.quick else 5)
    out, by_eta, curves = [], {}, {}
    for method, form in CASES[: few(99, 2)]:
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
                options = {"method": method, "form": form, "learning_rate": best[0][0], "delta": best[0][1]}
                times = _round(rows, y, 100 if slow else 3000, **options)
        out.append(
            {
                "method": NAMES[method],
                "form": form,
                "regret": spread(losses, 0),
                "target": TARGETS.get((method, form), ""),
                "best learning rate": f"{best[0][0]:g}",
                "delta": f"{best[0][1]:g}",
                "us a round": f"{1e6 * times:.1f}",
            }
        )
        print(*out[-1].values(), flush=True)
    streams = f"{len(seeds)} streams (ADA-FULL and ADA-LR: 2), mean +- standard deviation"
    table(out, name="main", runs=streams)
    table(
        [[NAMES[m], f, *(f"{v:.0f}" for v in np.mean(v, axis=0))] for (m, f), v in by_eta.items()],
        ["method", "form", *(f"rate {rate:g}" for rate in RATES)],
        "rates",
        runs=streams.replace("mean +- standard deviation", "means"),
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
    table(out, ["method", "us a round", "NumPy, us", "ratio"], "numpy", runs="the least of 3 (NumPy: of 2)")


def _sizes(args):
    """Regret and time against tau (Figures 3 and 4)."""
    rows, y = stream(0)
    out = []
    most = {"ada_ffd": 251, "ada_fd": 501, "ada_lr": 80, "radagrad": 80, "fd_son": 80}
    for tau in (20, 40, 60, 80)[: few(4, 1)] if args.quick else (20, 40, 60, 80, 120, 200, 250, 251, 400, 501):
        for method in (method for method, size in most.items() if tau <= size):
            start = time.process_time()
            searched = deltas(method, "mirror_descent") if tau == 20 else DELTAS
            grid = AdaptiveGrid(RATES, searched, sketch_size=tau, method=method).update(rows, y)
            taken = time.process_time() - start
            best = grid.best()
            one = _round(rows, y, 1000, tau, method=method, learning_rate=best.learning_rate, delta=best.delta)
            out.append(
                {
                    "tau": tau,
                    "method": NAMES[method],
                    "regret": f"{grid.cumulative_loss.min():.0f}",
                    "best learning rate": f"{best.learning_rate:g}",
                    "delta": f"{best.delta:g}",
                    "us a round": f"{1e6 * one:.0f}",
                    "s for the whole grid": f"{taken:.1f}",
                }
            )
            print(*out[-1].values(), flush=True)
    table(out, name="tau", runs="1 stream; times of a round: the least of 3")


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
    out = []
    for name in ("Isolet",) if args.quick else ("Isolet", "MNIST"):
        found = _classes(name)
        if found is None:
            continue
        x, y, test, truth = found
        classes = np.unique(y)
        for method, form in cases[: few(99, 2)]:
            some = classes[:: max(1, len(classes) // 3)]  # step sizes are chosen on three of the classes
            some_rows = min(len(x), 2000)
            best = min(
                ((eta, delta) for eta in RATES for delta in deltas(method, form)),
                key=lambda point: _mistakes(x[:some_rows], y[:some_rows], some, method, form, *point)[0],
            )
            results = []
            for seed in range(1 if args.quick else _orders(name, method)):
                order = np.random.default_rng(seed).permutation(len(x))
                start = time.process_time()
                mistakes, models = _mistakes(x[order], y[order], classes, method, form, *best)
                taken = time.process_time() - start
                scores = np.stack([test @ coef for coef in models], axis=1)
                right = classes[scores.argmax(axis=1)] == truth
                results.append((mistakes / len(classes), 100 * np.mean(right), taken))
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
                    "us a round": f"{1e6 * np.mean(taken) / len(x) / len(classes):.1f}",
                }
            )
            print(*out[-1].values(), flush=True)
    table(out, name="main", runs="as many orders of the rows as the table says, mean +- standard deviation")


def _orders(name, method):
    """How many orders: the paper's twenty, fewer of what takes minutes an order."""
    return 2 if (name, method) == ("MNIST", "radagrad") else 10 if name == "MNIST" else 20


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
    n, epochs, seeds = (few(2000, 128), 1, 1) if args.quick else (6000, 3, 2)
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
        points = points[: few(99, 1)]
        best = min(points, key=lambda point, make=make: run(make, point, 1, 0)[0])
        results = np.array([run(make, best, epochs, seed + 1) for seed in range(seeds)])
        loss, right, epoch, step = results.T
        shown = f"{best:g}" if not isinstance(best, tuple) else f"{best[0]:g} (delta {best[1]:g})"
        out.append(
            {
                "optimizer": name,
                "lr": shown,
                "training loss": spread(loss),
                "test accuracy, %": spread(right, 2),
                "s an epoch": f"{epoch.mean():.1f}",
                "ms a step of the optimizer": f"{step.mean():.2f}",
            }
        )
        print(*out[-1].values(), flush=True)
    table(out, name="main", runs=f"{seeds} seeds, mean +- standard deviation")


# -- section 5.5 -----------------------------------------------------------------------------------------------------
VGG19 = (64, 64, 0, 128, 128, 0, *(256,) * 4, 0, *(512,) * 4, 0, *(512,) * 4, 0)  # channels of convolutions, 0: halved


def vgg19(args):
    """Time and memory of section 5.5: a layer of ten on 2,048 numbers of a VGG19 that learns nothing, random weights.

    The weights of ImageNet are not to be had, so nothing is said of losses; what a step costs does not depend on them.
    """
    import torch
    from torch import nn

    from fastsketch.torch import AdaFD, AdaFFD

    torch.set_num_threads(1)
    found = cifar10()
    if found is None:
        return
    torch.manual_seed(0)
    layers, width = [], 3
    for channels in VGG19:
        layers += [nn.MaxPool2d(2)] if not channels else [nn.Conv2d(width, channels, 3, padding=1), nn.ReLU()]
        width = channels or width
    frozen = nn.Sequential(*layers, nn.Flatten())
    batches, size = few(3, 1), few(128, 2)
    images = torch.tensor(found[0][: batches * size]).permute(0, 3, 1, 2).float() / 255
    labels = torch.tensor(found[1][: batches * size])
    images = nn.functional.interpolate(images, size=64, mode="bilinear")
    start = time.process_time()
    with torch.no_grad():
        rows = torch.cat([frozen(part) for part in images.split(size)])
    forward = (time.process_time() - start) / batches
    makers = {
        "AdaFFD": lambda p: AdaFFD(p, lr=0.01),
        "AdaFD": lambda p: AdaFD(p, lr=0.01),
        "AdaGrad": lambda p: torch.optim.Adagrad(p, lr=0.01),
        "Adam": lambda p: torch.optim.Adam(p, lr=0.001),
        "SGD": lambda p: torch.optim.SGD(p, lr=0.01),
    }
    out = []
    for name, make in makers.items():
        top = nn.Linear(rows.shape[1], 10)
        optimizer, times = make(top.parameters()), []
        for step in range(few(200, 3)):
            part = slice(size * (step % batches), size * (step % batches + 1))
            optimizer.zero_grad()
            nn.functional.cross_entropy(top(rows[part]), labels[part]).backward()
            start = time.process_time()
            optimizer.step()
            times.append(time.process_time() - start)
        states = [x for known in optimizer.state.values() for x in known.values() if hasattr(x, "nbytes")]
        step = float(np.mean(times[len(times) // 2 :]))  # when the sketches are full
        held = sum(x.nbytes for x in states) / 1e6
        cells = [f"{1e3 * step:.2f}", f"{1 + step / forward:.4f}", f"{held:.1f}"]
        out.append([name, *cells])
    columns = ["optimizer", "ms a step", "of a batch that only goes forward, times", "MB of state"]
    note = f"A batch of {size} goes forward in {forward:.1f} s; {rows.shape[1]} x 10 weights learn. Random weights."
    table(out, columns, "main", runs=f"{len(times)} steps, mean of the second half", note=note)
