"""Base class and common functions of the matrix completion baselines."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple, Self, TypedDict, dataclass_transform

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._core.losses import LOSSES, LossName
from fastsketch._core.validation import Rows
from fastsketch._frame.parameters import Parameter, choice, declare_parameters, flag, integer, parameter, real, seed
from fastsketch._kernels.lowrank import gradients as kernel
from fastsketch.lowrank import LowRankModel
from fastsketch.lowrank._data import Observed, observed_entries
from fastsketch.lowrank._ids import Ids
from fastsketch.lowrank._queries import Scale

Floats = NDArray[np.float64]


class Iteration(TypedDict):
    """A history entry: the objective and the time of one iteration."""

    objective: float
    seconds: float  # since the fit began


class IterationWithFactors(Iteration):
    """A history entry with the factors of the iteration, as callbacks receive it."""

    factors: tuple[Floats, Floats]


class BiasTerms(NamedTuple):
    """Global, row and column biases. Without factors, the score of entry (i, j) is level + row_i + column_j."""

    level: float
    row: Floats  # (m,)
    column: Floats  # (n,)

    def scores(self, data: Observed) -> Floats:
        """Compute the scores of the observed entries from the biases alone, shape (nnz,)."""
        return self.level + self.row[row_numbers(data)] + self.column[data.indices]


class Step(NamedTuple):
    """Result of one iteration: factors, objective and biases."""

    a: Floats  # (m, r)
    b: Floats  # (n, r)
    objective: float
    terms: BiasTerms | None = None  # fitted before, or none


@dataclass_transform(kw_only_default=True, field_specifiers=(choice, flag, integer, parameter, real, seed))
class Declared:
    """Base class whose subclasses declare their constructor arguments as class attributes, as models do. Type checkers
    see these arguments.
    """

    _declared: ClassVar[dict[str, Parameter]] = {}
    _values: SimpleNamespace

    def __init_subclass__(cls, *, abstract: bool = False) -> None:
        """Create the constructor of a subclass."""
        declare_parameters(cls, abstract=abstract)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise TypeError(f"{type(self).__name__} is an abstract class")  # pragma: no cover  subclasses replace it

    @property
    def parameters(self) -> dict[str, Any]:
        """Return the constructor's arguments as a dict."""
        return vars(self._values).copy()


class Completion(Declared, abstract=True):
    """Base class of matrix completion by factors and optional biases. A subclass implements ``_run``.

    Scores are A B' plus biases, which are fitted first. The models cannot be saved to files.
    """

    tol: float = real(default=1e-4, high=1.0)
    max_iterations: int = integer(default=300, at_least=1)
    biases: bool = flag(default=False)
    bias_ridge: float | None = real(default=None)

    def _run(self, data: Observed, biases: BiasTerms) -> Iterator[Step]:
        """Yield the result of each iteration as a Step, without end."""
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
        """Fit the observed entries of X: first the biases if requested, then the factors to the residuals.

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
        data = observed_entries(X, loss=self._loss_name(), dtype=np.dtype(np.float64))
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
        """Return (biases, their ridge), fitted as LowRankModel does; without biases (zeros, None)."""
        if not self.biases:
            return BiasTerms(0.0, np.zeros(data.m), np.zeros(data.n)), None
        options: dict[str, Any] = {"bias_ridge": self.bias_ridge, "dtype": np.dtype(np.float64)}
        model = LowRankModel(0, sweeps=0, loss=self._loss_name(), **options).fit(X)
        return BiasTerms(*model.bias_terms()), model.resolved["bias_ridge"]

    def _most(self) -> int:
        """Return the largest number of history entries."""
        return self.max_iterations

    def _settled(self, before: float, after: float) -> bool:
        return abs(before - after) <= self.tol * abs(before)

    def _known(self) -> Step:
        if self._last is None:
            raise ValueError("the model has not been fitted: call fit first")
        return self._last

    # -- what it knows ---------------------------------------------------------------------------------------------
    def factors(self) -> tuple[Floats, Floats]:
        """Return copies of the row factors A (m, r) and the column factors B (n, r)."""
        last = self._known()
        return last.a.copy(), last.b.copy()

    def bias_terms(self) -> BiasTerms:
        """Return copies of the global, row and column biases, which are zeros if none were fitted.

        The score of entry (i, j) is level + row_i + column_j + a_i . b_j.
        """
        last = self._known()
        if last.terms is None:
            return BiasTerms(0.0, np.zeros(len(last.a)), np.zeros(len(last.b)))
        level, row, column = last.terms
        return BiasTerms(level, row.copy(), column.copy())

    def decision_function(self, rows: ArrayLike, columns: ArrayLike) -> Floats:
        """Compute the scores of the matrix entries at (rows[k], columns[k]).

        An index of -1 stands for an unknown row or column, which has no factors and no bias.
        """
        last = self._known()
        one, two = Ids().pair_positions(rows, columns, (len(last.a), len(last.b)))
        z = np.where((one >= 0) & (two >= 0), np.einsum("kq,kq->k", last.a[one], last.b[two]), 0.0)
        if last.terms is not None:
            level, row, column = last.terms
            z += level + np.where(one >= 0, row[one], 0.0) + np.where(two >= 0, column[two], 0.0)
        return z

    def predict(self, rows: ArrayLike, columns: ArrayLike) -> Floats:
        """Predict the matrix entries at (rows[k], columns[k]): labels for the logistic loss, otherwise the scores.

        Parameters
        ----------
        rows, columns : array_like of int (k,)
        """
        return self._scale().to_predictions(self.decision_function(rows, columns))

    def predict_proba(self, rows: ArrayLike, columns: ArrayLike) -> Floats:
        """Predict the probability of the label +1 at the entries (rows[k], columns[k]), for the logistic loss.

        Raises ValueError for other losses.

        Parameters
        ----------
        rows, columns : array_like of int (k,)
        """
        return self._scale().to_probabilities(self.decision_function(rows, columns))

    def _scale(self) -> Scale:
        terms = self._known().terms
        return Scale(self._loss_name(), None, 0.0 if terms is None else terms.level)

    @property
    def history(self) -> list[Iteration]:
        """Return a list with the objective and the seconds of every iteration. It is empty before the fit."""
        return [line.copy() for line in self._history]

    @property
    def shape(self) -> tuple[int, int]:
        """Return the shape (m, n) of the fitted matrix. Raise ValueError before the fit."""
        last = self._known()
        return len(last.a), len(last.b)

    @property
    def resolved(self) -> dict[str, Any]:
        """Return all parameters, with the ridge of the biases that was used."""
        return self.parameters if self._bias_ridge is None else {**self.parameters, "bias_ridge": self._bias_ridge}


def row_numbers(data: Observed) -> NDArray[np.int64]:
    """Return the row index of every observed entry, shape (nnz,)."""
    ends = data.indptr.astype(np.int64)
    return np.repeat(np.arange(data.m), ends[1:] - ends[:-1])


def residual(data: Observed, biases: BiasTerms) -> Observed:
    """Return the observed entries after subtraction of the biases."""
    return replace(data, o=data.o - biases.scores(data))


def value_and_slopes(loss: str, z: Floats, o: Floats) -> tuple[float, Floats]:
    """Return (total loss at the given scores, derivative of the loss at each entry)."""
    ones, a = np.ones(1), np.empty_like(o)
    indptr, indices = np.array([0, len(o)], np.uint32), np.zeros(len(o), np.uint32)
    total, _ = kernel.gradient(LOSSES[loss].number, 0.0, indptr, indices, z, o, np.empty(0), ones, ones, a)
    return total, a
