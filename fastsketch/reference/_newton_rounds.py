"""Rounds of sketched online Newton methods in plain NumPy, with an explicit H: RFD paper, Algorithms 3 and 6.

Notation: examples x_t (rows of xs) with targets y_t, score z = w'x, slope = d loss / dz, g = slope x; m the sketch
size; a_t = sqrt(mu + eta_t) with mu = 1/8 and eta_t = 1/t. Corrections to the printed text: gamma uses u^(t+1), and the
second candidate of the alpha = 0 phase projects on the null space of H. loss is a name of the table of losses, times
loss_scale (the paper's square loss is loss="square", loss_scale=2); constraint says which scores are kept within
[-1, 1]: "current" (of the example just learned from), "next", "both" or None; decay is what H
is multiplied with after every round. Every function returns (w, losses, scores).
"""

from typing import Any, TypedDict

import numpy as np

from fastsketch._core.losses import LOSSES, as_loss_parameter
from fastsketch.reference._curvatures import RANK, Array, Curvature, singular_values, solve

MU = 0.125
# A slope below this is zero: a constraint at the target leaves rounding.
FLAT = 1e-12
# A score that is nearer to -1 or 1 is there, but for rounding.
SLACK = 1e-11
# x has a part in the null space of H if its square exceeds this share of that of x: float64's unit roundoff, divided by
# the smallest share of the largest eigenvalue that counts.
NULL = 2.0**-52 / RANK


Learned = tuple[Array, Array, Array]  # weights (d,), losses (n,), scores (n,)


class RoundOptions(TypedDict, total=False):
    """Keyword arguments that all reference online Newton methods accept."""

    loss: str
    loss_scale: float
    constraint: str | None
    by_loss: bool
    decay: float
    sample_weight: Array | None


def excess(z: Any) -> Any:
    """Return how far a score lies outside [-1, 1], with its sign, and 0 inside."""
    return np.sign(z) * max(abs(z) - 1.0, 0.0)


def _spectrum(h: Array) -> tuple[Array, Array]:
    """Return (nonzero eigenvalues, their eigenvectors as columns) of H."""
    values, vt = singular_values(h)
    large = values > RANK * values[0]
    return values[large], vt[large].T


def _solve(h: Array, alpha: Any, v: Array) -> Array:
    """Return the solution w of H w = v, by the pseudoinverse of H if alpha is 0."""
    if alpha > 0:
        return solve(h, v)
    values, vectors = _spectrum(h)
    return vectors @ ((vectors.T @ v) / values)


def _project(u: Array, x: Array, h: Array, alpha: Any) -> Array:
    """Return weights u projected, in the norm of H, onto the weights whose score of x is in [-1, 1].

    Algorithm 6, line 17.
    """
    over = excess(u @ x)
    if over == 0.0:
        return u
    step = _solve(h, alpha, x)
    if alpha == 0:
        vectors = _spectrum(h)[1]
        null = x - vectors @ (vectors.T @ x)
        if null @ null > NULL * (x @ x):
            return u - over / (x @ null) * null  # moves where H costs nothing
    return u - over / (x @ step) * step


def bowl(loss: str, z: Any, y: Any, scale: Any) -> Any:
    """Return the curvature of the parabola that touches the loss at score z and lies above it.

    It is slope / (z - the parabola's minimum).

    The absolute loss, times `scale`, has that of residuals of at least `scale`; the huber loss has its threshold at
    KINK times `scale`, and is square where that is 0.
    """
    r = abs(z - y)
    if loss == "logistic":
        return np.tanh(0.5 * abs(y * z)) / (2 * abs(y * z)) if abs(y * z) > 1e-4 else 0.25
    if loss == "absolute":
        return scale / max(r, scale) if scale > 0 else 1.0
    if loss == "huber":
        return min(1.0, KINK * scale / r) if scale > 0 and r > 0 else 1.0
    return {"square": 1.0, "squared_hinge": 2.0}[loss]


# Threshold of the huber loss in scales of residuals, and the mean of min(z^2, KINK^2) of a normal z (Huber 1964, 1981).
KINK = 1.345
WINSORIZED = 0.7101645


class RobustScale:
    """Online estimate of the scale of residuals, by Huber's Proposal 2 with implicit steps (Toulis and Airoldi
    2017)."""

    def __init__(self) -> None:
        self.variance: Any = 0.0
        self.weights: Any = 0.0

    def with_residual(self, r: Any, weight: Any) -> Any:
        """Return a new estimate of the scale, after one more residual of given weight."""
        self.weights += weight
        gain = 2 * weight / (self.weights + weight)
        whole = (1 - gain) * self.variance + gain * r * r / WINSORIZED
        left = 1 - gain * KINK**2 / WINSORIZED
        limit = (1 - gain) * self.variance / left if left > 0 and self.variance > 0 else np.inf
        self.variance = min(whole, limit)
        return np.sqrt(self.variance)


def newton_rounds(
    xs: Array,
    ys: Array,
    *,
    curvature: Curvature,
    loss: str = "squared_hinge",
    loss_scale: float = 1.0,
    constraint: str | None = "current",
    by_loss: bool = False,
    decay: float = 1.0,
    sample_weight: Array | None = None,
) -> Learned:
    """Run an online Newton method over all examples, and return (weights, loss of each round, score of each round).

    These are Algorithms 3 and 6, in the precision of xs.
    """
    about, p, number = LOSSES[loss], as_loss_parameter(loss, None), xs.dtype.type
    w: Array = np.zeros_like(xs[0])
    losses, scores, robust = list[Any](), list[Any](), RobustScale()
    for t, (x, y) in enumerate(zip(xs, ys.astype(xs.dtype), strict=True), 1):
        z = w @ x  # 4: score
        if constraint is not None and abs(abs(z) - 1) <= SLACK:
            z = np.sign(z)  # where a projection has put it
        at, target = np.array([z]), np.array([y])
        weight = number(1.0 if sample_weight is None else sample_weight[t - 1])
        losses.append(weight * loss_scale * about.value(at, target, p)[0])
        scores.append(z)
        slope = weight * loss_scale * about.slope(at, target, p)[0]
        usual = np.mean(losses) if by_loss and loss == "absolute" else 1.0
        slope *= usual
        if by_loss and loss == "huber":
            usual = robust.with_residual(z - y, weight * loss_scale)
            slope = weight * loss_scale * np.clip(z - y, -KINK * usual, KINK * usual)
        g = slope * x  # 5: gradient
        if (slope != 0 if by_loss else abs(slope) > FLAT) and x @ x > 0:
            # 6-14: sketch of sqrt(mu + eta_t) g, or of rows by the curvature of the loss; H grows by the weight once
            if by_loss:
                row = np.sqrt(weight * loss_scale * bowl(loss, z, y, usual)) * x
            else:
                row = np.sqrt((MU + number(1) / t) / weight) * g
            curvature.append(row)
            w = w - _solve(curvature.h(), curvature.alpha, g)  # 15, 16: H = B'B + alpha I
        if constraint in ("current", "both") and curvature.h().any():
            w = _project(w, x, curvature.h(), curvature.alpha)  # 17 of Algorithm 6, where g = 0, too
        curvature.fade(decay)
        if constraint in ("next", "both") and t < len(xs) and curvature.h().any():
            w = _project(w, xs[t], curvature.h(), curvature.alpha)  # 12 of Algorithm 3: for the next example
    return w, np.array(losses), np.array(scores)
