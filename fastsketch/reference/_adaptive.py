"""Adaptive subgradient methods in plain NumPy: ADA-FD paper (Wan, Zhang), Algorithms 1 to 4, and what they approximate.

Notation: beta the decision, g_t a subgradient at it, H_t = delta I + (S'S)^(1/2), tau the sketch size, eta the learning
rate. `subgradient(t, beta)` returns (loss, g) of round t = 1 .. rounds. Every function returns (beta, losses), of d and
of `rounds` numbers. penalty "l1" is phi = penalty_strength |beta|_1, "l2" penalty_strength / 2 |beta|^2; None for phi =
0.
"""

import numpy as np

from fastsketch.reference._rounds import (
    FD,
    FFD,
    Array,
    GradientSketch,
    Penalty,
    Subgradient,
    Whole,
    argmin,
    as_penalty,
    play,
    prox,
    solved,
)


def _adaptive(
    sketch: GradientSketch,
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
                return -eta * solved(total, v, s, delta)
            return beta - eta * solved(g, v, s, delta)  # mirror descent
        h = delta * np.eye(d) + (v * s) @ v.T
        if form == "dual_averaging":
            return argmin(h, -eta * total, penalty, eta * t)
        return argmin(h, h @ beta - eta * g, penalty, eta)

    return play(d, rounds, subgradient=subgradient, step=step)


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
        FD(d, sketch_size),
        d,
        rounds=rounds,
        subgradient=subgradient,
        eta=learning_rate,
        delta=delta,
        form=form,
        penalty=as_penalty(penalty, penalty_strength),
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
        FFD(d, sketch_size),
        d,
        rounds=rounds,
        subgradient=subgradient,
        eta=learning_rate,
        delta=delta,
        form=form,
        penalty=as_penalty(penalty, penalty_strength),
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
        FFD(d, sketch_size),
        d,
        rounds=rounds,
        subgradient=subgradient,
        eta=learning_rate,
        delta=delta,
        form=form,
        penalty=as_penalty(penalty, penalty_strength),
        decay=decay,
        fade=True,
    )


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
        Whole(d),
        d,
        rounds=rounds,
        subgradient=subgradient,
        eta=learning_rate,
        delta=delta,
        form=form,
        penalty=as_penalty(penalty, penalty_strength),
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
    squares, total, phi = np.zeros(d), np.zeros(d), as_penalty(penalty, penalty_strength)

    def step(t: int, beta: Array, g: Array) -> Array:
        nonlocal squares, total
        squares, total = decay * squares + g * g, total + g
        h = delta + np.sqrt(squares)
        if form == "dual_averaging":
            return prox(h, -learning_rate * total, phi, learning_rate * t)
        return prox(h, h * beta - learning_rate * g, phi, learning_rate)

    return play(d, rounds, subgradient=subgradient, step=step)
