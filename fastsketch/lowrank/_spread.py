"""Low-rank models of rows in partitions: what `_ground.py` asks for, as sums over partitions that stay where they are.

A partition has its entries, the scores at them and the factors of its rows; vectors of columns and few numbers travel.
The flow of the fit and all that is decided from sums is that of entries in memory (`_fitting.py`, `_pursuit.py`,
`_refine.py`, `_biases.py`, `_factors.py`): the objective is the same but for rounding, and bits depend on the
partitions, not on who computes them.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.lowrank import dense, entries
from fastsketch._threads import one_blas_thread
from fastsketch.lowrank import _place as place
from fastsketch.lowrank._biases import (
    SWEEPS,
    ColumnSums,
    RowSteps,
    constant_from,
    descend,
    smoothing_of,
)
from fastsketch.lowrank._climb import Callback, Watch
from fastsketch.lowrank._crew import FAN_IN, Crew, Each, Partitions, item
from fastsketch.lowrank._data import Array, Observed
from fastsketch.lowrank._factors import Steps, in_turn
from fastsketch.lowrank._fitted import Fitted, Score, Side, balance
from fastsketch.lowrank._fitting import Wanted, fitted_on
from fastsketch.lowrank._noise import REAL_NOISE, Alike, NoiseLevel, scores, stride
from fastsketch.lowrank._order import least_reaching
from fastsketch.lowrank._place import Place
from fastsketch.lowrank._setting import LossSetting, PursuitSetting, SideSetting
from fastsketch.lowrank._spread_data import Given, spread_out
from fastsketch.lowrank._spread_pursuit import Overview, SpreadBiases, SpreadFitted, SpreadPursuit
from fastsketch.lowrank._spread_sides import ColumnFit, bytes_of_sums, fit_rows
from fastsketch.lowrank._units import curvature_of, spread_from


class _RowBiases:
    """Those of `_biases.descend`, in partitions."""

    def __init__(self, parts: Partitions, loss: LossSetting, smooth: float) -> None:
        self.parts, self.known = parts, (loss, smooth)
        self.row: Each[Any] = Each([None] * len(parts))

    def columns(self, level: float, cb: Array) -> ColumnSums:
        sent = self.parts.crew.put(cb)
        return self.parts.gathered(place.bias_columns, *self.known, self.row, level, sent)

    def move(self, level: float, cb: Array, ridge: float, limit: float) -> RowSteps:
        crew = self.parts.crew
        sent = crew.put(cb)
        self.row = self.parts.each(place.bias_move, *self.known, self.row, level, sent, ridge, limit)
        steps = crew.fetch([crew.call(item, own, 1) for own in self.row])
        return RowSteps(float(sum(own.curvature for own in steps)), float(sum(own.slope for own in steps)))

    def biases(self, level: float, columns: Array) -> SpreadBiases:
        rows = self.parts.each(place.row_biases, self.row, level)
        return SpreadBiases(level, rows, columns, self.parts.crew.put(columns))


class Spread:
    """The ground of a fit over partitions."""

    def __init__(self, parts: Partitions, about: Overview, loss: LossSetting) -> None:
        self.parts, self.about, self._asked = parts, about, loss

    @property
    def has_held(self) -> bool:
        return self.about.n_held > 0

    def _smooth(self, loss: LossSetting) -> float:
        return smoothing_of(loss, self.about.spread, self.about.largest)

    def constant_score(self, loss: LossSetting) -> float:
        about = self.about
        if not about.total_weight > 0:
            return 0.0

        def quantile(level: float) -> float:
            target = level * about.total_weight
            if not about.weighted:  # a place among all
                target = min(max(float(np.ceil(target)), 1.0), about.n_observations)
            return least_reaching(self.parts, self.parts.each(observations), target)

        return constant_from(loss, about.mean, quantile)

    def mean_curvature(self, loss: LossSetting, level: float) -> float:
        return 1.0 if loss.name == "square" else curvature_of(self.parts.total(place.steep, loss, level), loss)

    def spread_around(self, centre: float | SpreadBiases) -> float:
        rows = centre.rows if isinstance(centre, SpreadBiases) else Each([None] * len(self.parts))
        other = centre.promise if isinstance(centre, SpreadBiases) else centre
        sizes = self.parts.each(residual_sizes, rows, other)
        crew = self.parts.crew
        found = place.merged_moments(crew.fetch([crew.call(item, own, 2) for own in sizes]))
        if not found.size:
            return 0.0
        middle = least_reaching(self.parts, sizes, found.size // 2 + 1.0)
        return spread_from(middle, found.mean)

    # -- biases ------------------------------------------------------------------------------------------------------
    def no_biases(self) -> SpreadBiases:
        rows = _RowBiases(self.parts, self._asked, 1.0)
        return rows.biases(0.0, np.zeros(self.about.n, self.about.dtype))

    def fit_biases(self, loss: LossSetting, *, ridge: float, level: float, sweeps: int = SWEEPS) -> SpreadBiases:
        rows = _RowBiases(self.parts, loss, self._smooth(loss))
        zeros = np.zeros(self.about.n, self.about.dtype)
        return rows.biases(*descend(rows, zeros, loss, ridge=ridge, level=level, sweeps=sweeps))

    def bias_score(self, loss: LossSetting, biases: SpreadBiases) -> Score:
        rows = self.parts.each(place.side_of, Each([[] for _ in self.parts.places]), biases.rows, biases.level)
        columns = Side(np.zeros((self.about.n, 0), self.about.dtype), biases.columns)
        return self._held_score(loss, rows, columns, biases.level)

    # -- ranks -------------------------------------------------------------------------------------------------------
    def pursuit(self, biases: SpreadBiases, setting: PursuitSetting) -> SpreadPursuit:
        return SpreadPursuit(self.parts, self.about, biases, setting)

    def noise(self, loss: LossSetting, pursuit: SpreadPursuit, *, bias_ridge: float, follow: bool) -> NoiseLevel:
        return NoiseOfSpread(self, loss, pursuit, bias_ridge=bias_ridge, follow=follow)

    def let_go(self, pursuit: SpreadPursuit) -> None:
        pursuit.forget()

    # -- models ------------------------------------------------------------------------------------------------------
    @cached_property
    def _column_fits(self) -> dict[float, ColumnFit]:
        return {}

    def swept(self, fitted: SpreadFitted, setting: SideSetting, *, sweeps: int, noise: NoiseLevel) -> SpreadFitted:
        smooth, crew = self._smooth(setting.loss), self.parts.crew
        if smooth not in self._column_fits:
            self._column_fits[smooth] = ColumnFit(self.parts, smooth)
        column_fit = self._column_fits[smooth]
        rows, columns = self._sides(fitted, balanced=True)

        def fit(rows: Each[Any], columns: Side, setting: SideSetting, turns: int) -> Each[Any]:
            return self.parts.each(fit_rows, rows, crew.put(columns), setting, turns, smooth)

        def fit_columns(columns: Side, rows: Each[Any], setting: SideSetting, turns: int) -> Side:
            return column_fit.fit(columns, rows, setting, turns)

        steps = Steps(fit_columns, fit)
        rows, columns, ridges = in_turn(rows, columns, fitted.ridges, setting, sweeps=sweeps, noise=noise, steps=steps)
        return replace(
            fitted,
            left=fitted.left[:, : fitted.selected_rank],
            right=columns.factors,
            path=None,
            column=columns.biases,
            ridges=ridges,
            rows=rows,
            after=None,
            selection=(),
            standard_error=None,
        )

    def _sides(self, fitted: SpreadFitted, *, balanced: bool = False) -> tuple[Each[Any], Side]:
        """Both sides at the selected rank, the coefficients in those of the rows or in equal parts."""
        _, right, coefficients = fitted.sides(fitted.selected_rank)
        if fitted.swept:
            rows = self.parts.each(place.side_times, fitted.rows, np.ones(fitted.selected_rank, right.dtype))
            return (fitted.rows if fitted.ranks else rows), Side(right, fitted.column)
        if not balanced:
            return self.parts.each(place.side_times, fitted.rows, coefficients), Side(right, fitted.column)
        assert fitted.path is not None
        coefficients = fitted.path[fitted.selected_rank - 1, : fitted.selected_rank]
        norms = self.parts.total(place.norms, fitted.rows, fitted.selected_rank)
        lengths = np.sqrt(norms.squares), np.linalg.norm(right, axis=0)
        one, two = balance(*lengths, coefficients, norms.rows / max(len(right), 1))
        columns = np.ascontiguousarray((right * two).astype(right.dtype))
        return self.parts.each(place.side_times, fitted.rows, one), Side(columns, fitted.column)

    def _held_score(self, loss: LossSetting, rows: Each[Any], columns: Side, level: float) -> Score:
        known = loss, rows, self.parts.crew.put(columns), level
        found = place.merged_moments(self.parts.all(place.held_moments, *known))
        with np.errstate(over="ignore", invalid="ignore"):
            error = float(np.sqrt(found.squares / found.size) / np.sqrt(found.size))
        return (found.mean, error) if np.isfinite(found.mean) else (np.inf, np.inf)

    def model_score(self, loss: LossSetting, fitted: SpreadFitted) -> Score:
        return self._held_score(loss, *self._sides(fitted), fitted.level)

    def _loss(self, loss: LossSetting, fitted: SpreadFitted, *, held: bool) -> place.HeldLoss:
        rows, columns = self._sides(fitted)
        return self.parts.total(place.model_loss, loss, rows, self.parts.crew.put(columns), fitted.level, held)

    def total_loss(self, loss: LossSetting, fitted: SpreadFitted) -> float:
        return self._loss(loss, fitted, held=False).value

    def held_loss(self, loss: LossSetting, fitted: SpreadFitted) -> float:
        found = self._loss(loss, fitted, held=True)
        return found.value / found.entries

    def gathered(self, fitted: SpreadFitted) -> Fitted:
        """With the rows of all partitions, fetched one after the other."""
        m, t = self.about.m, fitted.ranks
        left, row, first = np.empty((m, t), self.about.dtype), np.empty(m, self.about.dtype), 0
        for size, own in zip(self.about.sizes, fitted.rows, strict=True):
            side: Side = self.parts.crew.fetch([own])[0]
            left[first : first + size], row[first : first + size] = side.factors[:, :t], side.biases
            first += size
        known: dict[str, Any] = {name: getattr(fitted, name) for name in Fitted.__dataclass_fields__}
        known.update(left=left, row=row)
        return Fitted(**known)


def observations(where: Place) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
    """(values, weights) of a partition."""
    data = where.data
    return data.o.astype(np.float64), data.c.astype(np.float64) if len(data.c) else None


def residual_sizes(where: Place, rows: Array | None, other: Any) -> tuple[NDArray[np.float64], None, place.Moments]:
    """Sizes of what biases leave, or (rows None) a constant, where weights are not zero; and their moments."""
    data, z = where.data, other
    if rows is not None:
        nothing = np.zeros((data.m, 0), data.o.dtype), np.zeros((data.n, 0), data.o.dtype)
        z = scores(data, *nothing, rows, other)
    left = np.abs(np.asarray(data.o - z, np.float64))
    left = left[data.c > 0] if len(data.c) else left
    return left, None, place.moments(left)


# -- the unit of the ridge ---------------------------------------------------------------------------------------------
class SlopeSums(NamedTuple):
    """At some entries."""

    squares: float
    curvatures: float
    entries: int


def first_slopes(where: Place, loss: LossSetting, state: place.State, step: int) -> SlopeSums:
    """At the scores of the moment, of every step-th of all rows."""
    some, chosen = _some(where, step)
    return _slopes(some, loss, state.z if chosen is None else state.z[chosen])


def left_slopes(where: Place, loss: LossSetting, rows: Side, columns: Side, level: float, step: int) -> SlopeSums:
    """At the scores of a model, of every step-th of all rows."""
    some, _ = _some(where, step)
    return _slopes(some, loss, scores(some, rows.factors, columns.factors, rows.biases + level, columns.biases))


def _slopes(data: Observed, loss: LossSetting, z: Array) -> SlopeSums:
    _, squares, curvatures = entries.objective(loss.number, loss.parameter, z, data.o, data.c)
    return SlopeSums(squares, curvatures, len(data.o))


def _some(where: Place, step: int) -> tuple[Observed, NDArray[np.int64] | None]:
    return (where.data, None) if step == 1 else where.data.every(step, first=-where.first_row % step)


class Gram(NamedTuple):
    """sum of f f' over factors f."""

    total: NDArray[np.float64]  # (t, t)


@one_blas_thread
def row_gram(where: Place, rows: Side, n_observations: int) -> Gram:
    """Of the rows, each as often as it was observed, over all observations."""
    weights = np.sqrt(where.data.counts[0] / n_observations)
    weighted = rows.factors.astype(np.float64) * weights[:, None]
    return Gram(weighted.T @ weighted)


@one_blas_thread
def _eigenvalues(gram: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.linalg.eigvalsh(gram).astype(np.float64)


class NoiseOfSpread(NoiseLevel):
    """Of entries in partitions."""

    def __init__(
        self, ground: Spread, loss: LossSetting, pursuit: SpreadPursuit, *, bias_ridge: float, follow: bool
    ) -> None:
        about, self._parts, self._loss = ground.about, ground.parts, loss
        self._about, self._step = about, stride(about.n_observations)
        plain = loss.name == "square" and not about.weighted
        first = 2.0 * pursuit.objective / about.n_observations if plain else self._first_slopes(pursuit, 1)
        self.follows = follow and loss.name in REAL_NOISE and first > 0
        some = first
        if self.follows and self._step > 1:
            some = self._first_slopes(pursuit, self._step)
            self.follows = some > 0
        occurring = [int(about.rows[1].sum()), int(np.count_nonzero(about.columns))]
        super().__init__(about.n_observations, occurring, first=first, some_first=some, bias_ridge=bias_ridge)

    def _first_slopes(self, pursuit: SpreadPursuit, step: int) -> float:
        found = self._parts.total(first_slopes, self._loss, pursuit.state, step)
        return found.squares / max(found.entries, 1)

    def _left(self, rows: Each[Any], columns: Side, level: float) -> tuple[float, float]:
        known = self._loss, rows, self._parts.crew.put(columns), level, self._step
        found = self._parts.total(left_slopes, *known)
        return found.squares / max(found.entries, 1), found.curvatures / max(found.entries, 1)

    def _alike(self, axis: int) -> Alike:
        counts = self._about.columns
        return self._about.rows if axis == 0 else np.unique(counts[counts > 0], return_counts=True)

    def _spectrum(self, axis: int, rows: Each[Any], columns: Side) -> NDArray[np.float64]:
        n = self._about.n_observations
        if axis == 0:
            return _eigenvalues(self._parts.total(row_gram, rows, n).total)
        return dense.spectrum(columns.factors.astype(np.float64) * np.sqrt(self._about.columns / n)[:, None])


# -- the fit ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Room:
    """What the sums of one step may take on a worker."""

    max_memory: float  # bytes
    partitions: int  # of the worker that has most

    def check(self, n: int, wanted: Wanted) -> None:
        """ValueError if they would take more."""
        own = bytes_of_sums(n, wanted.rank, biases=wanted.biases) if wanted.sweeps else 0
        each = max(own, 64 * n)
        need = each * (self.partitions + FAN_IN + 1)
        if need <= self.max_memory:
            return
        t = wanted.rank + wanted.biases
        sums = f"{n:,} columns x {t} x {t + 1} / 2 numbers in a sweep" if own > 64 * n else f"{n:,} columns x 8 numbers"
        raise ValueError(
            f"the sums of a step, {sums}, take {each / 1e6:,.0f} MB for a partition and {need / 1e6:,.0f} MB on a "
            f"worker of {self.partitions} partitions, more than max_memory={self.max_memory / 1e6:,.0f} MB: lower rank"
            f"{' (or sweeps to 0)' if own > 64 * n else ''}, have fewer partitions a worker, or raise max_memory"
        )


def fitted_over(
    crew: Crew,
    given: Given,
    wanted: Wanted,
    *,
    dtype: np.dtype[Any] | None,
    scaling: bool,
    share: float | None,
    patience: int | None,
    callback: Callback | None,
    room: Room,
) -> Fitted:
    """The model of all partitions. share: of the entries, to be held out."""
    watch = Watch(held=share is not None or given.held is not None, patience=patience, callback=callback)
    parts, about = spread_out(
        crew,
        given,
        loss=wanted.loss.name,
        dtype=dtype,
        share=share,
        seed=wanted.pursuit.seed,
        scaling=scaling,
        rank=wanted.rank,
        check=lambda n: room.check(n, wanted),
    )
    ground = Spread(parts, about, wanted.loss)
    fitted, _ = fitted_on(ground, wanted, watch)
    return ground.gathered(fitted)
