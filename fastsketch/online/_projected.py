"""ADA-LR and RADAGRAD: G by random projections, for comparison. A round is a few LAPACK calls, so that NumPy serves."""

import numpy as np

from fastsketch.online._losses import loss_and_slope
from fastsketch.sketching import random_normal

# Keys of the random numbers.
FIXED, FRESH = 71, 72
ROUND = 2


def start(config, d):
    """Arrays of the state: sum of g g' (ADA-LR), or of g (Pi g)' (RADAGRAD)."""
    if config.method == "ada-lr":
        return {"outer": np.zeros((d, d))}
    return {"low": np.zeros((d, config.sketch_size))}


def projection(config, d, round_):
    """Pi, (d, tau): one for all rounds of RADAGRAD, another in each of ADA-LR."""
    tau = config.sketch_size
    key = (FRESH << 32) + round_ if config.method == "ada-lr" else FIXED
    numbers = random_normal(config.seed, key, d * tau)
    return numbers.reshape(d, tau) if config.method == "ada-lr" else numbers.reshape(tau, d).T / np.sqrt(tau)


def learn(config, a, rows, targets, weights, predictions):
    """Rounds of equations 3 and 4 of the ADA-FD paper, for every point of the grid."""
    base, eta, delta = a["base"], a["eta"][:, None], a["delta"][:, None]
    d = base.shape[1]
    fixed = projection(config, d, 0) if config.method == "radagrad" else None
    for i, x in enumerate(rows):
        z = base @ x
        losses, slopes = loss_and_slope(config.loss, z, targets[i])
        losses, slopes = weights[i] * losses, weights[i] * slopes
        if not np.isfinite(z).all() or not np.isfinite(slopes * slopes * (x @ x)).all():
            return
        predictions[i] = z[0]
        a["count"][ROUND] += 1
        a["losses"] += losses
        a["mistakes"] += z * targets[i] <= 0
        drawn = weights[i] if config.loss == "absolute" else slopes[0]
        if abs(drawn) <= 1e-12 or not x.any():
            continue
        g = drawn * x
        if config.method == "ada-lr":
            a["outer"] += np.outer(g, g)
            q = np.linalg.qr(a["outer"] @ projection(config, d, int(a["count"][ROUND])))[0]
            _, s, vt = np.linalg.svd(q.T @ a["outer"], full_matrices=False)
            inner = vt @ x
            base -= eta * slopes[:, None] * ((inner / (np.sqrt(s) + delta)) @ vt)
            continue
        a["low"] += np.outer(g, g @ fixed)
        q = np.linalg.qr(a["low"])[0]
        _, s, wt = np.linalg.svd(a["low"].T @ q, full_matrices=False)
        v = q @ wt.T
        inner = v.T @ x
        base -= eta * slopes[:, None] * ((inner / (np.sqrt(s) + delta)) @ v.T + (x - v @ inner))
