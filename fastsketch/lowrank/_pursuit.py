"""Greedy pursuit: one rank after the other from the leading singular vectors of the gradient (GLRL Algorithms 2, 3)."""

import numpy as np

from fastsketch.lowrank._losses import LOSSES
from fastsketch.sketching import random_normal

# Power iterations stop when v turns by less than this (sine of the angle), or after the number asked for.
TURNED = 1e-3
# Key of the random numbers that iterations start with.
CODE = 81
# Steps of the economic refinement and iterations of the full one. More fit the entries better and predict worse: on
# signed links of Epinions, rank 40, 93.9% with 2 and 93.4% with 5 Newton steps, 93.9% and 93.2% with 2 and 4 of L-BFGS.
NEWTON = 2
LBFGS = 2
LEAST_SQUARES = 100  # of the square loss, whose refinement is that of matrix pursuit: to the end
BISECTIONS = 40


class Pursuit:
    """Scores z at the observed entries, the ranks found so far, and the gradient of the next.

    left, right: degree scaling of rows and columns, at most 1. Rank k adds path[-1][k] * (U_k)_i (V_k)_j to the score;
    path[k] are the coefficients of the ranks up to k.
    """

    def __init__(self, data, loss, parameter, rb, cb, left, right, seed, iterations):
        from fastsketch._kernels import lowrank

        self.kernel, self.data = lowrank, data
        self.loss, self.about, self.parameter = LOSSES[loss].number, LOSSES[loss], parameter
        self.rb, self.cb, self.left, self.right = rb, cb, left, right
        self.seed, self.iterations = seed, iterations
        self.U, self.V, self.path = [], [], []
        self.a = np.empty_like(data.o)
        self.z = np.empty_like(data.o)
        self.rest = None  # ||g - h||^2 of the last step without a gradient
        self.block = None  # directions from the search for the last rank
        self.restart()

    def end(self):
        """What go_on needs beside the ranks."""
        return self.z, self.rest, self.block

    def go_on(self, end):
        """Where a pursuit with these ranks ended, to the bit."""
        z, self.rest, self.block = end
        self.z[:] = z
        self.objective = self._gradient()

    def restart(self):
        """z and the gradient from the ranks held."""
        dtype = self.data.o.dtype
        if self.U:
            u = np.ascontiguousarray(np.stack(self.U, axis=1) * self.path[-1], dtype)
            v = np.ascontiguousarray(np.stack(self.V, axis=1), dtype)
        else:
            u, v = np.zeros((self.data.m, 1), dtype), np.zeros((self.data.n, 1), dtype)
        self.kernel.scores(*self.data.where, u, v, self.rb, self.cb, self.z)
        self.objective = self._gradient()

    def _gradient(self):
        return self.kernel.gradient(
            self.loss, self.parameter, *self.data.where, self.z, self.data.o, self.data.c, self.left, self.right, self.a
        )

    # -- the leading triplet ---------------------------------------------------------------------------------------
    def leading_of_eight(self):
        """(u, s, v) of the scaled gradient by subspace iteration on eight vectors, which cost little more than one.

        Seven begin where the last rank left them, near the singular vectors that come next; one is random, for what
        they cannot see.
        """
        from fastsketch._kernels.block import BLOCK, gram_block

        data, dtype = self.data, self.data.o.dtype
        u, w = np.empty((data.m, BLOCK), dtype), np.empty((data.n, BLOCK), dtype)
        if self.block is None:
            v = np.stack([random_normal(self.seed, (CODE << 32) + 2**30 + q, data.n) for q in range(BLOCK)], axis=1)
        else:
            v = np.column_stack([self.block[:, 1:], self.random_start()])
        v = _orthonormal(v.astype(dtype))
        for _ in range(self.iterations):
            gram_block(*data.where, self.a, v, u, w)
            values, vectors = np.linalg.eigh((u.T @ u).astype(np.float64))
            y = vectors[:, ::-1].astype(dtype)
            top = float(values[-1])
            if not top > 0:
                return None
            rest = w @ y[:, 0] - dtype.type(top) * (v @ y[:, 0])
            ritz = v @ y[:, 0]
            if float(rest @ rest) <= (TURNED * top) ** 2:
                break
            v = _orthonormal(w @ y)
        self.block = _orthonormal(w @ y)
        u = u @ y[:, 0]
        s = float(np.linalg.norm(u))
        u /= s
        if u[np.argmax(np.abs(u))] < 0:  # one sign for all machines
            u, ritz = -u, -ritz
        return u, s, ritz

    def leading(self, start, minus=()):
        """(u, s, v) of the scaled gradient less sum s_q u_q v_q' over `minus`, by the power method from v = start."""
        data, kernel, dtype = self.data, self.kernel, self.data.o.dtype
        u, w = np.empty(data.m, dtype), np.empty(data.n, dtype)
        v = start / (np.linalg.norm(start) or 1)
        for _ in range(self.iterations):
            if minus:
                kernel.times(*data.where, self.a, v, u)
                for uq, sq, vq in minus:
                    u -= sq * (vq @ v) * uq
                kernel.transposed_times(*data.where, self.a, u, w)
                for uq, sq, vq in minus:
                    w -= sq * (uq @ u) * vq
            else:
                kernel.gram_product(*data.where, self.a, v, u, w)
            size = np.linalg.norm(w)
            if not size > 0:
                return None
            w /= size
            inner = float(w @ v)
            v, w = w, v
            if inner * inner > 1 - TURNED * TURNED:
                break
        kernel.times(*data.where, self.a, v, u)
        for uq, sq, vq in minus:
            u -= sq * (vq @ v) * uq
        s = float(np.linalg.norm(u))
        if not s > 0:
            return None
        u /= s
        if u[np.argmax(np.abs(u))] < 0:  # one sign for all machines
            u, v = -u, -v
        return u, s, v

    def random_start(self):
        """A direction of its own for every rank: the last v is nearly orthogonal to what is left."""
        return random_normal(self.seed, (CODE << 32) + len(self.U), self.data.n).astype(self.data.o.dtype)

    # -- smooth losses: Algorithm 2 ----------------------------------------------------------------------------------
    def add_smooth(self, refine, shrink):
        """One more rank; returns False if the gradient is zero."""
        found = self.leading_of_eight() if min(self.data.m, self.data.n) > 8 else self.leading(self.random_start())
        if found is None:
            return False
        u, s, v = found
        u, v = u * self.left, v * self.right
        theta = -s / self._lipschitz()
        old = self.path[-1] if self.path else np.empty(0)
        if refine == "full":
            new = self._all_coefficients(u, v, np.append(old, theta))
            new = np.append(old, 0.0) + shrink * (new - np.append(old, 0.0))
            self._accept(u, v, new)
            self.restart()
            return True
        keep = 1.0
        if refine == "economic":
            keep, theta = self._two_coefficients(u, v, theta)
            keep, theta = 1.0 + shrink * (keep - 1.0), shrink * theta
        else:
            theta *= shrink
            if self.about.lipschitz is None:
                theta = self._safe(u, v, theta, s)
        self._accept(u, v, np.append(keep * old, theta))
        data, dtype = self.data, self.data.o.dtype.type
        self.objective = self.kernel.step_gradient(
            self.loss,
            self.parameter,
            *data.where,
            self.z,
            data.o,
            data.c,
            self.left,
            self.right,
            dtype(keep),
            dtype(theta),
            u,
            v,
            self.rb,
            self.cb,
            self.a,
        )
        return True

    def _accept(self, u, v, coefficients):
        self.U.append(u)
        self.V.append(v)
        self.path.append(coefficients)

    def _lipschitz(self):
        """Of the gradient in the scaled coordinates; left and right are at most 1."""
        weight = float(self.data.c.max()) if len(self.data.c) else 1.0
        if self.about.lipschitz is None:  # poisson: of the region at hand
            return max(weight * float(np.exp(min(float(self.z.max(initial=0.0)), 700.0))), 1e-300)
        return max(self.about.lipschitz * weight, 1e-300)

    def _dots(self, u, v, keep, theta):
        out = np.empty(6)
        dtype = self.data.o.dtype.type
        self.kernel.five_dots(
            self.loss,
            self.parameter,
            *self.data.where,
            self.z,
            self.data.o,
            self.data.c,
            self.rb,
            self.cb,
            dtype(keep),
            dtype(theta),
            u,
            v,
            out,
        )
        return out

    def _two_coefficients(self, u, v, theta):
        """(mu, rho) that minimise f(mu X + rho u v'): damped Newton from (1, -s/L), or from (1, 0) if that is worse."""
        first = not self.U
        point = np.array([1.0, 0.0])
        out = self._dots(u, v, *point)
        trial = np.array([1.0, theta])
        for _ in range(NEWTON):
            h = np.array([[out[3], out[4]], [out[4], out[5]]])
            g = np.array([out[1], out[2]])
            if first:  # nothing to scale yet
                h, g = np.array([[1.0, 0.0], [0.0, h[1, 1]]]), np.array([0.0, g[1]])
            # a share of the diagonal keeps the step finite where the loss has gone flat
            h = h + np.diag(1e-6 * np.diag(h) + 1e-30)
            move = np.linalg.solve(h, -g)
            if self.loss == self.kernel.SQUARE:
                return float(point[0] + move[0]), float(point[1] + move[1])
            t = 1.0
            for _ in range(20):
                candidate = point + t * move
                tried = self._dots(u, v, *candidate)
                if np.isfinite(tried[0]) and tried[0] <= out[0] + 1e-4 * t * (g @ move):
                    break
                t *= 0.5
            else:
                break
            gain = out[0] - tried[0]
            point, out = candidate, tried
            if gain <= 1e-6 * abs(out[0]):
                break
        best = out[0]
        if best > self.objective - 1e-12 * abs(self.objective):
            # no Newton step helped (no curvature where it stands): the step that always does
            tried = self._dots(u, v, *trial)
            if tried[0] < best:
                point = trial
        return float(point[0]), float(point[1])

    def _safe(self, u, v, theta, s):
        """Halve a step without a Lipschitz constant until it lowers the objective."""
        for _ in range(60):
            if self._dots(u, v, 1.0, theta)[0] <= self.objective - 0.25 * abs(theta) * s:
                return theta
            theta *= 0.5
        return 0.0

    def _all_coefficients(self, u, v, start):
        """All coefficients by L-BFGS, warm-started; scores are computed anew from the factors, never stored."""
        from scipy.optimize import minimize

        dtype = self.data.o.dtype
        left = np.ascontiguousarray(np.stack([*self.U, u], axis=1), dtype)
        right = np.ascontiguousarray(np.stack([*self.V, v], axis=1), dtype)
        # in units of the entries that each rank moves, so that one step length fits all
        size = np.array(
            [
                1 / max(float(np.abs(left[:, q]).max()) * float(np.abs(right[:, q]).max()), 1e-300)
                for q in range(len(start))
            ]
        )
        out = np.empty(len(start))

        def value(x):
            f = self.kernel.coefficient_gradient(
                self.loss,
                self.parameter,
                *self.data.where,
                self.data.o,
                self.data.c,
                self.rb,
                self.cb,
                left,
                right,
                x * size,
                out,
            )
            return f, out * size

        before = np.append(start[:-1], 0.0) / size
        if value(start / size)[0] <= value(before)[0]:
            before = start / size
        turns = LEAST_SQUARES if self.loss == self.kernel.SQUARE else LBFGS
        found = minimize(value, before, jac=True, method="L-BFGS-B", options={"maxiter": turns})
        return (found.x if found.fun <= self.objective else before) * size

    # -- nonsmooth losses: Algorithm 3 -------------------------------------------------------------------------------
    def add_nonsmooth(self, t, step, size, nu, inner, most):
        """Step t: subtract eta_t times a low-rank part h of the subgradient; returns False if that is zero.

        inner: when h is good enough: "energy", ||g - h||^2 <= nu ||g||^2; "paper", <= nu times that of step t - 1.
        """
        total = float(self.a @ self.a)
        if not total > 0:
            return False
        part, rest = [], total
        bound = nu * (self.rest if inner == "paper" and self.rest is not None else total)
        start = self.V[-1] / self.right if self.V else self.random_start()
        while len(part) < most:
            found = self.leading(start.astype(self.data.o.dtype), part)
            if found is None:
                break
            part.append(found)
            rest -= found[1] ** 2
            if rest <= bound:
                break
            start = random_normal(self.seed, (CODE << 32) + len(self.U) + len(part) + 2**31, self.data.n)
        data, dtype = self.data, self.data.o.dtype
        u = np.stack([p[0] * self.left for p in part], axis=1)
        v = np.stack([p[2] * self.right for p in part], axis=1)
        s = np.array([p[1] for p in part])
        d = np.empty_like(data.o)
        none = np.zeros(max(data.m, data.n), dtype)
        self.kernel.scores(
            *data.where, np.ascontiguousarray(-u * s, dtype), np.ascontiguousarray(v, dtype), none, none, d
        )
        eta = size / np.sqrt(t) if step == "paper" else self._search(d)
        for q in range(len(part)):
            old = self.path[-1] if self.path else np.empty(0)
            self._accept(u[:, q], v[:, q], np.append(old, -eta * s[q]))
        self.z += dtype.type(eta) * d
        self.objective = self._gradient()
        self.rest = max(rest, 0.0)
        return True

    def _search(self, d):
        """The eta that minimises f(z + eta d): a weighted median for l1, else bisection on the slope."""
        data = self.data
        if self.loss == self.kernel.ABSOLUTE:
            places, weights = np.empty(len(d)), np.empty(len(d))
            count = self.kernel.kinks(self.z, data.o, data.c, d, places, weights)
            eta = self.kernel.weighted_median(places[:count], weights[:count])
            return float(eta) if np.isfinite(eta) else 0.0

        def slope(eta):
            return self.kernel.slope_along(self.loss, self.parameter, self.z, data.o, data.c, d, eta)[1]

        low, high = 0.0, float(np.std(data.o) or 1.0) / max(float(np.abs(d).max()), 1e-300)
        for _ in range(60):
            if slope(high) >= 0:
                break
            low, high = high, 2 * high
        for _ in range(BISECTIONS):
            middle = 0.5 * (low + high)
            if slope(middle) < 0:
                low = middle
            else:
                high = middle
        return low


def _orthonormal(w):
    """Orthonormal columns with the span of w (n, 8): by Cholesky twice, or by Householder if that fails."""
    for _ in range(2):
        gram = (w.T @ w).astype(np.float64)
        try:
            lower = np.linalg.cholesky(gram)
        except np.linalg.LinAlgError:
            return np.ascontiguousarray(np.linalg.qr(w.astype(np.float64))[0].astype(w.dtype))
        w = np.ascontiguousarray(w @ np.linalg.inv(lower).T.astype(w.dtype))
    return w
