"""Greedy low-rank learning in plain NumPy: GLRL paper (Yao, Kwok 2016), Algorithms 1, 2, 3; dense, with a mask.

Notation: o observed values, seen the mask Omega, X = sum_t theta_t u_t v_t'. `loss(z, o)` returns arrays (value,
slope).
"""

import numpy as np
from scipy.optimize import minimize


def _leading(g):
    u, s, vt = np.linalg.svd(g)
    return u[:, 0], s[0], vt[0]


def _put_together(theta, pairs, shape):
    x = np.zeros(shape)
    for coefficient, (u, v) in zip(theta, pairs, strict=True):
        x += coefficient * np.outer(u, v)
    return x


def rank_one_matrix_pursuit(o, seen, rank, economic=False):
    """Algorithm 1 (R1MP, Wang et al. 2014), and its economic variant. Returns (X, squared residuals by rank)."""
    pairs, theta, residuals = [], np.empty(0), []
    x = np.zeros(o.shape)
    for _ in range(rank):
        u, _, v = _leading(np.where(seen, o - x, 0.0))  # 3: (u_t, v_t) of R_t
        if economic:
            basis = [x[seen], np.outer(u, v)[seen]]
        else:
            basis = [np.outer(*pair)[seen] for pair in [*pairs, (u, v)]]
        found = np.linalg.lstsq(np.stack(basis, axis=1), o[seen], rcond=None)[0]  # 4: equation 3
        theta = np.append(theta * found[0], found[1]) if economic else found
        pairs.append((u, v))
        x = _put_together(theta, pairs, o.shape)
        residuals.append(float(((o - x)[seen] ** 2).sum()))
    return x, np.array(residuals)


def greedy_low_rank_smooth(o, seen, rank, loss, lipschitz, refine="full", base=0.0, scales=None):
    """Algorithm 2: refine "full" (equation 6), "economic" (7) or "none". Returns (X, theta, objectives from rank 0).

    base: scores without any rank; scales (left, right): the search is made for diag(left) G diag(right).
    """
    left, right = (np.ones(o.shape[0]), np.ones(o.shape[1])) if scales is None else scales
    pairs, theta, x = [], np.empty(0), np.zeros(o.shape)
    value = lambda x: float(loss(base + x, o)[0][seen].sum())  # noqa: E731
    objectives = [value(x)]
    for _ in range(rank):
        g = np.where(seen, loss(base + x, o)[1], 0.0)
        u, s, v = _leading(left[:, None] * g * right)  # 3
        u, v = left * u, right * v
        step = -s / lipschitz  # 4
        pairs.append((u, v))
        if refine == "full":
            q = np.stack([np.outer(*pair) for pair in pairs])
            f = lambda t, q=q: value(np.tensordot(t, q, 1))  # noqa: E731
            df = lambda t, q=q: (q * np.where(seen, loss(base + np.tensordot(t, q, 1), o)[1], 0.0)).sum(  # noqa: E731
                axis=(1, 2)
            )
            theta = _minimised(f, df, np.append(theta, step))
        elif refine == "economic":
            new = np.outer(u, v)
            f = lambda t, x=x, new=new: value(t[0] * x + t[1] * new)  # noqa: E731
            df = lambda t, x=x, new=new: np.array(  # noqa: E731
                [(part * np.where(seen, loss(base + t[0] * x + t[1] * new, o)[1], 0.0)).sum() for part in (x, new)]
            )
            mu, rho = _minimised(f, df, np.array([1.0, step]))
            theta = np.append(mu * theta, rho)
        else:
            theta = np.append(theta, step)
        x = _put_together(theta, pairs, o.shape)
        objectives.append(value(x))
    return base + x, theta, np.array(objectives)


def _minimised(f, df, start):
    """L-BFGS to the end, in units of the start."""
    unit = np.where(np.abs(start) > 0, np.abs(start), 1.0)
    found = minimize(
        lambda t: f(t * unit),
        start / unit,
        jac=lambda t: df(t * unit) * unit,
        method="L-BFGS-B",
        options={"maxiter": 1000, "ftol": 1e-15, "gtol": 1e-12},
    )
    return found.x * unit


def greedy_low_rank_nonsmooth(o, seen, steps, subgradient, c2, nu=0.99, inner="paper", inner_rank=None, base=0.0):
    """Algorithm 3 with eta_t = c2 / sqrt(t). subgradient(z, o) returns (values, g). Returns (best X, objectives).

    inner "paper": the printed stop of the inner loop; "energy": ||g_t - h||^2 <= nu ||g_t||^2; inner_rank caps it.
    """
    x, previous = np.zeros(o.shape), None
    value = lambda x: float(subgradient(base + x, o)[0][seen].sum())  # noqa: E731
    objectives, best = [value(x)], x
    for t in range(1, steps + 1):
        g = np.where(seen, subgradient(base + x, o)[1], 0.0)  # 4
        h = np.zeros(o.shape)
        bound = nu * (previous if inner == "paper" and previous is not None else (g**2).sum())
        for k in range(1, min(o.shape) + 1):  # 5
            u, s, v = _leading(g - h)  # 6
            h = h + s * np.outer(u, v)  # 7
            if ((g - h) ** 2).sum() <= bound or k == inner_rank:  # 8
                break
        previous = ((g - h) ** 2).sum()
        x = x - c2 / np.sqrt(t) * h  # 12
        objectives.append(value(x))
        if objectives[-1] <= min(objectives):
            best = x
    return base + best, np.array(objectives)
