"""AdaGrad (Duchi et al.) with the whole matrix, which the sketched methods approximate, and with its diagonal.

Notation and arguments as in the ADA-FD paper's algorithms beside it.
"""

import numpy as np

from fastsketch.reference._rounds import Array, Subgradient, WholeMatrix, adaptive_rounds, as_penalty, play, prox


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
    """Play adaptive subgradient rounds with the whole matrix of the gradients (ADA-FULL).

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
    return adaptive_rounds(
        WholeMatrix(d),
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
    """Play adaptive subgradient rounds with a rate for every coordinate (ADA-DIAG).

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
