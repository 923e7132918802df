"""Matrix completion under the absolute loss, by ADMM and by Wiberg's algorithm, for small data."""

from collections.abc import Iterator
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fastsketch._frame.parameters import integer, real, seed
from fastsketch.lowrank._data import Observed
from fastsketch.reference.baselines._completion import BiasTerms, Completion, Floats, Step, residual, row_numbers

Places = NDArray[np.int64]


class ADMML1(Completion):
    """Matrix completion under the absolute loss with a nuclear norm penalty, by ADMM.

    It minimises sum ``|X - O|`` over the observed entries + penalty_strength * nuclear norm of Y, where X = Y.

    Parameters
    ----------
    penalty_strength : float
    mu : float, optional
        Of the augmented Lagrangian; 1 / spread of the observations if not given.
    tol : float, default 1e-4
        Relative change of the objective that ends the fit.
    max_iterations : int, default 300
    biases : bool, default False
        A level, one bias a row and one a column, fitted first as those of LowRankModel are; the factors then fit what
        they leave, and predictions have them.
    bias_ridge : float, optional
        Observations of mean curvature that shrink each bias, as in LowRankModel; 3 if not given.

    Attributes
    ----------
    history : list of dict
        objective and seconds of every iteration.
    shape : (m, n)

    References
    ----------
    Lin, Chen, Ma, arXiv:1009.5055 (2010); Boyd et al. 2011.

    Examples
    --------
    >>> import numpy as np
    >>> from fastsketch.reference.baselines import ADMML1
    >>> truth = np.outer([1.0, 2.0, 3.0, 4.0], [1.0, -1.0, 2.0])
    >>> seen = truth.copy()
    >>> seen[1, 2] = np.nan  # to be found
    >>> model = ADMML1(1.0).fit(seen)
    >>> model.predict([1], [2]).round(2)  # the truth is 4
    array([4.])
    """

    penalty_strength: float = real(kw_only=False)
    mu: float | None = real(default=None, low_open=True)

    def _run(self, data: Observed, biases: BiasTerms) -> Iterator[Step]:
        data = residual(data, biases)
        where = row_numbers(data), data.indices
        with np.errstate(over="ignore"):
            spread = float(np.std(data.o))
        if self.mu is None and spread == np.inf:
            raise ValueError("X is too large: the squares of its entries overflow, divide it by a number")
        mu = self.mu or 1.0 / max(spread, 1e-12)
        y, dual = np.zeros((data.m, data.n)), np.zeros((data.m, data.n))
        while True:
            x = y - dual / mu
            gap = x[where] - data.o
            x[where] = data.o + np.sign(gap) * np.maximum(np.abs(gap) - 1 / mu, 0.0)
            u, s, vt = np.linalg.svd(x + dual / mu, full_matrices=False)
            s = np.maximum(s - self.penalty_strength / mu, 0.0)
            kept = max(1, int((s > 0).sum()))
            a, b = u[:, :kept] * s[:kept], vt[:kept].T
            y = a @ b.T
            dual += mu * (x - y)
            yield Step(a, b, float(np.abs(y[where] - data.o).sum() + self.penalty_strength * s.sum()))


class WibergL1(Completion):
    """Matrix completion of a given rank under the absolute loss, by Wiberg's algorithm.

    It minimises sum ``|o_ij - a_i'b_j|`` by Gauss-Newton steps in B, after each of which A is fitted again. Each step
    solves linear programs.

    For small problems: a program of n * rank variables an iteration.

    Parameters
    ----------
    rank : int
    tol : float, default 1e-4
        Relative change of the objective that ends the fit.
    max_iterations : int, default 30
        Beside the start, whose line comes first in the history.
    biases : bool, default False
        A level, one bias a row and one a column, fitted first as those of LowRankModel are; the factors then fit what
        they leave, and predictions have them.
    bias_ridge : float, optional
        Observations of mean curvature that shrink each bias, as in LowRankModel; 3 if not given.
    seed : int, default 0

    Attributes
    ----------
    history : list of dict
        objective and seconds of every iteration.
    shape : (m, n)

    References
    ----------
    Eriksson, van den Hengel, IEEE TPAMI 34 (2012).

    Examples
    --------
    >>> import numpy as np
    >>> from fastsketch.reference.baselines import WibergL1
    >>> truth = np.outer([1.0, 2.0, 3.0, 4.0], [1.0, -1.0, 2.0])
    >>> seen = truth.copy()
    >>> seen[1, 2] = np.nan  # to be found
    >>> model = WibergL1(1).fit(seen)
    >>> model.predict([1], [2]).round(2)  # the truth is 4
    array([4.])
    """

    rank: int = integer(at_least=1, kw_only=False)
    max_iterations: int = integer(default=30, at_least=1)
    seed: int = seed(default=0)

    def _most(self) -> int:
        return self.max_iterations + 1

    def _run(self, data: Observed, biases: BiasTerms) -> Iterator[Step]:
        data = residual(data, biases)
        rng, r = np.random.default_rng(self.seed), self.rank
        b = rng.standard_normal((data.n, r)) / np.sqrt(r)
        reach = 1.0
        a, active = _rows_by_lp(data, b)
        value = _absolute(data, a, b)
        yield Step(a, b, value)
        while True:
            while reach > 1e-6:
                move = self._step(data, a, b, active, reach)
                tried_a, tried_active = _rows_by_lp(data, b + move)
                tried = _absolute(data, tried_a, b + move)
                if tried < value:
                    a, b, active, value = tried_a, b + move, tried_active, tried
                    reach *= 2
                    break
                reach *= 0.25
            yield Step(a, b, value)

    def _step(self, data: Observed, a: Floats, b: Floats, active: list[Places], reach: float) -> Floats:
        """Return the change of the column factors that minimises the linearised residuals, with entries <= `reach`."""
        one_of = sparse.eye_array(data.n, format="csr")
        blocks: list[Any] = []
        residuals: list[Floats] = []
        for i in range(data.m):
            columns, o = _row(data, i)
            if len(columns) == 0:
                continue
            # a_i = B_active^-1 o_active: d a_i = -B_active^-1 (d B_active) a_i
            inside = columns[active[i]]
            back = np.linalg.pinv(b[inside]) if len(inside) else np.zeros((self.rank, 0))
            moved = one_of[columns] - sparse.csr_array(b[columns] @ back) @ one_of[inside]
            blocks.append(sparse.kron(moved, a[i][np.newaxis]))
            residuals.append(o - b[columns] @ a[i])
        return _least_absolute(sparse.vstack(blocks, format="csr"), np.concatenate(residuals), reach).reshape(b.shape)


def _row(data: Observed, i: int) -> tuple[Places, Floats]:
    """Return the column indices and the values of the observed entries of row i."""
    at = slice(int(data.indptr[i]), int(data.indptr[i + 1]))
    return data.indices[at].astype(np.int64), data.o[at]


def _least_absolute(matrix: Any, target: Floats, reach: float) -> Floats:
    """Return the solution of a least absolute deviations problem with coefficients in [-reach, reach].
    It is solved as a linear program.
    """
    from scipy import optimize

    linprog = cast("Any", optimize.linprog)  # takes sparse matrices too, which its types do not say
    shape: tuple[int, int] = matrix.shape
    lines, n = shape
    eye = sparse.eye_array(lines, format="csr")
    above = sparse.hstack([sparse.vstack([matrix, -matrix]), sparse.vstack([-eye, -eye])], format="csr")
    solution = linprog(
        np.concatenate([np.zeros(n), np.ones(lines)]),
        A_ub=above,
        b_ub=np.concatenate([target, -target]),
        bounds=[(-reach, reach)] * n + [(0, None)] * lines,
        method="highs",
    )
    x = cast("Floats | None", solution.x)
    return np.zeros(n) if x is None else x[:n]


def _rows_by_lp(data: Observed, b: Floats) -> tuple[Floats, list[Places]]:
    """Fit row factors to fixed column factors by linear programs, and return (factors, entries fitted exactly)."""
    a = np.zeros((data.m, b.shape[1]))
    active: list[Places] = []
    for i in range(data.m):
        columns, o = _row(data, i)
        if len(columns) == 0:
            active.append(np.empty(0, np.int64))
            continue
        a[i] = _least_absolute(sparse.csr_array(b[columns]), o, 1e6)
        gap = np.abs(o - b[columns] @ a[i])
        order = np.argsort(gap)[: min(b.shape[1], len(columns))]
        active.append(order[gap[order] <= 1e-7 * max(1.0, float(np.abs(o).max()))])
    return a, active


def _absolute(data: Observed, a: Floats, b: Floats) -> float:
    return float(np.abs(data.o - np.einsum("kq,kq->k", a[row_numbers(data)], b[data.indices])).sum())
