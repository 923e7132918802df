"""Competitors of ADA-FD in plain NumPy: random projections of the gradients' matrix, and first-order methods.

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
    """Run ADA-LR, an adaptive subgradient method with a random projection of the gradients' matrix.
    Return the last weights and the loss of each round.

    In every round G = sum g g' is projected onto tau random directions, whose QR and SVD give H. Mirror descent.

    Parameters
    ----------
    d : int
        Length of beta.
    rounds : int
        Number of rounds; they count from 1.
    subgradient : callable
        subgradient(t, beta) of round t at beta (d,): the loss, a float, and a subgradient (d,).
    sketch_size : int
        tau, 1 <= tau <= d.
    learning_rate : float
        eta.
    delta : float
        Above 0: H = delta I + ...
    rng : numpy.random.Generator
        Anything with its ``standard_normal``.

    Returns
    -------
    beta : (d,) array of float64
        The last decision.
    losses : (rounds,) array of float64
        Of the decision with which each round began.

    References
    ----------
    Krummenacher, McWilliams, Kilcher, Buhmann, Meinshausen, NeurIPS (2016), equation 3.

    Examples
    --------
    With tau = d the projection loses nothing, and the rounds are those of the whole matrix:

    >>> import numpy as np
    >>> from fastsketch import reference
    >>> rng = np.random.default_rng(0)
    >>> x = rng.standard_normal((100, 4)) * [10, 3, 1, 0.3]
    >>> truth = np.ones(4)
    >>> def absolute(t, beta):
    ...     residual = x[t - 1] @ (beta - truth)
    ...     return abs(residual), np.sign(residual) * x[t - 1]
    >>> common = {"subgradient": absolute, "learning_rate": 1.0, "delta": 1.0}
    >>> beta, _ = reference.adaptive_low_rank(4, 100, sketch_size=4, rng=rng, **common)
    >>> np.allclose(beta, reference.adaptive_full(4, 100, **common)[0])
    True
    """
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
    """Run RADAGRAD, an adaptive subgradient method with one fixed random projection of the gradients.
    Return the last weights and the loss of each round.

    Outside the tau directions that it finds it takes plain subgradient steps. Mirror descent.

    Parameters
    ----------
    d : int
        Length of beta.
    rounds : int
        Number of rounds; they count from 1.
    subgradient : callable
        subgradient(t, beta) of round t at beta (d,): the loss, a float, and a subgradient (d,).
    sketch_size : int
        tau, 1 <= tau <= d.
    learning_rate : float
        eta.
    delta : float
        Above 0: H = delta I + ...
    rng : numpy.random.Generator
        Anything with its ``standard_normal``.

    Returns
    -------
    beta : (d,) array of float64
        The last decision.
    losses : (rounds,) array of float64
        Of the decision with which each round began.

    References
    ----------
    Krummenacher, McWilliams, Kilcher, Buhmann, Meinshausen, NeurIPS (2016), equation 4.

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
    >>> _, losses = reference.radagrad(
    ...     10, 300, subgradient=absolute, sketch_size=5, learning_rate=1.0, delta=1.0, rng=np.random.default_rng(0)
    ... )
    >>> bool(losses[-50:].mean() < 0.6 * losses[:50].mean())
    True
    """
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
    """Run online gradient descent (OGD), with step size learning_rate / sqrt(t) in round t.
    Return the last weights and the loss of each round.

    Parameters
    ----------
    d : int
        Length of beta.
    rounds : int
        Number of rounds; they count from 1.
    subgradient : callable
        subgradient(t, beta) of round t at beta (d,): the loss, a float, and a subgradient (d,).
    learning_rate : float
        eta, of the first round.
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
    Zinkevich, ICML (2003).

    Examples
    --------
    The nearest point to 3 by steps that shrink: at last each is 1 / 20 long. A penalty that is steeper than the loss
    keeps it at zero, not near it.

    >>> import numpy as np
    >>> from fastsketch import reference
    >>> def distance(t, beta):
    ...     return abs(beta - 3).sum(), np.sign(beta - 3)
    >>> beta, _ = reference.online_gradient_descent(1, 400, subgradient=distance, learning_rate=1.0)
    >>> bool(abs(beta[0] - 3) <= 1 / 20)
    True
    >>> held = {"penalty": "l1", "penalty_strength": 2.0}
    >>> reference.online_gradient_descent(1, 400, subgradient=distance, learning_rate=1.0, **held)[0].tolist()
    [0.0]
    """
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
    """Run Adam, with momentum and a separate rate for each coordinate.
    Return the last weights and the loss of each round.

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
    beta1 : float, default 0.9
        In [0, 1): what the mean of the subgradients keeps of itself in a round.
    beta2 : float, default 0.999
        In [0, 1): the same of the mean of their squares.
    delta : float, default 1e-8
        Added to the root of that mean.
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
    Kingma, Ba, ICLR (2015).

    Examples
    --------
    The first step has the length of the learning rate in every coordinate, however large the subgradient is:

    >>> import numpy as np
    >>> from fastsketch import reference
    >>> def slope(t, beta):
    ...     return 0.0, np.array([1000.0, -1.0, 0.001])
    >>> beta, _ = reference.adam(3, 1, subgradient=slope, learning_rate=0.1)
    >>> beta.round(4).tolist()
    [-0.1, 0.1, -0.1]
    """
    first, second, phi = np.zeros(d), np.zeros(d), as_penalty(penalty, penalty_strength)

    def step(t: int, beta: Array, g: Array) -> Array:
        nonlocal first, second
        first, second = beta1 * first + (1 - beta1) * g, beta2 * second + (1 - beta2) * g * g
        h = np.sqrt(second / (1 - beta2**t)) + delta
        return prox(h, h * beta - learning_rate * first / (1 - beta1**t), phi, learning_rate)

    return play(d, rounds, subgradient=subgradient, step=step)
