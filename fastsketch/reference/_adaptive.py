"""Adaptive subgradient methods in plain NumPy: Algorithms 1 to 4 of the ADA-FD paper, FD-SON and AdaGrad.

Source: Wan, Zhang, *Efficient Adaptive Online Learning via Frequent Directions*.
Notation: beta the decision, g_t a subgradient at it, H_t = delta I + (S'S)^(1/2), tau the sketch size, eta the learning
rate. AdaGrad (Duchi et al.) with the whole matrix is what the sketched methods approximate. `subgradient(t, beta)`
returns (loss, g) of round t = 1 .. rounds. Every function returns (beta, losses), of d and of `rounds` numbers. penalty
"l1" is phi = penalty_strength |beta|_1, "l2" penalty_strength / 2 |beta|^2; None for phi = 0.
"""

from typing import Unpack

import numpy as np

from fastsketch.reference._rounds import (
    FD,
    FFD,
    Array,
    Play,
    RoundSettings,
    Subgradient,
    WholeMatrix,
    adaptive_rounds,
    as_penalty,
    play,
    prox,
)


def adaptive_frequent_directions(d: int, rounds: int, *, sketch_size: int, **settings: Unpack[RoundSettings]) -> Play:
    """Run ADA-FD, an adaptive subgradient method with a Frequent Directions sketch of the gradients.
    Return the last weights and the loss of each round.

    The step is divided by H = delta I + (S'S)^(1/2), where the sketch S has tau rows. Every round takes one SVD.

    Parameters
    ----------
    d : int
        Length of beta.
    rounds : int
        Number of rounds; they count from 1.
    subgradient : callable
        subgradient(t, beta) of round t at beta (d,): the loss, a float, and a subgradient (d,).
    sketch_size : int
        tau, at least 2.
    learning_rate : float
        eta.
    delta : float
        Above 0: H = delta I + ...
    form : {"mirror_descent", "dual_averaging"}, default "mirror_descent"
        Whether a step starts from beta, or from the sum of all subgradients.
    penalty : {"l1", "l2"}, optional
        phi is ``penalty_strength |beta|_1``, or ``penalty_strength / 2 |beta|^2``.
    penalty_strength : float, default 0.0
        At least 0.
    decay : float, default 1.0
        In (0, 1]: what S'S is multiplied with before every round.

    Returns
    -------
    beta : (d,) array of float64
        The last decision.
    losses : (rounds,) array of float64
        Of the decision with which each round began.

    References
    ----------
    Wan, Zhang, IEEE TPAMI 44 (2022), Algorithms 1 ("dual_averaging") and 2 ("mirror_descent").

    Examples
    --------
    With tau above d nothing is shrunk, and the sketch is the whole matrix:

    >>> import numpy as np
    >>> from fastsketch import reference
    >>> rng = np.random.default_rng(0)
    >>> x = rng.standard_normal((100, 4)) * [10, 3, 1, 0.3]
    >>> truth = np.ones(4)
    >>> def absolute(t, beta):
    ...     residual = x[t - 1] @ (beta - truth)
    ...     return abs(residual), np.sign(residual) * x[t - 1]
    >>> common = {"subgradient": absolute, "learning_rate": 1.0, "delta": 1.0}
    >>> beta, _ = reference.adaptive_frequent_directions(4, 100, sketch_size=5, **common)
    >>> np.allclose(beta, reference.adaptive_full(4, 100, **common)[0])
    True
    """
    return adaptive_rounds(FD(d, sketch_size), d, rounds=rounds, **settings)


def adaptive_fast_frequent_directions(
    d: int, rounds: int, *, sketch_size: int, **settings: Unpack[RoundSettings]
) -> Play:
    """Run ADA-FFD, an adaptive subgradient method with a buffered Frequent Directions sketch.
    Return the last weights and the loss of each round.

    H = delta I + (S'S)^(1/2) with S'S = V M V', V orthonormal: an SVD a round of a small matrix only.

    Parameters
    ----------
    d : int
        Length of beta.
    rounds : int
        Number of rounds; they count from 1.
    subgradient : callable
        subgradient(t, beta) of round t at beta (d,): the loss, a float, and a subgradient (d,).
    sketch_size : int
        tau, at least 2.
    learning_rate : float
        eta.
    delta : float
        Above 0: H = delta I + ...
    form : {"mirror_descent", "dual_averaging"}, default "mirror_descent"
        Whether a step starts from beta, or from the sum of all subgradients.
    penalty : {"l1", "l2"}, optional
        phi is ``penalty_strength |beta|_1``, or ``penalty_strength / 2 |beta|^2``.
    penalty_strength : float, default 0.0
        At least 0.
    decay : float, default 1.0
        In (0, 1]: what S'S is multiplied with before every round.

    Returns
    -------
    beta : (d,) array of float64
        The last decision.
    losses : (rounds,) array of float64
        Of the decision with which each round began.

    References
    ----------
    Wan, Zhang, IEEE TPAMI 44 (2022), Algorithms 3 ("dual_averaging") and 4 ("mirror_descent").

    Examples
    --------
    Of the same tau it loses less than ADA-FD, which shrinks in every round:

    >>> import numpy as np
    >>> from fastsketch import reference
    >>> rng = np.random.default_rng(0)
    >>> x = rng.standard_normal((300, 10)) * np.logspace(1, -1, 10) @ np.linalg.qr(rng.standard_normal((10, 10)))[0]
    >>> truth = np.ones(10)
    >>> def absolute(t, beta):
    ...     residual = x[t - 1] @ (beta - truth)
    ...     return abs(residual), np.sign(residual) * x[t - 1]
    >>> common = {"subgradient": absolute, "sketch_size": 5, "learning_rate": 1.0, "delta": 1.0}
    >>> _, fast = reference.adaptive_fast_frequent_directions(10, 300, **common)
    >>> _, basic = reference.adaptive_frequent_directions(10, 300, **common)
    >>> bool(fast.sum() < 0.8 * basic.sum())
    True
    """
    return adaptive_rounds(FFD(d, sketch_size), d, rounds=rounds, **settings)


def follow_the_sketched_leader(
    d: int,
    rounds: int,
    *,
    sketch_size: int,
    subgradient: Subgradient,
    learning_rate: float,
    delta: float,
    fast: bool = False,
    penalty: str | None = None,
    penalty_strength: float = 0.0,
) -> Play:
    """Run FTSL, dual averaging with a Frequent Directions sketch of the gradients, and return (beta, losses).

    beta_(t+1) = -eta H_t^-1 (g_1 + ... + g_t) with H_t = delta I + (S'S + rho_t I)^(1/2), where rho_t is the sum of the
    squares that the shrinks of S have removed. S'S + rho_t I is at least the sum of g g', so that the regret has a
    bound without d (docs/papers/adafd.md).

    Parameters
    ----------
    d : int
        Length of beta.
    rounds : int
        Number of rounds; they count from 1.
    sketch_size : int
        tau, at least 2.
    subgradient : callable
        subgradient(t, beta) of round t at beta (d,): the loss, a float, and a subgradient (d,).
    learning_rate : float
        eta.
    delta : float
        Above 0. The bound needs at least the length of the longest subgradient.
    fast : bool, default False
        Whether the sketch is buffered, as in ADA-FFD: FTFSL.
    penalty : {"l1", "l2"}, optional
        phi is ``penalty_strength |beta|_1``, or ``penalty_strength / 2 |beta|^2``.
    penalty_strength : float, default 0.0
        At least 0.

    Returns
    -------
    beta : (d,) array of float64
        The last decision.
    losses : (rounds,) array of float64
        Of the decision with which each round began.

    References
    ----------
    Yang, Wan, Li, Wang, Zhang, Wei, Zhang, *Dimension-Free Adaptive Subgradient Methods with Frequent Directions*,
    ICML 2025, by its abstract.

    Examples
    --------
    With tau above d nothing is removed, and the sketch is the whole matrix:

    >>> import numpy as np
    >>> from fastsketch import reference
    >>> rng = np.random.default_rng(0)
    >>> x = rng.standard_normal((100, 4)) * [10, 3, 1, 0.3]
    >>> truth = np.ones(4)
    >>> def absolute(t, beta):
    ...     residual = x[t - 1] @ (beta - truth)
    ...     return abs(residual), np.sign(residual) * x[t - 1]
    >>> common = {"subgradient": absolute, "learning_rate": 1.0, "delta": 1.0}
    >>> beta, _ = reference.follow_the_sketched_leader(4, 100, sketch_size=5, **common)
    >>> np.allclose(beta, reference.adaptive_full(4, 100, **common, form="dual_averaging")[0])
    True
    """
    return adaptive_rounds(
        FFD(d, sketch_size) if fast else FD(d, sketch_size),
        d,
        rounds=rounds,
        subgradient=subgradient,
        learning_rate=learning_rate,
        delta=delta,
        form="dual_averaging",
        penalty=penalty,
        penalty_strength=penalty_strength,
        compensate=True,
    )


def sketched_newton_subgradient(d: int, rounds: int, *, sketch_size: int, **settings: Unpack[RoundSettings]) -> Play:
    """Run FD-SON, an online Newton method with a Frequent Directions sketch of the gradients.
    Return the last weights and the loss of each round.

    H = delta I + sum g g' / sqrt(t).

    It has the sketch of ADA-FFD without the square root, which shrinks when it holds 2 tau rows, repeated ones counted.

    Parameters
    ----------
    d : int
        Length of beta.
    rounds : int
        Number of rounds; they count from 1.
    subgradient : callable
        subgradient(t, beta) of round t at beta (d,): the loss, a float, and a subgradient (d,).
    sketch_size : int
        tau, at least 2.
    learning_rate : float
        eta.
    delta : float
        Above 0: H = delta I + ...
    form : {"mirror_descent", "dual_averaging"}, default "mirror_descent"
        Whether a step starts from beta, or from the sum of all subgradients.
    penalty : {"l1", "l2"}, optional
        phi is ``penalty_strength |beta|_1``, or ``penalty_strength / 2 |beta|^2``.
    penalty_strength : float, default 0.0
        At least 0.
    decay : float, default 1.0
        In (0, 1]: what S'S is multiplied with before every round.

    Returns
    -------
    beta : (d,) array of float64
        The last decision.
    losses : (rounds,) array of float64
        Of the decision with which each round began.

    References
    ----------
    Luo, Agarwal, Cesa-Bianchi, Langford, NeurIPS (2016), as Wan, Zhang, IEEE TPAMI 44 (2022), section 3.3, writes it.

    Examples
    --------
    >>> import numpy as np
    >>> from fastsketch import reference
    >>> rng = np.random.default_rng(0)
    >>> x = rng.standard_normal((300, 10)) * np.logspace(1, -1, 10) @ np.linalg.qr(rng.standard_normal((10, 10)))[0]
    >>> truth = np.ones(10)
    >>> def absolute(t, beta):
    ...     residual = x[t - 1] @ (beta - truth)
    ...     return abs(residual), np.sign(residual) * x[t - 1]
    >>> _, losses = reference.sketched_newton_subgradient(
    ...     10, 300, subgradient=absolute, sketch_size=5, learning_rate=1.0, delta=1.0
    ... )
    >>> bool(losses[-50:].mean() < 0.5 * losses[:50].mean())
    True
    """
    return adaptive_rounds(FFD(d, sketch_size, by_rows=True), d, rounds=rounds, fade=True, **settings)


def adaptive_full(d: int, rounds: int, **settings: Unpack[RoundSettings]) -> Play:
    """Run ADA-FULL, the adaptive subgradient method with the full matrix of the gradients (AdaGrad).
    Return the last weights and the loss of each round.

    H = delta I + (sum g g')^(1/2), which the sketches approximate: d x d numbers, and an eigendecomposition a round.

    Parameters
    ----------
    d : int
        Length of beta.
    rounds : int
        Number of rounds; they count from 1.
    subgradient : callable
        subgradient(t, beta) of round t at beta (d,): the loss, a float, and a subgradient (d,).
    learning_rate : float
        eta.
    delta : float
        Above 0: H = delta I + ...
    form : {"mirror_descent", "dual_averaging"}, default "mirror_descent"
        Whether a step starts from beta, or from the sum of all subgradients.
    penalty : {"l1", "l2"}, optional
        phi is ``penalty_strength |beta|_1``, or ``penalty_strength / 2 |beta|^2``.
    penalty_strength : float, default 0.0
        At least 0.
    decay : float, default 1.0
        In (0, 1]: what S'S is multiplied with before every round.

    Returns
    -------
    beta : (d,) array of float64
        The last decision.
    losses : (rounds,) array of float64
        Of the decision with which each round began.

    References
    ----------
    Duchi, Hazan, Singer, JMLR 12 (2011).

    Examples
    --------
    Features of very different lengths in a basis that no diagonal shows:

    >>> import numpy as np
    >>> from fastsketch import reference
    >>> rng = np.random.default_rng(0)
    >>> x = rng.standard_normal((300, 10)) * np.logspace(1, -1, 10) @ np.linalg.qr(rng.standard_normal((10, 10)))[0]
    >>> truth = np.ones(10)
    >>> def absolute(t, beta):
    ...     residual = x[t - 1] @ (beta - truth)
    ...     return abs(residual), np.sign(residual) * x[t - 1]
    >>> common = {"subgradient": absolute, "learning_rate": 1.0, "delta": 1.0}
    >>> _, whole = reference.adaptive_full(10, 300, **common)
    >>> _, diagonal = reference.adaptive_diagonal(10, 300, **common)
    >>> bool(whole.sum() < 0.8 * diagonal.sum())
    True
    """
    return adaptive_rounds(WholeMatrix(d), d, rounds=rounds, **settings)


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
) -> Play:
    """Run ADA-DIAG, the adaptive subgradient method with a separate rate for every coordinate (AdaGrad).
    Return the last weights and the loss of each round.

    H = delta I + diag(sum g^2)^(1/2).

    Parameters
    ----------
    d : int
        Length of beta.
    rounds : int
        Number of rounds; they count from 1.
    subgradient : callable
        subgradient(t, beta) of round t at beta (d,): the loss, a float, and a subgradient (d,).
    learning_rate : float
        eta.
    delta : float
        At least 0: H = delta I + ...
    form : {"mirror_descent", "dual_averaging"}, default "mirror_descent"
        Whether a step starts from beta, or from the sum of all subgradients.
    penalty : {"l1", "l2"}, optional
        phi is ``penalty_strength |beta|_1``, or ``penalty_strength / 2 |beta|^2``.
    penalty_strength : float, default 0.0
        At least 0.
    decay : float, default 1.0
        In (0, 1]: what S'S is multiplied with before every round.

    Returns
    -------
    beta : (d,) array of float64
        The last decision.
    losses : (rounds,) array of float64
        Of the decision with which each round began.

    References
    ----------
    Duchi, Hazan, Singer, JMLR 12 (2011).

    Examples
    --------
    Under steady slopes the steps of every coordinate have the lengths 1, 1 / sqrt(2), 1 / sqrt(3), ... times the
    learning rate, however steep it is:

    >>> import numpy as np
    >>> from fastsketch import reference
    >>> def slopes(t, beta):
    ...     return 0.0, np.array([1000.0, -1.0, 0.001])
    >>> beta, _ = reference.adaptive_diagonal(3, 3, subgradient=slopes, learning_rate=1.0, delta=0.0)
    >>> beta.round(3).tolist(), round(1 + 1 / 2**0.5 + 1 / 3**0.5, 3)
    ([-2.284, 2.284, -2.284], 2.284)
    """
    squares, total, phi = np.zeros(d), np.zeros(d), as_penalty(penalty, penalty_strength)

    def step(t: int, beta: Array, g: Array) -> Array:
        nonlocal squares, total
        squares, total = decay * squares + g * g, total + g
        h = delta + np.sqrt(squares)
        if form == "dual_averaging":
            return prox(h, -learning_rate * total, phi, learning_rate * t)
        return prox(h, h * beta - learning_rate * g, phi, learning_rate)

    return play(d, rounds, subgradient=subgradient, step=step)
