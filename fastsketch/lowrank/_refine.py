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

# Newton steps stop when the next one would lower the objective by less than the first of these shares of it plus the
# second share of the objective without ranks. For separable labels there is no optimum: each step divides the objective
# by about e until the second share is reached.
RELATIVE_TOLERANCE, RELATIVE_TOLERANCE_OF_START = 1e-8, 1e-9
MAX_NEWTON_STEPS, MAX_STEP_TRIALS = 200, 30
# Positions of the entries of the Hessian in the result of ``entries.five_dots``.
HESSIAN_INDEX = np.array([[3, 4], [4, 5]])
# A step that is too long is multiplied by a factor between these limits.
MIN_SHORTENING, MAX_SHORTENING = 0.05, 0.7
# These shares of the diagonal of the Hessian, and of the upper bound on it, are added to the diagonal, since products
# of factors may be almost equal and losses almost flat.
DIAGONAL_LIFT, BOUND_LIFT = 1e-10, 1e-12


class Terms(NamedTuple):
    """Value, gradient, Hessian and a bound on the Hessian's diagonal of a convex function at one point."""

    value: float
    slope: Floats  # (t,) gradient
    curvature: Floats  # (t, t) Hessian; (0, 0) if it was not requested
    bound: Floats  # (t,) approximate upper bound on the diagonal of the Hessian at any x


TermsAt = Callable[[Floats, bool], Terms]  # (x, whether curvature and bound are requested)


class CoefficientFit:
    """Newton's method for the coefficients of all rank-one terms, while the terms themselves are fixed."""

    def __init__(self, observations: Entries, biases: Biases, loss: LossSetting, steps: int | None) -> None:
        self.observations, self.biases, self.loss, self.steps = observations, biases, loss, steps
        self.first_objective = 0.0  # the objective without ranks

    def fit_all(self, left: Any, right: Array, start: Floats) -> Floats:
        """Return the coefficients of all ranks that minimise the loss.

        The scores are biases + sum_q theta_q left_q right_q' for coefficients theta.

        left is (m, t), right (n, t), and `start` (t,) the initial theta.
        """
        data, loss, factors = self.observations.data, self.loss, (self.biases.rows, self.biases.columns, left, right)

        def terms(theta: Floats, curved: bool) -> Terms:
            t = len(theta)
            slope, bound, curvature = np.zeros(t), np.zeros(t), np.zeros((t, t) if curved else (0, 0))
            arguments = loss.number, loss.parameter, loss.lipschitz or 0.0, *data.index_arrays, data.o, data.c, *factors
            value = coefficients.newton_terms(*arguments, theta, slope, bound, curvature)
            return Terms(value, slope, curvature, bound)

        return self._minimise(terms, start)

    def fit_two(self, state: Any, u: Any, v: Any, *, first: bool) -> tuple[float, float]:
        """Return two coefficients (mu, rho) that minimise the loss of the scores biases + mu X + rho u v'.

        X is the low-rank part of `state`, the sum of all ranks so far, and u v' the new rank. For the first rank, X = 0
        and mu = 1.
        """

        def terms(x: Floats, curved: bool) -> Terms:
            derivatives = self.evaluate_two(state, u, v, 1.0 if first else x[0], x[-1])
            if first:
                return Terms(derivatives[0], derivatives[2:3], derivatives[5:].reshape(1, 1), derivatives[5:])
            return Terms(derivatives[0], derivatives[1:3], derivatives[HESSIAN_INDEX], derivatives[3::2])

        minimiser = self._minimise(terms, np.zeros(1) if first else np.array([1.0, 0.0]))
        return 1.0 if first else float(minimiser[0]), float(minimiser[-1])

    def evaluate_two(self, state: Any, u: Any, v: Any, old_coefficient: float, new_coefficient: float) -> Floats:
        """Return the objective at two coefficients and its derivatives by them, 6 numbers in one array (6,).

        The first coefficient multiplies the sum of all ranks so far, the second the new rank u v'.  The array holds the
        objective, 2 first derivatives and 3 second derivatives.
        """
        data, loss, kind, derivatives = self.observations.data, self.loss, self.observations.dtype.type, np.empty(6)
        scores = state.z, data.o, data.c, self.biases.rows, self.biases.columns
        entries.five_dots(
            loss.number,
            loss.parameter,
            *data.index_arrays,
            *scores,
            kind(old_coefficient),
            kind(new_coefficient),
            u,
            v,
            derivatives,
        )
        return derivatives

    def _minimise(self, evaluate: TermsAt, initial: Floats) -> Floats:
        """Minimise a convex function by Newton's method with a line search, and return the last point (t,)."""
        x, max_steps = initial, MAX_NEWTON_STEPS if self.steps is None else self.steps
        current = evaluate(x, True)
        for step in range(max_steps):
            direction = newton_direction(current)
            if self.loss.name == "square":
                return x + direction
            slope, step_length = float((current.slope * direction).sum()), 1.0
            tolerance = (
                RELATIVE_TOLERANCE * abs(current.value) + RELATIVE_TOLERANCE_OF_START * abs(self.first_objective)
                if step
                else 0.0
            )
            if not -0.5 * slope > tolerance:
                return x
            for _ in range(MAX_STEP_TRIALS):
                trial = evaluate(x + step_length * direction, step + 1 < max_steps)
                if np.isfinite(trial.value) and trial.value <= current.value + 1e-4 * step_length * slope:
                    break
                with np.errstate(over="ignore", invalid="ignore"):
                    trial_slope = float((trial.slope * direction).sum())
                shortening = slope / (slope - trial_slope) if np.isfinite(trial_slope) and trial_slope > 0 else 0.5
                step_length *= min(max(shortening, MIN_SHORTENING), MAX_SHORTENING)
            else:
                return x
            x, current = x + step_length * direction, trial
        return x


def newton_direction(terms: Terms) -> Floats:
    """Return the Newton step (t,) at a point. If the Hessian is not positive definite, return a scaled step along the
    negative gradient.
    """
    diagonal = terms.curvature.diagonal() + BOUND_LIFT * terms.bound
    unit = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    h = terms.curvature / (unit[:, None] * unit)
    h[np.diag_indices_from(h)] += DIAGONAL_LIFT
    g = -terms.slope / unit
    if not coefficients.solve(h, g):
        g = -terms.slope / unit
    return g / unit
