"""Greedy pursuit: one rank after the other from the leading singular vectors of the gradient (GLRL Algorithms 2, 3)."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.losses import ABSOLUTE
from fastsketch._kernels.lowrank import entries
from fastsketch._kernels.lowrank import gradients as kernel
from fastsketch._random import Normal, random_normal
from fastsketch.lowrank._data import Array, Observed
from fastsketch.lowrank._fitted import Biases, Continuation, Fitted, HistoryLine, Problem
from fastsketch.lowrank._leading import Triplet, block_start, leading, leading_of_eight
from fastsketch.lowrank._refine import Refinement
from fastsketch.lowrank._setting import PursuitSetting, Ridges

BISECTIONS = 40


class Pursuit:
    """Scores z at the observed entries, the ranks found so far, and the gradient of the next.

    Rank k adds path[-1][k] * us[k][i] * vs[k][j] to the score; path[k] are the coefficients of the ranks up to k. What
    touches entries or rows is in methods that a pursuit over partitions has of its own (`_spread_pursuit.py`).
    """

    def __init__(self, problem: Problem, biases: Biases, setting: PursuitSetting) -> None:
        self._begin(problem, biases, setting)
        self._restart()
        self.first_objective = self.objective

    @classmethod
    def resumed(cls, end: Continuation, fitted: Fitted, setting: PursuitSetting) -> Self:
        """Where the pursuit of these ranks ended, to the bit."""
        assert fitted.path is not None
        self = cls.__new__(cls)
        self._begin(end.problem, end.biases, setting)
        self.us, self.vs = list(fitted.left.T), list(fitted.right.T)
        self.path = [row[: k + 1].copy() for k, row in enumerate(fitted.path)]
        self.residual, self.block = end.residual, end.block
        self.z[:] = end.z
        self.objective, self.first_objective = self._gradient(), fitted.history[0]["objective"]
        return self

    def _begin(self, problem: Problem, biases: Biases, setting: PursuitSetting) -> None:
        self.problem, self.biases, self.setting = problem, biases, setting
        self.data, self.loss = problem.data, setting.loss
        self.us: list[Any] = []  # (m,) each
        self.vs: list[Array] = []  # (n,) each
        self.path: list[NDArray[np.float64]] = []
        self.a: Array = np.empty_like(self.data.o)  # the gradient in scaled rows and columns
        self.z: Array = np.empty_like(self.data.o)
        self.residual: float | None = None  # ||g - h||^2 of the last step without a gradient
        self.block: Array | None = None  # directions from the search for the last rank
        self.objective = 0.0
        self.first_objective = 0.0  # without any rank

    @property
    def rank(self) -> int:
        return len(self.us)

    def fitted(self, history: list[HistoryLine], selected_rank: int, ridges: Ridges) -> Fitted:
        """The ranks found, in arrays of their own, with the ridges of a fold-in."""
        t, dtype, level = self.rank, self.data.o.dtype, self.biases.level
        path = np.zeros((t, t))
        for k, row in enumerate(self.path):
            path[k, : len(row)] = row
        return Fitted(
            left=np.stack(self.us, axis=1) if t else np.zeros((self.data.m, 0), dtype),
            right=np.stack(self.vs, axis=1) if t else np.zeros((self.data.n, 0), dtype),
            path=path,
            row=(self.biases.rows - level).astype(dtype),
            column=self.biases.columns.copy(),
            level=level,
            history=history,
            selected_rank=selected_rank,
            ridges=ridges,
            loss_parameter=None if self.loss.about.parameter is None else self.loss.parameter,
            n_observations=len(self.data.o),
        )

    def forget(self) -> None:
        """Let go of scores and gradient."""
        self.a = self.z = self.data.o[:0]

    def end(self) -> Continuation:
        """What `resumed` needs beside the ranks."""
        return Continuation(self.problem, self.biases, self.z, self.residual, self.block)

    def scores(self, data: Observed, out: Array) -> Array:
        """Scores of the ranks held at the entries of `data`, in `out` (nnz,)."""
        dtype = data.o.dtype
        if self.us:
            u = np.ascontiguousarray(np.stack(self.us, axis=1) * self.path[-1], dtype)
            v = np.ascontiguousarray(np.stack(self.vs, axis=1), dtype)
        else:
            u, v = np.zeros((data.m, 1), dtype), np.zeros((data.n, 1), dtype)
        entries.scores(*data.where, u, v, self.biases.rows, self.biases.columns, out)
        return out

    def mean_loss(self) -> float:
        """Of the entries held out."""
        data = self.problem.held
        assert data is not None
        z = self.scores(data, np.empty_like(data.o))
        return entries.objective(self.loss.number, self.loss.parameter, z, data.o, data.c)[0] / len(z)

    def add(self, step: int, most: int) -> bool:
        """Step `step` (from 1): one more rank, at most `most` of losses with kinks; False if the gradient is zero."""
        return self._add_smooth() if self.loss.about.smooth else self._add_nonsmooth(step, most)

    def _restart(self) -> None:
        """z and the gradient from the ranks held."""
        self.scores(self.data, self.z)
        self.objective = self._gradient()

    def _gradient(self) -> float:
        return kernel.gradient(
            self.loss.number,
            self.loss.parameter,
            *self.data.where,
            self.z,
            self.data.o,
            self.data.c,
            self.problem.left,
            self.problem.right,
            self.a,
        )

    def _accept(self, u: Any, v: Array, coefficients: NDArray[np.float64]) -> None:
        self.us.append(u)
        self.vs.append(v)
        self.path.append(coefficients)

    def _coefficients(self) -> NDArray[np.float64]:
        return self.path[-1] if self.path else np.empty(0)

    def _random_start(self) -> Array:
        """A direction of its own for every rank: the last v is nearly orthogonal to what is left."""
        return random_normal(self.setting.seed, Normal.PURSUIT + self.rank, self.data.n).astype(self.data.o.dtype)

    # -- smooth losses: Algorithm 2 ----------------------------------------------------------------------------------
    def _add_smooth(self) -> bool:
        found = self._leading_triplet()
        if found is None:
            return False
        u, s, v = self._as_they_are(found)
        theta, old = -s / self._lipschitz(), self._coefficients()
        refine, rate = self.setting.refine, self.setting.learning_rate
        if refine == "full":
            before = np.append(old, 0.0)
            self._accept(u, v, before + rate * (self._all_coefficients(u, v, theta) - before))
            self._restart()
            return True
        keep = 1.0
        if refine == "economic":
            keep, theta = self._two_coefficients(u, v, theta)
            keep, theta = 1.0 + rate * (keep - 1.0), rate * theta
        else:
            theta *= rate
            if self.loss.about.lipschitz is None:
                theta = self._safe(u, v, theta, s)
        self._accept(u, v, np.append(keep * old, theta))
        self.objective = self._step(keep, theta, u, v)
        return True

    def _step(self, keep: float, theta: float, u: Array, v: Array) -> float:
        """z = b + keep (z - b) + theta u_i v_j, b the biases, and the gradient there; the objective."""
        dtype = self.data.o.dtype.type
        return kernel.step_gradient(
            self.loss.number,
            self.loss.parameter,
            *self.data.where,
            self.z,
            self.data.o,
            self.data.c,
            self.problem.left,
            self.problem.right,
            dtype(keep),
            dtype(theta),
            u,
            v,
            self.biases.rows,
            self.biases.columns,
            self.a,
        )

    def _as_they_are(self, found: Triplet) -> Triplet:
        """Of the rows and columns, not of those scaled."""
        return Triplet(found.u * self.problem.left, found.s, found.v * self.problem.right)

    def _leading_triplet(self) -> Triplet | None:
        data, iterations = self.data, self.setting.max_power_iterations
        if min(data.m, data.n) <= 8:
            return leading(data, self.a, self._random_start(), iterations=iterations)
        start = block_start(self.setting.seed, data.n, self.block, self._random_start())
        found = leading_of_eight(data, self.a, start, iterations=iterations)
        if found is None:
            return None
        self.block = found.block
        return found.triplet

    def _lipschitz(self) -> float:
        """Of the gradient in the scaled coordinates; their scales are at most 1."""
        weight, largest = self._extremes()
        lipschitz = self.loss.about.lipschitz
        if lipschitz is None:  # poisson: of the region at hand
            return max(weight * float(np.exp(min(largest, 700.0))), 1e-300)
        return max(lipschitz * weight, 1e-300)

    def _extremes(self) -> tuple[float, float]:
        """The largest weight, and the largest score if it is positive."""
        return float(self.data.c.max()) if len(self.data.c) else 1.0, float(self.z.max(initial=0.0))

    def _refinement(self) -> Refinement:
        steps, first = self.setting.max_refine_steps, self.first_objective
        return Refinement(self.data, self.biases, self.loss, steps=steps, first_objective=first)

    def _two_coefficients(self, u: Any, v: Array, theta: float) -> tuple[float, float]:
        """(mu, rho) that minimise f(mu X + rho u v'); the step `theta`, which is always one down, if none is found."""
        found = self._refinement()
        mu, rho = found.two(self.z, u, v, first=not self.us)
        if (mu, rho) == (1.0, 0.0) and found.dots(self.z, u, v, 1.0, theta)[0] < self.objective:
            rho = theta
        return mu, rho

    def _all_coefficients(self, u: Any, v: Array, theta: float) -> NDArray[np.float64]:
        """All that minimise f(sum_q theta_q u_q v_q'); those of `theta` for the new rank if none are found."""
        before, found = np.append(self._coefficients(), 0.0), self._refinement()
        new = found.all(*self._sides(u, v), before)
        if (new == before).all() and found.dots(self.z, u, v, 1.0, theta)[0] < self.objective:
            new[-1] = theta
        return new

    def _sides(self, u: Array, v: Array) -> tuple[Any, Array]:
        """(left (m, t), right (n, t)) of the ranks held and this one."""
        dtype = self.data.o.dtype
        left = np.ascontiguousarray(np.stack([*self.us, u], axis=1), dtype)
        return left, np.ascontiguousarray(np.stack([*self.vs, v], axis=1), dtype)

    def _safe(self, u: Any, v: Array, theta: float, s: float) -> float:
        """Halve a step without a Lipschitz constant until it lowers the objective."""
        found = self._refinement()
        for _ in range(60):
            if found.dots(self.z, u, v, 1.0, theta)[0] <= self.objective - 0.25 * abs(theta) * s:
                return theta
            theta *= 0.5
        return 0.0

    # -- nonsmooth losses: Algorithm 3 -------------------------------------------------------------------------------
    def _add_nonsmooth(self, step: int, most: int) -> bool:
        """Subtract eta_t times a low-rank part h of the subgradient."""
        part = self._low_rank_part(min(self.setting.max_inner_rank, most))
        if not part:
            return False
        found = [self._as_they_are(each) for each in part]
        self._aim(found)
        eta = self.setting.step_size / np.sqrt(step) if self.setting.step_rule == "inverse_sqrt" else self._search()
        for each in found:
            self._accept(each.u, each.v, np.append(self._coefficients(), -eta * each.s))
        self.objective = self._follow(eta)
        return True

    def _aim(self, part: Sequence[Triplet]) -> None:
        """d = -h at the entries, for h = sum s u v' over the part."""
        dtype = self.data.o.dtype
        u, v = np.stack([p.u for p in part], axis=1), np.stack([p.v for p in part], axis=1)
        s = np.array([p.s for p in part])
        none = np.zeros(max(self.data.m, self.data.n), dtype)
        left, right = np.ascontiguousarray(-u * s, dtype), np.ascontiguousarray(v, dtype)
        self.d: Array = np.empty_like(self.data.o)
        entries.scores(*self.data.where, left, right, none, none, self.d)

    def _follow(self, eta: float) -> float:
        """z + eta d, and the gradient there; the objective."""
        self.z += self.data.o.dtype.type(eta) * self.d
        settle(self.z, self.data, float(np.abs(self.data.o).max(initial=0.0)))
        return self._gradient()

    def _low_rank_part(self, most: int) -> list[Triplet]:
        """The leading triplets of the subgradient g that make h, until ||g - h||^2 is small enough."""
        setting, rest = self.setting, self._squares()
        part: list[Triplet] = []
        if not rest > 0:
            return part
        previous = self.residual if setting.inner_criterion == "previous" else None
        bound = setting.inner_tolerance * (rest if previous is None else previous)
        start = self.vs[-1] / self.problem.right if self.vs else self._random_start()
        while len(part) < most:
            found = self._triplet_from(start.astype(self.data.o.dtype), part)
            if found is None:
                break
            part.append(found)
            rest -= found.s**2
            if rest <= bound:
                break
            start = random_normal(setting.seed, Normal.PURSUIT + self.rank + len(part) + 2**31, self.data.n)
        self.residual = max(rest, 0.0)
        return part

    def _squares(self) -> float:
        """Of the gradient, summed."""
        return entries.dot(self.a, self.a)

    def _triplet_from(self, start: Array, minus: Sequence[Triplet]) -> Triplet | None:
        """The leading triplet of the gradient less those, by the power method."""
        return leading(self.data, self.a, start, iterations=self.setting.max_power_iterations, minus=minus)

    def _search(self) -> float:
        """The eta that minimises f(z + eta d): a weighted median for "absolute", else bisection on the slope."""
        if self.loss.number == ABSOLUTE:
            eta = self._middle_kink()
            return eta if np.isfinite(eta) else 0.0
        low, high = 0.0, self._reach()
        for _ in range(60):
            if self._slope_along(high) >= 0:
                break
            low, high = high, 2 * high
        for _ in range(BISECTIONS):
            middle = 0.5 * (low + high)
            if self._slope_along(middle) < 0:
                low = middle
            else:
                high = middle
        return low

    def _middle_kink(self) -> float:
        """The weighted median of the etas at which z + eta d meets an observation; NaN if none does."""
        data = self.data
        places, weights = np.empty(len(self.d)), np.empty(len(self.d))
        count = entries.kinks(self.z, data.o, data.c, self.d, places, weights)
        return float(entries.weighted_median(places[:count], weights[:count]))

    def _slope_along(self, eta: float) -> float:
        """Of f(z + eta d)."""
        data, loss = self.data, self.loss
        return entries.slope_along(loss.number, loss.parameter, self.z, data.o, data.c, self.d, eta)[1]

    def _reach(self) -> float:
        """A first guess of how far to go: where d is largest, by the spread of the observations."""
        return float(np.std(self.data.o) or 1.0) / max(float(np.abs(self.d).max()), 1e-300)


def settle(z: Array, data: Observed, largest: float) -> None:
    """Entries that the search has met are met to the bit: else rounding would choose the sign of their slopes.

    largest: the largest size of all observations.
    """
    near = 4 * np.finfo(z.dtype).eps * largest
    met = np.abs(z - data.o) <= near
    z[met] = data.o[met]
