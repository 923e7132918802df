"""Global, row and column biases under any loss, before any rank."""

import numpy as np

from fastsketch.lowrank._losses import LOSSES

SWEEPS = 20
# Stop when a sweep lowers the objective by less than this share of it.
ENOUGH = 1e-4
# Distance from its kink within which a loss without curvature is treated as a parabola, as share of the spread of X.
SMOOTH = 1e-2


def smoothing(o):
    """The distance for these observations."""
    return SMOOTH * max(float(np.std(o, dtype=np.float64)), 1e-12) if len(o) else 1e-12


def fit_biases(data, loss, parameter, ridge, wanted=True):
    """(rb, cb): rb (m,) with the global bias in it, cb (n,); zeros if none are wanted.

    Newton steps (or of a parabola above, for losses without curvature), all rows at once and then all columns, each
    bias shrunk to the global one as by `ridge` more observations.
    """
    from fastsketch._kernels import lowrank as kernel

    dtype = data.o.dtype
    rb, cb = np.zeros(data.m, dtype), np.zeros(data.n, dtype)
    if not wanted or len(data.o) == 0:
        return rb, cb, 0.0
    number, smooth = LOSSES[loss].number, smoothing(data.o)
    gr, hr, gc, hc = np.empty(data.m), np.empty(data.m), np.empty(data.n), np.empty(data.n)

    def sums():
        return kernel.bias_sums(number, parameter, smooth, *data.where, data.o, data.c, rb, cb, gr, hr, gc, hc)

    level, row, column = _start(data, loss, parameter), np.zeros(data.m), np.zeros(data.n)
    rb[:] = level
    before = sums()
    for _ in range(SWEEPS):
        column -= (gc + ridge * column) / np.maximum(hc + ridge, 1e-12)
        cb[:] = column
        sums()
        moved = (gr + ridge * row) / np.maximum(hr + ridge, 1e-12)
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
    return rb, cb, float(level)


def _start(data, loss, parameter):
    """The best constant score, or near it."""
    o = data.o.astype(np.float64)
    c = data.c.astype(np.float64) if len(data.c) else np.ones(len(o))
    total = c.sum()
    if not total > 0:
        return 0.0
    mean = float(c @ o / total)
    if loss == "logistic":
        share = np.clip((mean + 1) / 2, 1e-6, 1 - 1e-6)
        return float(np.log(share / (1 - share)))
    if loss == "poisson":
        return float(np.log(max(mean, 1e-12)))
    if loss == "hinge":
        return 1.0 if mean >= 0 else -1.0
    if loss == "square":
        return mean
    order = np.argsort(o)
    level = parameter if loss == "quantile" else 0.5
    return float(o[order][min(np.searchsorted(np.cumsum(c[order]), level * total), len(o) - 1)])
