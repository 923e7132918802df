"""Sketched online Newton steps in plain NumPy, with an explicit H: RFD paper, Algorithms 3 and 6, and its baselines.

Notation: examples x_t (rows of xs) with targets y_t, prediction z = w'x, slope = d loss / dz, g = slope x; m the sketch
size; a_t = sqrt(mu + eta_t) with mu = 1/8 and eta_t = 1/t. Corrections to the printed text: gamma uses u^(t+1), and the
second candidate of the alpha = 0 phase projects on the null space of H.
"""

import numpy as np

MU = 0.125
# Eigenvalues of H below this share of the largest are zero, while alpha = 0.
RANK = 1e-10
# A slope below this is zero: what a projection on a target leaves is rounding.
FLAT = 1e-12
# x has a part in the null space of H if its square exceeds this share of that of x.
NULL = 1e-9


def _logistic(z, y):
    margin = y * z
    return np.logaddexp(0.0, -margin), -y * np.exp(-np.logaddexp(0.0, margin))


def _squared_hinge(z, y):
    gap = max(0.0, 1.0 - y * z)
    return gap * gap, -2.0 * y * gap


def _huber(z, y, width=1.0):
    r = z - y
    inside = abs(r) <= width
    return (0.5 * r * r, r) if inside else (width * (abs(r) - 0.5 * width), width * np.sign(r))


# (value, slope) of each loss at a prediction z
LOSSES = {
    "square": lambda z, y: ((z - y) ** 2, 2.0 * (z - y)),
    "logistic": _logistic,
    "squared_hinge": _squared_hinge,
    "huber": _huber,
    "absolute": lambda z, y: (abs(z - y), np.sign(z - y)),
}


def excess(z):
    """tau(z) = sgn(z) max(|z| - 1, 0)."""
    return np.sign(z) * max(abs(z) - 1.0, 0.0)


def _solve(h, alpha, v):
    """H^+ v: the inverse where alpha > 0."""
    if alpha > 0:
        return np.linalg.solve(h, v)
    values, vectors = np.linalg.eigh(h)
    seen = values > RANK * max(values[-1], 0.0)
    return vectors[:, seen] @ ((vectors[:, seen].T @ v) / values[seen])


def _project(u, x, h, alpha):
    """argmin ||w - u||_H over |w'x| <= 1 (Algorithm 6, line 17)."""
    over = excess(u @ x)
    if over == 0.0:
        return u
    step = _solve(h, alpha, x)
    if alpha == 0:
        values, vectors = np.linalg.eigh(h)
        seen = values > RANK * max(values[-1], 0.0)
        null = x - vectors[:, seen] @ (vectors[:, seen].T @ x)
        if null @ null > NULL * (x @ x):
            return u - over / (x @ null) * null  # moves where H costs nothing
    return u - over / (x @ step) * step


class _Shrinking:
    """B and alpha of FD, RFD or PFD that shrinks when it has `limit` rows: m for Algorithm 3, 2 m for Algorithm 6."""

    def __init__(self, d, m, limit, rule, alpha0, beta):
        self.b, self.alpha, self.m, self.limit, self.rule = np.zeros((0, d)), alpha0, m, limit, rule
        self.spared = m - int(np.floor(beta * m)) if rule == "pfd" else 0

    def append(self, row):
        self.b = np.vstack([self.b, row])
        if len(self.b) < self.limit:
            return
        _, s, vt = np.linalg.svd(self.b, full_matrices=False)
        squares = np.zeros(self.m)
        squares[: min(self.m, len(s))] = s[: self.m] ** 2
        delta = squares[self.m - 1] if squares[self.m - 1] > RANK * squares[0] else 0.0  # not rounding
        kept = squares[: self.m - 1].copy()
        kept[self.spared :] -= delta
        k = min(self.m - 1, len(vt))
        self.b = np.sqrt(kept[:k])[:, None] * vt[:k]
        if self.rule == "rfd":
            self.alpha += delta / 2

    def h(self):
        return self.b.T @ self.b + self.alpha * np.eye(self.b.shape[1])


class _Full:
    """FULL-ON: H itself, d x d."""

    def __init__(self, d, alpha0):
        self.alpha, self._h = alpha0, alpha0 * np.eye(d)

    def append(self, row):
        self._h = self._h + np.outer(row, row)

    def h(self):
        return self._h


class _RandomProjection:
    """RP-SON (Luo et al. 2016): B = R' A with Gaussian R, one row of it a round."""

    def __init__(self, d, m, alpha0, rng):
        self.b, self.alpha, self.rng = np.zeros((m, d)), alpha0, rng

    def append(self, row):
        self.b = self.b + np.outer(self.rng.standard_normal(len(self.b)) / np.sqrt(len(self.b)), row)

    def h(self):
        return self.b.T @ self.b + self.alpha * np.eye(self.b.shape[1])


class _Oja:
    """Oja-SON (Luo et al. 2016, Algorithm 3): m orthonormal directions and their eigenvalues, step size 1/t."""

    def __init__(self, d, m, alpha0, rng):
        self.v = np.linalg.qr(rng.standard_normal((d, m)))[0].T
        self.lam, self.alpha, self.t = np.zeros(m), alpha0, 0

    def append(self, row):
        self.t += 1
        inner = self.v @ row
        self.lam = (1 - 1 / self.t) * self.lam + inner**2 / self.t
        self.v = np.linalg.qr((self.v + np.outer(inner, row) / self.t).T)[0].T

    def h(self):
        return (self.v.T * (self.t * self.lam)) @ self.v + self.alpha * np.eye(self.v.shape[1])


def _rounds(xs, ys, curvature, loss, projection):
    """The rounds of Algorithms 3 and 6. Returns (w, losses, predictions)."""
    w, losses, predictions, moved = np.zeros(xs.shape[1]), [], [], False
    for t, (x, y) in enumerate(zip(xs, ys, strict=True), 1):
        z = np.sign(w @ x) if moved else w @ x  # 4: predict; +-1 up to rounding once moved
        value, slope = LOSSES[loss](z, y)
        losses.append(value)
        predictions.append(z)
        g = slope * x  # 5: gradient
        if abs(slope) > FLAT and x @ x > 0:
            curvature.append(np.sqrt(MU + 1 / t) * g)  # 6-14: sketch of sqrt(mu + eta_t) g
            h, alpha = curvature.h(), curvature.alpha  # 15: H = B'B + alpha I
            u = w - _solve(h, alpha, g)  # 16
            w = _project(u, x, h, alpha) if projection in ("same", "both") else u  # 17 of Algorithm 6
        moved = projection in ("next", "both") and t < len(xs) and curvature.h().any() and excess(w @ xs[t]) != 0
        if moved:
            w = _project(w, xs[t], curvature.h(), curvature.alpha)  # 12 of Algorithm 3: for the next example
    return w, np.array(losses), np.array(predictions)


def online_newton(xs, ys, m, alpha0=0.0, *, rule="rfd", beta=0.2, loss="square", projection="next"):
    """RFD paper, Algorithm 3: one shrink a round, projection for the next example. Returns (w, losses, predictions)."""
    return _rounds(xs, ys, _Shrinking(xs.shape[1], m, m, rule, alpha0, beta), loss, projection)


def fast_online_newton(xs, ys, m, alpha0=0.0, *, rule="rfd", beta=0.2, loss="square", projection="same"):
    """RFD paper, Algorithm 6: a shrink whenever B has 2 m rows, projection for the same example."""
    return _rounds(xs, ys, _Shrinking(xs.shape[1], m, 2 * m, rule, alpha0, beta), loss, projection)


def full_online_newton(xs, ys, alpha0, *, loss="square", projection="same"):
    """FULL-ON: online Newton step with the whole H (Hazan, Agarwal, Kale 2007)."""
    return _rounds(xs, ys, _Full(xs.shape[1], alpha0), loss, projection)


def random_projection_newton(xs, ys, m, alpha0, rng, *, loss="square", projection="same"):
    """RP-SON."""
    return _rounds(xs, ys, _RandomProjection(xs.shape[1], m, alpha0, rng), loss, projection)


def oja_newton(xs, ys, m, alpha0, rng, *, loss="square", projection="same"):
    """Oja-SON."""
    return _rounds(xs, ys, _Oja(xs.shape[1], m, alpha0, rng), loss, projection)
