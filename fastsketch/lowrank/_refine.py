"""Refinement of coefficients after each rank (GLRL equations 6 and 7): a convex problem of few unknowns, by Newton.

Its matrix is summed in one pass over the entries, so that a step costs the passes of two or three gradients, and some
five to ten steps reach the optimum where L-BFGS takes hundreds of gradients.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastsketch._kernels.losses import SQUARE
from fastsketch._kernels.lowrank import coefficients, entries
from fastsketch.lowrank._data import Array, Observed
from fastsketch.lowrank._fitted import Biases
from fastsketch.lowrank._setting import LossSetting

Floats = NDArray[np.float64]

# To tolerance: until the next step would gain less than this share of the objective, or of that without any rank.
# Separable labels have no best coefficients: each step then lowers the objective by about e, down to the second share.
ENOUGH, ENOUGH_OF_START = 1e-8, 1e-9
MOST_STEPS, MOST_TRIALS = 200, 30
# A step that goes too far is tried again between these shares of its length.
SHORTEST, LONGEST = 0.05, 0.7
# What is added to the curvatures, as a share of them and of their bounds: columns may be nearly alike, losses flat.
LIFT, LEAST = 1e-10, 1e-12


class Terms(NamedTuple):
    """Of f at x (t,)."""

    value: float
    slope: Floats  # (t,)
    curvature: Floats  # (t, t), or (0, 0) where it was not asked for
    bound: Floats  # (t,): about how large the diagonal of the curvature can become


Terms_at = Callable[[Floats, bool], Terms]  # (x, whether curvature and bound are wanted)


class Refinement:
    """Coefficients refined for the entries of `data`; `steps` of Newton at most, None: to tolerance.

    first_objective: without any rank.
    """

    def __init__(
        self, data: Observed, biases: Biases, loss: LossSetting, *, steps: int | None, first_objective: float
    ) -> None:
        self.data, self.biases, self.loss = data, biases, loss
        self.steps, self.first_objective = steps, first_objective

    def all(self, left: Any, right: Any, start: Floats) -> Floats:
        """theta (t,) of the least f(sum_q theta_q left_q right_q') for left (m, t), right (n, t), row by row."""
        return self._minimised(self.terms_of_all(left, right, len(start)), start)

    def terms_of_all(self, left: Any, right: Any, t: int) -> Terms_at:
        """Of all t coefficients."""
        data, loss = self.data, self.loss

        def terms(theta: Floats, curved: bool) -> Terms:
            slope, bound, curvature = np.empty(t), np.zeros(t), np.empty((t, t) if curved else (0, 0))
            value = coefficients.newton_terms(
                loss.number,
                loss.parameter,
                loss.about.lipschitz or 0.0,
                *data.where,
                data.o,
                data.c,
                self.biases.rows,
                self.biases.columns,
                left,
                right,
                theta,
                slope,
                bound,
                curvature,
            )
            return Terms(value, slope, curvature, bound)

        return terms

    def two(self, z: Any, u: Any, v: Array, *, first: bool) -> tuple[float, float]:
        """(mu, rho) of the least f(mu X + rho u v'), z (nnz,) the scores of X; mu = 1 for the first rank, X = 0."""

        def terms(x: Floats, curved: bool) -> Terms:
            out = self.dots(z, u, v, *x)
            h = np.array([[out[3], out[4]], [out[4], out[5]]])
            return Terms(out[0], out[1:3].copy(), h, np.diag(h))

        def terms_of_rho(x: Floats, curved: bool) -> Terms:
            value, slope, h, bound = terms(np.array([1.0, x[0]]), curved)
            return Terms(value, slope[1:], h[1:, 1:], bound[1:])

        if first:
            return 1.0, float(self._minimised(terms_of_rho, np.zeros(1))[0])
        mu, rho = self._minimised(terms, np.array([1.0, 0.0]))
        return float(mu), float(rho)

    def dots(self, z: Any, u: Any, v: Array, keep: float, theta: float) -> Floats:
        """The sums of ``entries.five_dots``: objective, slopes and curvatures at (keep, theta)."""
        data, dtype, out = self.data, self.data.o.dtype.type, np.empty(6)
        entries.five_dots(
            self.loss.number,
            self.loss.parameter,
            *data.where,
            z,
            data.o,
            data.c,
            self.biases.rows,
            self.biases.columns,
            dtype(keep),
            dtype(theta),
            u,
            v,
            out,
        )
        return out

    def _minimised(self, terms: Terms_at, start: Floats) -> Floats:
        """x of the least f from `start`; a step that goes too far is shortened to where the slope would be zero."""
        x, most = start, MOST_STEPS if self.steps is None else self.steps
        now = terms(x, True)
        for turn in range(most):
            move = _newton(now)
            if self.loss.number == SQUARE:
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
    """-curvature^-1 slope."""
    size = np.diag(at.curvature) + LEAST * at.bound
    unit = np.sqrt(np.where(size > 0, size, 1.0))
    h = at.curvature / (unit[:, None] * unit)
    h[np.diag_indices_from(h)] += LIFT
    g = -at.slope / unit
    if not coefficients.solve(h, g):
        g = -at.slope / unit
    return g / unit
