"""Sweeps, which fit columns and rows in turn after the last rank; fold-in is one side of a sweep.

Rows are fitted where they are (`fit_side`), and so are columns if all rows are in one place: their entries are held
column by column too. Of rows in several partitions a column's normal equations are summed over all of them.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.lowrank import fits, sides
from fastsketch.lowrank._biases import SMOOTH, Biases, smoothing, smoothing_from
from fastsketch.lowrank._data import Array, Observed
from fastsketch.lowrank._fitted import Score, Side, balance
from fastsketch.lowrank._learned import LearnedRidges
from fastsketch.lowrank._partitions import Entries, Moments, Partition, added, moments
from fastsketch.lowrank._setting import LEARNED, LossSetting, Ridges, SideSetting
from fastsketch.lowrank._units import TINY, NoiseLevel

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

# Newton steps of a row, and the share of its objective that a step must gain for another; steps of all sweeps but the
# last, which the next ones improve on.
TURNS, ENOUGH, FEW_TURNS = 60, 1e-10, 3
# A step of a column is halved so often at most, as that of a row (lowrank/fits).
HALVINGS = 30


# -- one side ----------------------------------------------------------------------------------------------------------
def fit_side(data: Observed, setting: SideSetting, own: Side, other: Side, smooth: float, turns: int = TURNS) -> Side:
    """Fit the rows of `data` to the columns `other`, beginning with `own`.

    smooth: ``smoothing`` of all observations. With setting.biases the row biases are fitted too, as the coefficient of
    a factor of ones.
    """
    t, dtype, biased, loss = other.factors.shape[1], data.o.dtype, setting.biases, setting.loss
    out = np.zeros((data.m, t + biased), dtype)
    out[:, :t] = own.factors
    if biased:
        out[:, t] = own.biases
    base = np.full(data.m, setting.level, dtype) if biased else np.asarray(own.biases + setting.level, dtype)
    wide, ridge = widened(other.factors, setting, dtype)
    known = ridge, *data.where, data.o, data.c, base, np.asarray(other.biases, dtype), wide
    fits.fit_rows(loss.number, loss.parameter, smooth, *known, out, turns, ENOUGH)
    return Side(out[:, :t], out[:, t].copy() if biased else np.asarray(own.biases, dtype))


def widened(factors: Array, setting: SideSetting, dtype: np.dtype[Any]) -> tuple[Array, Floats]:
    """Return factors (m, t), and those of the biases of the other side, ones; and the penalties of what is fitted."""
    m, t = factors.shape
    wide = np.ones((m, t + setting.biases), dtype)
    wide[:, :t] = factors
    return wide, setting.ridges(t)


def fold_in(data: Observed, setting: SideSetting, other: Side) -> Side:
    """Fit new rows to known columns."""
    dtype, largest = data.o.dtype, float(np.abs(data.o).max(initial=0.0))
    own = Side(np.zeros((data.m, other.factors.shape[1]), dtype), np.zeros(data.m, dtype))
    smooth = SMOOTH if setting.loss.curved else smoothing_from(data.spread, largest)
    return fit_side(data, setting, own, other, smooth)


# -- both in turn ------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Factors:
    """A model of a fit: scores are level + row biases + column biases + the products of factors."""

    rows: Any  # a Side of every partition
    columns: Side
    columns_there: Any  # a promise of them
    level: float
    ridges: Ridges
    learned: Floats | None = None  # (2, 2, t) ridges of rows and of columns (`SideSetting.ridges`), if each is learned

    @property
    def rank(self) -> int:
        return self.columns.factors.shape[1]


class Sweeps:
    """Fits of both sides in turn, under one setting; the entries are held column by column too."""

    def __init__(self, parts: Entries, setting: SideSetting, *, sweeps: int, noise: NoiseLevel) -> None:
        self.parts, self.setting, self.sweeps, self.noise = parts, setting, sweeps, noise
        self.smooth = smoothing(parts, setting.loss)

    @cached_property
    def _flipped(self) -> Any:
        return self.parts.each(Observed.transposed, self.parts.data)

    def run(self, rows: Any, columns: Side, coefficients: Floats, ridges: Ridges) -> Factors:
        """Return the factors after all sweeps, the unit of the ridge following the noise.

        They begin with the ranks of these sides and their coefficients, which go to both in equal parts.
        """
        setting, noise, parts = self.setting, self.noise, self.parts
        rows, columns = self._balanced(rows, columns, coefficients)
        model = Factors(rows, columns, parts.put(columns), setting.level, ridges)
        if ridges.ridge == LEARNED:
            return self._learning(model)
        for k in range(self.sweeps):
            penalty = ridges.penalty or 0.0
            if noise.follows:
                unit = noise.unit_now(model.rows, model.columns, model.columns_there, setting.level, penalty)
                ridges = replace(ridges, ridge_unit=unit)
                penalty = ridges.penalty or 0.0
            turns = FEW_TURNS if k < self.sweeps - 1 else TURNS
            model = self._rows(self._columns(model, penalty, turns), penalty, turns)
        return replace(model, ridges=ridges)

    def _learning(self, model: Factors) -> Factors:
        """Return the factors after all sweeps, their ridges learned beside them."""
        learned = LearnedRidges(self.parts, self.setting, model.rows, model.columns, self._loss_of(model))
        of_rows = learned.of_rows
        for _ in range(self.sweeps):
            model = self._columns(model, learned.of_columns, TURNS)
            learned.see_columns(model.columns)
            of_rows = learned.of_rows
            model = self._rows(model, of_rows, TURNS)
            learned.see_rows(model.rows, self._loss_of(model))
        both = np.stack([of_rows, learned.of_columns])
        return replace(model, ridges=replace(model.ridges, ridge_unit=learned.unit), learned=both)

    def _loss_of(self, model: Factors) -> float:
        return total_loss(self.parts, self.setting.loss, model)

    def _columns(self, model: Factors, penalty: Any, turns: int) -> Factors:
        """Return the model with columns fitted to its rows."""
        setting, parts = replace(self.setting, penalty=penalty), self.parts
        if parts.alone:
            columns = parts.total(fit_side, self._flipped, setting, model.columns_there, model.rows, self.smooth, turns)
        else:
            columns = ColumnFit(parts, self._flipped, model.rows, setting, self.smooth).fit(model.columns, turns)
        return replace(model, columns=columns, columns_there=parts.put(columns))

    def _rows(self, model: Factors, penalty: Any, turns: int) -> Factors:
        """Return the model with rows fitted to its columns."""
        setting, parts = replace(self.setting, penalty=penalty), self.parts
        known = model.rows, model.columns_there, self.smooth, turns
        return replace(model, rows=parts.each(fit_side, parts.data, setting, *known))

    def _balanced(self, rows: Any, columns: Side, coefficients: Floats) -> tuple[Any, Side]:
        lengths = np.sqrt(self.parts.total(_norms, rows)), np.linalg.norm(columns.factors, axis=0)
        one, two = balance(*lengths, coefficients, self.parts.m / max(self.parts.n, 1))
        factors = (columns.factors * two).astype(self.parts.dtype)
        return self.parts.each(_times, rows, one), Side(factors, columns.biases)


def _norms(rows: Side) -> Floats:
    """Return the squared lengths of the columns of the factors."""
    return (rows.factors * rows.factors).sum(axis=0)


def _times(rows: Side, factor: Floats) -> Side:
    return Side((rows.factors * factor).astype(rows.factors.dtype), rows.biases)


# -- what a model scores -----------------------------------------------------------------------------------------------
def biases_alone(parts: Entries, biases: Biases, ridges: Ridges) -> Factors:
    """Return the model of the biases, without factors."""
    columns = Side(np.zeros((parts.n, 0), parts.dtype), biases.columns)
    rows = parts.each(_no_factors, parts.places, biases.rows, biases.level)
    return Factors(rows, columns, parts.put(columns), biases.level, ridges)


def _no_factors(place: Partition, rb: Array, level: float) -> Side:
    dtype = place.data.o.dtype
    return Side(np.zeros((place.data.m, 0), dtype), (rb - level).astype(dtype))


def held_losses(parts: Entries, loss: LossSetting, model: Factors) -> Any:
    """Return promises of the losses of the entries held out, of every partition."""
    return parts.each(_held_losses, parts.places, loss, model.rows, model.columns_there, model.level)


def _held_losses(place: Partition, loss: LossSetting, rows: Side, columns: Side, level: float) -> Floats:
    held = place.held
    assert held is not None
    return held.loss_of_each(loss, _scores(held, rows, columns, level))


def held_score(parts: Entries, losses: Any) -> Score:
    """Return the mean of held-out losses and its standard error; infinite if it overflows."""
    return _mean_and_error(parts.total(moments, losses))


def held_gain(parts: Entries, one: Any, other: Any, unit: float) -> Score:
    """Return how much lower the losses of `other` are than those of `one` in the mean, and the standard error.

    unit: a power of two of their size, or squares of losses leave the range of numbers before the losses do.
    """
    gain, error = _mean_and_error(parts.total(_moments_between, one, other, unit))
    return gain * unit, error * unit


def _mean_and_error(losses: Moments) -> Score:
    with np.errstate(over="ignore", invalid="ignore"):
        error = losses.deviation / float(np.sqrt(losses.size))
    return (losses.mean, error) if np.isfinite(losses.mean) else (np.inf, np.inf)


def _moments_between(one: Floats, other: Floats, unit: float) -> Moments:
    with np.errstate(over="ignore", invalid="ignore"):
        return moments((one - other) / unit)


def total_loss(parts: Entries, loss: LossSetting, model: Factors) -> float:
    """Return the sum of the losses at the entries that were fitted."""
    return parts.total(_loss, parts.data, loss, model.rows, model.columns_there, model.level)


def _loss(data: Observed, loss: LossSetting, rows: Side, columns: Side, level: float) -> float:
    return data.loss(loss, _scores(data, rows, columns, level))[0]


def _scores(data: Observed, rows: Side, columns: Side, level: float) -> Array:
    return data.scores(rows.factors, columns.factors, rows.biases + level, columns.biases)


# -- columns whose entries are in several partitions -------------------------------------------------------------------
class At(NamedTuple):
    """Columns and where they are."""

    which: Indices  # (k,)
    a: Floats  # (k, t) coefficients
    widths: Floats  # (k,)
    own: Array  # (n,) what their scores have without coefficients


class ColumnSums(NamedTuple):
    """Sums of some columns over their entries."""

    values: Floats  # (k,) losses
    slopes: Floats  # (k, t)
    curvatures: Floats  # (k, t (t + 1) / 2) lower triangles, row by row


class Moves(NamedTuple):
    """Newton steps of some columns."""

    values: Floats  # (k,) penalised losses where they are
    moves: Floats  # (k, t)
    slopes: Floats  # (k,) along the moves
    solved: NDArray[np.bool_]  # (k,)


class ColumnFit:
    """Fits of all columns to rows in partitions, under one setting."""

    def __init__(self, parts: Entries, flipped: Any, rows: Any, setting: SideSetting, smooth: float) -> None:
        self.parts, self.known, self.setting, self.smooth = parts, (flipped, rows), setting, smooth

    def fit(self, columns: Side, turns: int) -> Side:
        """Fit the columns, beginning with `columns`, as `fit_side` does of the transposed matrix."""
        setting, n, dtype, t = self.setting, len(columns.biases), columns.factors.dtype, columns.factors.shape[1]
        (self.ridge, _), biased = setting.ridges(t), setting.biases
        own = np.full(n, setting.level, dtype) if biased else np.asarray(columns.biases + setting.level, dtype)
        a = np.zeros((n, t + biased))
        a[:, :t] = columns.factors
        if biased:
            a[:, t] = columns.biases
        if setting.loss.name == "square":  # one step from anywhere
            newton = self._moves(At(np.arange(n), np.zeros_like(a), np.ones(n), own))
            a[newton.solved] = newton.moves[newton.solved]
        else:
            self._descend(a, own, turns)
        a = a.astype(dtype)
        biases = a[:, t].copy() if biased else np.asarray(columns.biases, dtype)
        return Side(np.ascontiguousarray(a[:, :t]), biases)

    def _moves(self, at: At) -> Moves:
        parts, there = self.parts, self.parts.put(at)
        nodes = parts.nodes(parts.each(_column_sums, parts.places, *self.known, there, self.setting, self.smooth, True))
        return parts.crew.fetch([parts.crew.call(_solved, nodes, there, self.ridge)])[0]

    def _values(self, at: At) -> Floats:
        known = *self.known, self.parts.put(at), self.setting, self.smooth, False
        return self.parts.total(_column_sums, self.parts.places, *known).values + _penalty(at.a, self.ridge)

    def _descend(self, a: Floats, own: Array, turns: int) -> None:
        """Move a (n, t) to the least of every column, as fit_one of lowrank/fits goes down a row."""
        n, smooth, loss = len(a), self.smooth, self.setting.loss
        left: Indices = np.arange(n)
        width: Floats = np.full(n, 64.0 * smooth)
        value: Floats = np.empty(0)
        for turn in range(turns):
            newton = self._moves(At(left, a[left], width[left], own))
            value = newton.values if turn == 0 else value
            left, value = left[newton.solved], value[newton.solved]
            moves, slope = newton.moves[newton.solved], newton.slopes[newton.solved]
            if not len(left):
                return
            step, better, asked = np.ones(len(left)), np.empty(len(left)), np.arange(len(left))
            for _ in range(HALVINGS):
                tried = a[left[asked]] + step[asked, None] * moves[asked]
                better[asked] = self._values(At(left[asked], tried, width[left[asked]], own))
                asked = asked[~(better[asked] <= value[asked] + 1e-4 * step[asked] * slope[asked])]
                if not len(asked):
                    break
                step[asked] *= 0.5
            gain = value - better
            gained = gain > 0
            a[left[gained]] += step[gained, None] * moves[gained]
            value = np.where(gained, better, value)
            small = ~(gain > ENOUGH * np.maximum(np.abs(value), TINY))
            at = width[left]
            ended = small & ((at <= smooth) | loss.smooth)
            slow = gain <= 1e-3 * np.abs(value)
            at = np.where(small, np.maximum(0.25 * at, smooth), np.where(slow, np.maximum(0.5 * at, smooth), at))
            width[left] = at
            left, value = left[~ended], value[~ended]
            if not len(left):
                return


def _column_sums(
    place: Partition, flipped: Observed, rows: Side, at: At, setting: SideSetting, smooth: float, curved: bool
) -> ColumnSums:
    """Return sum over the entries of a partition; without `curved` losses alone."""
    data, loss, (k, t) = place.data, setting.loss, at.a.shape
    wide, _ = widened(rows.factors, setting, data.o.dtype)
    values, slopes = np.zeros(k), np.zeros((k, t) if curved else (0, t))
    curvatures = np.zeros((k, t * (t + 1) // 2) if curved else (0, 0))
    about = loss.number, loss.parameter, smooth, *flipped.where, flipped.o, flipped.c
    known = at.own, np.asarray(rows.biases, data.o.dtype), wide
    if data.m:
        sides.side_terms(*about, *known, at.which, at.a, at.widths, values, slopes, curvatures)
    if curved and (each := setting.ridges(rows.factors.shape[1])[1]).any():  # of the square loss, from a = 0
        curvatures[:, [q * (q + 3) // 2 for q in range(t)]] += flipped.row_weights[at.which, None] * each
    return ColumnSums(values, slopes, curvatures)


def _solved(nodes: list[ColumnSums], at: At, ridge: Floats) -> Moves:
    """Solve for the Newton steps with the sums of all partitions."""
    sums: ColumnSums = added(nodes)
    down = -sums.slopes - ridge * at.a
    moves = down.copy()
    done = sides.side_solve(sums.curvatures, ridge, moves)
    return Moves(sums.values + _penalty(at.a, ridge), moves, -(down * moves).sum(axis=1), done.astype(bool))


def _penalty(a: Floats, ridge: Floats) -> Floats:
    """Return the penalty of every column."""
    return (0.5 * ridge * a * a).sum(axis=1)


def bytes_of_sums(n: int, rank: int, *, biases: bool) -> int:
    """Return the bytes of the normal equations of n columns."""
    t = rank + biases
    return 8 * n * (t * (t + 1) // 2 + t + 1)
