"""What the papers compare with Frequent Directions in online Newton steps: a random projection, Oja's rule.

Loops in NumPy over sparse rows, whose rounds cost the nonzeros of a row: w = base + Z b with Z (d, m). The loss is
(z - y)^2, and a step ends where |w'x| <= 1 (Algorithm 6 of the RFD paper); in explicit form they are
``reference.random_projection_newton`` and ``reference.oja_newton``.
"""

import numpy as np
from scipy.sparse import csr_array


class SketchedSteps:
    """Learner of one pass; a subclass appends a row to its sketch and solves with H = B'B + alpha0 I.

    Parameters
    ----------
    sketch_size : int
    alpha0 : float
    seed : int, default 0
    """

    def __init__(self, sketch_size, *, alpha0, seed=0):
        self.m, self.alpha, self.rng = sketch_size, alpha0, np.random.default_rng(seed)

    def update(self, rows, labels):
        """Learn from all rows; FloatingPointError where coefficients leave the range of numbers."""
        rows = csr_array(rows)
        self.base, self.b, self.scores = np.zeros(rows.shape[1]), np.zeros(self.m), []
        self.begin(rows.shape[1])
        try:
            with np.errstate(all="ignore"):
                for t, y in enumerate(labels.tolist(), 1):
                    at = slice(*rows.indptr[t - 1 : t + 1])
                    self.learn(t, rows.indices[at], rows.data[at], y)
        except np.linalg.LinAlgError as error:
            raise FloatingPointError("the sketch leaves the range of numbers") from error
        self.last_scores, self.coef = np.array(self.scores), self.base + self.z @ self.b
        return self

    def learn(self, t, places, x, y):
        """Play round t."""
        zx, square = x @ self.z[places], float(x @ x)
        score = float(self.base[places] @ x + zx @ self.b)
        slope = 2 * (score - y)
        if not np.isfinite(slope * slope * square):
            raise FloatingPointError(f"row {t} has the score {score}")
        self.scores.append(score)
        if abs(slope) <= 1e-150 or square == 0:
            return
        u, bx = self.append(zx, square, np.sqrt(1 / 8 + 1 / t) * slope)
        self.z[places] += np.outer(x, u)
        self.base[places] -= x * (u @ self.b)
        q, inside = self.solve(bx)
        h = max((square - inside) / self.alpha, 0.0)
        after = score - slope * h
        over = after - min(max(after, -1.0), 1.0)
        step = -slope - (over / h if over and h > 0 else 0.0)
        self.base[places] += step / self.alpha * x
        self.b -= step / self.alpha * q

    def decision_function(self, rows):
        return rows @ self.coef


class RandomProjection(SketchedSteps):
    """B = R'A of all gradients A with Gaussian R: Z is B'."""

    def begin(self, d):
        self.z, self.small = np.zeros((d, self.m)), np.zeros((self.m, self.m))

    def append(self, zx, square, c):
        u = c * self.rng.standard_normal(self.m) / np.sqrt(self.m)
        both = np.outer(u, zx)
        self.small += both + both.T + square * np.outer(u, u)  # B B'
        return u, zx + square * u

    def solve(self, bx):
        q = np.linalg.solve(self.small + self.alpha * np.eye(self.m), bx)
        return q, bx @ q


class Oja(SketchedSteps):
    """m orthonormal directions V' = Z F' and their eigenvalues, by steps 1 / s."""

    def begin(self, d):
        self.z, self.frame = np.linalg.qr(self.rng.standard_normal((d, self.m)))[0], np.eye(self.m)
        self.lam, self.s = np.zeros(self.m), 0

    def append(self, zx, square, c):
        if self.s % self.m == 0:  # before F is ill-conditioned
            self.z, self.b = self.z @ self.frame.T, np.linalg.solve(self.frame.T, self.b)
            zx, self.frame = self.frame @ zx, np.eye(self.m)
        self.s += 1
        vx = self.frame @ zx
        inner = c * vx
        self.lam = (1 - 1 / self.s) * self.lam + inner**2 / self.s
        moved = c * inner / self.s
        u = np.linalg.solve(self.frame, moved)
        vx = vx + square * moved
        gram = np.eye(self.m) + (2 / self.s + c * c * square / self.s**2) * np.outer(inner, inner)
        lower = np.linalg.cholesky(gram)
        self.frame = np.linalg.solve(lower, self.frame)
        return u, np.linalg.solve(lower, vx)

    def solve(self, bx):
        values = self.s * self.lam
        q = values * bx / (values + self.alpha)
        return self.frame.T @ q, bx @ q
