"""``fastsketch.SketchedRidge``: predictions, intervals and coefficients of a ridge regression learned in one pass.

The state is in _ridge_learning.py. This class chooses the ridge, solves for the coefficients, measures residuals, and
refines the coefficients over rows that are read again.
"""

# pyright: reportPrivateUsage=false

from collections.abc import Generator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._core.threads import one_blas_thread
from fastsketch._core.validation import Rows as Readable
from fastsketch._core.validation import as_integer, as_real, as_rows, check_finite
from fastsketch._core.warning import warn_caller
from fastsketch._kernels.guard import changes, reads
from fastsketch.ridge._cross_validation import GeneralisedCrossValidation, LeaveOneOut
from fastsketch.ridge._gram_model import GramSum, Matrix
from fastsketch.ridge._moments import TINY, LeftOut, Moments, column_lengths
from fastsketch.ridge._path import STEP, error_of, is_as_good
from fastsketch.ridge._read_out import (
    FEWEST,
    Choice,
    Coefficients,
    Problem,
    RidgePath,
    Rows,
    Scorer,
    chosen,
    completed,
    gram_of_sketch,
    least_of,
    penalty_of,
    quantile,
)
from fastsketch.ridge._refining import ConjugateGradients, Krylov, MeasuredForm, Refined, Refinement, residual_gap
from fastsketch.ridge._ridge_learning import DOUBLE, MOST_RIDGE, RidgeLearner
from fastsketch.sketching._frequent_directions import SecondPass
from fastsketch.sketching._rereading import Readable as Source
from fastsketch.sketching._rereading import RowsAgain

# One of so many rows is held out: half of these measure residuals, and the other half chooses the ridge of a sketch, a
# tenth of all rows each, as `validation_fraction` of scikit-learn's models. None if both are fewer than FEWEST.
ONE_OF = 5
# Smallest number of rows for leave-one-out, and the weight of a row that counts, relative to the largest.
FEWEST_ALONE, LEAST_SHARE = 3, 1e-12
# Kish's number of rows that is relatively this close to their number is that of equal weights, up to rounding.
SAME_WEIGHT = 1e-9
# Passes of a refinement between two choices of the ridge.
CHOOSE_EVERY = 4
# Largest share of the passes of a refinement that may choose the ridge.
TO_CHOOSE = 0.6
# Numbers kept for the held-out rows during that choice; with very many targets fewer rows choose.
MOST_NUMBERS = 1 << 25
# Residual relative to X'y at which the passes of ``fit`` and of jobs end; tol of scikit-learn's Ridge.
TOLERANCE = 1e-4


class FittedRidge(NamedTuple):
    """Coefficients at the chosen ridge penalty, and how it was chosen; a cache for queries."""

    fit: Coefficients
    choice: Choice


class PredictionInterval(NamedTuple):
    """Lower and upper ends of prediction intervals, in the shape of predictions."""

    lower: NDArray[np.float64]
    upper: NDArray[np.float64]


class SketchedRidge(RidgeLearner):
    """Ridge regression learned in one pass, with the penalty chosen by cross-validation.

    Coefficients W (d x c) minimise the weighted sum of squares of y - x W - b plus ridge times the squares of W, by
    default for standardised columns. X'Y is kept exactly. X'X is kept exactly if d is small, otherwise as a sketch of
    at most l rows and a diagonal correction. So one state has the answer for every ridge, and states merge.

    Parameters
    ----------
    sketch_size : int, default 128
        Number of rows l of the sketch, in [2, 2**16). It only matters for rows too wide for an exact sum.
    ridge : float >= 0, optional
        Penalty, like ``alpha`` of scikit-learn's Ridge; on standardised columns unless `scale` is False. By default it
        is chosen at the first query, one ridge for all targets (see Notes). For one or two rows it is the mean squared
        length of a row.
    rank : int, optional
        Rank of the coefficients: reduced-rank regression, for many correlated targets.
    scale : bool, optional
        Whether columns are standardised. Predictions then do not depend on the units of columns. By default columns of
        dense rows are standardised and columns of sparse rows are not, as decided by the first batch. Coefficients
        always refer to the original columns.
    fit_intercept : bool, default True
        Whether to fit an intercept, which is not penalised. Rows and targets are centred, also sparse rows.
    scoring : {"squared_error", "log_loss"}, default "squared_error"
        The error that chooses the ridge. "squared_error" is relative to the variance of each target. "log_loss" is for
        labels -1 and 1: the log loss of the scores times the factor that minimises it, of the softmax if each row has a
        single 1 among several targets, otherwise of each target separately.
    solver : {"auto", "gram", "exact"}, default "auto"
        Whether X'X is kept exactly ("exact") or as a sketch ("gram"). "auto" keeps it exactly if it fits in
        `max_memory`.
    reservoir_size : int, default 2000
        Size of the reservoir, a uniform sample of rows. Up to a tenth of all rows measure residuals for
        ``predict_interval`` by a fit without them, and another tenth chooses the ridge of a sketch. As long as the
        reservoir has all rows, all of them do both, by leave-one-out.
    max_memory : int, default 268_435_456
        Bytes of X'X (8 d^2) up to which it is kept exactly, and of X'Y (8 d c) beyond which targets are refused.
    decay : float in (0, 1], default 1.0
        Factor by which every new row multiplies the weight of all earlier rows. See also ``fade``.
    seed : int, default 0
        Seed of the reservoir.

    Attributes
    ----------
    n_rows, n_features, n_targets : int
        Number of rows learned, of columns d and of targets c. n_features and n_targets are None before the first batch.
    notes : dict
        Anything that JSON can represent; it is saved with the state.

    Raises
    ------
    TypeError, ValueError
        If a parameter is out of range; the message names it.

    Notes
    -----
    The ridge is the one of least error in a grid. The error is

    - the exact leave-one-out error while the reservoir has all rows, as in ``RidgeCV`` of scikit-learn (Allen 1974);
    - generalised cross-validation if X'X is exact and there are more rows (Golub, Heath, Wahba 1979). It needs only
      sums: n, y'y, X'y and the eigenvalues of X'X, and assumes the mean leverage for every row. If the reservoir has a
      sample of rows, their leverages correct it to the leave-one-out error of all rows, by a ratio estimate (Cochran
      1977). Otherwise it would miss outliers, for instance the few rows in which some column is nonzero. With decay, or
      without a reservoir, n is Kish's effective number, (sum w)^2 / sum w^2. If that is close to the number of columns
      the ridge is larger than the best one; if it is not above it, held-out rows choose instead;
    - the error on a tenth of the rows, held out in the reservoir, if X'X is a sketch, with a `rank`, and with
      ``scoring="log_loss"``. Generalised cross-validation would not know what a sketch has lost.

    The grid has four ridges in each decade over all ridges that eigenvalues can distinguish. Where held-out rows
    choose, it has two in each decade, searched from the best of a coarse grid until the error rises or falls by less
    than 1e-4 of itself, and four around the best one.

    An update costs as much as in ``FrequentDirections``, plus 2 c flops for each entry of a row. Memory is (l + b) d or
    d^2, plus 2 d c and the reservoir. The first query takes an eigendecomposition of a d x d matrix; with a sketch it
    takes 2 d l^2 flops for each of about ten ridges.

    Models of different rows merge. Which rows the reservoir holds depends on `seed`, on each row's position in its
    stream and on its targets, but neither on batches nor on the order of merges. Answers depend on these only by
    rounding, and by what a sketch loses. If a sketch has lost something, all coefficients are multiplied by the factor
    that minimises the error of the rows that choose the ridge, since X'Y is complete and X'X is not. With "log_loss"
    the factor is 1.

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
        """Predict the targets of rows.

        Parameters
        ----------
        rows : array_like (n, d) or (d,), or scipy.sparse (n, d)
        ridge : float >= 0, optional
            Use this ridge instead of the one in use.

        Returns
        -------
        ndarray float64 (n,) or (n, c)

        Raises
        ------
        TypeError, ValueError
            If the rows are invalid, or the model has learned none.

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
        """Predict intervals that contain the target of a new row with probability `coverage`.

        Each target has an interval of its own.

        Split conformal prediction: the half width is a quantile of the residuals of a tenth of the rows, held out in
        the reservoir, under a fit without them. The ridge of that fit is chosen by other rows (with scoring="log_loss"
        these rows take part in the choice, by the log loss). While the reservoir has all rows, all leave-one-out
        residuals are used, each at the ridge that is best for the other rows; with hardly more rows than columns such
        intervals cover less than `coverage` (0.81 to 0.88 at 0.9 for ten rows of 8 columns).

        New rows must be exchangeable with those learned; with weights, with rows drawn in proportion to the weights.
        The number of residuals is then Kish's effective number, or with decay the sum of the weights over the largest.

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
            If the rows are invalid, or too few rows measure residuals for this coverage.

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
        """Return the coefficients, in the units of the original columns.

        Parameters
        ----------
        ridge : float >= 0, optional
            Use this ridge instead of the one in use.

        Returns
        -------
        ndarray float64 (d,) or (c, d)

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
        """Return the intercept, or the intercept of each target.

        Parameters
        ----------
        ridge : float >= 0, optional
            Use this ridge instead of the one in use.

        Returns
        -------
        float, or ndarray float64 (c,)

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
        """Return the ridge penalties that were tried, with the cross-validated error of each.

        Returns
        -------
        RidgePath
            ``ridge`` (the one in use), ``ridges``, ``errors``, ``standard_errors`` (p,) and ``n_rows``.

        Raises
        ------
        ValueError
            If the ridge was given, or there are too few rows for cross-validation.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rng = np.random.default_rng(0)
        >>> X = rng.standard_normal((1000, 5))
        >>> path = fs.SketchedRidge().update(X, X[:, 0] + rng.standard_normal(1000)).score_path()
        >>> path.n_rows, path.ridge in path.ridges
        (1000, True)
        """
        path = self._fitted().choice.path
        if path is None:
            why = "ridge is given" if self.ridge is not None else f"{self._n} rows are too few for cross-validation"
            raise ValueError(f"no ridge has been tried: {why}")
        own = {name: getattr(path, name).copy() for name in ("ridges", "errors", "standard_errors")}
        return path._replace(**own)

    def _as_read(self, rows: Any) -> Any:
        """Check rows of a query and return them as an array or CSR matrix."""
        self._require_columns(rows)
        x = as_rows(rows, self.n_features)
        check_finite(x)
        return x

    def _shaped(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return predictions (n, c) in the shape of the learned targets: as a vector if these were one."""
        return values[:, 0] if self._flat else values

    # -- reading the rows again ------------------------------------------------------------------------------------
    @changes
    def refine(
        self,
        rows: Source,
        targets: None = None,
        *,
        sample_weight: ArrayLike | None = None,
        passes: int = 50,
        tolerance: float = 1e-6,
    ) -> Refinement:
        """Refine the coefficients towards an exact fit to all rows, by reading the rows again.

        Each pass is a step of conjugate gradients on the normal equations, for all targets together, with the sketch as
        preconditioner. Unless the ridge is given it is chosen again first, in at most three fifths of the passes: a
        Krylov space of X'X predicts the held-out rows at every ridge. The choice is looked at after every fourth pass,
        among ridges at which the equations are solved up to 3%. Predictions, coefficients and intervals then use the
        refined coefficients until more is learned. A later call continues where this one ends, at the same ridge.

        Parameters
        ----------
        rows : array_like (n, d), scipy.sparse (n, d), table, source, or file names
            All rows that ``update`` has learned, in any order.
        targets : None
            Targets are refused: the model has X'Y, and other targets would have no effect.
        sample_weight : array_like (n_samples,) or float, optional
            The weights that the rows had.
        passes : int, default 50
            Largest number of passes, at least one. The first pass compares the rows with those learned. After one or
            two passes coefficients can be slightly worse than those of the sketch, see ``Refinement.residual``.
        tolerance : float in (0, 1), default 1e-6
            Passes end when the residual of each target, relative to ||X'Y||, is at most this.

        Returns
        -------
        Refinement
            ``passes`` since the last update, ``residual``, ``bound`` and ``converged``.

        Raises
        ------
        TypeError, ValueError
            If these are not the rows that were learned, by their number and the mean and squares of each column; or if
            the model decays. The model is then unchanged.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rng = np.random.default_rng(0)
        >>> X = rng.standard_normal((1000, 300)) * 0.98 ** np.arange(300)
        >>> y = X[:, :9].sum(axis=1) + rng.standard_normal(1000)
        >>> model = fs.SketchedRidge(32, ridge=10.0, scale=False, max_memory=100_000).update(X, y)  # no exact sum
        >>> result = model.refine(X)
        >>> exact = np.linalg.solve((X - X.mean(0)).T @ X + 10.0 * np.eye(300), (X - X.mean(0)).T @ y)
        >>> result.converged, bool(np.allclose(model.coef(), exact, atol=1e-5))
        (True, True)
        """
        if targets is not None:
            raise TypeError("refine takes rows alone, refine(X): targets are known; weights are sample_weight=")
        passes, tolerance = as_integer(passes, "passes", 1), as_real(tolerance, "tolerance", 0.0, 1.0, low_open=True)
        self._check_passes(passes)
        self._read_again(rows, sample_weight, passes=passes, tolerance=tolerance)
        return self._refinement_so_far(tolerance)

    def _refinement_so_far(self, tolerance: float) -> Refinement:
        """Return the residuals and error bounds of the refined coefficients."""
        moments, refined = self._known(), self._refined
        assert refined is not None
        lengths = column_lengths(refined.steps.residual[:, : self.n_targets])
        relative = lengths / np.maximum(column_lengths(moments.cross), TINY)
        with np.errstate(divide="ignore"):
            penalty = refined.choice.ridge * penalty_of(moments, scaled=self._scaled)
            gap = residual_gap(refined.steps, moments, self._n, float(penalty.max()))
            least = float(penalty.min())
            bound = (lengths + gap) / np.sqrt(least) if least else np.full(len(lengths), np.inf)
        return Refinement(refined.passes, relative, bound, bool((relative <= tolerance).all()))

    # -- reading out -----------------------------------------------------------------------------------------------
    def _coefficients(self, ridge: float | None) -> Coefficients:
        """Return the coefficients and intercepts at the given ridge penalty, or at the chosen one if it is None.

        A warning is given if the chosen ridge's coefficients are refined and the returned ones are not.
        """
        fitted = self._fitted()
        if ridge is None or as_real(ridge, "ridge", 0.0, MOST_RIDGE) == fitted.choice.ridge:
            return fitted.fit
        if self._refined is not None and not self.is_exact:
            warn_caller(
                f"coefficients at ridge={ridge:g} are those of the sketch: rows were read again for ridge="
                f"{fitted.choice.ridge:g}; a model of this ridge can refine them"
            )
        return self._solved(ridge)

    @one_blas_thread
    def _solved(self, ridge: float, *, measured: bool = False, trial: Problem | None = None) -> Coefficients:
        """Solve the normal equations for the coefficients and intercepts at a ridge penalty.

        Parameters
        ----------
        ridge : float
        measured : bool, default False
            Whether to leave out the rows that measure residuals.
        trial : Problem, optional
            The normal equations without any held-out row, from which the factor on coefficients is estimated. They are
            computed if they are needed and not given.
        """
        measuring, whole = self._measuring(), self._problem(self._measuring() if measured else slice(0, 0))
        fit, n = whole.coefficients(ridge, self.rank), measuring.start if measured else measuring.stop
        if self.is_exact or not n or self.scoring != "squared_error":
            return fit
        trial, rows = trial or self._problem(slice(0, measuring.stop)), self._rows_of(slice(0, n))
        factor = self._scorer(trial).factor(trial.coefficients(ridge, self.rank).predict(rows.x), rows)
        return completed(factor * fit.coef, whole.moments, None)

    def _fitted(self) -> FittedRidge:
        """Return the coefficients and the chosen ridge penalty; cached until more is learned."""
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
        """Choose the ridge penalty and compute the coefficients, from the sketch or the exact X'X."""
        choice, trial = self._settled_choice(), None
        if choice is None:
            trial = self._problem(slice(0, self._measuring().stop))
            choice = self._chosen_by(trial)
        weigh = self._known().n_effective if self.ridge is None and self.decay < 1.0 else np.inf
        if weigh < min(FEWEST, len(self._known().mean)):
            warn_caller(
                f"decay={self.decay:g} leaves the weight of {weigh:.3g} rows to choose a ridge for "
                f"{self.n_features} columns, which may be far from the best: give ridge=, or a decay nearer to 1"
            )
        return FittedRidge(self._solved(choice.ridge, trial=trial), choice)

    @one_blas_thread
    def _chosen_by(self, trial: Problem) -> Choice:
        """Choose the ridge penalty of least error on held-out rows, given the normal equations without these rows."""
        rows, scorer = self._rows_of(slice(0, self._measuring().stop)), self._scorer(trial)
        first, low = self._first_ridge(trial.moments), self._low_ridge(trial.moments)
        return chosen(lambda ridge: trial.coefficients(ridge, self.rank).predict(rows.x), scorer, rows, first, low=low)

    def _require_rows(self) -> Moments:
        """Return the moments of all rows; raise ValueError if no rows have been learned."""
        if not self._n:
            raise ValueError("the model has seen no rows: call update first")
        return self._known()

    def _settled_choice(self) -> Choice | None:
        """Choose the ridge penalty without held-out rows; return None if only held-out rows can choose it.

        It is the given one, or is chosen by leave-one-out or generalised cross-validation. Too few rows take a default.
        """
        if self.ridge is not None:
            return Choice(self.ridge, None, self.ridge)
        rows, moments = self._rows_at_hand(), self._known()
        if rows is not None:
            of_rows = self._leave_one_out(rows)
            errors = of_rows.errors(Scorer(self.scoring, moments, is_whole=True), rows)
            standard_errors = np.array([error_of(of_ridge) for of_ridge in errors])
            path = least_of(of_rows.ridges, errors.mean(axis=1), standard_errors, len(rows.y))
            return Choice(path.ridge, path, path.ridge)
        if self._is_validated_by_sums():
            return self._generalised(slice(0, 0))
        if self._measuring().stop:
            return None
        ridge = self._first_ridge(moments)
        return Choice(ridge, None, ridge)

    def _is_validated_by_sums(self) -> bool:
        """Return True if generalised cross-validation can choose the ridge penalty.

        It needs X'X, squared errors and coefficients of full rank. With unequal weights it also needs more rows, by
        Kish's number, than coefficients: otherwise small ridges would leave no degrees of freedom, but much of the
        targets.
        """
        if not self.is_exact or self.scoring != "squared_error" or self.rank is not None or self._n < FEWEST_ALONE:
            return False
        moments = self._known()
        weighs_equally = moments.n_effective >= (1.0 - SAME_WEIGHT) * self._n
        return weighs_equally or moments.n_effective >= len(moments.mean) + self.fit_intercept + 1

    @one_blas_thread
    def _generalised(self, left_out: slice) -> Choice:
        """Choose the ridge penalty by generalised cross-validation of all rows except some held-out ones.

        The slice `left_out` selects these among the held-out rows.
        """
        n = self._n - (left_out.stop - left_out.start)
        problem = self._problem(left_out)
        assert isinstance(problem.gram, GramSum)
        moments = problem.moments
        penalty = penalty_of(moments, scaled=problem.scaled)
        gcv = GeneralisedCrossValidation(problem.gram.gram, moments, penalty, n=n, center=self.fit_intercept)
        shares = Scorer(self.scoring, moments, is_whole=True).relative_shares()
        sample = np.delete(np.arange(len(self._known_held())), left_out)
        if self.decay < 1.0 or not len(sample):  # with decay hardly a row of the sample has weight
            errors = gcv.scores(shares)
        else:
            errors = gcv.leave_one_out(shares, self._rows_of(sample))
        path = least_of(gcv.ridges, errors, errors * (2.0 / moments.n_effective) ** 0.5, n)
        return Choice(path.ridge, path, None)

    def _ridge_apart(self, choice: Choice) -> float:
        """Return the ridge penalty at which residuals for prediction intervals are measured.

        The rows that measure them have not taken part in its choice.
        """
        if choice.apart is not None:
            return choice.apart
        measuring = self._measuring()
        return self._generalised(measuring).ridge if len(self._rows_of(measuring).weight) else choice.ridge

    def _rows_at_hand(self) -> Rows | None:
        """Return all learned rows if the reservoir still has all of them, for exact leave-one-out; otherwise None.

        Rows of weight 0 are dropped. None also if X'X has lost something, and with decay or a rank.
        """
        weight = self._known_held().weight
        if self.decay < 1 or self.rank is not None or not 0 < len(weight) == self._n:
            return None
        weighs = np.flatnonzero(weight > LEAST_SHARE * weight.max())
        if len(weighs) < FEWEST_ALONE or not (self.is_exact or len(weight) <= self.sketch_size):
            return None
        return self._rows_of(weighs)

    @one_blas_thread
    def _leave_one_out(self, rows: Rows) -> LeaveOneOut:
        """Prepare leave-one-out predictions; `rows` must be all rows of the model."""
        moments = self._known()
        return LeaveOneOut(rows, moments, penalty_of(moments, scaled=self._scaled), center=self.fit_intercept)

    def _scorer(self, trial: Problem) -> Scorer:
        """Return an object that scores predictions made from the given normal equations."""
        return Scorer(self.scoring, trial.moments, trial.is_whole)

    def _first_ridge(self, moments: Moments) -> float:
        """Return the ridge penalty from which the search starts: the mean squared length of a weighted row.

        At this ridge noise equals signal.
        """
        length = float((moments.variance / penalty_of(moments, scaled=self._scaled)).sum())
        if moments.weight > 0:  # for a unit of weight: sum(w^2) / sum(w)
            length *= moments.weight_norm * (moments.weight_norm / moments.weight)
        return length if length > 0 else 1.0

    def _low_ridge(self, moments: Moments) -> float:
        """Return a lower ridge penalty from which to search, for columns of very different scales.

        It is ``_first_ridge`` as if all columns had the geometric mean of their squares.

        A column in much larger units then counts less. Far above this ridge every ridge of a path predicts the mean
        alone, and their errors do not tell in which direction to search.
        """
        squares = moments.variance / penalty_of(moments, scaled=self._scaled)
        squares = squares[squares > 0]
        if not len(squares):
            return self._first_ridge(moments)
        share = np.exp(np.log(squares).mean()) / squares.mean()
        return float(share) * self._first_ridge(moments)

    def _measuring(self) -> slice:
        """Return the slice of the held-out rows on which residuals are measured.

        It is the second of two tenths of all rows, and is empty if these are few.
        """
        n = min(len(self._known_held()), self._n // ONE_OF) // 2
        return slice(n, 2 * n) if 2 * n >= FEWEST else slice(0, 0)

    def _rows_of(self, which: slice | NDArray[np.int64]) -> Rows:
        """Return the selected held-out rows, with their targets and decayed weights."""
        held = self._known_held().chosen(which)
        return Rows(*self._split(held), held.weight)

    def _problem(self, left_out: slice) -> Problem:
        """Return the normal equations of all rows except some held-out ones.

        The slice `left_out` selects these among the held-out rows.
        """
        rest, out = self._rest(left_out)
        if self.is_exact:
            gram = self._sketch.gram()
            return Problem(GramSum(gram - out.times(np.eye(len(gram))) if left_out.stop else gram), rest, self._scaled)
        held = self._known_held()
        sketch = self._eat(self._sketch.copy(), held.chosen(np.delete(np.arange(len(held)), left_out)))
        return Problem(gram_of_sketch(sketch, rest.squares), rest, self._scaled)

    def _rest(self, left_out: slice) -> tuple[Moments, LeftOut]:
        """Return the moments without some held-out rows, and these rows' contribution to X'X."""
        moments, rows = self._known(), self._rows_of(left_out)
        rest = moments
        if len(rows.weight):
            rest = moments.without(Moments.of(*rows, center=self.fit_intercept))
        return rest, LeftOut(moments, rest, rows.x, rows.weight)

    def _known_residuals(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the residuals (m, c) and weights (m,) for prediction intervals; cached."""
        fitted = self._fitted()
        if self._residuals is None:
            self._residuals = self._measured(fitted)
        return self._residuals

    def _measured(self, fitted: FittedRidge) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Compute the residuals (m, c) and weights (m,) for prediction intervals.

        They are leave-one-out residuals of all rows, or residuals of held-out rows by a fit without them.
        """
        at_hand = self._rows_at_hand()
        if at_hand is not None:
            of_rows = self._leave_one_out(at_hand)
            if self.ridge is not None:
                return at_hand.y - of_rows.predict(self.ridge), at_hand.weight
            scorer = Scorer(self.scoring, self._known(), is_whole=True)
            return of_rows.residuals(scorer, at_hand), at_hand.weight
        measuring = self._measuring()
        rows = self._rows_of(measuring)
        if not len(rows.weight):
            return rows.y, rows.weight
        if self._refined is None:
            fit = self._solved(self._ridge_apart(fitted.choice), measured=True)
        else:
            coef = np.ascontiguousarray(self._refined.steps.solution[:, self.n_targets :])
            fit = completed(coef, self._rest(measuring)[0], self.rank)
        return rows.y - fit.predict(rows.x), rows.weight

    # -- reading the rows again ------------------------------------------------------------------------------------
    def _check_passes(self, passes: int) -> None:
        """Raise ValueError if the model decays, since rows that are read again have no age."""
        if self.decay != 1.0:
            raise ValueError(f"refine needs a model without decay, got decay={self.decay:g}: give weights to the rows")

    def _read_again(
        self, rows: Source, sample_weight: Any, *, passes: int, tolerance: float, if_better: bool = False
    ) -> None:
        """Refine the coefficients in further passes over the rows.

        With `if_better` the refinement is kept only if it lowers the error on held-out rows.
        """
        moments, steps = self._require_rows(), self._refinement(passes, tolerance, if_better=if_better)
        view = MeasuredForm(len(moments.mean), DOUBLE, moments.mean, 1.0, self.fit_intercept, [moments.faded(0.0)])
        again = RowsAgain(rows, view, sample_weight, feature_names=self._feature_names)
        image: Any = None  # nothing at the start
        try:
            while True:
                read = again.multiply(steps.send(image))
                view.require(moments, self._n, read.n_rows)
                image = read.product
        except StopIteration as end:
            self._refined, self._last, self._residuals = end.value, None, None

    def _refinement(
        self, passes: int, tolerance: float, *, if_better: bool
    ) -> Generator[Matrix, Matrix, Refined | None]:
        """Refine the coefficients by conjugate gradients, as a generator that asks its caller for products with X'X.

        It yields vectors (d, m) and is sent their products with X'X of all rows. It returns the result, or None if with
        `if_better` the coefficients of the sketch have the smaller error on held-out rows.
        """
        moments, refined, made, problem = self._known(), self._refined, 0, None
        choice = of_sketch = self._settled_choice() if refined is None else refined.choice
        if choice is None:
            made, choice = yield from self._choice_again(int(TO_CHOOSE * passes))
            if if_better:
                problem = self._problem(slice(0, self._measuring().stop))
                of_sketch = self._chosen_by(problem)
                if least_error(of_sketch) < least_error(choice):
                    return None
        choice = choice._replace(apart=self._ridge_apart(choice))
        rest, out = self._rest(self._measuring())
        if problem is None:  # a sketch without the held-out rows is as good a preconditioner
            problem = self._problem(slice(0, 0 if self.is_exact else self._measuring().stop))
        c, penalty = len(moments.target_mean), penalty_of(moments, scaled=self._scaled)[:, np.newaxis]
        added = choice.ridge * penalty, self._ridge_apart(choice) * penalty

        def images(right: Matrix) -> Generator[Matrix, Matrix, Matrix]:
            image = yield right
            image[:, :c] += added[0] * right[:, :c]
            image[:, c:] += added[1] * right[:, c:]
            image[:, c:] -= out.times(np.ascontiguousarray(right[:, c:]))  # rows that measure residuals
            return image

        # the second half of the columns is the fit without the rows that measure residuals
        right = np.hstack([moments.cross, rest.cross])
        lengths = np.maximum(column_lengths(right), TINY)
        solve = one_blas_thread(problem.preconditioner(choice.ridge, n_rows=self._n))
        steps = ConjugateGradients.start(right, solve) if refined is None else refined.steps
        for k in range(passes - made):
            if (column_lengths(steps.residual) <= tolerance * lengths).all():
                if k or made:
                    break
                # already converged: compute the residual from the rows
                remaining = right - (yield from images(steps.solution))
                steps = steps._replace(residual=remaining, passes=steps.passes + 1)
            else:
                steps = steps.step((yield from images(steps.direction)), solve)
        if if_better and (column_lengths(steps.residual) > tolerance * lengths).any():
            by_sketch = self._errors_apart(None, self._ridge_apart(of_sketch or choice))
            behind = by_sketch - self._errors_apart(steps.solution[:, c:])
            if len(behind) and is_as_good(behind):
                return None
        return Refined(steps, choice, made if refined is None else refined.to_choose)

    def _errors_apart(self, coef: Matrix | None, ridge: float = 0.0) -> Matrix:
        """Return the errors on held-out rows that have not chosen the ridge penalty.

        Predictions are by the coefficients `coef` (d, c), or by the sketch at `ridge` if they are None.
        """
        rows, (rest, _) = self._rows_of(self._measuring()), self._rest(self._measuring())
        if not len(rows.weight):
            return np.zeros(0)
        if coef is None:
            fit = self._solved(ridge, measured=True)
        else:
            fit = completed(np.ascontiguousarray(coef), rest, self.rank)
        return Scorer(self.scoring, rest, is_whole=True).errors(fit.predict(rows.x), rows)

    def _choice_again(self, passes: int) -> Generator[Matrix, Matrix, tuple[int, Choice]]:
        """Choose the ridge penalty by Lanczos steps, as a generator that asks its caller for products with X'X.

        At its end it returns (number of passes, choice).
        """
        n = self._measuring().stop
        if self.is_exact or not passes:
            return 0, self._read_out().choice
        rest, out = self._rest(slice(0, n))
        first, scorer = self._first_ridge(rest), Scorer(self.scoring, rest, is_whole=True)
        most = max(FEWEST, MOST_NUMBERS // (passes * len(rest.target_mean)))
        rows = self._rows_of(slice(0, n)).first(most)
        krylov = Krylov(rest, penalty_of(rest, scaled=self._scaled), rows.x)
        made = 0
        while True:
            made, right = made + 1, krylov.direction
            krylov.take((yield right) - out.times(right))
            if made % CHOOSE_EVERY and made < passes:
                continue
            path = krylov.path()
            least = path.least(first)
            begin = max(first, least * STEP)
            choice = chosen(path.predict, scorer, rows, begin, low=self._low_ridge(rest), least=least / begin)
            # ends once smaller ridges are known and worse, at least down to the first ridge
            if made >= passes or least * STEP <= min(choice.ridge, first):
                return made, choice

    def _passes_again(self, passes: int) -> Generator[SecondPass, SecondPass, Any]:
        """Refine the coefficients in the passes of a job, as a generator; each pass multiplies vectors by the rows.

        It yields the sums that a pass fills in, and returns self. A job multiplies orthonormal vectors by parts of the
        rows.
        """
        if self.is_exact:
            return self
        sketch = self._eat(self._sketch.copy(), self._known_held())  # to have the mean of all rows
        steps = self._refinement(passes, TOLERANCE, if_better=True)
        image: Any = None  # of nothing, at the start
        while True:
            try:
                q, turn = np.linalg.qr(steps.send(image))
            except StopIteration as end:
                self._refined, self._last, self._residuals = end.value, None, None
                return self
            read = yield SecondPass._along(sketch, np.ascontiguousarray(q.T))
            image = read._sum.product / read._begun()[1].scale ** 2 @ turn

    # -- facts -----------------------------------------------------------------------------------------------------
    def _resolved(self) -> dict[str, Any]:
        known = {} if self._moments is None else {"scale": self._scaled}
        return known if self._last is None else {**known, "ridge": self._last.choice.ridge}

    def _facts(self) -> dict[str, Any]:
        if not self._n:
            return {}
        fitted = self._fitted()
        out: dict[str, Any] = {"n_targets": self.n_targets, "is_exact": self.is_exact, "scale": self._scaled}
        out["ridge"] = fitted.choice.ridge
        if self._refined is not None:
            out["passes"] = self._refined.passes
        path = fitted.choice.path
        return out if path is None else {**out, "ridge_path": path._asdict()}


def least_error(choice: Choice) -> float:
    """Return the smallest error among the ridge penalties that were tried; infinity if none was."""
    return np.inf if choice.path is None else float(choice.path.errors.min())
