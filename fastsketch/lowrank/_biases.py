"""Global, row and column biases under any loss, before any rank."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.lowrank import fits
from fastsketch.lowrank._data import Array, Observed
from fastsketch.lowrank._fitted import Biases
from fastsketch.lowrank._setting import LossSetting

Floats = NDArray[np.float64]

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
    return SMOOTH if _curved(loss) else smoothing_of(loss, data.spread, float(np.abs(data.o).max(initial=0.0)))


def smoothing_of(loss: LossSetting, spread: float, largest: float) -> float:
    """From the standard deviation and the largest size of the observations."""
    return SMOOTH if _curved(loss) else SMOOTH * max(spread, 1e-12 * largest, TINY)


def _curved(loss: LossSetting) -> bool:
    return loss.about.smooth and loss.name != "huber"


def no_biases(data: Observed) -> Biases:
    """Zeros."""
    dtype = data.o.dtype
    return Biases(0.0, np.zeros(data.m, dtype), np.zeros(data.n, dtype))


class ColumnSums(NamedTuple):
    """Over the entries of every column; of partitions they are added."""

    value: float  # of all losses
    slopes: Floats  # (n,)
    curvatures: Floats  # (n,)


class RowSteps(NamedTuple):
    """What is left, after the rows have moved, of the slope that all have in common; of partitions it is added."""

    curvature: float
    slope: float


class Rows(Protocol):
    """Biases of rows, wherever their entries are."""

    def columns(self, level: float, cb: Array) -> ColumnSums:
        """At the biases of the moment."""
        ...

    def move(self, level: float, cb: Array, ridge: float, limit: float) -> RowSteps:
        """Take a step of every row."""
        ...


class RowBiases:
    """Of the entries of one process."""

    def __init__(self, data: Observed, loss: LossSetting, smooth: float, row: Floats | None = None) -> None:
        self.data, self.loss, self.smooth = data, loss, smooth
        self.row: Floats = np.zeros(data.m) if row is None else row  # (m,) without the level

    def rows(self, level: float) -> Array:
        """The level in them."""
        return (level + self.row).astype(self.data.o.dtype)

    def columns(self, level: float, cb: Array) -> ColumnSums:
        value, _, _, gc, hc = self._sums(level, cb)
        return ColumnSums(value, gc, hc)

    def move(self, level: float, cb: Array, ridge: float, limit: float) -> RowSteps:
        _, gr, hr, _, _ = self._sums(level, cb)
        moved = _step(gr, hr, self.row, ridge, limit)
        self.row = self.row - moved
        return RowSteps(float(hr.sum()), float((gr - hr * moved).sum()))

    def _sums(self, level: float, cb: Array) -> tuple[float, Floats, Floats, Floats, Floats]:
        data, loss = self.data, self.loss
        gr, hr, gc, hc = np.empty(data.m), np.empty(data.m), np.empty(data.n), np.empty(data.n)
        about = loss.number, loss.parameter, self.smooth
        value = fits.bias_sums(*about, *data.where, data.o, data.c, self.rows(level), cb, gr, hr, gc, hc)
        return value, gr, hr, gc, hc


def _step(g: Floats, h: Floats, bias: Floats, ridge: float, limit: float) -> Floats:
    return ((g + ridge * bias) / np.maximum(h + ridge, TINY)).clip(-limit, limit)


def fit_biases(data: Observed, loss: LossSetting, *, ridge: float, level: float, sweeps: int = SWEEPS) -> Biases:
    """Newton steps (or of a parabola above, for losses without curvature), all rows at once and then all columns.

    Each bias is shrunk to the global one, which begins at `level`, by `ridge`, in units of the loss.
    """
    rows = RowBiases(data, loss, smoothing(data, loss))
    zeros = np.zeros(data.n, data.o.dtype)
    level, columns = descend(rows, zeros, loss, ridge=ridge, level=level, sweeps=sweeps)
    return Biases(level, rows.rows(level), columns)


def descend(
    rows: Rows, cb: Array, loss: LossSetting, *, ridge: float, level: float, sweeps: int
) -> tuple[float, Array]:
    """(level, column biases), which begin at cb = 0; `rows` keeps its own."""
    limit = np.inf if loss.about.targets == "real" else LIMIT
    column, dtype = np.zeros(len(cb)), cb.dtype
    before, slopes, curvatures = rows.columns(level, cb)
    for _ in range(sweeps):
        column -= _step(slopes, curvatures, column, ridge, limit)
        cb = column.astype(dtype)
        left = rows.move(level, cb, ridge, limit)
        # what the rows leave of the common slope is the level's
        if left.curvature > 0:
            level -= left.slope / left.curvature
        after, slopes, curvatures = rows.columns(level, cb)
        if not before - after > ENOUGH * abs(before):
            break
        before = after
    return float(level), cb


def constant_score(data: Observed, loss: LossSetting) -> float:
    """The best constant score, or near it."""
    o = data.o.astype(np.float64)
    total = float(data.c.sum(dtype=np.float64)) if len(data.c) else float(len(o))
    if not total > 0:
        return 0.0
    # no product of BLAS: its bits depend on its threads
    mean = float((data.c * o).sum() / total) if len(data.c) else float(o.mean())

    def quantile(level: float) -> float:
        if not len(data.c):
            place = min(max(int(np.ceil(level * total)) - 1, 0), len(o) - 1)
            return float(np.partition(o, place)[place])
        order, c = np.argsort(o), data.c.astype(np.float64)
        return float(o[order][min(int(np.searchsorted(np.cumsum(c[order]), level * total)), len(o) - 1)])

    return constant_from(loss, mean, quantile)


def constant_from(loss: LossSetting, mean: float, quantile: Callable[[float], float]) -> float:
    """From the mean of the observations, or their smallest value that this share of them does not exceed."""
    if loss.name == "logistic":
        share = np.clip((mean + 1) / 2, 1e-6, 1 - 1e-6)
        return float(np.log(share / (1 - share)))
    if loss.name == "poisson":
        return float(np.log(max(mean, 1e-12)))
    if loss.name == "hinge":
        return 1.0 if mean >= 0 else -1.0
    if loss.name in ("square", "squared_hinge"):
        return mean
    return quantile(loss.parameter if loss.name == "quantile" else 0.5)
