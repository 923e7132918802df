"""Common parts of the adaptive subgradient methods: rounds, steps with a penalty, and sketches of gradients.

Notation of the ADA-FD paper (Wan, Zhang): beta the decision, g_t a subgradient at it, H_t = delta I + (S'S)^(1/2), tau
the sketch size.
"""

from collections.abc import Callable
from typing import Any, NotRequired, Protocol, TypedDict

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]
Subgradient = Callable[[int, Array], tuple[float, Array]]
Step = Callable[[int, Array, Array], Array]
Penalty = tuple[str, float] | None
Play = tuple[Array, Array]  # the last decision (d,), the losses (rounds,)

# A gradient adds a direction if what is left of it exceeds this share: the printed test g' != g, read literally, makes
# rounding a direction.
NEW = 1e-10


class RoundSettings(TypedDict):
    """Keyword arguments that all reference adaptive subgradient methods accept."""

    subgradient: Subgradient
    learning_rate: float
    delta: float
    form: NotRequired[str]
    penalty: NotRequired[str | None]
    penalty_strength: NotRequired[float]
    decay: NotRequired[float]


def play(d: int, rounds: int, *, subgradient: Subgradient, step: Step) -> Play:
    """Run all rounds of an online method from zero weights. Return the last weights and the loss of each round."""
    beta: Array = np.zeros(d)
    losses = list[float]()
    for t in range(1, rounds + 1):
        loss, g = subgradient(t, beta)
        losses.append(loss)
        beta = step(t, beta, g)
    return beta, np.array(losses)


def as_penalty(name: str | None, strength: float) -> Penalty:
    return None if name is None else (name, strength)


def solved(g: Array, v: Array, s: Array, delta: float) -> Array:
    """Return the solution x of (delta I + V diag(s) V') x = g, by the Woodbury identity."""
    return (g - v @ (s / (delta + s) * (v.T @ g))) / delta


def prox(h: Array, b: Array, penalty: Penalty, amount: float) -> Array:
    """Return the minimiser of sum_j h_j beta_j^2 / 2 - b_j beta_j + amount phi(beta), with a penalty phi."""
    if penalty is None:
        return b / h
    name, strength = penalty
    if name == "l2":
        return b / (h + amount * strength)
    return np.sign(b) * np.maximum(np.abs(b) - amount * strength, 0.0) / h


def argmin(h: Array, b: Array, penalty: Penalty, amount: float) -> Array:
    """Return the minimiser of beta'H beta / 2 - b'beta + amount phi(beta), with a penalty phi."""
    if penalty is None:
        return np.linalg.solve(h, b)
    name, strength = penalty
    if name == "l2":
        return np.linalg.solve(h + amount * strength * np.eye(len(b)), b)
    beta = np.zeros(len(b))
    for _ in range(100_000):  # coordinate descent
        before = beta.copy()
        for j in range(len(b)):
            r = b[j] - h[j] @ beta + h[j, j] * beta[j]
            beta[j] = np.sign(r) * max(abs(r) - amount * strength, 0.0) / h[j, j]
        if np.abs(beta - before).max() <= 1e-15 * np.abs(beta).max():
            break
    return beta


class GradientSketch(Protocol):
    removed: float  # sum of the squares that shrinks have removed, from the matrix that `add` has returned

    def fade(self, decay: float) -> None: ...

    def add(self, g: Array) -> tuple[Array, Array]:
        """Add a gradient to the sketch, and return its (right singular vectors as columns, singular values)."""
        ...


class FD:
    """Frequent Directions sketch of gradients, with one SVD a round (ADA-FD, Algorithms 1 and 2, steps 4 to 6)."""

    def __init__(self, d: int, tau: int) -> None:
        self.s, self.tau, self.removed = np.zeros((tau, d)), tau, 0.0

    def fade(self, decay: float) -> None:
        """Multiply the Gram matrix of the sketch by `decay`."""
        self.s *= np.sqrt(decay)

    def add(self, g: Array) -> tuple[Array, Array]:
        """Add a gradient, shrink the sketch, and return its (right singular vectors as columns, singular values)."""
        self.s[-1] = g
        _, sigma, vt = np.linalg.svd(self.s, full_matrices=False)
        sigma = np.concatenate([sigma, np.zeros(self.tau - len(sigma))])
        reduced = np.sqrt(np.maximum(sigma**2 - sigma[-1] ** 2, 0.0))[: len(vt)]
        self.s = np.zeros_like(self.s)
        self.s[: len(vt)] = reduced[:, None] * vt
        self.removed += float(sigma[-1] ** 2)
        return vt.T, reduced


class FFD:
    """Buffered Frequent Directions sketch of gradients (ADA-FD, Algorithms 3 and 4, steps 4 to 14).

    It consists of orthonormal V (at most 2 tau columns) and M with S'S = V M V'.

    It shrinks when V has 2 tau columns; with `by_rows`, as Frequent Directions do, when there are 2 tau rows, those of
    the last shrink counted.
    """

    def __init__(self, d: int, tau: int, *, by_rows: bool = False) -> None:
        self.v, self.m, self.tau = np.zeros((d, 0)), np.zeros((0, 0)), tau
        self.by_rows, self.rows = by_rows, 0
        self.removed, self.removed_last = 0.0, 0.0

    def fade(self, decay: float) -> None:
        """Multiply the Gram matrix of the sketch by `decay`."""
        self.m = decay * self.m

    def add(self, g: Array) -> tuple[Array, Array]:
        """Add a gradient, and return the sketch's (right singular vectors as columns, singular values) before a shrink.

        The sketch is shrunk afterwards if it is full.
        """
        self.removed, self.removed_last = self.removed + self.removed_last, 0.0
        left = g - self.v @ (self.v.T @ g)
        left -= self.v @ (self.v.T @ left)  # twice is enough
        if np.linalg.norm(left) > NEW * np.linalg.norm(g) and self.v.shape[1] < min(2 * self.tau, len(g)):
            self.v = np.column_stack([self.v, left / np.linalg.norm(left)])
            self.m = np.pad(self.m, ((0, 1), (0, 1)))
        inner = self.v.T @ g
        self.m = self.m + np.outer(inner, inner)
        values, u = np.linalg.eigh(self.m)
        values, u = np.maximum(values[::-1], 0.0), u[:, ::-1]
        out = self.v @ u, np.sqrt(values)
        self.rows += bool(g.any())  # a row of zeros is none
        if self.v.shape[1] == 2 * self.tau or (self.by_rows and self.rows == 2 * self.tau):
            values = np.pad(values, (0, self.tau))
            kept = min(self.tau - 1, self.v.shape[1])
            self.removed_last = float(values[self.tau - 1])
            left = values[:kept] - self.removed_last
            self.m, self.v = np.diag(left), out[0][:, :kept]
            self.rows = int(np.count_nonzero(left > 0))
        return out


class WholeMatrix:
    """The exact sum of the gradients' outer products, without a sketch (ADA-FULL)."""

    def __init__(self, d: int) -> None:
        self.g, self.removed = np.zeros((d, d)), 0.0

    def fade(self, decay: float) -> None:
        """Multiply the sum of the outer products by `decay`."""
        self.g = decay * self.g

    def add(self, g: Array) -> tuple[Array, Array]:
        self.g = self.g + np.outer(g, g)
        values, vectors = np.linalg.eigh(self.g)
        return vectors, np.sqrt(np.maximum(values, 0.0))


def adaptive_rounds(
    sketch: GradientSketch,
    d: int,
    *,
    rounds: int,
    subgradient: Subgradient,
    learning_rate: float,
    delta: float,
    form: str = "mirror_descent",
    penalty: str | None = None,
    penalty_strength: float = 0.0,
    decay: float = 1.0,
    fade: bool = False,
    compensate: bool = False,
) -> Play:
    """Run an adaptive subgradient method with a given sketch of the gradients, and return (weights, losses).

    fade: use H = delta I + S'S with gradients divided by t^(1/4), as FD-SON does. compensate: use H = delta I +
    (S'S + rho I)^(1/2), where rho is the sum of the squares that the sketch has removed, as FTSL does.
    """
    total, eta, least, phi = np.zeros(d), learning_rate, delta, as_penalty(penalty, penalty_strength)

    def step(t: int, beta: Array, g: Array) -> Array:
        nonlocal total
        sketch.fade(decay)
        v, s = sketch.add(g / t**0.25 if fade else g)
        s = s**2 if fade else s
        total, delta = total + g, least
        if compensate:
            delta += np.sqrt(sketch.removed)
            s = np.sqrt(s**2 + sketch.removed) - np.sqrt(sketch.removed)
        if phi is None:
            if form == "dual_averaging":
                return -eta * solved(total, v, s, delta)
            return beta - eta * solved(g, v, s, delta)  # mirror descent
        h = delta * np.eye(d) + (v * s) @ v.T
        if form == "dual_averaging":
            return argmin(h, -eta * total, phi, eta * t)
        return argmin(h, h @ beta - eta * g, phi, eta)

    return play(d, rounds, subgradient=subgradient, step=step)
