"""Adaptive subgradient methods in plain NumPy: ADA-FD paper (Wan, Zhang), Algorithms 1 to 4, and baselines.

Notation: beta the decision, g_t a subgradient at it, H_t = delta I + (S'S)^(1/2), tau the sketch size, eta the learning
rate. `subgradient(t, beta)` returns (loss, g) of round t = 1 .. rounds. Every function returns (beta, losses), of d and
of `rounds` numbers. penalty "l1" is phi = penalty_strength |beta|_1, "l2" penalty_strength / 2 |beta|^2; None for phi =
0.
"""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fastsketch.reference._newton import Normals

Array = NDArray[np.floating[Any]]
Subgradient = Callable[[int, Array], tuple[float, Array]]
Step = Callable[[int, Array, Array], Array]
Penalty = tuple[str, float] | None


class _Sketch(Protocol):
    def fade(self, decay: float) -> None: ...

    def add(self, g: Array) -> tuple[Array, Array]:
        """Take in g; returns V and the singular values of the sketch."""
        ...


# A gradient adds a direction if what is left of it exceeds this share: the printed test g' != g, read literally, makes
# rounding a direction.
NEW = 1e-10


def _play(d: int, rounds: int, *, subgradient: Subgradient, step: Step) -> tuple[Array, Array]:
    beta: Array = np.zeros(d)
    losses = list[float]()
    for t in range(1, rounds + 1):
        loss, g = subgradient(t, beta)
        losses.append(loss)
        beta = step(t, beta, g)
    return beta, np.array(losses)


def _apply(g: Array, v: Array, s: Array, delta: float) -> Array:
    """(delta I + V diag(s) V')^-1 g by Woodbury."""
    return (g - v @ (s / (delta + s) * (v.T @ g))) / delta


def _prox(h: Array, b: Array, penalty: Penalty, amount: float) -> Array:
    """Minimiser of sum_j h_j beta_j^2 / 2 - b_j beta_j + amount phi(beta)."""
    if penalty is None:
        return b / h
    name, strength = penalty
    if name == "l2":
        return b / (h + amount * strength)
    return np.sign(b) * np.maximum(np.abs(b) - amount * strength, 0.0) / h


def _argmin(h: Array, b: Array, penalty: Penalty, amount: float) -> Array:
    """Minimiser of beta'H beta / 2 - b'beta + amount phi(beta)."""
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


class _FD:
    """Algorithms 1 and 2, steps 4 to 6: S of tau rows, one SVD a round."""

    def __init__(self, d: int, tau: int) -> None:
        self.s, self.tau = np.zeros((tau, d)), tau

    def fade(self, decay: float) -> None:
        """S'S counts this share of what it did."""
        self.s *= np.sqrt(decay)

    def add(self, g: Array) -> tuple[Array, Array]:
        """Returns V and Sigma' of the sketch after this gradient."""
        self.s[-1] = g
        _, sigma, vt = np.linalg.svd(self.s, full_matrices=False)
        sigma = np.concatenate([sigma, np.zeros(self.tau - len(sigma))])
        reduced = np.sqrt(np.maximum(sigma**2 - sigma[-1] ** 2, 0.0))[: len(vt)]
        self.s = np.zeros_like(self.s)
        self.s[: len(vt)] = reduced[:, None] * vt
        return vt.T, reduced


class _FFD:
    """Algorithms 3 and 4, steps 4 to 14: orthonormal V (at most 2 tau columns) and M with S'S = V M V'."""

    def __init__(self, d: int, tau: int) -> None:
        self.v, self.m, self.tau = np.zeros((d, 0)), np.zeros((0, 0)), tau

    def fade(self, decay: float) -> None:
        """S'S counts this share of what it did."""
        self.m = decay * self.m

    def add(self, g: Array) -> tuple[Array, Array]:
        """Returns V U and Sigma^(1/2) before the shrink, which follows."""
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
        if self.v.shape[1] == 2 * self.tau:
            kept = self.tau - 1
            self.m = np.diag(values[:kept] - values[self.tau - 1])
            self.v = out[0][:, :kept]
        return out


def _penalty(name: str | None, strength: float) -> Penalty:
    return None if name is None else (name, strength)


def _adaptive(
    sketch: _Sketch,
    d: int,
    *,
    rounds: int,
    subgradient: Subgradient,
    eta: float,
    delta: float,
    form: str,
    penalty: Penalty,
    fade: bool = False,
    decay: float = 1.0,
) -> tuple[Array, Array]:
    total = np.zeros(d)

    def step(t: int, beta: Array, g: Array) -> Array:
        nonlocal total
        sketch.fade(decay)
        v, s = sketch.add(g / t**0.25 if fade else g)
        s = s**2 if fade else s
        total = total + g
        if penalty is None:
            if form == "dual_averaging":
                return -eta * _apply(total, v, s, delta)
            return beta - eta * _apply(g, v, s, delta)  # mirror descent
        h = delta * np.eye(d) + (v * s) @ v.T
        if form == "dual_averaging":
            return _argmin(h, -eta * total, penalty, eta * t)
        return _argmin(h, h @ beta - eta * g, penalty, eta)

    return _play(d, rounds, subgradient=subgradient, step=step)


def adaptive_frequent_directions(
    d: int,
    rounds: int,
    *,
    subgradient: Subgradient,
    sketch_size: int,
    learning_rate: float,
    delta: float,
    form: str = "mirror_descent",
    penalty: str | None = None,
    penalty_strength: float = 0.0,
    decay: float = 1.0,
) -> tuple[Array, Array]:
    """ADA-FD: Algorithm 1 (form "dual_averaging") and Algorithm 2 ("mirror_descent")."""
    return _adaptive(
        _FD(d, sketch_size),
        d,
        rounds=rounds,
        subgradient=subgradient,
        eta=learning_rate,
        delta=delta,
        form=form,
        penalty=_penalty(penalty, penalty_strength),
        decay=decay,
    )


def adaptive_fast_frequent_directions(
    d: int,
    rounds: int,
    *,
    subgradient: Subgradient,
    sketch_size: int,
    learning_rate: float,
    delta: float,
    form: str = "mirror_descent",
    penalty: str | None = None,
    penalty_strength: float = 0.0,
    decay: float = 1.0,
) -> tuple[Array, Array]:
    """ADA-FFD: Algorithm 3 (form "dual_averaging") and Algorithm 4 ("mirror_descent")."""
    return _adaptive(
        _FFD(d, sketch_size),
        d,
        rounds=rounds,
        subgradient=subgradient,
        eta=learning_rate,
        delta=delta,
        form=form,
        penalty=_penalty(penalty, penalty_strength),
        decay=decay,
    )


def sketched_newton_subgradient(
    d: int,
    rounds: int,
    *,
    subgradient: Subgradient,
    sketch_size: int,
    learning_rate: float,
    delta: float,
    form: str = "mirror_descent",
    penalty: str | None = None,
    penalty_strength: float = 0.0,
    decay: float = 1.0,
) -> tuple[Array, Array]:
    """FD-SON (Luo et al. 2016) as the ADA-FD paper, section 3.3, writes it: H = delta I + sum g g' / sqrt(t)."""
    return _adaptive(
        _FFD(d, sketch_size),
        d,
        rounds=rounds,
        subgradient=subgradient,
        eta=learning_rate,
        delta=delta,
        form=form,
        penalty=_penalty(penalty, penalty_strength),
        decay=decay,
        fade=True,
    )


class _Whole:
    """ADA-FULL: G = sum g g' and its root."""

    def __init__(self, d: int) -> None:
        self.g = np.zeros((d, d))

    def fade(self, decay: float) -> None:
        """S'S counts this share of what it did."""
        self.g = decay * self.g

    def add(self, g: Array) -> tuple[Array, Array]:
        self.g = self.g + np.outer(g, g)
        values, vectors = np.linalg.eigh(self.g)
        return vectors, np.sqrt(np.maximum(values, 0.0))


def adaptive_full(
    d: int,
    rounds: int,
    *,
    subgradient: Subgradient,
    learning_rate: float,
    delta: float,
    form: str = "mirror_descent",
    penalty: str | None = None,
    penalty_strength: float = 0.0,
    decay: float = 1.0,
) -> tuple[Array, Array]:
    """ADA-FULL (Duchi, Hazan, Singer 2011)."""
    return _adaptive(
        _Whole(d),
        d,
        rounds=rounds,
        subgradient=subgradient,
        eta=learning_rate,
        delta=delta,
        form=form,
        penalty=_penalty(penalty, penalty_strength),
        decay=decay,
    )


def adaptive_diagonal(
    d: int,
    rounds: int,
    *,
    subgradient: Subgradient,
    learning_rate: float,
    delta: float,
    form: str = "mirror_descent",
    penalty: str | None = None,
    penalty_strength: float = 0.0,
    decay: float = 1.0,
) -> tuple[Array, Array]:
    """ADA-DIAG: H = delta I + diag(sum g^2)^(1/2)."""
    squares, total, phi = np.zeros(d), np.zeros(d), _penalty(penalty, penalty_strength)

    def step(t: int, beta: Array, g: Array) -> Array:
        nonlocal squares, total
        squares, total = decay * squares + g * g, total + g
        h = delta + np.sqrt(squares)
        if form == "dual_averaging":
            return _prox(h, -learning_rate * total, phi, learning_rate * t)
        return _prox(h, h * beta - learning_rate * g, phi, learning_rate)

    return _play(d, rounds, subgradient=subgradient, step=step)


def adaptive_low_rank(
    d: int,
    rounds: int,
    *,
    subgradient: Subgradient,
    sketch_size: int,
    learning_rate: float,
    delta: float,
    rng: Normals,
) -> tuple[Array, Array]:
    """ADA-LR (Krummenacher et al. 2016), equation 3: a random projection of G, its QR, an SVD. Mirror descent."""
    g_sum = np.zeros((d, d))

    def step(t: int, beta: Array, g: Array) -> Array:
        nonlocal g_sum
        g_sum = g_sum + np.outer(g, g)
        q, _ = np.linalg.qr(g_sum @ rng.standard_normal((d, sketch_size)))
        _, s, vt = np.linalg.svd(q.T @ g_sum, full_matrices=False)
        return beta - learning_rate * (vt.T @ ((vt @ g) / (np.sqrt(s) + delta)))

    return _play(d, rounds, subgradient=subgradient, step=step)


def radagrad(
    d: int,
    rounds: int,
    *,
    subgradient: Subgradient,
    sketch_size: int,
    learning_rate: float,
    delta: float,
    rng: Normals,
) -> tuple[Array, Array]:
    """RADAGRAD (Krummenacher et al. 2016), equation 4, with one fixed projection Pi (tau x d). Mirror descent."""
    projection = rng.standard_normal((sketch_size, d)) / np.sqrt(sketch_size)
    low: Array = np.zeros((d, sketch_size))

    def step(t: int, beta: Array, g: Array) -> Array:
        low[...] += np.outer(g, projection @ g)
        q, _ = np.linalg.qr(low)
        _, s, wt = np.linalg.svd(low.T @ q, full_matrices=False)
        v = q @ wt.T
        inner = v.T @ g
        return beta - learning_rate * (v @ (inner / (np.sqrt(s) + delta))) - learning_rate * (g - v @ inner)

    return _play(d, rounds, subgradient=subgradient, step=step)


def online_gradient_descent(
    d: int,
    rounds: int,
    *,
    subgradient: Subgradient,
    learning_rate: float,
    penalty: str | None = None,
    penalty_strength: float = 0.0,
) -> tuple[Array, Array]:
    """OGD with step learning_rate / sqrt(t)."""
    phi = _penalty(penalty, penalty_strength)

    def step(t: int, beta: Array, g: Array) -> Array:
        rate = learning_rate / np.sqrt(t)
        return _prox(np.ones(d), beta - rate * g, phi, rate)

    return _play(d, rounds, subgradient=subgradient, step=step)


def adam(
    d: int,
    rounds: int,
    *,
    subgradient: Subgradient,
    learning_rate: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    delta: float = 1e-8,
    penalty: str | None = None,
    penalty_strength: float = 0.0,
) -> tuple[Array, Array]:
    """ADAM (Kingma, Ba 2015)."""
    first, second, phi = np.zeros(d), np.zeros(d), _penalty(penalty, penalty_strength)

    def step(t: int, beta: Array, g: Array) -> Array:
        nonlocal first, second
        first, second = beta1 * first + (1 - beta1) * g, beta2 * second + (1 - beta2) * g * g
        h = np.sqrt(second / (1 - beta2**t)) + delta
        return _prox(h, h * beta - learning_rate * first / (1 - beta1**t), phi, learning_rate)

    return _play(d, rounds, subgradient=subgradient, step=step)
