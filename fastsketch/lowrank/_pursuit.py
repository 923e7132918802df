"""Greedy pursuit: one rank after the other from the leading singular vectors of the gradient (GLRL Algorithms 2, 3).

Vectors of columns and few numbers are here; scores, gradients and vectors of rows stay beside the entries.
"""

from dataclasses import dataclass
from math import frexp, ldexp
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fastsketch._core.random import Normal, random_normal
from fastsketch._kernels.lowrank import entries
from fastsketch._kernels.lowrank import gradients as kernel
from fastsketch.lowrank._biases import Biases
from fastsketch.lowrank._data import Array
from fastsketch.lowrank._fitted import Fitted, Side
from fastsketch.lowrank._leading import Triplet, leading_by_power, leading_of_eight
from fastsketch.lowrank._partitions import Entries, Largest, Partition
from fastsketch.lowrank._quantile import least_reaching
from fastsketch.lowrank._refine import Refinement
from fastsketch.lowrank._setting import FitSetting, LossSetting

Floats = NDArray[np.float64]

BISECTIONS = 40
# Gradients beyond 2**+-MODEST are brought near 1 by a power of two, exactly: searches take their fourth powers, and
# squares in their own dtype.
MODEST = 32


class State(NamedTuple):
    """Scores and gradient at the entries of a partition."""

    z: Array  # (nnz,) scores
    a: Array  # (nnz,) the gradient in scaled rows and columns, over a power of two where it is far from 1
    sums: tuple[float, Largest] = (0.0, Largest(0.0))  # losses; the largest size of the gradient


@dataclass(frozen=True)
class Continuation:
    """The state from which a pursuit in memory goes on with the same bits, beside its ranks; never written to."""

    parts: Entries
    biases: Biases
    z: Any
    residual: float | None
    block: Array | None


class Pursuit:
    """The ranks found so far, the scores of the entries, and the gradient of the next rank.

    Rank k adds path[-1][k] * us[k][i] * vs[k][j] to the score; path[t] (t,) are the coefficients of the first t ranks.
    """

    def __init__(self, parts: Entries, biases: Biases, loss: LossSetting, setting: FitSetting) -> None:
        self.parts, self.biases, self.loss, self.setting = parts, biases, loss, setting
        self.us: list[Any] = []  # (m,) of every partition
        self.vs: list[Array] = []  # (n,)
        self.path: list[Floats] = [np.empty(0)]
        self.rank = 0
        self.residual: float | None = None  # ||g - h||^2 of the last step without a gradient
        self.block: Array | None = None  # (n, 8) directions from the search for the last rank
        self.state: Any = None
        self.exponent = 0  # of that power
        self.objective = 0.0
        self.refinement = Refinement(parts, biases, loss, setting.max_refine_steps)

    @classmethod
    def begun(cls, parts: Entries, biases: Biases, loss: LossSetting, setting: FitSetting) -> Self:
        """Begin without any rank."""
        self = cls(parts, biases, loss, setting)
        self._restart()
        self.refinement.first_objective = self.objective
        return self

    @classmethod
    def resumed(cls, end: Continuation, fitted: Fitted, loss: LossSetting, setting: FitSetting) -> Self:
        """Go on where the pursuit of these ranks ended, to the bit."""
        assert fitted.path is not None
        self = cls(end.parts, end.biases, loss, setting)
        for k, row in enumerate(fitted.path):
            self._accept(fitted.left[:, k], fitted.right[:, k], row[: k + 1].copy())
        self.residual, self.block = end.residual, end.block
        self.refinement.first_objective = fitted.history[0]["objective"]
        self._reach(self.parts.each(_regained, self.parts.places, end.z, self.loss, self.parts.right_there))
        return self

    def end(self) -> Continuation:
        """Return what `resumed` needs beside the ranks."""
        return Continuation(self.parts, self.biases, self.parts.items(self.state, 0), self.residual, self.block)

    def sides(self, rank: int, coefficients: Floats | None = None) -> tuple[Any, Side]:
        """Return both sides of the first ranks, without coefficients, or with these in the rows."""
        us, biases = self.parts.together(self.us[:rank]), self.biases
        rows = self.parts.each(_row_side, self.parts.places, us, coefficients, biases.rows, biases.level)
        return rows, Side(self._columns(rank), biases.columns)

    def mean_loss(self) -> float:
        """Return the mean loss of the entries held out."""
        us, vs = self.parts.together(self.us), self.parts.put(self._columns(self.rank))
        known = self.loss, us, vs, self.path[-1], self.biases.rows, self.biases.columns_there
        value, count = self.parts.total(_held_loss, self.parts.places, *known)
        return value / count

    def _columns(self, t: int) -> Array:
        """Return the v of the first t ranks, (n, t)."""
        out = np.empty((self.parts.n, t), self.parts.dtype)
        for q, v in enumerate(self.vs[:t]):
            out[:, q] = v
        return out

    def _accept(self, u: Any, v: Array, coefficients: Floats) -> None:
        self.us.append(u)
        self.vs.append(v)
        self.path.append(coefficients)
        self.rank += 1

    def _restart(self) -> None:
        """Compute scores and gradient from the ranks held."""
        vs = self.parts.put(self._columns(self.rank))
        known = self.path[-1], self.biases.rows, self.biases.columns_there
        again = self.state if self.parts.in_place else None
        asked = again, self.loss, self.parts.right_there, self.parts.together(self.us), vs, *known
        self._reach(self.parts.each(_scored, self.parts.places, *asked))

    def _reach(self, state: Any) -> None:
        self.objective, largest = self.parts.sum_of(state, 2)
        exponent = frexp(largest.value)[1]
        self.exponent = 0 if abs(exponent) <= MODEST else exponent
        self.state = self.parts.each(_modest, state, self.exponent) if self.exponent else state

    def _direction(self) -> Array:
        """Return a direction of its own for every rank: the last v is nearly orthogonal to what is left."""
        return random_normal(self.setting.seed, Normal.PURSUIT + self.rank, self.parts.n)

    def _unscaled(self, triplet: Triplet) -> Triplet:
        """Return the triplet of the gradient as it is: without the scales of rows and columns, nor the power of two."""
        u = self.parts.each(_unscaled_rows, self.parts.places, triplet.u)
        return Triplet(u, ldexp(triplet.s, self.exponent), triplet.v * self.parts.right)

    # -- smooth losses: Algorithm 2 ----------------------------------------------------------------------------------
    def add_smooth(self) -> bool:
        """Add a rank; return False if the gradient is zero."""
        triplet = self._leading_triplet()
        if triplet is None:
            return False
        (u, s, v), parts, setting, refinement = self._unscaled(triplet), self.parts, self.setting, self.refinement
        lipschitz, rate, keep = self.loss.lipschitz, setting.learning_rate, 1.0
        if lipschitz is None:  # poisson: of the region at hand
            lipschitz = float(np.exp(min(parts.total(_largest_score, self.state).value, 700.0)))
        # scales of rows and columns are at most 1
        there, step = parts.put(v), -s / max(lipschitz * parts.largest_weight, 1e-300)
        old, theta = self.path[-1], step
        if setting.refine == "full":
            before, right = np.append(old, 0.0), np.column_stack([self._columns(self.rank), v])
            left = parts.each(_stacked, parts.places, parts.together([*self.us, u]))
            # few steps of Newton begin at -s / L, which is one down (Proposition 1); of squares one is exact
            few = setting.max_refine_steps is not None and self.loss.lipschitz is not None
            warm = few and self.loss.name != "square"
            new = refinement.all(left, right, np.append(old, step) if warm else before)
            if (new == before).all() and refinement.dots(self.state, u, there, 1.0, step)[0] < self.objective:
                new[-1] = step
            self._accept(u, v, before + rate * (new - before))
            self._restart()
            return True
        if setting.refine == "economic":
            keep, theta = refinement.two(self.state, u, there, first=not self.us)
            # the step is always one down
            if (keep, theta) == (1.0, 0.0) and refinement.dots(self.state, u, there, 1.0, step)[0] < self.objective:
                theta = step
            keep, theta = 1.0 + rate * (keep - 1.0), rate * theta
        else:
            theta *= rate
            if self.loss.lipschitz is None:
                theta = self._safe(u, there, theta, s)
        self._accept(u, v, np.append(keep * old, theta))
        known = self.state, parts.in_place, self.loss, parts.right_there
        moved = keep, theta, u, there, self.biases.rows, self.biases.columns_there
        self._reach(parts.each(_at, parts.places, *known, *moved))
        return True

    def _leading_triplet(self) -> Triplet | None:
        parts, setting = self.parts, self.setting
        if min(parts.m, parts.n) <= 8:
            return leading_by_power(parts, self.state, self._direction(), iterations=setting.max_power_iterations)
        # of the first search all directions are random
        extra, iterations = None if self.block is None else self._direction(), setting.max_power_iterations
        search = leading_of_eight(parts, self.state, self.block, extra, seed=setting.seed, iterations=iterations)
        if search is None:
            return None
        triplet, self.block = search
        return triplet

    def _safe(self, u: Any, v: Any, theta: float, s: float) -> float:
        """Halve a step without a Lipschitz constant until it lowers the objective."""
        refinement = self.refinement
        for _ in range(60):
            if refinement.dots(self.state, u, v, 1.0, theta)[0] <= self.objective - 0.25 * abs(theta) * s:
                return theta
            theta *= 0.5
        return 0.0

    # -- nonsmooth losses: Algorithm 3 -------------------------------------------------------------------------------
    def add_nonsmooth(self, step: int, most: int) -> bool:
        """Subtract eta_t, t = step (from 1), times up to `most` ranks of the subgradient; return False if that is 0."""
        part = [self._unscaled(each) for each in self._low_rank_part(min(self.setting.max_inner_rank, most))]
        if not part:
            return False
        parts, vs = self.parts, np.stack([each.v for each in part], axis=1)
        us = parts.together([each.u for each in part])
        # d = -h at the entries
        d = parts.each(_low_rank_scores, parts.places, us, parts.put(vs), np.array([-each.s for each in part]))
        eta = self.setting.step_size / np.sqrt(step) if self.setting.step_rule == "inverse_sqrt" else self._search(d)
        for each in part:
            self._accept(each.u, each.v, np.append(self.path[-1], -eta * each.s))
        near = 4 * float(np.finfo(parts.dtype).eps) * parts.spread[1]
        known = self.state, parts.in_place, self.loss, parts.right_there
        self._reach(parts.each(_follow, parts.places, *known, eta, near, d))
        return True

    def _low_rank_part(self, most: int) -> list[Triplet]:
        """Return the leading triplets of the subgradient g that make h, until ||g - h||^2 is small enough."""
        setting, parts = self.setting, self.parts
        rest: float = parts.total(_squares, self.state)
        part: list[Triplet] = []
        if not rest > 0:
            return part
        previous, unit = self.residual if setting.inner_criterion == "previous" else None, 2 * self.exponent
        bound = setting.inner_tolerance * (rest if previous is None else ldexp(previous, -unit))
        start = self.vs[-1] / parts.right if self.vs else self._direction()
        while len(part) < most:
            iterations = setting.max_power_iterations
            triplet = leading_by_power(parts, self.state, start, iterations=iterations, minus=part)
            if triplet is None:
                break
            part.append(triplet)
            rest -= triplet.s**2
            if rest <= bound:
                break
            start = random_normal(setting.seed, Normal.PURSUIT + self.rank + len(part) + 2**31, parts.n)
        self.residual = ldexp(max(rest, 0.0), unit)
        return part

    def _search(self, d: Any) -> float:
        """Return the eta that minimises f(z + eta d): a weighted median for "absolute", else bisection on the slope."""
        parts, loss = self.parts, self.loss
        if loss.name == "absolute":
            eta = least_reaching(parts, parts.each(_kinks, parts.places, self.state, d), None)
            return eta if np.isfinite(eta) else 0.0
        # a first guess of how far to go: where d is largest, by the spread of the observations
        low, high = 0.0, (parts.spread[0] or 1.0) / max(parts.total(_largest_size, d).value, 1e-300)
        for _ in range(60):
            if parts.total(_slope, parts.places, self.state, d, loss, high) >= 0:
                break
            low, high = high, 2 * high
        for _ in range(BISECTIONS):
            middle = 0.5 * (low + high)
            if parts.total(_slope, parts.places, self.state, d, loss, middle) < 0:
                low = middle
            else:
                high = middle
        return low


# -- beside the entries of a partition ---------------------------------------------------------------------------------
def _stacked(place: Partition, us: list[Array]) -> Array:
    """Return the factors of the rows, (m, t)."""
    out = np.empty((place.data.m, len(us)), place.data.o.dtype)
    for q, u in enumerate(us):
        out[:, q] = u
    return out


def _row_side(place: Partition, us: list[Array], coefficients: Floats | None, rb: Array, level: float) -> Side:
    factors, dtype = _stacked(place, us), place.data.o.dtype
    if coefficients is not None:
        factors = (factors * coefficients).astype(dtype)
    return Side(factors, (rb - level).astype(dtype))


def _unscaled_rows(place: Partition, u: Array) -> Array:
    return u * place.left


def _scored(
    place: Partition, again: State | None, loss: LossSetting, right: Array, us: list[Array], vs: Array,
    coefficients: Floats, rb: Array, cb: Array,
) -> State:  # fmt: skip
    """Compute the scores of biases and ranks, and the gradient there; again: the state whose arrays they take."""
    z, a = (None, np.empty_like(place.data.o)) if again is None else (again.z, again.a)
    z = place.data.scores(_stacked(place, us) * coefficients, vs, rb, cb, out=z)
    return _at(place, State(z, a), True, loss, right)


def _regained(place: Partition, z: Array, loss: LossSetting, right: Array) -> State:
    """Compute the gradient at scores z that are kept."""
    return _at(place, State(z, z), False, loss, right)


def _at(place: Partition, state: State, in_place: bool, loss: LossSetting, right: Array, *step: Any) -> State:
    """Compute the gradient at the scores, or after a step that ``gradients.gradient`` takes."""
    z, a = (state.z, state.a) if in_place else (state.z.copy(), np.empty_like(state.a))
    data = place.data
    about = loss.number, loss.parameter, *data.where, z, data.o, data.c, place.left, right, a
    value, largest = kernel.gradient(*about, *step)
    return State(z, a, (value, Largest(largest)))


def _follow(
    place: Partition, state: State, in_place: bool, loss: LossSetting, right: Array, eta: float, near: float, d: Array
) -> State:
    """Compute the gradient at z + eta d."""
    return _at(place, state, in_place, loss, right, 1.0, 0.0, None, None, None, None, eta, near, d)


def _modest(state: State, exponent: int) -> State:
    return state._replace(a=np.ldexp(state.a, -exponent))


def _held_loss(
    place: Partition, loss: LossSetting, us: list[Array], vs: Array, coefficients: Floats, rb: Array, cb: Array
) -> tuple[float, int]:
    """Return the sum of the losses held out, and how many there are."""
    held = place.held
    assert held is not None
    return held.loss(loss, held.scores(_stacked(place, us) * coefficients, vs, rb, cb))[0], len(held.o)


def _largest_score(state: State) -> Largest:
    """Return the largest score, 0 if none is positive."""
    return Largest(float(state.z.max(initial=0.0)))


def _largest_size(a: Array) -> Largest:
    return Largest(max(float(a.max(initial=0.0)), -float(a.min(initial=0.0))))


def _squares(state: State) -> float:
    """Return the sum of the squares of the gradient."""
    return entries.dot(state.a, state.a)


def _low_rank_scores(place: Partition, us: list[Array], vs: Array, s: Floats) -> Array:
    """Return sum s u v' at the entries."""
    data = place.data
    return data.scores(_stacked(place, us) * s, vs, np.zeros(data.m), np.zeros(data.n))


def _slope(place: Partition, state: State, d: Array, loss: LossSetting, eta: float) -> float:
    """Return the slope of f(z + eta d)."""
    data = place.data
    return entries.slope_along(loss.number, loss.parameter, state.z, data.o, data.c, d, eta)[1]


def _kinks(place: Partition, state: State, d: Array) -> tuple[Floats, Floats]:
    """Return where z + eta d meets the observations, and how much each weighs."""
    data, n = place.data, len(place.data.o)
    places, weights = np.empty(n), np.empty(n)
    count = entries.kinks(state.z, data.o, data.c, d, places, weights) if n else 0
    return places[:count], weights[:count]
