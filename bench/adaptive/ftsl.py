"""FTSL beside ADA-FD and ADA-FFD: the stream of the ADA-FD paper's section 5.2, and the training rows of real sets."""

import time

import numpy as np

import fastsketch as fs
from adaptive.grid import AdaptiveGrid
from adaptive.regression import NAMES, RATES, deltas, stream
from bench_tools import few, spread, table
from learning import sets

CASES = (
    ("ada_ffd", "mirror_descent"),
    ("ada_fd", "dual_averaging"),
    ("ada_ffd", "dual_averaging"),
    ("ftsl", "dual_averaging"),
    ("ftfsl", "dual_averaging"),
)
NAMES = {**NAMES, "ftsl": "FTSL", "ftfsl": "FTFSL"}
STREAMS, ROWS = 5, 6000
LEARNING_RATES = (None, 0.5, 2.0, 8.0)


def ftsl(args):
    """Regret with the best step size of the grid; loss on rows not yet learned, at four step sizes, on fifteen sets."""
    out = []
    for method, form in CASES:
        regrets, taken = [], []
        for seed in range(1 if args.quick else STREAMS):
            rows, y = stream(seed)
            delta = deltas("ada_ffd" if method == "ftfsl" else "ada_fd" if method == "ftsl" else method, form)
            grid = AdaptiveGrid(RATES, delta, sketch_size=20, method=method, form=form)
            start = time.process_time()
            grid.update(rows, y)
            taken.append((time.process_time() - start) / len(rows) / len(RATES))
            regrets.append(float(np.min(grid.cumulative_loss)))
        out.append([NAMES[method], form, len(regrets), spread(regrets, 0), f"{1e6 * min(taken):.1f}"])
        print(*out[-1], flush=True)
    columns = ["method", "form", "streams", "regret", "us a round"]
    table(out, columns, "main", runs="as many streams as the table says, mean +- standard deviation")
    _sets(args)


def _sets(args):
    """Every method's loss on every set, with the default learning rate and the best of four."""
    out, names = [], list(sets.SETS)[:: few(1, 5)]
    for name in names[: 1 if args.quick else None]:
        task = sets.within(sets.task_of(name, 0))
        if task is None:
            continue
        x, y = task.x[:ROWS], task.y[:ROWS]
        loss, figure = ("logistic", "log_loss") if task.classes is not None else ("square", "root_mean_squared_error")
        for method, form in CASES:
            found = []
            for rate in LEARNING_RATES:
                options = {"method": method, "form": form, "learning_rate": rate, "loss": loss, "blend": False}
                found.append(fs.AdaptiveSubgradient(20, **options).update(x, y).progress[figure])
            out.append([name, len(y), NAMES[method], form, figure, f"{found[0]:.4g}", f"{min(found):.4g}"])
            print(*out[-1], flush=True)
    columns = ["set", "rows", "method", "form", "figure", "default rate", "best rate"]
    note = (
        "The figures are for rows predicted before they are learned, in one pass over training "
        "rows; the best rate is the best of the default, 0.5, 2 and 8."
    )
    table(out, columns, "sets", runs="1 order", note=note)
