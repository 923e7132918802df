"""Adaptive subgradient methods in plain NumPy: ADA-FD paper (Wan, Zhang), Algorithms 1 to 4, and baselines.

Notation: beta the decision, g_t a subgradient at it, H_t = delta I + (S'S)^(1/2), tau the sketch size. `subgradient(t,
beta)` returns (loss, g). Every function returns (beta, losses). penalty = (name, lambda): phi = lambda |beta|_1 ("l1")
or lambda / 2 |beta|^2 ("l2"); None for phi = 0.
"""

import numpy as np

# A gradient adds a direction if what is left of it exceeds this share: the printed test g' != g, read literally, makes
# rounding a direction.
NEW = 1e-10


def _play(d, rounds, subgradient, step):
    beta, losses = np.zeros(d), []
    for t in range(1, rounds + 1):
        loss, g = subgradient(t, beta)
        losses.append(loss)
        beta = step(t, beta, g)
    return beta, np.array(losses)


def _apply(g, v, s, delta):
    """(delta I + V diag(s) V')^-1 g by Woodbury."""
    return (g - v @ (s / (delta + s) * (v.T @ g))) / delta


def _prox(h, b, penalty, amount):
    """Minimiser of sum_j h_j beta_j^2 / 2 - b_j beta_j + amount phi(beta)."""
    if penalty is None:
        return b / h
    name, strength = penalty
    if name == "l2":
        return b / (h + amount * strength)
    return np.sign(b) * np.maximum(np.abs(b) - amount * strength, 0.0) / h


def _argmin(h, b, penalty, amount):
    """Minimiser of beta'H beta / 2 - b'beta + amount phi(beta)."""
    if penalty is None:
        return np.linalg.solve(h, b)
    name, strength = penalty
    if name == "l2":
        return np.linalg.solve(h + amount * strength * np.eye(len(b)), b)
    beta = np.zeros(len(b))
    for _ in range(100_000):  # coordinate descent
        before = beta.copy()
        for j in range(len(b)):
            r = b[j] - h[j] @ beta + h[j, j] * beta[j]
            beta[j] = np.sign(r) * max(abs(r) - amount * strength, 0.0) / h[j, j]
        if np.abs(beta - before).max() <= 1e-15 * np.abs(beta).max():
            break
    return beta


class _FD:
    """Algorithms 1 and 2, steps 4 to 6: S of tau rows, one SVD a round."""

    def __init__(self, d, tau):
        self.s, self.tau = np.zeros((tau, d)), tau

    def add(self, g):
        """Returns V and Sigma' of the sketch after this gradient."""
        self.s[-1] = g
        _, sigma, vt = np.linalg.svd(self.s, full_matrices=False)
        sigma = np.concatenate([sigma, np.zeros(self.tau - len(sigma))])
        reduced = np.sqrt(np.maximum(sigma**2 - sigma[-1] ** 2, 0.0))[: len(vt)]
        self.s = np.zeros_like(self.s)
        self.s[: len(vt)] = reduced[:, None] * vt
        return vt.T, reduced


class _FFD:
    """Algorithms 3 and 4, steps 4 to 14: orthonormal V (at most 2 tau columns) and M with S'S = V M V'."""

    def __init__(self, d, tau):
        self.v, self.m, self.tau = np.zeros((d, 0)), np.zeros((0, 0)), tau

    def add(self, g):
        """Returns V U and Sigma^(1/2) before the shrink, which follows."""
        left = g - self.v @ (self.v.T @ g)
        left -= self.v @ (self.v.T @ left)  # twice is enough
        if np.linalg.norm(left) > NEW * np.linalg.norm(g) and self.v.shape[1] < min(2 * self.tau, len(g)):
            self.v = np.column_stack([self.v, left / np.linalg.norm(left)])
            self.m = np.pad(self.m, ((0, 1), (0, 1)))
        inner = self.v.T @ g
        self.m = self.m + np.outer(inner, inner)
        values, u = np.linalg.eigh(self.m)
        values, u = np.maximum(values[::-1], 0.0), u[:, ::-1]
        out = self.v @ u, np.sqrt(values)
        if self.v.shape[1] == 2 * self.tau:
            kept = self.tau - 1
            self.m = np.diag(values[:kept] - values[self.tau - 1])
            self.v = out[0][:, :kept]
        return out


def _adaptive(sketch, d, rounds, subgradient, eta, delta, form, penalty=None, power=0.5):
    total = np.zeros(d)

    def step(t, beta, g):
        nonlocal total
        v, s = sketch.add(g if power == 0.5 else g / t**0.25)
        s = s if power == 0.5 else s**2
        total = total + g
        if penalty is None:
            if form == "pds":  # dual averaging
                return -eta * _apply(total, v, s, delta)
            return beta - eta * _apply(g, v, s, delta)  # mirror descent
        h = delta * np.eye(d) + (v * s) @ v.T
        if form == "pds":
            return _argmin(h, -eta * total, penalty, eta * t)
        return _argmin(h, h @ beta - eta * g, penalty, eta)

    return _play(d, rounds, subgradient, step)


def adaptive_frequent_directions(d, rounds, subgradient, tau, eta, delta, form="cmd", penalty=None):
    """ADA-FD: Algorithm 1 (form "pds") and Algorithm 2 ("cmd")."""
    return _adaptive(_FD(d, tau), d, rounds, subgradient, eta, delta, form, penalty)


def adaptive_fast_frequent_directions(d, rounds, subgradient, tau, eta, delta, form="cmd", penalty=None):
    """ADA-FFD: Algorithm 3 (form "pds") and Algorithm 4 ("cmd")."""
    return _adaptive(_FFD(d, tau), d, rounds, subgradient, eta, delta, form, penalty)


def sketched_newton_subgradient(d, rounds, subgradient, tau, eta, delta, form="cmd", penalty=None):
    """FD-SON (Luo et al. 2016) as the ADA-FD paper, section 3.3, writes it: H = delta I + sum g g' / sqrt(t)."""
    return _adaptive(_FFD(d, tau), d, rounds, subgradient, eta, delta, form, penalty, power=1)


class _Whole:
    """ADA-FULL: G = sum g g' and its root."""

    def __init__(self, d):
        self.g = np.zeros((d, d))

    def add(self, g):
        self.g = self.g + np.outer(g, g)
        values, vectors = np.linalg.eigh(self.g)
        return vectors, np.sqrt(np.maximum(values, 0.0))


def adaptive_full(d, rounds, subgradient, eta, delta, form="cmd", penalty=None):
    """ADA-FULL (Duchi, Hazan, Singer 2011)."""
    return _adaptive(_Whole(d), d, rounds, subgradient, eta, delta, form, penalty)


def adaptive_diagonal(d, rounds, subgradient, eta, delta, form="cmd", penalty=None):
    """ADA-DIAG: H = delta I + diag(sum g^2)^(1/2)."""
    squares, total = np.zeros(d), np.zeros(d)

    def step(t, beta, g):
        nonlocal squares, total
        squares, total = squares + g * g, total + g
        h = delta + np.sqrt(squares)
        if form == "pds":
            return _prox(h, -eta * total, penalty, eta * t)
        return _prox(h, h * beta - eta * g, penalty, eta)

    return _play(d, rounds, subgradient, step)


def adaptive_low_rank(d, rounds, subgradient, tau, eta, delta, rng):
    """ADA-LR (Krummenacher et al. 2016), equation 3: a random projection of G, its QR, an SVD. Mirror descent."""
    g_sum = np.zeros((d, d))

    def step(t, beta, g):
        nonlocal g_sum
        g_sum = g_sum + np.outer(g, g)
        q, _ = np.linalg.qr(g_sum @ rng.standard_normal((d, tau)))
        _, s, vt = np.linalg.svd(q.T @ g_sum, full_matrices=False)
        return beta - eta * (vt.T @ ((vt @ g) / (np.sqrt(s) + delta)))

    return _play(d, rounds, subgradient, step)


def radagrad(d, rounds, subgradient, tau, eta, delta, rng):
    """RADAGRAD (Krummenacher et al. 2016), equation 4, with one fixed projection Pi (tau x d). Mirror descent."""
    projection, low = rng.standard_normal((tau, d)) / np.sqrt(tau), np.zeros((d, tau))

    def step(t, beta, g):
        nonlocal low
        low = low + np.outer(g, projection @ g)
        q, _ = np.linalg.qr(low)
        _, s, wt = np.linalg.svd(low.T @ q, full_matrices=False)
        v = q @ wt.T
        inner = v.T @ g
        return beta - eta * (v @ (inner / (np.sqrt(s) + delta))) - eta * (g - v @ inner)

    return _play(d, rounds, subgradient, step)


def online_gradient_descent(d, rounds, subgradient, eta, penalty=None):
    """OGD with step eta / sqrt(t)."""

    def step(t, beta, g):
        rate = eta / np.sqrt(t)
        return _prox(np.ones(d), beta - rate * g, penalty, rate)

    return _play(d, rounds, subgradient, step)


def adam(d, rounds, subgradient, eta, beta1=0.9, beta2=0.999, epsilon=1e-8, penalty=None):
    """ADAM (Kingma, Ba 2015)."""
    first, second = np.zeros(d), np.zeros(d)

    def step(t, beta, g):
        nonlocal first, second
        first, second = beta1 * first + (1 - beta1) * g, beta2 * second + (1 - beta2) * g * g
        h = np.sqrt(second / (1 - beta2**t)) + epsilon
        return _prox(h, h * beta - eta * first / (1 - beta1**t), penalty, eta)

    return _play(d, rounds, subgradient, step)
