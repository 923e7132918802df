"""Common parts of the GLRL paper's rivals: scores A B', biases below them, a history of objectives."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from types import SimpleNamespace
from typing import Any, NamedTuple, Self, TypedDict, dataclass_transform

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._core.losses import LOSSES, LossName
from fastsketch._core.validation import Rows
from fastsketch._frame.parameters import Parametrized, choice, flag, integer, parameter, real, seed
from fastsketch._kernels.lowrank import gradients as kernel
from fastsketch.lowrank import LowRankModel
from fastsketch.lowrank._data import Observed, observed
from fastsketch.lowrank._ids import Ids
from fastsketch.lowrank._queries import Scale

Floats = NDArray[np.float64]


class Iteration(TypedDict):
    """A line of the history."""

    objective: float
    seconds: float  # since the fit began


class IterationWithFactors(Iteration):
    """State of an iteration as callbacks see it."""

    factors: tuple[Floats, Floats]


class BiasTerms(NamedTuple):
    """Scores without factors are level + row_i + column_j."""

    level: float
    row: Floats  # (m,)
    column: Floats  # (n,)

    def scores(self, data: Observed) -> Floats:
        """Return these scores at the entries, (nnz,)."""
        return self.level + self.row[row_numbers(data)] + self.column[data.indices]


class Step(NamedTuple):
    """Where an iteration has ended."""

    a: Floats  # (m, r)
    b: Floats  # (n, r)
    objective: float
    terms: BiasTerms | None = None  # fitted before, or none


@dataclass_transform(kw_only_default=True, field_specifiers=(choice, flag, integer, parameter, real, seed))
class Declared(Parametrized, abstract=True):
    """Base whose subclasses have constructors of their declared parameters, for type checkers."""


class Completion(Declared, abstract=True):
    """Scores A B', with `biases` added that are fitted first; a subclass has ``_run``. No file holds one."""

    tol: float = real(default=1e-4, high=1.0)
    max_iterations: int = integer(default=300, at_least=1)
    biases: bool = flag(default=False)
    bias_ridge: float | None = real(default=None)

    def _run(self, data: Observed, biases: BiasTerms) -> Iterator[Step]:
        """Return the iterations, without end."""
        raise NotImplementedError

    def _loss_name(self) -> LossName:
        return "absolute"

    def _set_up(self, given: dict[str, Any]) -> None:
        checked = {name: item.check(given[name], name) for name, item in self._declared.items() if name in given}
        self._values = SimpleNamespace(**{name: item.default for name, item in self._declared.items()} | checked)
        self._last: Step | None = None
        self._history: list[Iteration] = []
        self._bias_ridge: float | None = None  # in use

    def fit(self, X: Rows, *, callback: Callable[[IterationWithFactors], object] | None = None) -> Self:
        """Fit the observed entries of X: with ``biases`` those first, then the factors to what they leave.

        Parameters
        ----------
        X : scipy.sparse (m, n), or array (m, n) with NaN for what is missing
        callback : callable, optional
            Called after each iteration with its objective, seconds and factors; a true value returned ends the fit.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            For input that cannot serve; the model is then as it was.
        """
        data = observed(X, loss=self._loss_name(), dtype=np.dtype(np.float64))
        if len(data.o) == 0:
            raise ValueError("X must hold at least one observation, got none")
        history: list[Iteration] = []
        last = None
        start = time.perf_counter()
        biases, ridge = self._fit_biases(X, data)
        for last in islice(self._run(data, biases), self._most()):
            line = Iteration(objective=last.objective, seconds=time.perf_counter() - start)
            history.append(line)
            if callback is not None and callback({**line, "factors": (last.a.copy(), last.b.copy())}):
                break
            if len(history) > 1 and self._settled(history[-2]["objective"], last.objective):
                break
        if ridge is not None and last is not None:
            last = last._replace(terms=biases)
        self._last, self._history, self._bias_ridge = last, history, ridge
        return self

    def _fit_biases(self, X: Rows, data: Observed) -> tuple[BiasTerms, float | None]:
        """Return the biases of LowRankModel and the ridge that they are fitted with; zeros and None without them."""
        if not self.biases:
            return BiasTerms(0.0, np.zeros(data.m), np.zeros(data.n)), None
        options: dict[str, Any] = {"bias_ridge": self.bias_ridge, "dtype": np.dtype(np.float64)}
        model = LowRankModel(0, sweeps=0, loss=self._loss_name(), **options).fit(X)
        return BiasTerms(*model.bias_terms()), model.resolved["bias_ridge"]

    def _most(self) -> int:
        """Return the most lines of the history."""
        return self.max_iterations

    def _settled(self, before: float, after: float) -> bool:
        return abs(before - after) <= self.tol * abs(before)

    def _known(self) -> Step:
        if self._last is None:
            raise ValueError("the model has not been fitted: call fit first")
        return self._last

    # -- what it knows ---------------------------------------------------------------------------------------------
    def factors(self) -> tuple[Floats, Floats]:
        """Return (A (m, r), B (n, r))."""
        last = self._known()
        return last.a.copy(), last.b.copy()

    def bias_terms(self) -> BiasTerms:
        """Return (level, row (m,), column (n,)): scores are level + row_i + column_j + a_i . b_j; else zeros."""
        last = self._known()
        if last.terms is None:
            return BiasTerms(0.0, np.zeros(len(last.a)), np.zeros(len(last.b)))
        level, row, column = last.terms
        return BiasTerms(level, row.copy(), column.copy())

    def decision_function(self, rows: ArrayLike, columns: ArrayLike) -> Floats:
        """Return scores of pairs (rows[k], columns[k]), (k,); for an index -1, never seen, the other biases, or 0."""
        last = self._known()
        one, two = Ids().pairs(rows, columns, (len(last.a), len(last.b)))
        z = np.where((one >= 0) & (two >= 0), np.einsum("kq,kq->k", last.a[one], last.b[two]), 0.0)
        if last.terms is not None:
            level, row, column = last.terms
            z += level + np.where(one >= 0, row[one], 0.0) + np.where(two >= 0, column[two], 0.0)
        return z

    def predict(self, rows: ArrayLike, columns: ArrayLike) -> Floats:
        """Return predictions of pairs: labels -1 and +1 of loss="logistic", else the scores.

        Parameters
        ----------
        rows, columns : array_like of int (k,)
        """
        return self._scale().predicted(self.decision_function(rows, columns))

    def predict_proba(self, rows: ArrayLike, columns: ArrayLike) -> Floats:
        """Return probabilities of the label +1 of pairs, for loss="logistic"; ValueError for other losses.

        Parameters
        ----------
        rows, columns : array_like of int (k,)
        """
        return self._scale().probability(self.decision_function(rows, columns))

    def _scale(self) -> Scale:
        terms = self._known().terms
        return Scale(self._loss_name(), None, 0.0 if terms is None else terms.level)

    @property
    def history(self) -> list[Iteration]:
        """Return objective and seconds of every iteration; [] before the fit."""
        return [line.copy() for line in self._history]

    @property
    def shape(self) -> tuple[int, int]:
        """Return (m, n) of the matrix; ValueError before the fit."""
        last = self._known()
        return len(last.a), len(last.b)

    def _resolved(self) -> dict[str, Any]:
        return {} if self._bias_ridge is None else {"bias_ridge": self._bias_ridge}


def row_numbers(data: Observed) -> NDArray[np.int64]:
    """Return the row of every entry, (nnz,)."""
    ends = data.indptr.astype(np.int64)
    return np.repeat(np.arange(data.m), ends[1:] - ends[:-1])


def residual(data: Observed, biases: BiasTerms) -> Observed:
    """Return what the biases leave of the entries: all that losses of z - o need to know of them."""
    return replace(data, o=data.o - biases.scores(data))


def value_and_slopes(loss: str, z: Floats, o: Floats) -> tuple[float, Floats]:
    """Return sum of the losses at scores z of the entries o, and the slope of each."""
    ones, a = np.ones(1), np.empty_like(o)
    indptr, indices = np.array([0, len(o)], np.uint32), np.zeros(len(o), np.uint32)
    total, _ = kernel.gradient(LOSSES[loss].number, 0.0, indptr, indices, z, o, np.empty(0), ones, ones, a)
    return total, a
