"""Sweeps over partitions of rows: rows are fitted where they are, a column's normal equations are summed over all."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.losses import ABSOLUTE, SQUARE
from fastsketch._kernels.lowrank import sides
from fastsketch.lowrank._biases import TINY
from fastsketch.lowrank._crew import Each, Partitions
from fastsketch.lowrank._data import Array, Observed
from fastsketch.lowrank._factors import ENOUGH, fit_side, penalties, widened
from fastsketch.lowrank._fitted import Side
from fastsketch.lowrank._place import Place
from fastsketch.lowrank._setting import SideSetting

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

# A step of a column is halved so often at most, as that of a row (lowrank/fits).
HALVINGS = 30


def transposed(place: Place) -> Observed:
    """The entries of a partition column by column."""
    return place.data.transposed()


def fit_rows(place: Place, rows: Side, columns: Side, setting: SideSetting, turns: int, smooth: float) -> Side:
    """Those of a partition."""
    return fit_side(place.data, setting, own=rows, other=columns, turns=turns, smooth=smooth)


class Sums(NamedTuple):
    """Of some columns."""

    values: Floats  # (k,) losses
    slopes: Floats  # (k, t)
    curvatures: Floats  # (k, t (t + 1) / 2) lower triangles, row by row


class At(NamedTuple):
    """Columns and where they are."""

    which: Indices  # (k,)
    a: Floats  # (k, t) coefficients
    widths: Floats  # (k,)
    own: Array  # (n,) what their scores have without coefficients


def column_sums(
    place: Place, flipped: Observed, rows: Side, at: At, setting: SideSetting, smooth: float, curved: bool
) -> Sums:
    """A partition's share."""
    data, loss, (k, t) = place.data, setting.loss, at.a.shape
    wide = widened(rows.factors, setting, data.o.dtype)
    values, slopes = np.zeros(k), np.zeros((k, t) if curved else (0, t))
    curvatures = np.zeros((k, t * (t + 1) // 2) if curved else (0, 0))
    about = loss.number, loss.parameter, smooth, *flipped.where, flipped.o, flipped.c
    known = at.own, np.asarray(rows.biases, data.o.dtype), wide
    if data.m:
        sides.side_terms(*about, *known, at.which, at.a, at.widths, values, slopes, curvatures)
    return Sums(values, slopes, curvatures)


class Moves(NamedTuple):
    """Newton steps of some columns."""

    values: Floats  # (k,) penalised losses where they are
    moves: Floats  # (k, t)
    slopes: Floats  # (k,) along the moves
    solved: NDArray[np.bool_]  # (k,)


def solved(sums: Sums, at: At, ridge: Floats) -> Moves:
    """From the sums of all partitions."""
    down = -sums.slopes - ridge * at.a
    moves = down.copy()
    done = sides.side_solve(sums.curvatures, ridge, moves)
    return Moves(sums.values + penalty(at.a, ridge), moves, -(down * moves).sum(axis=1), done.astype(bool))


def penalty(a: Floats, ridge: Floats) -> Floats:
    """Of every column."""
    return (0.5 * ridge * a * a).sum(axis=1)


class ColumnFit:
    """Fits of all columns to rows in partitions; the entries of each are held column by column too."""

    def __init__(self, parts: Partitions, smooth: float) -> None:
        self.parts, self.smooth = parts, smooth
        self.flipped: Each[Any] = parts.each(transposed)

    def fit(self, columns: Side, rows: Each[Any], setting: SideSetting, turns: int) -> Side:
        """As `fit_side` of the transposed matrix."""
        n, dtype, biased = len(columns.biases), columns.factors.dtype, setting.biases
        t = columns.factors.shape[1] + biased
        ridge = penalties(setting, t - biased)
        own = np.full(n, setting.level, dtype) if biased else np.asarray(columns.biases + setting.level, dtype)
        a = np.zeros((n, t))
        a[:, : t - biased] = columns.factors
        if biased:
            a[:, t - 1] = columns.biases
        if setting.loss.number == SQUARE:  # one step from anywhere
            found = self._moves(At(np.arange(n), np.zeros((n, t)), np.ones(n), own), rows, setting, ridge)
            a[found.solved] = found.moves[found.solved]
        else:
            self._descend(a, own, rows, setting, ridge, turns)
        a = a.astype(dtype)
        biases = a[:, t - 1].copy() if biased else np.asarray(columns.biases, dtype)
        return Side(np.ascontiguousarray(a[:, : t - biased]), biases)

    def _moves(self, at: At, rows: Each[Any], setting: SideSetting, ridge: Floats) -> Moves:
        crew = self.parts.crew
        sent = crew.put(at)
        known = self.flipped, rows, sent, setting, self.smooth, True
        return crew.fetch([self.parts.summed(column_sums, *known, then=solved, also=(sent, ridge))])[0]

    def _values(self, at: At, rows: Each[Any], setting: SideSetting, ridge: Floats) -> Floats:
        crew = self.parts.crew
        sent = crew.put(at)
        known = self.flipped, rows, sent, setting, self.smooth, False
        return self.parts.total(column_sums, *known).values + penalty(at.a, ridge)

    def _descend(self, a: Floats, own: Array, rows: Each[Any], setting: SideSetting, ridge: Floats, turns: int) -> None:
        """a (n, t) <- the least of every column, as fit_one of lowrank/fits goes down a row."""
        n, smooth, loss = len(a), self.smooth, setting.loss
        left: Indices = np.arange(n)
        width: Floats = np.full(n, 64.0 * smooth)
        value: Floats = np.empty(0)
        for turn in range(turns):
            found = self._moves(At(left, a[left], width[left], own), rows, setting, ridge)
            value = found.values if turn == 0 else value
            left, value = left[found.solved], value[found.solved]
            moves, slope = found.moves[found.solved], found.slopes[found.solved]
            if not len(left):
                return
            step, better, asked = np.ones(len(left)), np.empty(len(left)), np.arange(len(left))
            for _ in range(HALVINGS):
                tried = a[left[asked]] + step[asked, None] * moves[asked]
                better[asked] = self._values(At(left[asked], tried, width[left[asked]], own), rows, setting, ridge)
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
            ended = small & ((at <= smooth) | (loss.number < ABSOLUTE))
            slow = gain <= 1e-3 * np.abs(value)
            at = np.where(small, np.maximum(0.25 * at, smooth), np.where(slow, np.maximum(0.5 * at, smooth), at))
            width[left] = at
            left, value = left[~ended], value[~ended]
            if not len(left):
                return


def bytes_of_sums(n: int, rank: int, *, biases: bool) -> int:
    """Of the normal equations of n columns."""
    t = rank + biases
    return 8 * n * (t * (t + 1) // 2 + t + 1)
