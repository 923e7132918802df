"""Greedy pursuit of a low-rank matrix (GLRL, Algorithms 2 and 3): each step adds the matrix of rank one that is made of
the leading singular vectors of the gradient of the loss.
"""

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
from fastsketch.lowrank._refine import CoefficientFit
from fastsketch.lowrank._setting import FitSetting, LossSetting

Floats = NDArray[np.float64]

# Bisections of a line search.
BISECTIONS = 40
# A gradient whose largest value is not between 2**-MAX_UNSCALED_EXPONENT and 2**MAX_UNSCALED_EXPONENT is multiplied by
# a power of two, which is exact. The search for singular vectors computes fourth powers of it in float64, and squares
# in the dtype of the fit, which would overflow or underflow.
MAX_UNSCALED_EXPONENT = 32


class State(NamedTuple):
    """Scores of the training entries, and the gradient of the loss with respect to these scores."""

    z: Array  # (nnz,) scores
    a: Array  # (nnz,) gradient times the scales of rows and columns, over 2 ** Pursuit.exponent
    sums: tuple[float, float] = (0.0, 0.0)  # the objective, and the largest absolute value of the gradient


@dataclass(frozen=True)
class Continuation:
    """Data from which ``Pursuit.resume`` adds ranks to a fitted model; its arrays must not be modified."""

    observations: Entries
    biases: Biases
    z: Array
    residual: float | None
    block: Array | None


class Pursuit:
    """Greedy pursuit of a low-rank model, which adds one rank after another.
    It stores the ranks found so far, and scores and gradient at the training entries.

    Rank k adds path[-1][k] * us[k][i] * vs[k][j] to the score. path[t] (t,) has the coefficients when there were t
    ranks.
    """

    def __init__(self, observations: Entries, biases: Biases, loss: LossSetting, setting: FitSetting) -> None:
        self.observations, self.biases, self.loss, self.setting = observations, biases, loss, setting
        self.left_vectors: list[Array] = []  # (m,)
        self.right_vectors: list[Array] = []  # (n,)
        self.path: list[Floats] = [np.empty(0)]
        self.rank = 0
        self.residual: float | None = None  # ||g - h||^2 of the last step of Algorithm 3
        self.block: Array | None = None  # (n, 7) where the next search for a singular vector starts
        self.state: Any = None
        self.exponent = 0
        self.objective = 0.0
        self.coefficient_fit = CoefficientFit(observations, biases, loss, setting.max_refine_steps)

    @classmethod
    def start(cls, observations: Entries, biases: Biases, loss: LossSetting, setting: FitSetting) -> Self:
        """Return a new greedy pursuit that has biases but no ranks yet."""
        self = cls(observations, biases, loss, setting)
        self._recompute_state()
        self.coefficient_fit.first_objective = self.objective
        return self

    @classmethod
    def resume(cls, continuation: Continuation, fitted: Fitted, loss: LossSetting, setting: FitSetting) -> Self:
        """Return a greedy pursuit that continues a fitted model. Further ranks are bitwise identical to those of an
        uninterrupted pursuit.
        """
        assert fitted.path is not None
        self = cls(continuation.observations, continuation.biases, loss, setting)
        for k, row in enumerate(fitted.path):
            self._append_rank(fitted.left[:, k], fitted.right[:, k], row[: k + 1].copy())
        self.residual, self.block = continuation.residual, continuation.block
        self.coefficient_fit.first_objective = fitted.history[0]["objective"]
        self._set_state(self._compute_gradient(State(continuation.z.copy(), np.empty_like(continuation.z))))
        return self

    def continuation(self) -> Continuation:
        """Return the data with which ``resume`` can continue this pursuit."""
        return Continuation(self.observations, self.biases, self.state.z, self.residual, self.block)

    def factors_and_biases(self, rank: int, coefficients: Floats | None = None) -> tuple[Side, Side]:
        """Return the factors and biases of rows and those of columns, for the first `rank` ranks, as two Sides.

        `coefficients` (rank,) multiply the row factors unless they are None.
        """
        factors, dtype, biases = self._left_matrix(rank), self.observations.dtype, self.biases
        if coefficients is not None:
            factors = (factors * coefficients).astype(dtype)
        rows = Side(factors, (biases.rows - biases.level).astype(dtype))
        return rows, Side(self._right_matrix(rank), biases.columns)

    def mean_held_out_loss(self) -> float:
        """Return the mean loss of the held-out entries."""
        held_out = self.observations.held_out
        assert held_out is not None
        return held_out.loss(self.loss, self._scores(held_out))[0] / len(held_out.o)

    def _left_matrix(self, t: int) -> Array:
        """Return the left vectors of the first t ranks as the columns of a matrix (m, t)."""
        return stack_columns(self.left_vectors[:t], self.observations.m, self.observations.dtype)

    def _right_matrix(self, t: int) -> Array:
        """Return the right vectors of the first t ranks as the columns of a matrix (n, t)."""
        return stack_columns(self.right_vectors[:t], self.observations.n, self.observations.dtype)

    def _scores(self, data: Observed, out: Array | None = None) -> Array:
        """Return the scores (nnz,) of observed entries, computed from the biases and all ranks found so far."""
        left = self._left_matrix(self.rank) * self.path[-1]
        return data.scores(left, self._right_matrix(self.rank), self.biases.rows, self.biases.columns, out=out)

    def _compute_gradient(self, state: State) -> State:
        """Write the gradient of the loss at the scores ``state.z`` to ``state.a``, in place.

        Return a state with the new objective and the largest magnitude of the gradient.
        """
        data, scales = self.observations.data, (self.observations.row_scale, self.observations.column_scale)
        arguments = self.loss.number, self.loss.parameter, *data.index_arrays, state.z, data.o, data.c, *scales, state.a
        return state._replace(sums=kernel.gradient(*arguments))

    def _update_scores(self, old_coefficient: float, new_coefficient: float, u: Array, v: Array) -> None:
        """Update the training scores, in place, after a rank was added: old ranks are multiplied by `old_coefficient`,
        and the new rank u v' by `new_coefficient`.

        A score z becomes b + old_coefficient (z - b) + new_coefficient u_i v_j, where b is the score of the biases
        alone.
        """
        data, biases, z, kind = self.observations.data, self.biases, self.state.z, self.observations.dtype.type
        lengths = data.counts[0]
        new_scores = np.repeat(kind(new_coefficient) * u, lengths) * v[data.indices]
        if old_coefficient != 1:
            bias_scores = np.repeat(biases.rows, lengths) + biases.columns[data.indices]
            z[:] = bias_scores + kind(old_coefficient) * (z - bias_scores)
        z += new_scores

    def _append_rank(self, u: Array, v: Array, coefficients: Floats) -> None:
        self.left_vectors.append(u)
        self.right_vectors.append(v)
        self.path.append(coefficients)
        self.rank += 1

    def _recompute_state(self) -> None:
        """Set scores and gradient to values computed again from the biases and all ranks, free of errors of updates."""
        data = self.observations.data
        z, a = (None, np.empty_like(data.o)) if self.state is None else (self.state.z, self.state.a)
        self._set_state(self._compute_gradient(State(self._scores(data, z), a)))

    def _set_state(self, state: State) -> None:
        self.objective, largest = state.sums
        exponent = frexp(largest)[1]
        self.exponent = 0 if abs(exponent) <= MAX_UNSCALED_EXPONENT else exponent
        self.state = state._replace(a=np.ldexp(state.a, -self.exponent)) if self.exponent else state

    def _leading_triplet(self, previous: list[Triplet]) -> Triplet | None:
        """Return the leading singular triplet of the gradient, among those orthogonal to `previous`. Return None if the
        gradient is zero.
        """
        observations, setting = self.observations, self.setting
        search = leading_triplet(
            observations,
            self.state.a,
            block_start(setting.seed, self.rank + len(previous), observations.n, self.block),
            stack_columns([each.v for each in previous], observations.n, observations.dtype),
            iterations=setting.max_power_iterations,
            tolerance=setting.power_tolerance,
        )
        if search is None:
            return None
        triplet, self.block = search
        return triplet

    def _undo_scaling(self, triplet: Triplet) -> Triplet:
        """Convert a singular triplet of the scaled gradient to the original units, and return it.

        The vectors are multiplied by the degree scaling, and the singular value by the power of two of the gradient.
        """
        return Triplet(
            triplet.u * self.observations.row_scale,
            ldexp(triplet.s, self.exponent),
            triplet.v * self.observations.column_scale,
        )

    # -- smooth losses: Algorithm 2 ----------------------------------------------------------------------------------
    def add_smooth(self) -> bool:
        """Add one rank and refine all coefficients, for a smooth loss (GLRL Algorithm 2), and return True.
        Return False, with nothing added, if the gradient is zero.
        """
        triplet = self._leading_triplet([])
        if triplet is None:
            return False
        (u, s, v), observations, setting, coefficient_fit = (
            self._undo_scaling(triplet),
            self.observations,
            self.setting,
            self.coefficient_fit,
        )
        lipschitz, learning_rate, common_factor = self.loss.lipschitz, setting.learning_rate, 1.0
        if lipschitz is None:  # poisson: the largest curvature at the present scores
            lipschitz = float(np.exp(min(float(self.state.z.max(initial=0.0)), 700.0)))
        # valid with scaled rows and columns too, since scales are at most 1
        step = -s / max(lipschitz * observations.largest_weight, 1e-300)
        old_coefficients, new_coefficient = self.path[-1], step
        if setting.refine == "full":
            old_and_zero, right = np.append(old_coefficients, 0.0), np.column_stack([self._right_matrix(self.rank), v])
            left = stack_columns([*self.left_vectors, u], observations.m, observations.dtype)
            # with a limited number of Newton steps the new coefficient starts at -s / L, which lowers the objective
            # (Proposition 1); for the square loss one Newton step is exact from any start
            few_steps = setting.max_refine_steps is not None and self.loss.lipschitz is not None
            start_at_step = few_steps and self.loss.name != "square"
            new_coefficients = coefficient_fit.fit_all(
                left, right, np.append(old_coefficients, step) if start_at_step else old_and_zero
            )
            if (new_coefficients == old_and_zero).all() and coefficient_fit.evaluate_two(self.state, u, v, 1.0, step)[
                0
            ] < self.objective:
                new_coefficients[-1] = step
            self._append_rank(u, v, old_and_zero + learning_rate * (new_coefficients - old_and_zero))
            self._recompute_state()
            return True
        if setting.refine == "economic":
            common_factor, new_coefficient = coefficient_fit.fit_two(self.state, u, v, first=not self.left_vectors)
            # without progress of Newton's method, the gradient step lowers the objective
            if (common_factor, new_coefficient) == (1.0, 0.0) and coefficient_fit.evaluate_two(
                self.state, u, v, 1.0, step
            )[0] < self.objective:
                new_coefficient = step
            common_factor, new_coefficient = (
                1.0 + learning_rate * (common_factor - 1.0),
                learning_rate * new_coefficient,
            )
        else:
            new_coefficient *= learning_rate
            if self.loss.lipschitz is None:
                new_coefficient = self._backtrack(u, v, new_coefficient, s)
        self._append_rank(u, v, np.append(common_factor * old_coefficients, new_coefficient))
        self._update_scores(common_factor, new_coefficient, u, v)
        self._set_state(self._compute_gradient(self.state))
        return True

    def _backtrack(self, u: Array, v: Array, step_length: float, s: float) -> float:
        """Return a step length along a new rank that decreases the objective enough (Armijo's rule), or 0 if none does.
        At most 60 lengths are tried, each half of the one before.

        It is used for a loss whose derivative has no Lipschitz constant.
        """
        coefficient_fit = self.coefficient_fit
        for _ in range(60):
            if (
                coefficient_fit.evaluate_two(self.state, u, v, 1.0, step_length)[0]
                <= self.objective - 0.25 * abs(step_length) * s
            ):
                return step_length
            step_length *= 0.5
        return 0.0

    # -- nonsmooth losses: Algorithm 3 -------------------------------------------------------------------------------
    def add_nonsmooth(self, step: int, max_ranks: int) -> bool:
        """Add ranks along a low-rank approximation of the subgradient, for a nonsmooth loss, and return True.
        Return False, with nothing added, if the subgradient is zero. One step of GLRL Algorithm 3.
        """
        triplets = [
            self._undo_scaling(triplet)
            for triplet in self._approximate_subgradient(min(self.setting.max_inner_rank, max_ranks))
        ]
        if not triplets:
            return False
        observations, right = self.observations, np.stack([triplet.v for triplet in triplets], axis=1)
        left = stack_columns([triplet.u for triplet in triplets], observations.m, observations.dtype) * np.array(
            [-triplet.s for triplet in triplets]
        )
        # -h at the entries
        direction = observations.data.scores(left, right, np.zeros(observations.m), np.zeros(observations.n))
        divisor = {"inverse_sqrt": np.sqrt(step), "inverse": float(step)}.get(self.setting.step_rule)
        step_length = self._line_search(direction) if divisor is None else self.setting.step_size / divisor
        for triplet in triplets:
            self._append_rank(triplet.u, triplet.v, np.append(self.path[-1], -step_length * triplet.s))
        z, o, dtype = self.state.z, observations.data.o, observations.dtype.type
        z += dtype(step_length) * direction
        # a line search ends where a score equals its observation; rounding must not choose the sign of the slope there
        np.copyto(z, o, where=np.abs(z - o) <= dtype(4 * np.finfo(dtype).eps * observations.data.max_abs_value))
        self._set_state(self._compute_gradient(self.state))
        return True

    def _approximate_subgradient(self, max_ranks: int) -> list[Triplet]:
        """Return the leading singular triplets of the subgradient, at most `max_ranks`, until their sum approximates it
        well enough.

        The search ends when the squared norm of the residual is within ``inner_tolerance``.
        """
        setting = self.setting
        residual_squares = float(np.square(self.state.a, dtype=np.float64).sum())
        triplets: list[Triplet] = []
        if not residual_squares > 0:
            return triplets
        previous, unit_exponent = self.residual if setting.inner_criterion == "previous" else None, 2 * self.exponent
        bound = setting.inner_tolerance * (residual_squares if previous is None else ldexp(previous, -unit_exponent))
        while len(triplets) < max_ranks:
            triplet = self._leading_triplet(triplets)
            if triplet is None:
                break
            triplets.append(triplet)
            residual_squares -= triplet.s**2
            if residual_squares <= bound:
                break
        self.residual = ldexp(max(residual_squares, 0.0), unit_exponent)
        if self.block is not None:  # the next subgradient has about the same leading vectors, since steps are short
            self.block = np.column_stack([*(triplet.v for triplet in triplets), self.block])[:, : self.block.shape[1]]
        return triplets

    def _line_search(self, direction: Array) -> float:
        """Return the step length that minimises the loss along a direction (nnz,). It is found by a weighted median for
        the absolute loss, else by bisection.
        """
        observations, loss = self.observations, self.loss
        if loss.name == "absolute":
            step_length = weighted_quantile(*self._kink_positions(direction), None)
            return step_length if np.isfinite(step_length) else 0.0
        # initial guess: the largest change of a score is the spread of the observations
        largest_change = max(float(direction.max(initial=0.0)), -float(direction.min(initial=0.0)))
        low, high = 0.0, (observations.data.standard_deviation or 1.0) / max(largest_change, 1e-300)
        for _ in range(60):
            if self._directional_derivative(direction, high) >= 0:
                break
            low, high = high, 2 * high
        for _ in range(BISECTIONS):
            middle = 0.5 * (low + high)
            if self._directional_derivative(direction, middle) < 0:
                low = middle
            else:
                high = middle
        return low

    def _directional_derivative(self, direction: Array, step_length: float) -> float:
        """Return the derivative of the loss with respect to the step length, at `step_length` along a direction
        (nnz,).
        """
        data, loss = self.observations.data, self.loss
        return entries.slope_along(loss.number, loss.parameter, self.state.z, data.o, data.c, direction, step_length)

    def _kink_positions(self, direction: Array) -> tuple[Floats, Floats]:
        """Return the step lengths at which a score equals its observed value, where the absolute loss has a kink, and
        the weights of these kinks.
        """
        data, is_moving = self.observations.data, direction != 0
        positions = (data.o[is_moving] - self.state.z[is_moving]) / direction[is_moving]
        weights = np.abs(direction[is_moving]).astype(np.float64)
        return positions.astype(np.float64), weights * data.c[is_moving] if len(data.c) else weights


def stack_columns(vectors: list[Array], length: int, dtype: np.dtype[Any]) -> Array:
    """Stack k vectors of a given length as the columns of a matrix (length, k)."""
    matrix = np.empty((length, len(vectors)), dtype)
    for q, vector in enumerate(vectors):
        matrix[:, q] = vector
    return matrix
