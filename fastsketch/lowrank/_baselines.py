"""What the GLRL paper compares with: AIS-Impute, AltMin, ADMM and Wiberg's algorithm for the l1 loss.

Simple rather than fast, but for AIS-Impute and AltMin, which never form a dense matrix. All have fit(X), predict(rows,
columns), factors() and history_ (objective and seconds of every iteration), without biases.
"""

import time

import numpy as np
from scipy import sparse

from fastsketch import _threads
from fastsketch._validation import as_choice, as_integer, as_real
from fastsketch.lowrank._data import observed
from fastsketch.lowrank._losses import LOSSES, as_observations, on_scale


class _Baseline:
    """Scores A B'; a subclass has _run(data), a generator of (A, B, objective)."""

    _loss = "square"

    def fit(self, X, *, callback=None):
        """Fit the observed entries of X; callback(line) after each iteration, with the factors in line["factors"]."""
        data = observed(X)
        data.o = as_observations(data.o, self._loss).astype(np.float64)
        if len(data.o) == 0:
            raise ValueError("X must hold at least one observation, got none")
        history, best = [], None
        start = time.perf_counter()
        with _threads.blas_for(2):
            for a, b, objective in self._run(data):
                history.append({"objective": objective, "seconds": time.perf_counter() - start})
                best = a, b
                if callback is not None and callback({**history[-1], "factors": best}):
                    break
                if len(history) > 1 and self._settled(history):
                    break
        self.history_, self._factors = history, best
        return self

    def _settled(self, history):
        before, after = history[-2]["objective"], history[-1]["objective"]
        return abs(before - after) <= self.tol * abs(before)

    def factors(self):
        """(A (m, r), B (n, r))."""
        return self._factors

    def decision_function(self, rows, columns):
        """Scores of pairs."""
        a, b = self._factors
        return np.einsum("kq,kq->k", a[np.asarray(rows)], b[np.asarray(columns)])

    def predict(self, rows, columns):
        """Predictions of pairs on the scale of X."""
        return on_scale(self._loss, self.decision_function(rows, columns))


def _value_and_slopes(loss, z, o):
    from fastsketch._kernels import lowrank as kernel

    ones, a = np.ones(1), np.empty_like(o)
    indptr, indices = np.array([0, len(o)], np.uint32), np.zeros(len(o), np.uint32)
    total = kernel.gradient(LOSSES[loss].number, 0.0, indptr, indices, z, o, np.empty(0), ones, ones, a)
    return total, a


class AISImpute(_Baseline):
    """Accelerated inexact soft-impute: sum of losses + penalty * nuclear norm, by proximal gradient steps.

    The singular value thresholding of "sparse plus low rank" starts from the last subspace and takes `power` products.

    Parameters
    ----------
    penalty : float
    max_rank : int, default 100
    loss : {"square", "logistic"}
    power : int, default 3
    tol : float, default 1e-4
        Relative change of the objective that ends the fit.
    max_iterations : int, default 300
    seed : int

    References
    ----------
    Yao, Kwok, *Accelerated Inexact Soft-Impute for Fast Large-Scale Matrix Completion*, IJCAI 2015.
    """

    def __init__(self, penalty, max_rank=100, loss="square", *, power=3, tol=1e-4, max_iterations=300, seed=0):
        self.penalty = as_real(penalty, "penalty", 0.0, 1e300)
        self.max_rank = as_integer(max_rank, "max_rank", 1)
        self._loss = self.loss = as_choice(loss, "loss", ("square", "logistic"))
        self.power = as_integer(power, "power", 1)
        self.tol = as_real(tol, "tol", 0.0, 1.0)
        self.max_iterations = as_integer(max_iterations, "max_iterations", 1)
        self.seed = seed

    def _run(self, data):
        from fastsketch._kernels import lowrank as kernel

        rng, step = np.random.default_rng(self.seed), 1.0 / LOSSES[self.loss].lipschitz
        m, n, z = data.m, data.n, np.zeros(len(data.o))
        (a, b), (a0, b0) = (np.zeros((m, 1)), np.zeros((n, 1))), (np.zeros((m, 1)), np.zeros((n, 1)))
        zero_m, zero_n = np.zeros(m), np.zeros(n)
        c, before = 1, np.inf
        v = rng.standard_normal((n, 5))
        for _ in range(self.max_iterations):
            momentum = (c - 1) / (c + 2)
            left = np.hstack([(1 + momentum) * a, -momentum * a0])
            right = np.hstack([b, b0])
            kernel.scores(*data.where, np.ascontiguousarray(left), np.ascontiguousarray(right), zero_m, zero_n, z)
            slopes = _value_and_slopes(self.loss, z, data.o)[1]
            g = sparse.csr_array(
                (-step * slopes, data.indices.astype(np.int32), data.indptr.astype(np.int64)), shape=(m, n)
            )
            extra = min(self.max_rank, v.shape[1] + 3) - v.shape[1]
            q = np.linalg.qr(np.hstack([v, rng.standard_normal((n, max(extra, 0)))]))[0]
            for _ in range(self.power):
                u = np.linalg.qr(g @ q + left @ (right.T @ q))[0]
                w = g.T @ u + right @ (left.T @ u)
                q = np.linalg.qr(w)[0]
            small, s, vt = np.linalg.svd(w.T, full_matrices=False)
            kept = max(1, int((s > step * self.penalty).sum()))
            s = np.maximum(s[:kept] - step * self.penalty, 0.0)
            a0, b0 = a, b
            a, b = (u @ small[:, :kept]) * s, vt[:kept].T
            v = np.hstack([b, b0])[:, : self.max_rank]
            kernel.scores(*data.where, np.ascontiguousarray(a), np.ascontiguousarray(b), zero_m, zero_n, z)
            objective = _value_and_slopes(self.loss, z, data.o)[0] + self.penalty * float(s.sum())
            c = c + 1 if objective <= before else 1  # momentum starts anew when it overshoots
            before = objective
            yield a, b, objective


class AltMin(_Baseline):
    """Alternating gradient steps on the factors: sum of losses + ridge / 2 (|A|^2 + |B|^2).

    Parameters
    ----------
    rank : int
    loss : {"square", "logistic"}
    ridge : float, default 1e-2
    inner : int, default 5
        Steps on one side before the other.
    tol, max_iterations, seed
        As for AISImpute.

    References
    ----------
    Chiang et al., *Prediction and Clustering in Signed Networks*, JMLR 15 (2014).
    """

    def __init__(self, rank, loss="square", *, ridge=1e-2, inner=5, tol=1e-4, max_iterations=500, seed=0):
        self.rank = as_integer(rank, "rank", 1)
        self._loss = self.loss = as_choice(loss, "loss", ("square", "logistic"))
        self.ridge = as_real(ridge, "ridge", 0.0, 1e300)
        self.inner = as_integer(inner, "inner", 1)
        self.tol = as_real(tol, "tol", 0.0, 1.0)
        self.max_iterations = as_integer(max_iterations, "max_iterations", 1)
        self.seed = seed

    def _run(self, data):
        from fastsketch._kernels import lowrank as kernel

        rng = np.random.default_rng(self.seed)
        a, b = (rng.standard_normal((size, self.rank)) / np.sqrt(self.rank) for size in (data.m, data.n))
        flipped = data.transposed()

        def objective(side, factors, other):
            z = np.empty(len(side.o))
            kernel.scores(*side.where, factors, other, np.zeros(side.m), np.zeros(side.n), z)
            total, slopes = _value_and_slopes(self.loss, z, side.o)
            return total + 0.5 * self.ridge * float((factors**2).sum()), slopes

        def descend(side, factors, other):
            bound = LOSSES[self.loss].lipschitz * float(np.linalg.norm(other, 2)) ** 2 + self.ridge
            step = 1.0 / bound
            value, slopes = objective(side, factors, other)
            for _ in range(self.inner):
                g = (
                    sparse.csr_array(
                        (slopes, side.indices.astype(np.int32), side.indptr.astype(np.int64)), shape=(side.m, side.n)
                    )
                    @ other
                    + self.ridge * factors
                )
                # longer steps than 1 / bound, which is that of a full matrix, while they go down
                step *= 2
                while True:
                    tried = factors - step * g
                    found, new = objective(side, tried, other)
                    if found <= value - 0.25 * step * float((g**2).sum()) or step * bound < 0.5:
                        break
                    step *= 0.5
                factors, value, slopes = tried, found, new
            return factors, value

        for _ in range(self.max_iterations):
            a, _ = descend(data, a, b)
            b, value = descend(flipped, b, a)
            yield a, b, value + 0.5 * self.ridge * float((a**2).sum())


class ADMML1(_Baseline):
    """min sum |X - O| over the observed entries + penalty * nuclear norm of Y, X = Y, by ADMM. Dense: small data.

    Parameters
    ----------
    penalty : float
    mu : float, optional
        Of the augmented Lagrangian; 1 / spread of the observations if not given.
    tol, max_iterations
        As for AISImpute.

    References
    ----------
    Lin, Chen, Ma, arXiv:1009.5055 (2010); Boyd et al. 2011.
    """

    _loss = "l1"

    def __init__(self, penalty, *, mu=None, tol=1e-4, max_iterations=300):
        self.penalty = as_real(penalty, "penalty", 0.0, 1e300)
        self.mu = None if mu is None else as_real(mu, "mu", 0.0, 1e300, low_open=True)
        self.tol = as_real(tol, "tol", 0.0, 1.0)
        self.max_iterations = as_integer(max_iterations, "max_iterations", 1)

    def _run(self, data):
        rows = np.repeat(np.arange(data.m), np.diff(data.indptr.astype(np.int64)))
        where = rows, data.indices
        mu = self.mu or 1.0 / max(float(np.std(data.o)), 1e-12)
        y, dual = np.zeros((data.m, data.n)), np.zeros((data.m, data.n))
        for _ in range(self.max_iterations):
            x = y - dual / mu
            gap = x[where] - data.o
            x[where] = data.o + np.sign(gap) * np.maximum(np.abs(gap) - 1 / mu, 0.0)
            u, s, vt = np.linalg.svd(x + dual / mu, full_matrices=False)
            s = np.maximum(s - self.penalty / mu, 0.0)
            kept = max(1, int((s > 0).sum()))
            a, b = u[:, :kept] * s[:kept], vt[:kept].T
            y = a @ b.T
            dual += mu * (x - y)
            yield a, b, float(np.abs(y[where] - data.o).sum() + self.penalty * s.sum())


class WibergL1(_Baseline):
    """min sum |o_ij - a_i . b_j| of given rank: Gauss-Newton steps in B alone, A following, each a linear program.

    For small problems: a program of n * rank variables an iteration.

    Parameters
    ----------
    rank : int
    tol, max_iterations, seed
        As for AISImpute.

    References
    ----------
    Eriksson, van den Hengel, IEEE TPAMI 34 (2012).
    """

    _loss = "l1"

    def __init__(self, rank, *, tol=1e-4, max_iterations=30, seed=0):
        self.rank = as_integer(rank, "rank", 1)
        self.tol = as_real(tol, "tol", 0.0, 1.0)
        self.max_iterations = as_integer(max_iterations, "max_iterations", 1)
        self.seed = seed

    def _run(self, data):
        rng, r = np.random.default_rng(self.seed), self.rank
        b = rng.standard_normal((data.n, r)) / np.sqrt(r)
        reach = 1.0
        a, active = _rows_by_lp(data, b)
        value = _l1(data, a, b)
        yield a, b, value
        for _ in range(self.max_iterations):
            while reach > 1e-6:
                move = self._step(data, a, b, active, reach)
                tried_a, tried_active = _rows_by_lp(data, b + move)
                tried = _l1(data, tried_a, b + move)
                if tried < value:
                    a, b, active, value = tried_a, b + move, tried_active, tried
                    reach *= 2
                    break
                reach *= 0.25
            yield a, b, value

    def _step(self, data, a, b, active, reach):
        """delta b that minimises the linearised residuals, |delta| <= reach."""
        r, entries = self.rank, ([], [], [])
        residuals, line = [], 0
        for i in range(data.m):
            at = slice(int(data.indptr[i]), int(data.indptr[i + 1]))
            columns, o = data.indices[at].astype(int), data.o[at]
            if len(columns) == 0:
                continue
            inside = active[i]
            # a_i = B_active^-1 o_active: d a_i = -B_active^-1 (d B_active) a_i
            back = np.linalg.pinv(b[columns[inside]]) if len(inside) else np.zeros((r, 0))
            residuals.append(o - b[columns] @ a[i])
            through = b[columns] @ back
            for k, j in enumerate(columns):
                for q in range(r):
                    entries[0].append(line)
                    entries[1].append(j * r + q)
                    entries[2].append(a[i, q])
                for place, p in enumerate(columns[inside]):
                    for q in range(r):
                        entries[0].append(line)
                        entries[1].append(p * r + q)
                        entries[2].append(-through[k, place] * a[i, q])
                line += 1
        jacobian = sparse.csr_array(sparse.coo_array((entries[2], (entries[0], entries[1])), shape=(line, data.n * r)))
        return _least_l1(jacobian, np.concatenate(residuals), reach).reshape(data.n, r)


def _least_l1(matrix, target, reach):
    """x with |x| <= reach that minimises |target - matrix x|_1, by HiGHS."""
    from scipy.optimize import linprog

    lines, n = matrix.shape
    eye = sparse.eye_array(lines, format="csr")
    above = sparse.hstack([sparse.vstack([matrix, -matrix]), sparse.vstack([-eye, -eye])], format="csr")
    found = linprog(
        np.concatenate([np.zeros(n), np.ones(lines)]),
        A_ub=above,
        b_ub=np.concatenate([target, -target]),
        bounds=[(-reach, reach)] * n + [(0, None)] * lines,
        method="highs",
    )
    return found.x[:n] if found.x is not None else np.zeros(n)


def _rows_by_lp(data, b):
    """a_i that minimise |o_i - B a_i|_1, and for each the entries that it meets exactly."""
    a, active = np.zeros((data.m, b.shape[1])), []
    for i in range(data.m):
        at = slice(int(data.indptr[i]), int(data.indptr[i + 1]))
        columns, o = data.indices[at].astype(int), data.o[at]
        if len(columns) == 0:
            active.append(np.empty(0, int))
            continue
        a[i] = _least_l1(sparse.csr_array(b[columns]), o, 1e6)
        gap = np.abs(o - b[columns] @ a[i])
        order = np.argsort(gap)[: min(b.shape[1], len(columns))]
        active.append(order[gap[order] <= 1e-7 * max(1.0, float(np.abs(o).max()))])
    return a, active


def _l1(data, a, b):
    rows = np.repeat(np.arange(data.m), np.diff(data.indptr.astype(np.int64)))
    return float(np.abs(data.o - np.einsum("kq,kq->k", a[rows], b[data.indices])).sum())
