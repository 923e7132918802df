"""RFD paper, Table 2: accuracy of sketched Newton learners over the paper's whole grid of alpha0, five splits."""

import numpy as np

from bench_papers import adaptive, newton
from bench_tools import few, spread, table
from learning.newton import ALPHAS, accuracy, labelled, split

SPLITS = 5
SKETCH = {"a9a": 10, "farm-ads": 30}  # the middle one of the paper's three
# Table 2, %, of that size.
PAPER = {
    "a9a": {"RFD0": 83.26, "rfd": 83.68, "fd": 83.67, "pfd": 83.71, "ADAGRAD": 83.48},
    "farm-ads": {"RFD0": 88.82, "rfd": 89.86, "fd": 89.94, "pfd": 89.86, "ADAGRAD": 89.38},
}


def learners(size):
    """Return {method: [a model for each alpha0, of ADAGRAD for each step size]}."""
    models = {"RFD0": [newton("rfd", size, alpha0=0.0)]}
    models |= {method: [newton(method, size, alpha0=alpha) for alpha in ALPHAS] for method in ("rfd", "fd", "pfd")}
    steps = [adaptive("ada_diag", size, loss="square", loss_scale=2.0, learning_rate=alpha) for alpha in ALPHAS]
    return {**models, "ADAGRAD": steps}


def tried(models, x, y, test, truth):
    """Return the shares of wrong predictions [online, on the test rows] of each model, 1 where it diverges."""
    out = np.ones((len(models), 2))
    for line, model in zip(out, models, strict=True):
        try:
            model.update(x, y)
        except FloatingPointError:
            continue
        line[:] = np.mean(model.last_scores * y <= 0), 1 - accuracy(model, test, truth)
    return out


def alphas(args):
    """The paper's best alpha0, seen on the test rows; one chosen by online errors; every alpha0 of the grid."""
    out, grid = [], []
    for name, size in list(SKETCH.items())[: few(2, 1)]:
        found = labelled(name)
        if found is None:
            continue
        wrong = {}
        for seed in range(few(2 if args.quick else SPLITS, 1)):
            x, y, test, truth = split(*found, seed)
            x, y = x[: few(10**9, 300)], y[: few(10**9, 300)]
            for method, models in learners(size).items():
                wrong.setdefault(method, []).append(tried(models, x, y, test, truth))
        for method, values in wrong.items():
            online, tested = 100 * np.moveaxis(np.array(values), 2, 0)  # (splits, models)
            chosen = tested[np.arange(len(tested)), online.argmin(axis=1)]
            paper = f"{PAPER[name][method]:.2f}"
            out.append([name, size, method, paper, spread(100 - tested.min(axis=1), 2), spread(100 - chosen, 2)])
            cells = [f"{v:.2f}" for v in 100 - tested.mean(axis=0)]
            grid.append([name, size, method, *cells, *(["same"] * (len(ALPHAS) - len(cells)))])
            print(*out[-1], "|", *cells, flush=True)
    columns = ["set", "m", "method", "paper, %", "best alpha0, seen afterwards, %", "chosen by online errors, %"]
    table(out, columns, "main", runs=f"{SPLITS} splits, mean +- standard deviation")
    columns = ["set", "m", "method", *(f"alpha0 = {a:g}" for a in ALPHAS)]
    note = "For ADAGRAD the columns are step sizes instead of alpha0, and a split that diverges counts as 0%."
    table(grid, columns, "grid", runs=f"{SPLITS} splits, means", note=note)
