"""Greedy pursuit: each rank is the leading singular pair of the gradient of the loss (GLRL, Algorithms 2 and 3)."""

from dataclasses import dataclass
from math import frexp, ldexp
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.lowrank import entries
from fastsketch._kernels.lowrank import gradients as kernel
from fastsketch.lowrank._biases import Biases
from fastsketch.lowrank._data import Array, Observed
from fastsketch.lowrank._entries import Entries
from fastsketch.lowrank._fitted import Fitted, Side
from fastsketch.lowrank._leading import Triplet, block_start, leading_triplet
from fastsketch.lowrank._quantile import weighted_quantile
from fastsketch.lowrank._refine import Refinement
from fastsketch.lowrank._setting import FitSetting, LossSetting

Floats = NDArray[np.float64]

# Bisections of a line search.
BISECTIONS = 40
# Gradients whose largest value is beyond 2**+-MODEST are multiplied by a power of two, which is exact: the search for
# singular vectors computes their fourth powers in float64, and their squares in the dtype of the fit.
MODEST = 32


class State(NamedTuple):
    """Scores of the training entries, and the gradient of the loss there."""

    z: Array  # (nnz,) scores
    a: Array  # (nnz,) gradient times the scales of rows and columns, over 2 ** Pursuit.exponent
    sums: tuple[float, float] = (0.0, 0.0)  # the objective, and the largest absolute value of the gradient


@dataclass(frozen=True)
class Continuation:
    """Data that ``Pursuit.resumed`` needs in addition to the fitted ranks. Its arrays must not be modified."""

    observations: Entries
    biases: Biases
    z: Array
    residual: float | None
    block: Array | None


class Pursuit:
    """Greedy pursuit in progress: the ranks found so far, with the scores and the gradient at the training entries.

    Rank k adds path[-1][k] * us[k][i] * vs[k][j] to the score. path[t] (t,) has the coefficients when there were t
    ranks.
    """

    def __init__(self, observations: Entries, biases: Biases, loss: LossSetting, setting: FitSetting) -> None:
        self.observations, self.biases, self.loss, self.setting = observations, biases, loss, setting
        self.us: list[Array] = []  # (m,)
        self.vs: list[Array] = []  # (n,)
        self.path: list[Floats] = [np.empty(0)]
        self.rank = 0
        self.residual: float | None = None  # ||g - h||^2 of the last step of Algorithm 3
        self.block: Array | None = None  # (n, 7) where the next search for a singular vector starts
        self.state: Any = None
        self.exponent = 0
        self.objective = 0.0
        self.refinement = Refinement(observations, biases, loss, setting.max_refine_steps)

    @classmethod
    def begun(cls, observations: Entries, biases: Biases, loss: LossSetting, setting: FitSetting) -> Self:
        """Return a new greedy pursuit, without ranks."""
        self = cls(observations, biases, loss, setting)
        self._restart()
        self.refinement.first_objective = self.objective
        return self

    @classmethod
    def resumed(cls, end: Continuation, fitted: Fitted, loss: LossSetting, setting: FitSetting) -> Self:
        """Return a greedy pursuit that continues from the ranks of a fitted model, exactly as if it had not ended."""
        assert fitted.path is not None
        self = cls(end.observations, end.biases, loss, setting)
        for k, row in enumerate(fitted.path):
            self._accept(fitted.left[:, k], fitted.right[:, k], row[: k + 1].copy())
        self.residual, self.block = end.residual, end.block
        self.refinement.first_objective = fitted.history[0]["objective"]
        self._reach(self._at(State(end.z.copy(), np.empty_like(end.z))))
        return self

    def end(self) -> Continuation:
        """Return the data with which ``resumed`` can continue this pursuit."""
        return Continuation(self.observations, self.biases, self.state.z, self.residual, self.block)

    def sides(self, rank: int, coefficients: Floats | None = None) -> tuple[Side, Side]:
        """Return the row and column factors of the first `rank` ranks, with biases. `coefficients` multiply the row
        factors."""
        factors, dtype, biases = self._rows(rank), self.observations.dtype, self.biases
        if coefficients is not None:
            factors = (factors * coefficients).astype(dtype)
        rows = Side(factors, (biases.rows - biases.level).astype(dtype))
        return rows, Side(self._columns(rank), biases.columns)

    def mean_loss(self) -> float:
        """Return the mean loss of the held-out entries."""
        held = self.observations.held
        assert held is not None
        return held.loss(self.loss, self._scores(held))[0] / len(held.o)

    def _rows(self, t: int) -> Array:
        """Return the left vectors of the first t ranks as the columns of a matrix (m, t)."""
        return _stacked(self.us[:t], self.observations.m, self.observations.dtype)

    def _columns(self, t: int) -> Array:
        """Return the right vectors of the first t ranks as the columns of a matrix (n, t)."""
        return _stacked(self.vs[:t], self.observations.n, self.observations.dtype)

    def _scores(self, data: Observed, out: Array | None = None) -> Array:
        """Compute the scores of entries from the biases and all ranks found so far."""
        left = self._rows(self.rank) * self.path[-1]
        return data.scores(left, self._columns(self.rank), self.biases.rows, self.biases.columns, out=out)

    def _at(self, state: State) -> State:
        """Compute the gradient at the scores ``state.z``, write it to ``state.a``, and return the state with new
        sums."""
        data, known = self.observations.data, (self.observations.left, self.observations.right)
        about = self.loss.number, self.loss.parameter, *data.where, state.z, data.o, data.c, *known, state.a
        return state._replace(sums=kernel.gradient(*about))

    def _move(self, keep: float, theta: float, u: Array, v: Array) -> None:
        """Update the scores of the training entries in place, for rescaled old ranks and a new one.

        A score z becomes b + keep (z - b) + theta u_i v_j, where b is the score of the biases alone.
        """
        data, biases, z, kind = self.observations.data, self.biases, self.state.z, self.observations.dtype.type
        lengths = data.counts[0]
        step = np.repeat(kind(theta) * u, lengths) * v[data.indices]
        if keep != 1:
            base = np.repeat(biases.rows, lengths) + biases.columns[data.indices]
            z[:] = base + kind(keep) * (z - base)
        z += step

    def _accept(self, u: Array, v: Array, coefficients: Floats) -> None:
        self.us.append(u)
        self.vs.append(v)
        self.path.append(coefficients)
        self.rank += 1

    def _restart(self) -> None:
        """Compute scores and gradient again from the biases and all ranks."""
        data = self.observations.data
        z, a = (None, np.empty_like(data.o)) if self.state is None else (self.state.z, self.state.a)
        self._reach(self._at(State(self._scores(data, z), a)))

    def _reach(self, state: State) -> None:
        self.objective, largest = state.sums
        exponent = frexp(largest)[1]
        self.exponent = 0 if abs(exponent) <= MODEST else exponent
        self.state = state._replace(a=np.ldexp(state.a, -self.exponent)) if self.exponent else state

    def _leading_triplet(self, found: list[Triplet]) -> Triplet | None:
        """Return the leading singular triplet of the gradient that is orthogonal to those already found, or None if it
        is zero."""
        observations, setting = self.observations, self.setting
        search = leading_triplet(
            observations,
            self.state.a,
            block_start(setting.seed, self.rank + len(found), observations.n, self.block),
            _stacked([each.v for each in found], observations.n, observations.dtype),
            iterations=setting.max_power_iterations,
            tolerance=setting.power_tolerance,
        )
        if search is None:
            return None
        triplet, self.block = search
        return triplet

    def _unscaled(self, triplet: Triplet) -> Triplet:
        """Apply the degree scaling to a triplet's vectors, and undo the power-of-two scaling of its singular value."""
        return Triplet(
            triplet.u * self.observations.left, ldexp(triplet.s, self.exponent), triplet.v * self.observations.right
        )

    # -- smooth losses: Algorithm 2 ----------------------------------------------------------------------------------
    def add_smooth(self) -> bool:
        """Add a rank and refine the coefficients (one step of GLRL Algorithm 2). Return False if the gradient is
        zero."""
        triplet = self._leading_triplet([])
        if triplet is None:
            return False
        (u, s, v), observations, setting, refinement = (
            self._unscaled(triplet),
            self.observations,
            self.setting,
            self.refinement,
        )
        lipschitz, rate, keep = self.loss.lipschitz, setting.learning_rate, 1.0
        if lipschitz is None:  # poisson: the largest curvature at the present scores
            lipschitz = float(np.exp(min(float(self.state.z.max(initial=0.0)), 700.0)))
        # valid with scaled rows and columns too, since scales are at most 1
        step = -s / max(lipschitz * observations.largest_weight, 1e-300)
        old, theta = self.path[-1], step
        if setting.refine == "full":
            before, right = np.append(old, 0.0), np.column_stack([self._columns(self.rank), v])
            left = _stacked([*self.us, u], observations.m, observations.dtype)
            # few steps of Newton begin at -s / L, which is one down (Proposition 1); of squares one is exact
            few = setting.max_refine_steps is not None and self.loss.lipschitz is not None
            warm = few and self.loss.name != "square"
            new = refinement.all(left, right, np.append(old, step) if warm else before)
            if (new == before).all() and refinement.dots(self.state, u, v, 1.0, step)[0] < self.objective:
                new[-1] = step
            self._accept(u, v, before + rate * (new - before))
            self._restart()
            return True
        if setting.refine == "economic":
            keep, theta = refinement.two(self.state, u, v, first=not self.us)
            # without progress of Newton's method, the gradient step lowers the objective
            if (keep, theta) == (1.0, 0.0) and refinement.dots(self.state, u, v, 1.0, step)[0] < self.objective:
                theta = step
            keep, theta = 1.0 + rate * (keep - 1.0), rate * theta
        else:
            theta *= rate
            if self.loss.lipschitz is None:
                theta = self._safe(u, v, theta, s)
        self._accept(u, v, np.append(keep * old, theta))
        self._move(keep, theta, u, v)
        self._reach(self._at(self.state))
        return True

    def _safe(self, u: Array, v: Array, theta: float, s: float) -> float:
        """Halve a step length until the objective falls enough (Armijo's rule), for a loss without Lipschitz
        constant."""
        refinement = self.refinement
        for _ in range(60):
            if refinement.dots(self.state, u, v, 1.0, theta)[0] <= self.objective - 0.25 * abs(theta) * s:
                return theta
            theta *= 0.5
        return 0.0

    # -- nonsmooth losses: Algorithm 3 -------------------------------------------------------------------------------
    def add_nonsmooth(self, step: int, most: int) -> bool:
        """Add ranks by one step of GLRL Algorithm 3, along a low-rank approximation of the subgradient.

        step: t, from 1; most: largest number of ranks to add. Returns False if the subgradient is zero.
        """
        part = [self._unscaled(each) for each in self._low_rank_part(min(self.setting.max_inner_rank, most))]
        if not part:
            return False
        observations, vs = self.observations, np.stack([each.v for each in part], axis=1)
        left = _stacked([each.u for each in part], observations.m, observations.dtype) * np.array(
            [-each.s for each in part]
        )
        # -h at the entries
        d = observations.data.scores(left, vs, np.zeros(observations.m), np.zeros(observations.n))
        divisor = {"inverse_sqrt": np.sqrt(step), "inverse": float(step)}.get(self.setting.step_rule)
        eta = self._search(d) if divisor is None else self.setting.step_size / divisor
        for each in part:
            self._accept(each.u, each.v, np.append(self.path[-1], -eta * each.s))
        z, o, kind = self.state.z, observations.data.o, observations.dtype.type
        z += kind(eta) * d
        # a line search ends where a score equals its observation; rounding must not choose the sign of the slope there
        np.copyto(z, o, where=np.abs(z - o) <= kind(4 * np.finfo(kind).eps * observations.data.largest))
        self._reach(self._at(self.state))
        return True

    def _low_rank_part(self, most: int) -> list[Triplet]:
        """Return the leading singular triplets whose sum approximates the subgradient to the required tolerance."""
        setting = self.setting
        rest = float(np.square(self.state.a, dtype=np.float64).sum())
        part: list[Triplet] = []
        if not rest > 0:
            return part
        previous, unit = self.residual if setting.inner_criterion == "previous" else None, 2 * self.exponent
        bound = setting.inner_tolerance * (rest if previous is None else ldexp(previous, -unit))
        while len(part) < most:
            triplet = self._leading_triplet(part)
            if triplet is None:
                break
            part.append(triplet)
            rest -= triplet.s**2
            if rest <= bound:
                break
        self.residual = ldexp(max(rest, 0.0), unit)
        if self.block is not None:  # the next subgradient has about the same leading vectors, since steps are short
            self.block = np.column_stack([*(each.v for each in part), self.block])[:, : self.block.shape[1]]
        return part

    def _search(self, d: Array) -> float:
        """Find the step length that minimises the loss along a direction, by a weighted median or by bisection."""
        observations, loss = self.observations, self.loss
        if loss.name == "absolute":
            eta = weighted_quantile(*self._kinks(d), None)
            return eta if np.isfinite(eta) else 0.0
        # initial guess: the largest change of a score is the spread of the observations
        largest = max(float(d.max(initial=0.0)), -float(d.min(initial=0.0)))
        low, high = 0.0, (observations.data.spread or 1.0) / max(largest, 1e-300)
        for _ in range(60):
            if self._slope(d, high) >= 0:
                break
            low, high = high, 2 * high
        for _ in range(BISECTIONS):
            middle = 0.5 * (low + high)
            if self._slope(d, middle) < 0:
                low = middle
            else:
                high = middle
        return low

    def _slope(self, d: Array, eta: float) -> float:
        """Return the derivative of the loss by the step length, after a step of length eta along a direction."""
        data, loss = self.observations.data, self.loss
        return entries.slope_along(loss.number, loss.parameter, self.state.z, data.o, data.c, d, eta)

    def _kinks(self, d: Array) -> tuple[Floats, Floats]:
        """Return the step lengths at which scores reach their observed values, and the weights of these kinks of the
        loss."""
        data, there = self.observations.data, d != 0
        positions = (data.o[there] - self.state.z[there]) / d[there]
        weights = np.abs(d[there]).astype(np.float64)
        return positions.astype(np.float64), weights * data.c[there] if len(data.c) else weights


def _stacked(vectors: list[Array], length: int, dtype: np.dtype[Any]) -> Array:
    """Stack vectors of a given length as the columns of a matrix."""
    out = np.empty((length, len(vectors)), dtype)
    for q, vector in enumerate(vectors):
        out[:, q] = vector
    return out
