"""Greedy low-rank learning in plain NumPy, with dense matrices and masks: Algorithms 1 to 3 of the GLRL paper.

Source: Yao, Kwok, *Greedy Learning of Generalized Low-Rank Models*, IJCAI 2016.
Notation: o observed values, seen the mask Omega, X = sum_t theta_t u_t v_t'. `loss(z, o)` returns arrays (value,
slope).
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

_Array = NDArray[np.float64]
_Mask = NDArray[np.bool_]
_Pair = tuple[_Array, _Array]  # u (m,), v (n,)
_Loss = Callable[[_Array, _Array], tuple[_Array, _Array]]


def _leading(g: _Array) -> tuple[_Array, float, _Array]:
    u, s, vt = np.linalg.svd(g)
    return u[:, 0], float(s[0]), vt[0]


def _put_together(theta: _Array, pairs: Sequence[_Pair], shape: tuple[int, ...]) -> _Array:
    x = np.zeros(shape)
    for coefficient, (u, v) in zip(theta, pairs, strict=True):
        x += coefficient * np.outer(u, v)
    return x


def rank_one_matrix_pursuit(o: _Array, seen: _Mask, *, rank: int, economic: bool = False) -> tuple[_Array, _Array]:
    """Complete a matrix by rank-one matrix pursuit (R1MP), or by its economic variant.
    Return the completed matrix and the squared residuals after each step.

    Parameters
    ----------
    o : (m, n) array of float64
        Observed values.
    seen : (m, n) array of bool
        Where they are observed; other values of `o` are not looked at.
    rank : int
        Number of rank-one matrices.
    economic : bool, default False
        Whether the coefficients of earlier ones keep their ratios: two unknowns a step in place of all.

    Returns
    -------
    x : (m, n) array of float64
        The completed matrix.
    residuals : (rank,) array of float64
        Squared residuals on what is seen, after each step.

    References
    ----------
    Yao, Kwok, IJCAI (2016), Algorithm 1; Wang et al., ICML (2014).

    Examples
    --------
    A fifth of a matrix of rank one is hidden. A few steps find most of it:

    >>> import numpy as np
    >>> from fastsketch import reference
    >>> rng = np.random.default_rng(0)
    >>> true = np.outer(rng.uniform(1, 3, 20), rng.uniform(1, 3, 20))
    >>> seen = rng.random((20, 20)) < 0.8
    >>> x, residuals = reference.rank_one_matrix_pursuit(true, seen, rank=5)
    >>> bool((np.diff(residuals) < 0).all())
    True
    >>> bool(np.linalg.norm((x - true)[~seen]) < 0.3 * np.linalg.norm(true[~seen]))
    True
    """
    pairs: list[_Pair] = []
    residuals: list[float] = []
    theta, x = np.empty(0), np.zeros(o.shape)
    for _ in range(rank):
        u, _, v = _leading(np.where(seen, o - x, 0.0))  # 3: (u_t, v_t) of R_t
        if economic:
            basis = [x[seen], np.outer(u, v)[seen]]
        else:
            basis = [np.outer(*pair)[seen] for pair in [*pairs, (u, v)]]
        solved = np.linalg.lstsq(np.stack(basis, axis=1), o[seen], rcond=None)[0].astype(float)  # 4: equation 3
        theta = np.append(theta * solved[0], solved[1]) if economic else solved
        pairs.append((u, v))
        x = _put_together(theta, pairs, o.shape)
        residuals.append(float(((o - x)[seen] ** 2).sum()))
    return x, np.array(residuals)


def greedy_low_rank_smooth(
    o: _Array,
    seen: _Mask,
    *,
    rank: int,
    loss: _Loss,
    lipschitz: float,
    refine: Literal["full", "economic", "none"] = "full",
    base: float = 0.0,
    scales: tuple[_Array, _Array] | None = None,
) -> tuple[_Array, _Array, _Array]:
    """Fit a low-rank matrix under a smooth loss by greedy pursuit, one rank at a time (GLRL).

    Parameters
    ----------
    o : (m, n) array of float64
        Observed values.
    seen : (m, n) array of bool
        Where they are observed.
    rank : int
        Number of rank-one matrices.
    loss : callable
        loss(z, o): the losses and their slopes of scores z, two arrays.
    lipschitz : float
        Of the slope, above 0: a step is the leading singular value over this.
    refine : {"full", "economic", "none"}, default "full"
        What is fitted after a step: all coefficients (equation 6), two (equation 7), or nothing.
    base : float, default 0.0
        Scores without any rank.
    scales : (left (m,), right (n,)), optional
        The search is made for diag(left) G diag(right), G the slopes.

    Returns
    -------
    x : (m, n) array of float64
        The scores.
    theta : (rank,) array of float64
        Coefficients of the rank-one matrices.
    objectives : (rank + 1,) array of float64
        Losses summed over what is seen, from rank 0.

    References
    ----------
    Yao, Kwok, IJCAI (2016), Algorithm 2.

    Examples
    --------
    Signs, and the logistic loss. Fitting the coefficients again takes fewer ranks for the same loss:

    >>> import numpy as np
    >>> from fastsketch import reference
    >>> rng = np.random.default_rng(0)
    >>> signs = np.sign(np.outer(rng.standard_normal(15), rng.standard_normal(15)))
    >>> seen = rng.random((15, 15)) < 0.7
    >>> def logistic(z, o):
    ...     return np.log1p(np.exp(-o * z)), -o / (1 + np.exp(o * z))
    >>> x, _, full = reference.greedy_low_rank_smooth(signs, seen, rank=3, loss=logistic, lipschitz=0.25)
    >>> *_, none = reference.greedy_low_rank_smooth(signs, seen, rank=3, loss=logistic, lipschitz=0.25, refine="none")
    >>> bool(full[-1] < none[-1]), bool((np.sign(x) == signs)[~seen].mean() > 0.9)
    (True, True)
    """
    left, right = (np.ones(o.shape[0]), np.ones(o.shape[1])) if scales is None else scales
    pairs: list[_Pair] = []
    theta, x = np.empty(0), np.zeros(o.shape)

    def value(x: _Array) -> float:
        return float(loss(base + x, o)[0][seen].sum())

    def slopes(x: _Array) -> _Array:
        return np.where(seen, loss(base + x, o)[1], 0.0)

    objectives = [value(x)]
    for _ in range(rank):
        u, s, v = _leading(left[:, None] * slopes(x) * right)  # 3
        u, v = left * u, right * v
        step = -s / lipschitz  # 4
        pairs.append((u, v))
        if refine == "full":
            theta = _best_combination([np.outer(*pair) for pair in pairs], np.append(theta, step), value, slopes)
        elif refine == "economic":
            mu, rho = _best_combination([x, np.outer(u, v)], np.array([1.0, step]), value, slopes)
            theta = np.append(mu * theta, rho)
        else:
            theta = np.append(theta, step)
        x = _put_together(theta, pairs, o.shape)
        objectives.append(value(x))
    return base + x, theta, np.array(objectives)


def _best_combination(
    parts: Sequence[_Array], start: _Array, value: Callable[[_Array], float], slopes: Callable[[_Array], _Array]
) -> _Array:
    """Return the coefficients of the linear combination of the matrices `parts` that minimises the function `value`.
    They are found by L-BFGS, with the gradient `slopes`.
    """
    unit = np.where(np.abs(start) > 0, np.abs(start), 1.0)
    q: Any = np.stack(parts) * unit[:, None, None]

    def combined(t: _Array) -> Any:
        return np.tensordot(t, q, 1)

    def objective(t: _Array) -> float:
        return value(combined(t))

    def gradient(t: _Array) -> _Array:
        return (q * slopes(combined(t))).sum(axis=(1, 2))

    least: Any = cast("Any", minimize)(
        objective,
        start / unit,
        jac=gradient,
        method="L-BFGS-B",
        options={"maxiter": 1000, "ftol": 1e-15, "gtol": 1e-12},
    )
    return least.x * unit


def greedy_low_rank_nonsmooth(
    o: _Array,
    seen: _Mask,
    *,
    steps: int,
    subgradient: _Loss,
    step_size: float,
    step_rule: Literal["inverse_sqrt", "inverse"] = "inverse_sqrt",
    inner_tolerance: float = 0.99,
    inner_criterion: Literal["current", "previous"] = "previous",
    max_inner_rank: int | None = None,
    base: float = 0.0,
) -> tuple[_Array, _Array]:
    """Fit a matrix under a nonsmooth loss, by steps along low-rank approximations of subgradients (GLRL).

    Parameters
    ----------
    o : (m, n) array of float64
        Observed values.
    seen : (m, n) array of bool
        Where they are observed.
    steps : int
        Number of steps.
    subgradient : callable
        subgradient(z, o): the losses and their subgradients of scores z, two arrays.
    step_size : float
        The paper's c_1 or c_2, above 0.
    step_rule : {"inverse_sqrt", "inverse"}, default "inverse_sqrt"
        Length of the step t: step_size / sqrt(t), or step_size / t, which is for strongly convex losses.
    inner_tolerance : float, default 0.99
        The paper's nu, in (0, 1): how much of a subgradient its approximation may leave.
    inner_criterion : {"previous", "current"}, default "previous"
        Of what: the printed stop of the inner loop compares with what the step before has left; "current" stops at
        ||g_t - h||^2 <= nu ||g_t||^2.
    max_inner_rank : int, optional
        Bound on the rank of an approximation.
    base : float, default 0.0
        Scores without any rank.

    Returns
    -------
    x : (m, n) array of float64
        The scores of the best step.
    objectives : (steps + 1,) array of float64
        Losses summed over what is seen, from zero on.

    References
    ----------
    Yao, Kwok, IJCAI (2016), Algorithm 3.

    Examples
    --------
    Two entries of a matrix of rank one are spoilt. The absolute loss passes them by, where the best approximation by
    squares does not:

    >>> import numpy as np
    >>> from fastsketch import reference
    >>> rng = np.random.default_rng(0)
    >>> true = np.outer(np.sign(rng.standard_normal(12)), np.sign(rng.standard_normal(12)))
    >>> spoilt = true.copy()
    >>> spoilt[3, 4], spoilt[0, 1] = 20, -20
    >>> def absolute(z, o):
    ...     return abs(z - o), np.sign(z - o)
    >>> x, _ = reference.greedy_low_rank_nonsmooth(
    ...     spoilt, np.ones((12, 12), bool), steps=50, subgradient=absolute, step_size=0.1, max_inner_rank=1
    ... )
    >>> u, s, vt = np.linalg.svd(spoilt)
    >>> bool(abs(x - true).max() < 0.5), bool(abs(s[0] * np.outer(u[:, 0], vt[0]) - true).max() > 10)
    (True, True)
    """
    x, previous = np.zeros(o.shape), None

    def value(x: _Array) -> float:
        return float(subgradient(base + x, o)[0][seen].sum())

    objectives, best = [value(x)], x
    for t in range(1, steps + 1):
        g = np.where(seen, subgradient(base + x, o)[1], 0.0)  # 4
        h = np.zeros(o.shape)
        current = float((g**2).sum())
        bound = inner_tolerance * (previous if inner_criterion == "previous" and previous is not None else current)
        for k in range(1, min(o.shape) + 1):  # 5
            u, s, v = _leading(g - h)  # 6
            h = h + s * np.outer(u, v)  # 7
            if ((g - h) ** 2).sum() <= bound or k == max_inner_rank:  # 8
                break
        previous = float(((g - h) ** 2).sum())
        x = x - step_size / (np.sqrt(t) if step_rule == "inverse_sqrt" else t) * h  # 3, 12
        objectives.append(value(x))
        if objectives[-1] <= min(objectives):
            best = x
    return base + best, np.array(objectives)
