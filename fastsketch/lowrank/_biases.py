"""Global, row and column biases under any loss, before any rank."""

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.lowrank import fits
from fastsketch.lowrank._data import Observed
from fastsketch.lowrank._fitted import Biases
from fastsketch.lowrank._setting import LossSetting

SWEEPS = 20
# Longest step of a bias under losses of labels and counts, in units of their scores. Newton steps overshoot where the
# curvature falls: without a limit the fit of signed links ended at 1.2 times the least objective.
LIMIT = 2.0
# Stop when a sweep lowers the objective by less than this share of it.
ENOUGH = 1e-4
# Distance from its kink within which a loss without curvature is treated as a parabola, as share of the spread of X.
SMOOTH = 1e-2
# What a sum of curvatures is at least: no scale of X may come near it.
TINY = 1e-290


def smoothing(data: Observed, loss: LossSetting) -> float:
    """The distance for these observations; of a loss that has curvature everywhere it is not asked for."""
    if loss.about.smooth and loss.name != "huber":
        return SMOOTH
    return SMOOTH * max(data.spread, 1e-12 * float(np.abs(data.o).max(initial=0.0)), TINY)


def no_biases(data: Observed) -> Biases:
    """Zeros."""
    dtype = data.o.dtype
    return Biases(0.0, np.zeros(data.m, dtype), np.zeros(data.n, dtype))


def fit_biases(data: Observed, loss: LossSetting, *, ridge: float, level: float, sweeps: int = SWEEPS) -> Biases:
    """Newton steps (or of a parabola above, for losses without curvature), all rows at once and then all columns.

    Each bias is shrunk to the global one, which begins at `level`, by `ridge`, in units of the loss.
    """
    found = no_biases(data)
    rb, cb = found.rows, found.columns
    smooth = smoothing(data, loss)
    gr, hr, gc, hc = np.empty(data.m), np.empty(data.m), np.empty(data.n), np.empty(data.n)

    def sums() -> float:
        return fits.bias_sums(loss.number, loss.parameter, smooth, *data.where, data.o, data.c, rb, cb, gr, hr, gc, hc)

    limit = np.inf if loss.about.targets == "real" else LIMIT

    def step(g: NDArray[np.float64], h: NDArray[np.float64], bias: NDArray[np.float64]) -> NDArray[np.float64]:
        return ((g + ridge * bias) / np.maximum(h + ridge, TINY)).clip(-limit, limit)

    row, column = np.zeros(data.m), np.zeros(data.n)
    rb[:] = level
    before = sums()
    for _ in range(sweeps):
        column -= step(gc, hc, column)
        cb[:] = column
        sums()
        moved = step(gr, hr, row)
        row -= moved
        # what the rows leave of the common slope is the level's
        total = float(hr.sum())
        if total > 0:
            level -= float((gr - hr * moved).sum()) / total
        rb[:] = level + row
        after = sums()
        if not before - after > ENOUGH * abs(before):
            break
        before = after
    return Biases(float(level), rb, cb)


def constant_score(data: Observed, loss: LossSetting) -> float:
    """The best constant score, or near it."""
    o = data.o.astype(np.float64)
    total = float(data.c.sum(dtype=np.float64)) if len(data.c) else float(len(o))
    if not total > 0:
        return 0.0
    # no product of BLAS: its bits depend on its threads
    mean = float((data.c * o).sum() / total) if len(data.c) else float(o.mean())
    if loss.name == "logistic":
        share = np.clip((mean + 1) / 2, 1e-6, 1 - 1e-6)
        return float(np.log(share / (1 - share)))
    if loss.name == "poisson":
        return float(np.log(max(mean, 1e-12)))
    if loss.name == "hinge":
        return 1.0 if mean >= 0 else -1.0
    if loss.name in ("square", "squared_hinge"):
        return mean
    level = loss.parameter if loss.name == "quantile" else 0.5
    if not len(data.c):
        place = min(max(int(np.ceil(level * total)) - 1, 0), len(o) - 1)
        return float(np.partition(o, place)[place])
    order, c = np.argsort(o), data.c.astype(np.float64)
    return float(o[order][min(int(np.searchsorted(np.cumsum(c[order]), level * total)), len(o) - 1)])
