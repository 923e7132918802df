"""Refinement of the coefficients of all ranks after each new rank (GLRL equations 6 and 7), by Newton's method.

This is a convex problem with few unknowns. The Hessian is summed in one pass over the entries, so that a step takes as
long as two or three gradients. Five to ten steps reach the optimum, for which L-BFGS takes hundreds of gradients.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.lowrank import coefficients, entries
from fastsketch.lowrank._biases import Biases
from fastsketch.lowrank._data import Array
from fastsketch.lowrank._entries import Entries
from fastsketch.lowrank._setting import LossSetting

Floats = NDArray[np.float64]

# Newton steps stop when the next one would lower the objective by less than these shares of it and of the objective
# without ranks. Separable labels have no optimum: each step divides the objective by about e, until the second share.
ENOUGH, ENOUGH_OF_START = 1e-8, 1e-9
MOST_STEPS, MOST_TRIALS = 200, 30
# Positions of the Hessian in the sums of ``entries.five_dots``.
SECOND = np.array([[3, 4], [4, 5]])
# A step that is too long is shortened to between these shares of its length.
SHORTEST, LONGEST = 0.05, 0.7
# Shares of the diagonal of the Hessian and of its bound that are added to it, since products of factors may be almost
# equal, and losses almost flat.
LIFT, LEAST = 1e-10, 1e-12


class Terms(NamedTuple):
    """Value, gradient and Hessian of a convex function at a point."""

    value: float
    slope: Floats  # (t,) gradient
    curvature: Floats  # (t, t) Hessian; (0, 0) if it was not requested
    bound: Floats  # (t,) approximate upper bound on the diagonal of the Hessian at any x


TermsAt = Callable[[Floats, bool], Terms]  # (x, whether curvature and bound are requested)


class Refinement:
    """Newton's method for the coefficients of the ranks. `steps` is the largest number of Newton steps, None for no
    limit."""

    def __init__(self, observations: Entries, biases: Biases, loss: LossSetting, steps: int | None) -> None:
        self.observations, self.biases, self.loss, self.steps = observations, biases, loss, steps
        self.first_objective = 0.0  # the objective without ranks

    def all(self, left: Any, right: Array, start: Floats) -> Floats:
        """Return the coefficients of all ranks that minimise the loss.

        The scores are biases + sum_q theta_q left_q right_q' for coefficients theta.

        left is (m, t), right (n, t), and `start` (t,) the initial theta.
        """
        data, loss, about = self.observations.data, self.loss, (self.biases.rows, self.biases.columns, left, right)

        def terms(theta: Floats, curved: bool) -> Terms:
            t = len(theta)
            slope, bound, curvature = np.zeros(t), np.zeros(t), np.zeros((t, t) if curved else (0, 0))
            known = loss.number, loss.parameter, loss.lipschitz or 0.0, *data.where, data.o, data.c, *about
            value = coefficients.newton_terms(*known, theta, slope, bound, curvature)
            return Terms(value, slope, curvature, bound)

        return self._minimised(terms, start)

    def two(self, state: Any, u: Any, v: Any, *, first: bool) -> tuple[float, float]:
        """Return the two coefficients that minimise the loss: one multiplies all ranks so far, the other the new rank.

        The scores are biases + mu X + rho u v', where X is the low-rank part of `state`.

        For the first rank, X = 0 and mu = 1.
        """

        def terms(x: Floats, curved: bool) -> Terms:
            out = self.dots(state, u, v, 1.0 if first else x[0], x[-1])
            if first:
                return Terms(out[0], out[2:3], out[5:].reshape(1, 1), out[5:])
            return Terms(out[0], out[1:3], out[SECOND], out[3::2])

        best = self._minimised(terms, np.zeros(1) if first else np.array([1.0, 0.0]))
        return 1.0 if first else float(best[0]), float(best[-1])

    def dots(self, state: Any, u: Any, v: Any, keep: float, theta: float) -> Floats:
        """Compute the objective and its derivatives by the two coefficients: of all ranks so far and of the new rank.

        Returns 6 numbers at mu = keep and rho = theta: objective, 2 first derivatives, 3 second derivatives.
        """
        data, loss, kind, out = self.observations.data, self.loss, self.observations.dtype.type, np.empty(6)
        scores = state.z, data.o, data.c, self.biases.rows, self.biases.columns
        entries.five_dots(loss.number, loss.parameter, *data.where, *scores, kind(keep), kind(theta), u, v, out)
        return out

    def _minimised(self, terms: TermsAt, start: Floats) -> Floats:
        """Minimise a convex function by Newton's method, and return the minimiser. Steps that are too long are
        shortened."""
        x, most = start, MOST_STEPS if self.steps is None else self.steps
        now = terms(x, True)
        for turn in range(most):
            move = _newton(now)
            if self.loss.name == "square":
                return x + move
            slope, length = float((now.slope * move).sum()), 1.0
            enough = ENOUGH * abs(now.value) + ENOUGH_OF_START * abs(self.first_objective) if turn else 0.0
            if not -0.5 * slope > enough:
                return x
            for _ in range(MOST_TRIALS):
                tried = terms(x + length * move, turn + 1 < most)
                if np.isfinite(tried.value) and tried.value <= now.value + 1e-4 * length * slope:
                    break
                with np.errstate(over="ignore", invalid="ignore"):
                    there = float((tried.slope * move).sum())
                share = slope / (slope - there) if np.isfinite(there) and there > 0 else 0.5
                length *= min(max(share, SHORTEST), LONGEST)
            else:
                return x
            x, now = x + length * move, tried
        return x


def _newton(at: Terms) -> Floats:
    """Return the Newton step at a point, or a scaled gradient step if the Hessian is not positive definite."""
    size = at.curvature.diagonal() + LEAST * at.bound
    unit = np.sqrt(np.where(size > 0, size, 1.0))
    h = at.curvature / (unit[:, None] * unit)
    h[np.diag_indices_from(h)] += LIFT
    g = -at.slope / unit
    if not coefficients.solve(h, g):
        g = -at.slope / unit
    return g / unit
