"""Ridge regression from one pass over rows and targets."""

# pyright: reportPrivateUsage=false

from collections.abc import Generator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._core.threads import one_blas_thread
from fastsketch._core.validation import Rows as Readable
from fastsketch._core.validation import as_integer, as_real, as_rows, check_finite
from fastsketch._kernels.guard import changes, reads
from fastsketch.ridge._gram_model import GramSum, Matrix
from fastsketch.ridge._moments import LeftOut, Moments
from fastsketch.ridge._path import STEP
from fastsketch.ridge._read_out import (
    FEWEST,
    TINY,
    Choice,
    Coefficients,
    Problem,
    RidgePath,
    Rows,
    Scorer,
    chosen,
    completed,
    gram_of_sketch,
    penalty_of,
    quantile,
)
from fastsketch.ridge._refining import ConjugateGradients, Krylov, MeasuredForm, Refined, Refinement, column_lengths
from fastsketch.ridge._ridge_learning import DOUBLE, MOST_RIDGE, RidgeLearner
from fastsketch.sketching._rows_again import Readable as Source
from fastsketch.sketching._rows_again import RowsAgain

# Rows on which a ridge is chosen: one of so many at most, half of them for the choice; none if that is below FEWEST.
ONE_OF = 5
# Passes of a refinement from one look at the ridge to the next.
CHOOSE_EVERY = 4


class PredictionInterval(NamedTuple):
    """Ends of intervals, of the shape of predictions."""

    lower: NDArray[np.float64]
    upper: NDArray[np.float64]


class FittedRidge(NamedTuple):
    """What was last read out."""

    fit: Coefficients
    choice: Choice


class SketchedRidge(RidgeLearner):
    """Ridge regression from one pass over rows and targets, with a ridge that is chosen on rows held out.

    Coefficients W (d x c) minimise the weighted squares of y - x W - b, summed over rows, plus ridge times those of W.
    X'Y is kept as it is, X'X as it is where d is small, else as a sketch of at most l rows and what these lack of the
    diagonal. So one state has the answer at every ridge, and merges.

    Parameters
    ----------
    sketch_size : int, default 128
        l in [2, 2**16), rows of the sketch, of rows too wide for an exact sum.
    ridge : float >= 0, optional
        In squared units of the weighted rows, as ``alpha`` of scikit-learn's Ridge. If it is not given, it is chosen at
        the first read-out by its error on the rows in the reservoir, a fifth of all rows at most. With fewer than 100
        rows it is the mean squared length of a row.
    rank : int, optional
        Of the coefficients: reduced-rank regression, for targets that have much in common.
    scale : bool, default False
        Whether the ridge counts in variances of the columns, as if each had been divided by its standard deviation.
    fit_intercept : bool, default True
        Whether there is an intercept, which the ridge does not shrink: rows and targets are centred, sparse ones too.
    scoring : {"squared_error", "log_loss"}, default "squared_error"
        By which error the ridge is chosen: the squared one, over the variance of each target; or, of labels that are -1
        and 1, the squared hinge, which counts nothing beyond the label.
    solver : {"auto", "gram", "exact"}, default "auto"
        Whether X'X is kept as it is ("exact") or as a sketch ("gram"): "auto" keeps it where it fits in `max_memory`.
    reservoir_size : int, default 2000
        Most rows that are kept as they are, a uniform sample. They choose the ridge, and are learned from in the end.
        How far predictions are off half of them measure, by a fit without them at the ridge that the others choose.
    max_memory : int, default 268_435_456
        Bytes of X'X (8 d^2) up to which it is kept as it is, and of X'Y (8 d c) beyond which targets are refused.
    decay : float in (0, 1], default 1.0
        Every new row multiplies the weight of all earlier rows by this. See also ``fade``.
    seed : int, default 0
        Of the rows in the reservoir.

    Attributes
    ----------
    n_rows, n_features, n_targets : int
        Rows seen, columns d and targets c; None before the first batch.
    notes : dict
        Anything that json can write; saved with the state.

    Raises
    ------
    TypeError, ValueError
        If a parameter is out of range; the message names it.

    Notes
    -----
    An update costs what it costs in FrequentDirections, and 2 c flops for each entry of a row. Memory: (l + b) d or
    d^2, 2 d c and the reservoir. A read-out takes a factor of d x d, or 2 d l^2 flops, for each ridge of five or so
    that it tries.

    Models of different rows merge. Which rows the reservoir holds depends on `seed`, on each row's place in its stream
    and on its targets: neither on batches nor on the order of merges. Answers do by rounding alone, and by what a
    sketch loses. Where it has lost something coefficients are multiplied by one factor, which the rows that choose the
    ridge want: X'Y is whole and X'X is not. (With "log_loss" they are not: labels need no length.)

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((1000, 5))
    >>> y = X @ [3.0, 0.0, -2.0, 0.0, 1.0] + 0.1 * rng.standard_normal(1000)
    >>> model = fs.SketchedRidge().update(X, y)
    >>> model.coef().round(1) + 0.0
    array([ 3.,  0., -2.,  0.,  1.])
    """

    # -- answers ---------------------------------------------------------------------------------------------------
    @reads
    def predict(self, rows: Readable, *, ridge: float | None = None) -> NDArray[np.float64]:
        """Predict the targets of rows, (n,) or (n, c) float64.

        Parameters
        ----------
        rows : array_like (n, d) or (d,), or scipy.sparse (n, d)
        ridge : float >= 0, optional
            In place of the ridge in use.

        Raises
        ------
        TypeError, ValueError
            If rows do not fit, or the model has seen none.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> X = np.random.default_rng(0).standard_normal((500, 5))
        >>> model = fs.SketchedRidge().update(X, X[:, :2])
        >>> model.predict(X[:1]).shape, bool(np.allclose(model.predict(X, ridge=0.0), X[:, :2]))
        ((1, 2), True)
        """
        fit = self._coefficients(ridge)
        return self._shaped(fit.predict(self._as_read(rows)))

    @reads
    def predict_interval(self, rows: Readable, *, coverage: float = 0.9) -> PredictionInterval:
        """Return intervals that hold the targets of new rows with a probability of `coverage`, each by itself.

        As wide for every row: split-conformal quantiles of what predictions are off for rows held out, of coefficients
        that have not seen them and whose ridge others have chosen. Rows to come must be like those seen (exchangeable):
        of weights other than 1 like rows drawn from them in proportion to their weights. A tenth of all rows measure;
        by weights they count as Kish's effective number, (sum w)^2 / sum w^2, or with decay as sum over largest.

        Parameters
        ----------
        rows : array_like (n, d) or (d,), or scipy.sparse (n, d)
        coverage : float in (0, 1), default 0.9

        Returns
        -------
        PredictionInterval
            ``lower`` and ``upper``, of the shape of ``predict``.

        Raises
        ------
        TypeError, ValueError
            If rows do not fit, or too few were held out for this coverage.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rng = np.random.default_rng(0)
        >>> X = rng.standard_normal((2000, 5))
        >>> y = X[:, 0] + rng.standard_normal(2000)
        >>> lower, upper = fs.SketchedRidge().update(X[:1000], y[:1000]).predict_interval(X[1000:])
        >>> bool(0.86 < np.mean((lower <= y[1000:]) & (y[1000:] <= upper)) < 0.94)
        True
        """
        coverage = as_real(coverage, "coverage", 0.0, 1.0, low_open=True, high_open=True)
        middle = self._coefficients(None).predict(self._as_read(rows))
        half = quantile(*self._known_residuals(), coverage, aged=self.decay < 1.0)
        return PredictionInterval(self._shaped(middle - half), self._shaped(middle + half))

    @reads
    def coef(self, ridge: float | None = None) -> NDArray[np.float64]:
        """Return the coefficients, (d,) or (c, d) float64, of the columns as they came.

        Parameters
        ----------
        ridge : float >= 0, optional
            In place of the ridge in use.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> X = np.random.default_rng(0).standard_normal((500, 3))
        >>> model = fs.SketchedRidge().update(X, X @ [1.0, 0.0, -2.0])
        >>> (model.coef(ridge=0.0).round(6) + 0.0).tolist()
        [1.0, 0.0, -2.0]
        """
        coef = self._coefficients(ridge).coef.T
        return coef[0].copy() if self._flat else coef.copy()

    @reads
    def intercept(self, ridge: float | None = None) -> Any:
        """Return the intercept, a float or (c,) float64.

        Parameters
        ----------
        ridge : float >= 0, optional
            In place of the ridge in use.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> X = np.random.default_rng(0).standard_normal((500, 3))
        >>> round(fs.SketchedRidge().update(X, X @ [1.0, 0.0, -2.0] + 7.0).intercept(ridge=0.0), 6)
        7.0
        """
        intercept = self._coefficients(ridge).intercept
        return float(intercept[0]) if self._flat else intercept.copy()

    @reads
    def score_path(self) -> RidgePath:
        """Return the ridges that were tried, and the error of each on rows that were held out.

        Returns
        -------
        RidgePath
            ``ridge`` (taken), ``ridges``, ``errors``, ``standard_errors`` (p,) and ``n_rows``.

        Raises
        ------
        ValueError
            If the ridge is given, or the model has seen too few rows to hold some out.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rng = np.random.default_rng(0)
        >>> X = rng.standard_normal((1000, 5))
        >>> path = fs.SketchedRidge().update(X, X[:, 0] + rng.standard_normal(1000)).score_path()
        >>> path.n_rows, path.ridge in path.ridges
        (200, True)
        """
        path = self._fitted().choice.path
        if path is None:
            why = "ridge is given" if self.ridge is not None else f"{self._n} rows are too few to hold some out"
            raise ValueError(f"no ridge has been tried: {why}")
        own = {name: getattr(path, name).copy() for name in ("ridges", "errors", "standard_errors")}
        return path._replace(**own)

    def _as_read(self, rows: Any) -> Any:
        self._require_columns(rows)
        x = as_rows(rows, self.n_features)
        check_finite(x)
        return x

    def _shaped(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return values[:, 0] if self._flat else values

    # -- reading out -----------------------------------------------------------------------------------------------
    def _coefficients(self, ridge: float | None) -> Coefficients:
        fitted = self._fitted()
        if ridge is None or as_real(ridge, "ridge", 0.0, MOST_RIDGE) == fitted.choice.ridge:
            return fitted.fit
        return self._solved(ridge)

    @one_blas_thread
    def _solved(self, ridge: float, *, measured: bool = False, trial: Problem | None = None) -> Coefficients:
        """Solve at a ridge, of all rows, or without those that measure residuals; `trial`: without all held out."""
        measuring, whole = self._measuring(), self._problem(self._measuring() if measured else slice(0, 0))
        fit, n = whole.coefficients(ridge, self.rank), measuring.start if measured else measuring.stop
        if self.is_exact or not n or self.scoring != "squared_error":
            return fit
        trial, rows = trial or self._problem(slice(0, measuring.stop)), self._rows_of(slice(0, n))
        factor = self._scorer(trial).factor(trial.coefficients(ridge, self.rank).predict(rows.x), rows)
        return completed(factor * fit.coef, whole.moments, None)

    def _fitted(self) -> FittedRidge:
        if self._last is None:
            moments = self._require_rows()
            if self._refined is None:
                self._last = self._read_out()
            else:
                coef = self._refined.steps.solution[:, : self.n_targets]
                self._last = FittedRidge(completed(coef, moments, self.rank), self._refined.choice)
            self._residuals = None
        return self._last

    @one_blas_thread
    def _read_out(self) -> FittedRidge:
        choice, trial = self._given(), None
        if choice is None:
            trial = self._problem(slice(0, self._measuring().stop))
            choice = self._chosen_by(trial)
        return FittedRidge(self._solved(choice.ridge, trial=trial), choice)

    @one_blas_thread
    def _chosen_by(self, trial: Problem) -> Choice:
        """Choose the ridge of a problem without the rows held out, by these."""
        rows, scorer = self._rows_of(slice(0, self._measuring().stop)), self._scorer(trial)
        first = self._first_ridge(trial.moments)
        return chosen(lambda ridge: trial.coefficients(ridge, self.rank).predict(rows.x), scorer, rows, first)

    def _require_rows(self) -> Moments:
        if not self._n:
            raise ValueError("the model has seen no rows: call update first")
        return self._known()

    def _given(self) -> Choice | None:
        """Return the ridge that needs no choice: the parameter, or that of too few rows to hold some out."""
        if self.ridge is None and self._measuring().stop:
            return None
        ridge = self._first_ridge(self._known()) if self.ridge is None else self.ridge
        return Choice(ridge, None, ridge)

    def _scorer(self, trial: Problem) -> Scorer:
        return Scorer(self.scoring, trial.moments, trial.is_whole)

    def _first_ridge(self, moments: Moments) -> float:
        """Return the mean squared length of a row, as it is weighted: the ridge of as much noise as there is signal."""
        length = float((moments.squares / penalty_of(moments, scaled=self.scale)).sum()) / max(moments.weight, TINY)
        weights = self._known_held().weight
        most = float(weights.max(initial=0.0))
        if most > 0:  # of what a unit of weight has: sum(w^2) / sum(w)
            length *= float((weights / most) @ weights) / float((weights / most).sum())
        return length if length > 0 else 1.0

    def _measuring(self) -> slice:
        """Return which of the rows held out measure residuals: the second half of those that choose."""
        n = min(len(self._known_held()), self._n // ONE_OF) // 2
        return slice(n, 2 * n) if 2 * n >= FEWEST else slice(0, 0)

    def _rows_of(self, which: slice) -> Rows:
        """Return some of the rows held out."""
        held = self._known_held().chosen(which)
        return Rows(*self._split(held), held.weight)

    def _problem(self, left_out: slice) -> Problem:
        """Return the normal equations of all rows but some of those held out."""
        rest, out = self._rest(left_out)
        if self.is_exact:
            gram = self._sketch.gram()
            return Problem(GramSum(gram - out.times(np.eye(len(gram))) if left_out.stop else gram), rest, self.scale)
        held = self._known_held()
        sketch = self._eat(self._sketch.copy(), held.chosen(np.delete(np.arange(len(held)), left_out)))
        return Problem(gram_of_sketch(sketch, rest.squares), rest, self.scale)

    def _rest(self, left_out: slice) -> tuple[Moments, LeftOut]:
        """Return the moments of all rows but some of those held out, and what these take from X'X."""
        moments, rows = self._known(), self._rows_of(left_out)
        rest = moments
        if len(rows.weight):
            rest = moments.without(Moments.of(*rows, center=self.fit_intercept))
        return rest, LeftOut(moments, rest, rows.x, rows.weight)

    def _known_residuals(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return residuals (m, c) of rows that chose nothing, and their weights."""
        fitted = self._fitted()
        if self._residuals is None:
            self._residuals = self._measured(fitted)
        return self._residuals

    def _measured(self, fitted: FittedRidge) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        measuring = self._measuring()
        rows = self._rows_of(measuring)
        if not len(rows.weight):
            return rows.y, rows.weight
        if self._refined is None:
            fit = self._solved(fitted.choice.apart, measured=True)
        else:
            coef = np.ascontiguousarray(self._refined.steps.solution[:, self.n_targets :])
            fit = completed(coef, self._rest(measuring)[0], self.rank)
        return rows.y - fit.predict(rows.x), rows.weight

    # -- reading the rows again ------------------------------------------------------------------------------------
    @changes
    def refine(
        self,
        rows: Source,
        targets: None = None,
        *,
        sample_weight: ArrayLike | None = None,
        passes: int = 20,
        tolerance: float = 1e-6,
    ) -> Refinement:
        """Refine the coefficients: come nearer to those of all rows in memory, by reading these again.

        Conjugate gradients on the normal equations, all targets together, with the sketch as their preconditioner. The
        ridge stays; predictions, coefficients and intervals are those of the refined coefficients until more is
        learned. A later call goes on where this one ends.

        Parameters
        ----------
        rows : array_like (n, d), scipy.sparse (n, d), table, source, or file names
            All rows that ``update`` has had, in any order.
        targets : None
            The model has X'Y: targets are refused, so that nobody takes other ones for learned.
        sample_weight : array_like (n,) or float, optional
            The weights that they had.
        passes : int, default 20
            Over the rows, at most. One at least is made, and compares the rows with those seen.
        tolerance : float in (0, 1), default 1e-6
            Of the residual of each target over ||X'Y||: no pass follows where all are below.

        Returns
        -------
        Refinement
            ``passes`` since the last update, ``residual``, ``bound`` and ``converged``.

        Raises
        ------
        TypeError, ValueError
            If these are not the rows that the model has seen, by their number and by the mean and the squares of each
            column, or it decays. The model is then as it was before the call.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rng = np.random.default_rng(0)
        >>> X = rng.standard_normal((1000, 300)) * 0.98 ** np.arange(300)
        >>> y = X[:, :9].sum(axis=1) + rng.standard_normal(1000)
        >>> model = fs.SketchedRidge(32, ridge=10.0, max_memory=100_000).update(X, y)  # no exact sum
        >>> result = model.refine(X)
        >>> exact = np.linalg.solve((X - X.mean(0)).T @ X + 10.0 * np.eye(300), (X - X.mean(0)).T @ y)
        >>> result.converged, bool(np.allclose(model.coef(), exact, atol=1e-5))
        (True, True)
        """
        if targets is not None:
            raise TypeError("refine takes rows alone, refine(X): targets are known; weights are sample_weight=")
        passes, tolerance = as_integer(passes, "passes", 1), as_real(tolerance, "tolerance", 0.0, 1.0, low_open=True)
        if self.decay != 1.0:
            raise ValueError(f"refine needs a model without decay, got decay={self.decay:g}: give weights to the rows")
        self._read_again(rows, sample_weight, passes=passes, tolerance=tolerance)
        return self._refinement_so_far(tolerance)

    def _read_again(
        self, rows: Source, sample_weight: Any, *, passes: int, tolerance: float, if_better: bool = False
    ) -> None:
        """Refine; with `if_better` only if the error on rows held out is smaller then."""
        moments, steps = self._require_rows(), self._refinement(passes, tolerance, if_better=if_better)
        view = MeasuredForm(len(moments.mean), DOUBLE, moments.mean, 1.0, self.fit_intercept, [moments.faded(0.0)])
        again, image = RowsAgain(rows, view, sample_weight, feature_names=self._feature_names), None
        try:
            while True:
                read = again.multiply(steps.send(image))
                view.require(moments, self._n, read.n_rows)
                image = read.product
        except StopIteration as end:
            self._refined, self._last, self._residuals = end.value, None, None

    def _refinement_so_far(self, tolerance: float) -> Refinement:
        moments, refined = self._known(), self._refined
        assert refined is not None
        lengths = column_lengths(refined.steps.residual[:, : self.n_targets])
        relative = lengths / np.maximum(column_lengths(moments.cross), TINY)
        with np.errstate(divide="ignore"):
            least = refined.choice.ridge * float(penalty_of(moments, scaled=self.scale).min())
            bound = lengths / np.sqrt(least) if least else np.full(len(lengths), np.inf)
        return Refinement(refined.passes, relative, bound, bool((relative <= tolerance).all()))

    def _refinement(
        self, passes: int, tolerance: float, *, if_better: bool
    ) -> Generator[Matrix, Matrix, Refined | None]:
        """Yield vectors (d, m) whose products with X'X of all rows are wanted next; at last return what came of it."""
        moments, refined, made, problem = self._known(), self._refined, 0, None
        choice = self._given() if refined is None else refined.choice
        if choice is None:
            made, choice = yield from self._choice_again(passes * 3 // 5)
            if if_better:
                problem = self._problem(slice(0, self._measuring().stop))
                if least_error(self._chosen_by(problem)) < least_error(choice):
                    return None
        rest, out = self._rest(self._measuring())
        if problem is None:  # without the rows held out a sketch is as good a preconditioner
            problem = self._problem(slice(0, 0 if self.is_exact else self._measuring().stop))
        solve = one_blas_thread(problem.solver(choice.ridge))
        c = len(moments.target_mean)
        penalty = np.outer(penalty_of(moments, scaled=self.scale), np.repeat([choice.ridge, choice.apart], c))

        def whole(right: Matrix) -> Generator[Matrix, Matrix, Matrix]:
            image = (yield right) + penalty * right
            image[:, c:] -= out.times(np.ascontiguousarray(right[:, c:]))  # of the rows that measure residuals
            return image

        # the second half are the coefficients of all rows but those that measure how far predictions are off
        right = np.hstack([moments.cross, rest.cross])
        lengths = np.maximum(column_lengths(right), TINY)
        steps = ConjugateGradients.start(right, solve) if refined is None else refined.steps
        for k in range(passes - made):
            if (column_lengths(steps.residual) > tolerance * lengths).any():
                steps = steps.step((yield from whole(steps.direction)), solve)
            elif k or made:
                break
            else:  # there is nothing to refine: what is left is computed anew, of the rows
                steps = steps._replace(residual=right - (yield from whole(steps.solution)), passes=steps.passes + 1)
        return Refined(steps, choice, made if refined is None else refined.to_choose)

    def _choice_again(self, passes: int) -> Generator[Matrix, Matrix, tuple[int, Choice]]:
        """Choose the ridge by what all rows but those held out say: (passes made, choice)."""
        n = self._measuring().stop
        if self.is_exact or not passes:
            return 0, self._read_out().choice
        rest, out = self._rest(slice(0, n))
        rows, first, scorer = self._rows_of(slice(0, n)), self._first_ridge(rest), Scorer(self.scoring, rest, True)
        krylov = Krylov(rest, penalty_of(rest, scaled=self.scale), rows.x)
        made = 0
        while True:
            made, right = made + 1, krylov.direction
            krylov.take((yield right) - out.times(right))
            if made % CHOOSE_EVERY and made < passes:
                continue
            path = krylov.path()
            least = path.least(first)
            begin = max(first, least * STEP)
            choice = chosen(path.predict, scorer, rows, begin, least=least / begin)
            # ends where smaller ridges, known as well, are worse
            if made >= passes or choice.ridge >= least * STEP:
                return made, choice

    # -- facts -----------------------------------------------------------------------------------------------------
    def _resolved(self) -> dict[str, Any]:
        return {} if self._last is None else {"ridge": self._last.choice.ridge}

    def _facts(self) -> dict[str, Any]:
        if not self._n:
            return {}
        fitted = self._fitted()
        out = {"n_targets": self.n_targets, "is_exact": self.is_exact, "ridge": fitted.choice.ridge}
        if self._refined is not None:
            out["passes"] = self._refined.passes
        path = fitted.choice.path
        return out if path is None else {**out, "ridge_path": path._asdict()}


def least_error(choice: Choice) -> float:
    """Return the error of the ridge on rows held out, infinite where none was tried."""
    return np.inf if choice.path is None else float(choice.path.errors.min())
