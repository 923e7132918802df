"""Rivals of ADA-FD in plain NumPy: random projections of the gradients' matrix, and first-order methods.

Notation as in the ADA-FD paper: beta the decision, g_t a subgradient at it, tau the sketch size. `subgradient(t, beta)`
returns (loss, g) of round t = 1 .. rounds. Every function returns (beta, losses), of d and of `rounds` numbers.
"""

import numpy as np

from fastsketch.reference._curvatures import Normals
from fastsketch.reference._rounds import Array, Subgradient, as_penalty, play, prox


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

    return play(d, rounds, subgradient=subgradient, step=step)


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

    return play(d, rounds, subgradient=subgradient, step=step)


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
    phi = as_penalty(penalty, penalty_strength)

    def step(t: int, beta: Array, g: Array) -> Array:
        rate = learning_rate / np.sqrt(t)
        return prox(np.ones(d), beta - rate * g, phi, rate)

    return play(d, rounds, subgradient=subgradient, step=step)


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
    first, second, phi = np.zeros(d), np.zeros(d), as_penalty(penalty, penalty_strength)

    def step(t: int, beta: Array, g: Array) -> Array:
        nonlocal first, second
        first, second = beta1 * first + (1 - beta1) * g, beta2 * second + (1 - beta2) * g * g
        h = np.sqrt(second / (1 - beta2**t)) + delta
        return prox(h, h * beta - learning_rate * first / (1 - beta1**t), phi, learning_rate)

    return play(d, rounds, subgradient=subgradient, step=step)
