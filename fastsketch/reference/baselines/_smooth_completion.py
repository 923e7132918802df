"""Matrix completion under a smooth loss: AIS-Impute and alternating gradient steps. No dense matrix is ever formed."""

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from scipy import sparse

from fastsketch._core.losses import LOSSES, LossName
from fastsketch._frame.parameters import choice, integer, real, seed
from fastsketch._kernels.lowrank import entries
from fastsketch.lowrank._data import Observed
from fastsketch.lowrank._units import noise_unit
from fastsketch.reference.baselines._completion import (
    BiasTerms,
    Completion,
    Floats,
    Step,
    value_and_slopes,
)


class AISImpute(Completion):
    """Matrix completion with a nuclear norm penalty, by accelerated inexact soft-impute.

    It minimises the sum of losses + penalty_strength * nuclear norm, by proximal gradient steps.

    The singular value thresholding of "sparse plus low rank" starts from the last subspace.

    Parameters
    ----------
    penalty_strength : float
    max_rank : int, default 100
    loss : {"square", "logistic"}, default "square"
    power_iterations : int, default 3
        Products with the matrix and its transpose in each thresholding.
    tol : float, default 1e-4
        Relative change of the objective that ends the fit.
    max_iterations : int, default 300
    biases : bool, default False
        A level, one bias a row and one a column, fitted first as those of LowRankModel are; the factors then fit what
        they leave, and predictions have them.
    bias_ridge : float, optional
        Observations of mean curvature that shrink each bias, as in LowRankModel; 3, of labels 2, if not given.
    seed : int, default 0

    Attributes
    ----------
    history : list of dict
        objective and seconds of every iteration.
    shape : (m, n)

    References
    ----------
    Yao, Kwok, *Accelerated Inexact Soft-Impute for Fast Large-Scale Matrix Completion*, IJCAI 2015.

    Examples
    --------
    >>> import numpy as np
    >>> from fastsketch.reference.baselines import AISImpute
    >>> truth = np.outer([1.0, 2.0, 3.0, 4.0], [1.0, -1.0, 2.0])
    >>> seen = truth.copy()
    >>> seen[1, 2] = np.nan  # to be found
    >>> model = AISImpute(0.1).fit(seen)
    >>> model.predict([1], [2]).round(1)  # the truth is 4
    array([3.9])
    """

    penalty_strength: float = real(kw_only=False)
    max_rank: int = integer(default=100, at_least=1)
    loss: Literal["square", "logistic"] = choice(("square", "logistic"), default="square")
    power_iterations: int = integer(default=3, at_least=1)
    seed: int = seed(default=0)

    def _loss_name(self) -> LossName:
        return self.loss

    def _run(self, data: Observed, biases: BiasTerms) -> Iterator[Step]:
        rng, step, strength = np.random.default_rng(self.seed), 1.0 / _lipschitz(self.loss), self.penalty_strength
        m, n, z = data.m, data.n, np.zeros(len(data.o))
        a, b, a0, b0 = np.zeros((m, 1)), np.zeros((n, 1)), np.zeros((m, 1)), np.zeros((n, 1))
        below = biases.level + biases.row, biases.column
        c, before = 1, np.inf
        v: Floats = rng.standard_normal((n, 5))
        while True:
            momentum = (c - 1) / (c + 2)
            left = np.hstack([(1 + momentum) * a, -momentum * a0])
            right = np.hstack([b, b0])
            entries.scores(*data.index_arrays, np.ascontiguousarray(left), np.ascontiguousarray(right), *below, z)
            g = _matrix(data, -step * value_and_slopes(self.loss, z, data.o)[1])
            extra = min(self.max_rank, v.shape[1] + 3) - v.shape[1]
            q: Floats = np.linalg.qr(np.hstack([v, rng.standard_normal((n, max(extra, 0)))]))[0]
            u = w = q
            for _ in range(self.power_iterations):
                u = np.linalg.qr(g @ q + left @ (right.T @ q))[0]
                w = g.T @ u + right @ (left.T @ u)
                q = np.linalg.qr(w)[0]
            small, s, vt = np.linalg.svd(w.T, full_matrices=False)
            kept = max(1, int((s > step * strength).sum()))
            s = np.maximum(s[:kept] - step * strength, 0.0)
            a0, b0 = a, b
            a, b = (u @ small[:, :kept]) * s, vt[:kept].T
            v = np.hstack([b, b0])[:, : self.max_rank]
            entries.scores(*data.index_arrays, np.ascontiguousarray(a), np.ascontiguousarray(b), *below, z)
            objective = value_and_slopes(self.loss, z, data.o)[0] + strength * float(s.sum())
            c = c + 1 if objective <= before else 1  # momentum begins again when it overshoots
            before = objective
            yield Step(a, b, objective)


class AltMin(Completion):
    """Matrix completion by alternating gradient steps on row and column factors, with an L2 penalty.

    It minimises the sum of losses + ``penalty / 2 (|A|^2 + |B|^2)``.

    Parameters
    ----------
    rank : int
    loss : {"square", "logistic"}, default "square"
    ridge : float, default 1e-2
        The penalty, in units of the largest singular value that the gradient of pure noise would have, as that of
        LowRankModel.
    inner_steps : int, default 5
        Steps on one side before the other.
    tol : float, default 1e-4
        Relative change of the objective that ends the fit.
    max_iterations : int, default 500
    biases : bool, default False
        A level, one bias a row and one a column, fitted first as those of LowRankModel are; the factors then fit what
        they leave, and predictions have them.
    bias_ridge : float, optional
        Observations of mean curvature that shrink each bias, as in LowRankModel; 3, of labels 2, if not given.
    seed : int, default 0

    Attributes
    ----------
    history : list of dict
        objective and seconds of every iteration.
    shape : (m, n)

    References
    ----------
    Chiang et al., *Prediction and Clustering in Signed Networks*, JMLR 15 (2014).

    Examples
    --------
    >>> import numpy as np
    >>> from fastsketch.reference.baselines import AltMin
    >>> truth = np.outer([1.0, 2.0, 3.0, 4.0], [1.0, -1.0, 2.0])
    >>> seen = truth.copy()
    >>> seen[1, 2] = np.nan  # to be found
    >>> model = AltMin(1).fit(seen)
    >>> model.predict([1], [2]).round(1)  # the truth is 4
    array([3.9])
    """

    rank: int = integer(at_least=1, kw_only=False)
    loss: Literal["square", "logistic"] = choice(("square", "logistic"), default="square")
    ridge: float = real(default=1e-2)
    inner_steps: int = integer(default=5, at_least=1)
    max_iterations: int = integer(default=500, at_least=1)
    seed: int = seed(default=0)

    def _loss_name(self) -> LossName:
        return self.loss

    def _run(self, data: Observed, biases: BiasTerms) -> Iterator[Step]:
        rng, penalty = np.random.default_rng(self.seed), self.ridge * _noise(data, self.loss, biases)
        # a start whose scores have the scale of X, where it has one
        scale = (data.standard_deviation or 1.0) if LOSSES[self.loss].targets == "real" else 1.0
        size = np.sqrt(scale) / np.sqrt(self.rank)
        a, b = (size * rng.standard_normal((many, self.rank)) for many in (data.m, data.n))
        flipped, rows, columns = data.transpose(), biases.level + biases.row, biases.column
        while True:
            a, _ = self._descend(data, a, b, (rows, columns), penalty)
            b, value = self._descend(flipped, b, a, (columns, rows), penalty)
            yield Step(a, b, value + 0.5 * penalty * float((a**2).sum()))

    def _objective(
        self, side: Observed, factors: Floats, other: Floats, below: tuple[Floats, Floats], penalty: float
    ) -> tuple[float, Floats]:
        """Return the loss plus the L2 penalty of one factor matrix, and the derivative of the loss at each entry."""
        z = np.empty(len(side.o))
        entries.scores(*side.index_arrays, factors, other, *below, z)
        total, slopes = value_and_slopes(self.loss, z, side.o)
        return total + 0.5 * penalty * float((factors**2).sum()), slopes

    def _descend(
        self, side: Observed, factors: Floats, other: Floats, below: tuple[Floats, Floats], penalty: float
    ) -> tuple[Floats, float]:
        """Run ``inner_steps`` gradient steps on one factor matrix, and return (new matrix, its objective)."""
        bound = _lipschitz(self.loss) * float(np.linalg.norm(other, 2)) ** 2 + penalty
        step = 1.0 / bound
        value, slopes = self._objective(side, factors, other, below, penalty)
        for _ in range(self.inner_steps):
            g: Floats = _matrix(side, slopes) @ other + penalty * factors
            # longer steps than 1 / bound, which is that of a full matrix, while they go down
            step *= 2
            while True:
                tried = factors - step * g
                lower, new = self._objective(side, tried, other, below, penalty)
                if lower <= value - 0.25 * step * float((g**2).sum()) or not step * bound >= 0.5:  # NaN, too
                    break
                step *= 0.5
            factors, value, slopes = tried, lower, new
        return factors, value


def _noise(data: Observed, loss: str, biases: BiasTerms) -> float:
    """Return the noise level of the data, which is the unit of the ridge."""
    _, slopes = value_and_slopes(loss, biases.scores(data), data.o)
    rows, columns = (int(np.count_nonzero(counts)) for counts in data.counts)
    return noise_unit(len(data.o), (rows, columns), float((slopes**2).mean()))


def _lipschitz(loss: str) -> float:
    lipschitz = LOSSES[loss].lipschitz
    assert lipschitz is not None  # both losses have one
    return lipschitz


def _matrix(data: Observed, values: Floats) -> Any:
    """Return a CSR matrix with the given values at the observed entries."""
    return sparse.csr_array(
        (values, data.indices.astype(np.int32), data.indptr.astype(np.int64)), shape=(data.m, data.n)
    )
