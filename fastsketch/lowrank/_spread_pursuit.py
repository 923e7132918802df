"""A greedy pursuit whose entries are in partitions: vectors of columns are here, those of rows stay with their rows."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import frexp, ldexp
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.lowrank import entries
from fastsketch.lowrank import _place as place
from fastsketch.lowrank._crew import Each, Partitions, added, item
from fastsketch.lowrank._data import Array, Observed
from fastsketch.lowrank._fitted import Biases, Fitted, HistoryLine, Problem
from fastsketch.lowrank._leading import MODEST, TURNED, Triplet, block_start
from fastsketch.lowrank._order import least_reaching
from fastsketch.lowrank._pursuit import Pursuit
from fastsketch.lowrank._refine import Floats, Refinement, Terms, Terms_at
from fastsketch.lowrank._setting import PursuitSetting, Ridges

# Steps of a search that are asked for at once: most ranks take as many, and those after the last cost nothing.
AT_ONCE = 8


@dataclass(frozen=True)
class Overview:
    """What is known of all entries that are fitted."""

    m: int
    n: int
    dtype: np.dtype[Any]
    n_observations: int
    total_weight: float
    mean: float  # weighted
    spread: float  # standard deviation of the values
    largest: float  # size of a value
    most_weight: float
    columns: NDArray[np.int64]  # (n,) observations
    rows: tuple[NDArray[np.int64], NDArray[np.int64]]  # numbers of observations of rows that occur, how many have each
    weighted: bool
    right: Array  # (n,) degree scaling of the columns
    n_held: int
    sizes: tuple[int, ...]  # rows of every partition

    def without_rows(self) -> Observed:
        """No rows of as many columns."""
        none = np.empty(0, self.dtype)
        return Observed(0, self.n, np.zeros(1, np.uint32), np.empty(0, np.uint32), none, none)


@dataclass(frozen=True)
class SpreadBiases:
    """Biases with those of the rows beside their entries."""

    level: float
    rows: Each[Any]  # (m,) each, the level in it
    columns: Array  # (n,)
    promise: Any  # of the columns


@dataclass(frozen=True)
class SpreadFitted(Fitted):
    """A model without rows here: left and row are empty, `rows` are promises of their sides (all ranks)."""

    rows: Each[Any] = field(default_factory=lambda: Each[Any]())


class SpreadPursuit(Pursuit):
    """As Pursuit; vectors of rows are Each of promises."""

    state: Each[Any]
    aimed: Each[Any]

    def __init__(self, parts: Partitions, about: Overview, biases: SpreadBiases, setting: PursuitSetting) -> None:
        none, empty = about.without_rows(), np.empty(0, about.dtype)
        here = Biases(biases.level, empty, biases.columns)
        self.parts, self.about, self.spread = parts, about, biases
        self._begin(Problem(none, None, empty, about.right), here, setting)
        self._scale = parts.crew.put(about.right)
        self._sent: tuple[Any, Any] = None, None
        self._restart()
        self.first_objective = self.objective

    def send(self, v: Array) -> Any:
        """A promise of a vector of columns; the last one is kept."""
        if self._sent[0] is not v:
            self._sent = v, self.parts.crew.put(v)
        return self._sent[1]

    def _ranks(self) -> tuple[Each[Any], Array]:
        """(us of every partition, vs (n, t))."""
        us = Each([list(own) for own in zip(*self.us, strict=True)] if self.us else [[] for _ in self.parts.places])
        dtype = self.about.dtype
        vs = np.stack(self.vs, axis=1) if self.vs else np.zeros((self.about.n, 0), dtype)
        return us, np.ascontiguousarray(vs, dtype)

    def biases_there(self) -> tuple[Each[Any], Any]:
        """Of the rows and of the columns, as promises."""
        return self.spread.rows, self.spread.promise

    # -- the ends of a pursuit -------------------------------------------------------------------------------------
    def fitted(self, history: list[HistoryLine], selected_rank: int, ridges: Ridges) -> SpreadFitted:
        us, vs = self._ranks()
        t, level = self.rank, self.biases.level
        path = np.zeros((t, t))
        for k, row in enumerate(self.path):
            path[k, : len(row)] = row
        return SpreadFitted(
            left=np.zeros((0, t), self.about.dtype),
            right=vs,
            path=path,
            row=np.zeros(0, self.about.dtype),
            column=self.biases.columns.copy(),
            level=level,
            history=history,
            selected_rank=selected_rank,
            ridges=ridges,
            loss_parameter=None if self.loss.about.parameter is None else self.loss.parameter,
            n_observations=self.about.n_observations,
            rows=self.parts.each(place.side_of, us, self.spread.rows, level),
        )

    def forget(self) -> None:
        self.state = Each()
        self.aimed = Each()
        self._sent = None, None

    def mean_loss(self) -> float:
        us, vs = self._ranks()
        rb, cb = self.biases_there()
        found = self.parts.total(place.held_loss, self.loss, rb, cb, us, self.parts.crew.put(vs), self._coefficients())
        return found.value / found.entries

    # -- scores ----------------------------------------------------------------------------------------------------
    def _restart(self) -> None:
        us, vs = self._ranks()
        rb, cb = self.biases_there()
        vs, theta = self.parts.crew.put(vs), self._coefficients()
        self.objective = self._now(self.parts.each(place.restart, self.loss, rb, cb, self._scale, us, vs, theta))

    def _step(self, keep: float, theta: float, u: Any, v: Array) -> float:
        rb, cb = self.biases_there()
        known = self.state, self.loss, rb, cb, self._scale, keep, theta, u, self.send(v)
        return self._now(self.parts.each(place.step, *known))

    def _now(self, state: Each[Any]) -> float:
        """The state is this one; the objective there."""
        self.state = state
        answers = self.parts.crew.fetch([self.parts.crew.call(item, own, 2) for own in state])
        self.most_z = max(0.0, *(answer.most_z for answer in answers))
        most = max(answer.most_a for answer in answers)
        exponent = frexp(most)[1]
        self.exponent = 0 if abs(exponent) <= MODEST else exponent
        return float(sum(answer.value for answer in answers))

    # -- smooth losses -----------------------------------------------------------------------------------------------
    def _as_they_are(self, found: Triplet) -> Triplet:
        parts = self.parts
        rows: Any = Each(
            parts.crew.call(place.unscaled, where, u) for where, u in zip(parts.places, found.u, strict=True)
        )
        return Triplet(rows, found.s, found.v * self.about.right)

    def _leading_triplet(self) -> Triplet | None:
        if min(self.about.m, self.about.n) <= 8:
            return self._triplet_from(self._random_start(), ())
        crew, parts = self.parts.crew, self.parts
        start = block_start(self.setting.seed, self.about.n, self.block, self._random_start())
        search = crew.call(place.began, np.ascontiguousarray(start, self.about.dtype))
        most = self.setting.max_power_iterations
        nodes: list[Any] = []
        for k in range(most):
            nodes = parts.nodes(parts.each(place.products, self.state, nodes, None if k else search, self.exponent))
            if (k + 1) % AT_ONCE == 0 and k + 1 < most and crew.fetch(nodes)[0].same_search.done:
                break
        found = place.searched(crew.fetch(nodes), last=True)
        if not found.top > 0:
            return None
        self.block = found.v
        return self._triplet(found.right, self.exponent, ())

    def _triplet(self, v: Array, exponent: int, minus: Sequence[Triplet]) -> Triplet | None:
        """Of the gradient less `minus`, with the right vector known."""
        crew, parts = self.parts.crew, self.parts
        less = self._less(minus, [each.s * entries.dot(each.v, v) for each in minus])
        raw = parts.each(place.direction, self.state, crew.put(v), exponent, less, Each(range(len(parts))))
        length = added(crew.fetch([crew.call(item, own, 1) for own in raw]))
        s = float(np.sqrt(length.squares))
        if not s > 0:
            return None
        sign = -1.0 if length.most_size[2] else 1.0
        u: Any = Each(crew.call(place.times, own, sign / s) for own in raw)
        return Triplet(u, ldexp(s, exponent), v if sign > 0 else -v)

    def _less(self, minus: Sequence[Triplet], weights: list[float]) -> Each[Any]:
        """(u_q ..., their weights) of every partition; [] without any."""
        if not minus:
            return Each([] for _ in self.parts.places)
        return Each([*(each.u[k] for each in minus), weights] for k in range(len(self.parts)))

    def _extremes(self) -> tuple[float, float]:
        return self.about.most_weight, self.most_z

    def _refinement(self) -> "SpreadRefinement":
        steps, first = self.setting.max_refine_steps, self.first_objective
        return SpreadRefinement(self, steps=steps, first_objective=first)

    def _two_coefficients(self, u: Any, v: Array, theta: float) -> tuple[float, float]:
        self.z = self.state  # type: ignore[assignment]
        return super()._two_coefficients(u, v, theta)

    def _all_coefficients(self, u: Any, v: Array, theta: float) -> NDArray[np.float64]:
        self.z = self.state  # type: ignore[assignment]
        return super()._all_coefficients(u, v, theta)

    def _safe(self, u: Any, v: Array, theta: float, s: float) -> float:
        self.z = self.state  # type: ignore[assignment]
        return super()._safe(u, v, theta, s)

    def _sides(self, u: Any, v: Array) -> tuple[Any, Array]:
        us = Each([*own] for own in zip(*self.us, u, strict=True))
        right = np.ascontiguousarray(np.stack([*self.vs, v], axis=1), self.about.dtype)
        return self.parts.each(place.stacked, us), right

    # -- losses with kinks -------------------------------------------------------------------------------------------
    def _aim(self, part: Sequence[Triplet]) -> None:
        us = Each(list(own) for own in zip(*(each.u for each in part), strict=True))
        vs = np.ascontiguousarray(np.stack([each.v for each in part], axis=1), self.about.dtype)
        s = np.array([each.s for each in part])
        self.aimed = self.parts.each(place.aim, us, self.parts.crew.put(vs), s)

    def _follow(self, eta: float) -> float:
        known = self.state, self.aimed, eta, self.about.largest, self.loss, self._scale
        return self._now(self.parts.each(place.follow, *known))

    def _squares(self) -> float:
        return self.parts.total(place.squares, self.state).total

    def _triplet_from(self, start: Array, minus: Sequence[Triplet]) -> Triplet | None:
        dtype, exponent = self.about.dtype, 0 if minus else self.exponent
        size = float(np.sqrt(entries.dot(start, start)))
        v: Array = start / dtype.type(size or 1)
        for _ in range(self.setting.max_power_iterations):
            less = self._less(minus, [each.s * entries.dot(each.v, v) for each in minus])
            found = self.parts.total(place.power, self.state, v, exponent, less)
            w = found.w.copy()
            for each, inner in zip(minus, found.inner, strict=True):
                w -= dtype.type(each.s * inner) * each.v
            size = float(np.sqrt(entries.dot(w, w)))
            if not size > 0:
                return None
            w /= dtype.type(size)
            inner = entries.dot(w, v)
            v = w
            if inner * inner > 1 - TURNED * TURNED:
                break
        return self._triplet(v, exponent, minus)

    def _middle_kink(self) -> float:
        return least_reaching(self.parts, self.parts.each(place.kinks, self.state, self.aimed), None)

    def _slope_along(self, eta: float) -> float:
        return self.parts.total(place.slope, self.state, self.aimed, self.loss, eta).total

    def _reach(self) -> float:
        return (self.about.spread or 1.0) / max(self.parts.total(place.reach, self.aimed).most_d, 1e-300)


class SpreadRefinement(Refinement):
    """As Refinement, with sums of the partitions."""

    def __init__(self, pursuit: SpreadPursuit, *, steps: int | None, first_objective: float) -> None:
        super().__init__(pursuit.data, pursuit.biases, pursuit.loss, steps=steps, first_objective=first_objective)
        self.pursuit = pursuit

    def dots(self, z: Any, u: Any, v: Array, keep: float, theta: float) -> Floats:
        pursuit = self.pursuit
        known = z, self.loss, *pursuit.biases_there(), u, pursuit.send(v), keep, theta
        return pursuit.parts.total(place.dots, *known).sums

    def terms_of_all(self, left: Any, right: Any, t: int) -> Terms_at:
        pursuit = self.pursuit
        known = self.loss, *pursuit.biases_there(), left, pursuit.parts.crew.put(right)

        def terms(theta: Floats, curved: bool) -> Terms:
            return pursuit.parts.total(place.newton_terms, *known, theta, curved)

        return terms
