"""``fastsketch.SketchedRidge``: predictions, intervals and coefficients of a ridge regression learned in one pass.

The state is in _ridge_learning.py. This class chooses the ridge, solves for the coefficients, measures residuals, and
refines the coefficients over rows that are read again.
"""

# pyright: reportPrivateUsage=false

from collections.abc import Generator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._core.bottom_k import VALIDATION_FRACTION
from fastsketch._core.threads import one_blas_thread
from fastsketch._core.validation import Rows as Readable
from fastsketch._core.validation import as_integer, as_real, as_rows, check_finite
from fastsketch._core.warning import warn_caller
from fastsketch._kernels.guard import changes, reads
from fastsketch.ridge._cross_validation import GeneralisedCrossValidation, LeaveOneOut
from fastsketch.ridge._gram_model import GramSum, Matrix
from fastsketch.ridge._moments import TINY, ExcludedRowsGram, Moments, column_lengths
from fastsketch.ridge._path import RIDGE_RATIO, standard_error
from fastsketch.ridge._read_out import (
    MIN_ROWS,
    TOLERANCE,
    Choice,
    Coefficients,
    NormalEquations,
    RidgePath,
    Rows,
    Scorer,
    choose_least_error,
    conformal_quantile,
    gram_of_sketch,
    penalty_diagonal,
    search_ridge,
    with_intercepts,
)
from fastsketch.ridge._refining import (
    ConjugateGradients,
    LanczosIteration,
    MomentCheckingProduct,
    Refined,
    Refinement,
    residual_gap,
)
from fastsketch.ridge._ridge_learning import DOUBLE, MAX_RIDGE, RidgeLearner
from fastsketch.sketching._frequent_directions import SecondPass
from fastsketch.sketching._rereading import Readable as Source
from fastsketch.sketching._rereading import RowsAgain

# Smallest number of rows for leave-one-out. Rows of a smaller weight than this share of the largest are ignored.
MIN_ROWS_LEAVE_ONE_OUT, MIN_WEIGHT_RATIO = 3, 1e-12
# Weights are regarded as equal if Kish's effective number of rows is relatively this close to the number of rows.
EQUAL_WEIGHT_TOLERANCE = 1e-9
# Largest share of the passes of a refinement that may choose the ridge.
MAX_CHOOSING_SHARE = 0.6
# Largest number of float64 numbers stored for held-out rows during that choice; with very many targets fewer rows are
# used.
MAX_HELD_OUT_NUMBERS = 1 << 25


class FittedRidge(NamedTuple):
    """Coefficients of a fitted model, with the ridge penalty that was chosen for them."""

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
        Number of rows l of the sketch, from 2 to 2**16 - 1. It only matters for rows too wide for an exact sum.
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
        return self._in_target_shape(fit.predict(self._validate_query_rows(rows)))

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
        predicted = self._coefficients(None).predict(self._validate_query_rows(rows))
        half_width = conformal_quantile(*self._cached_residuals(), coverage, decayed=self.decay < 1.0)
        return PredictionInterval(
            self._in_target_shape(predicted - half_width), self._in_target_shape(predicted + half_width)
        )

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
        return coef[0].copy() if self._targets_are_vectors else coef.copy()

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
        return float(intercept[0]) if self._targets_are_vectors else intercept.copy()

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
        path = self._cached_fit().choice.path
        if path is None:
            reason = "ridge is given" if self.ridge is not None else f"{self._n} rows are too few for cross-validation"
            raise ValueError(f"no ridge has been tried: {reason}")
        copies = {name: getattr(path, name).copy() for name in ("ridges", "errors", "standard_errors")}
        return path._replace(**copies)

    def _validate_query_rows(self, rows: Any) -> Any:
        """Validate the rows of a query and return them as an array or CSR matrix (n, d)."""
        self._require_columns(rows)
        x = as_rows(rows, self.n_features)
        check_finite(x)
        return x

    def _in_target_shape(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Convert predictions (n, c) to the shape of the learned targets: to a vector (n,) if these were one."""
        return values[:, 0] if self._targets_are_vectors else values

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
        Krylov space of X'X predicts the held-out rows at every ridge. The choice is looked at after every pass,
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
        return self._measure_refinement(tolerance)

    def _measure_refinement(self, tolerance: float) -> Refinement:
        """Return the residuals and error bounds of the refined coefficients as a ``Refinement``.
        It has converged if all residuals are within `tolerance`.
        """
        moments, refined = self._known_moments(), self._refined
        assert refined is not None
        residual_norms = column_lengths(refined.steps.residual[:, : self.n_targets])
        relative_residuals = residual_norms / np.maximum(column_lengths(moments.cross), TINY)
        with np.errstate(divide="ignore"):
            penalty = refined.choice.ridge * penalty_diagonal(moments, scaled=self._scaled)
            rounding_gap = residual_gap(refined.steps, moments, self._n, float(penalty.max()))
            smallest_penalty = float(penalty.min())
            bound = (
                (residual_norms + rounding_gap) / np.sqrt(smallest_penalty)
                if smallest_penalty
                else np.full(len(residual_norms), np.inf)
            )
        return Refinement(refined.passes, relative_residuals, bound, bool((relative_residuals <= tolerance).all()))

    # -- reading out -----------------------------------------------------------------------------------------------
    def _coefficients(self, ridge: float | None) -> Coefficients:
        """Return the coefficients and intercepts at the given ridge penalty, or at the chosen one if it is None.

        It warns if the coefficients at the chosen ridge are refined, but those at the given ridge are not.
        """
        fitted = self._cached_fit()
        if ridge is None or as_real(ridge, "ridge", 0.0, MAX_RIDGE) == fitted.choice.ridge:
            return fitted.fit
        if self._refined is not None and not self.is_exact:
            warn_caller(
                f"coefficients at ridge={ridge:g} are those of the sketch: rows were read again for ridge="
                f"{fitted.choice.ridge:g}; a model of this ridge can refine them"
            )
        return self._solve(ridge)

    @one_blas_thread
    def _solve(
        self, ridge: float, *, exclude_residual_rows: bool = False, trial: NormalEquations | None = None
    ) -> Coefficients:
        """Solve the normal equations at a ridge penalty, and return coefficients and intercepts as ``Coefficients``.

        Parameters
        ----------
        ridge : float
        exclude_residual_rows : bool, default False
            Whether to exclude the held-out rows on which residuals are measured.
        trial : Problem, optional
            The normal equations without any held-out row, with which the factor on coefficients is estimated on these
            rows. They are computed if they are needed and not given.
        """
        residual_slice, equations = (
            self._residual_slice(),
            self._normal_equations(self._residual_slice() if exclude_residual_rows else slice(0, 0)),
        )
        fit, n = (
            equations.coefficients(ridge, self.rank),
            residual_slice.start if exclude_residual_rows else residual_slice.stop,
        )
        if self.is_exact or not n or self.scoring != "squared_error":
            return fit
        trial, rows = trial or self._normal_equations(slice(0, residual_slice.stop)), self._held_out_rows(slice(0, n))
        factor = self._scorer(trial).score_factor(trial.coefficients(ridge, self.rank).predict(rows.x), rows)
        return with_intercepts(factor * fit.coef, equations.moments, None)

    def _cached_fit(self) -> FittedRidge:
        """Return the coefficients at the chosen ridge penalty, with the choice, as FittedRidge.
        They are computed at the first call after an update, and then cached.
        """
        if self._last is None:
            moments = self._require_rows()
            if self._refined is None:
                self._last = self._choose_and_solve()
            else:
                coef = self._refined.steps.solution[:, : self.n_targets]
                self._last = FittedRidge(with_intercepts(coef, moments, self.rank), self._refined.choice)
            self._residuals = None
        return self._last

    @one_blas_thread
    def _choose_and_solve(self) -> FittedRidge:
        """Choose the ridge penalty, and return it with its coefficients as FittedRidge.
        The coefficients are computed from the sketch or the exact X'X.
        """
        choice, trial = self._choose_without_held_out_rows(), None
        if choice is None:
            trial = self._normal_equations(slice(0, self._residual_slice().stop))
            choice = self._choose_on_held_out_rows(trial)
        n_effective = self._known_moments().n_effective if self.ridge is None and self.decay < 1.0 else np.inf
        if n_effective < min(MIN_ROWS, len(self._known_moments().mean)):
            warn_caller(
                f"decay={self.decay:g} leaves the weight of {n_effective:.3g} rows to choose a ridge for "
                f"{self.n_features} columns, which may be far from the best: give ridge=, or a decay nearer to 1"
            )
        return FittedRidge(self._solve(choice.ridge, trial=trial), choice)

    @one_blas_thread
    def _choose_on_held_out_rows(self, trial: NormalEquations) -> Choice:
        """Return the ``Choice`` of the ridge penalty with the least error on held-out rows.
        `trial` are the normal equations of all other rows.
        """
        rows, scorer = self._held_out_rows(slice(0, self._residual_slice().stop)), self._scorer(trial)
        first_ridge, low_ridge = self._first_ridge(trial.moments), self._low_ridge(trial.moments)
        return search_ridge(
            lambda ridge: trial.coefficients(ridge, self.rank).predict(rows.x),
            scorer,
            rows,
            first_ridge,
            low_ridge=low_ridge,
        )

    def _require_rows(self) -> Moments:
        """Return the moments of all rows; raise ValueError if no rows have been learned."""
        if not self._n:
            raise ValueError("the model has seen no rows: call update first")
        return self._known_moments()

    def _choose_without_held_out_rows(self) -> Choice | None:
        """Return the ``Choice`` of a ridge penalty that is given, or chosen by exact leave-one-out errors or by GCV.
        Return None if it must be chosen on held-out rows.

        The result is the ridge given as a parameter, or is chosen by leave-one-out or generalised cross-validation. If
        there are too few rows for these and for held-out rows, it is ``_first_ridge``.
        """
        if self.ridge is not None:
            return Choice(self.ridge, None, self.ridge)
        rows, moments = self._rows_if_all_held(), self._known_moments()
        if rows is not None:
            leave_one_out = self._leave_one_out(rows)
            errors = leave_one_out.errors(Scorer(self.scoring, moments, is_complete=True), rows)
            standard_errors = np.array([standard_error(errors_of_ridge) for errors_of_ridge in errors])
            path = choose_least_error(leave_one_out.ridges, errors.mean(axis=1), standard_errors, len(rows.y))
            return Choice(path.ridge, path, path.ridge)
        if self._can_use_gcv():
            return self._choose_by_gcv(slice(0, 0))
        if self._residual_slice().stop:
            return None
        ridge = self._first_ridge(moments)
        return Choice(ridge, None, ridge)

    def _can_use_gcv(self) -> bool:
        """Return True if generalised cross-validation can be used to choose the ridge penalty.

        It needs the exact X'X, squared errors and coefficients of full rank. With unequal weights it also needs more
        rows (Kish's effective number) than coefficients. Otherwise small ridges would leave no degrees of freedom, but
        large residuals.
        """
        if (
            not self.is_exact
            or self.scoring != "squared_error"
            or self.rank is not None
            or self._n < MIN_ROWS_LEAVE_ONE_OUT
        ):
            return False
        moments = self._known_moments()
        weighs_equally = moments.n_effective >= (1.0 - EQUAL_WEIGHT_TOLERANCE) * self._n
        return weighs_equally or moments.n_effective >= len(moments.mean) + self.fit_intercept + 1

    @one_blas_thread
    def _choose_by_gcv(self, excluded: slice) -> Choice:
        """Return the ``Choice`` of a ridge penalty by generalised cross-validation on all but some held-out rows."""
        n = self._n - (excluded.stop - excluded.start)
        problem = self._normal_equations(excluded)
        assert isinstance(problem.gram, GramSum)
        moments = problem.moments
        penalty = penalty_diagonal(moments, scaled=problem.scaled)
        gcv = GeneralisedCrossValidation(problem.gram.gram, moments, penalty, n=n, center=self.fit_intercept)
        shares = Scorer(self.scoring, moments, is_complete=True).relative_target_weights()
        retained = np.delete(np.arange(len(self._decayed_reservoir())), excluded)
        if self.decay < 1.0 or not len(retained):  # with decay hardly a row of the sample has weight
            errors = gcv.scores(shares)
        else:
            errors = gcv.leave_one_out(shares, self._held_out_rows(retained))
        path = choose_least_error(gcv.ridges, errors, errors * (2.0 / moments.n_effective) ** 0.5, n)
        return Choice(path.ridge, path, None)

    def _residual_ridge(self, choice: Choice) -> float:
        """Return the ridge penalty at which residuals for prediction intervals are measured.

        It is chosen without the rows whose residuals are measured, except with scoring="log_loss".
        """
        if choice.residual_ridge is not None:
            return choice.residual_ridge
        residual_slice = self._residual_slice()
        return (
            self._choose_by_gcv(residual_slice).ridge
            if len(self._held_out_rows(residual_slice).weight)
            else choice.ridge
        )

    def _rows_if_all_held(self) -> Rows | None:
        """Return all learned rows with their targets if the reservoir still has every one of them, else None.
        Leave-one-out is exact in the first case.

        Rows of negligible weight are dropped. The result is also None with decay, with a rank, with fewer than
        MIN_ROWS_LEAVE_ONE_OUT rows, and if a sketch may have lost a part of X'X.
        """
        weight = self._decayed_reservoir().weight
        if self.decay < 1 or self.rank is not None or not 0 < len(weight) == self._n:
            return None
        positions = np.flatnonzero(weight > MIN_WEIGHT_RATIO * weight.max())
        if len(positions) < MIN_ROWS_LEAVE_ONE_OUT or not (self.is_exact or len(weight) <= self.sketch_size):
            return None
        return self._held_out_rows(positions)

    @one_blas_thread
    def _leave_one_out(self, rows: Rows) -> LeaveOneOut:
        """Return a LeaveOneOut object for exact leave-one-out predictions of `rows`, which must be all rows learned."""
        moments = self._known_moments()
        return LeaveOneOut(rows, moments, penalty_diagonal(moments, scaled=self._scaled), center=self.fit_intercept)

    def _scorer(self, trial: NormalEquations) -> Scorer:
        """Return the Scorer, an error measure, for predictions made from the given normal equations."""
        return Scorer(self.scoring, trial.moments, trial.is_complete)

    def _first_ridge(self, moments: Moments) -> float:
        """Return the ridge penalty at which the search starts: the mean squared norm of a row, in weighted units.

        At this ridge noise equals signal. If all columns are constant it is 1.
        """
        mean_square = float((moments.variance / penalty_diagonal(moments, scaled=self._scaled)).sum())
        if moments.weight > 0:  # for a unit of weight: sum(w^2) / sum(w)
            mean_square *= moments.weight_norm * (moments.weight_norm / moments.weight)
        return mean_square if mean_square > 0 else 1.0

    def _low_ridge(self, moments: Moments) -> float:
        """Return a lower ridge penalty for the start of the search, for columns of very different scales.

        It is ``_first_ridge`` with the arithmetic mean of the columns' variances replaced by their geometric mean, so
        that a column in much larger units has less influence. Far above this ridge every ridge predicts the mean only,
        and the errors do not show in which direction to search.
        """
        squares = moments.variance / penalty_diagonal(moments, scaled=self._scaled)
        squares = squares[squares > 0]
        if not len(squares):
            return self._first_ridge(moments)
        share = np.exp(np.log(squares).mean()) / squares.mean()
        return float(share) * self._first_ridge(moments)

    def _residual_slice(self) -> slice:
        """Return the slice of the reservoir with the rows that measure residuals for prediction intervals.
        The rows before it choose the ridge penalty.

        Each part has up to a tenth of all rows. Both are empty if together they have fewer than MIN_ROWS rows.
        """
        n = min(len(self._decayed_reservoir()), int(2 * VALIDATION_FRACTION * self._n)) // 2
        return slice(n, 2 * n) if 2 * n >= MIN_ROWS else slice(0, 0)

    def _held_out_rows(self, selection: slice | NDArray[np.int64]) -> Rows:
        """Return the selected held-out rows, with their targets and decayed weights."""
        reservoir = self._decayed_reservoir().take(selection)
        return Rows(*self._split_targets(reservoir), reservoir.weight)

    def _normal_equations(self, excluded: slice) -> NormalEquations:
        """Return the normal equations of all rows but those in a slice of the reservoir."""
        remaining_moments, excluded_gram = self._moments_excluding(excluded)
        if self.is_exact:
            gram = self._sketch.gram()
            return NormalEquations(
                GramSum(gram - excluded_gram.times(np.eye(len(gram))) if excluded.stop else gram),
                remaining_moments,
                self._scaled,
            )
        reservoir = self._decayed_reservoir()
        sketch = self._learn_held_out_rows(
            self._sketch.copy(), reservoir.take(np.delete(np.arange(len(reservoir)), excluded))
        )
        return NormalEquations(gram_of_sketch(sketch, remaining_moments.squares), remaining_moments, self._scaled)

    def _moments_excluding(self, excluded: slice) -> tuple[Moments, ExcludedRowsGram]:
        """Return the moments of all rows but a slice of the reservoir, and an operator for this slice's part of X'X."""
        moments, rows = self._known_moments(), self._held_out_rows(excluded)
        remaining_moments = moments
        if len(rows.weight):
            remaining_moments = moments.without(Moments.of(*rows, center=self.fit_intercept))
        return remaining_moments, ExcludedRowsGram(moments, remaining_moments, rows.x, rows.weight)

    def _cached_residuals(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the residuals (m, c) and weights (m,) from which prediction intervals are computed. They are cached
        until more is learned.
        """
        fitted = self._cached_fit()
        if self._residuals is None:
            self._residuals = self._compute_residuals(fitted)
        return self._residuals

    def _compute_residuals(self, fitted: FittedRidge) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the residuals (m, c) and weights (m,) of held-out rows, from which intervals are computed.

        They are leave-one-out residuals of all rows if the reservoir has them all, otherwise residuals of held-out rows
        in a fit without them.
        """
        all_rows = self._rows_if_all_held()
        if all_rows is not None:
            leave_one_out = self._leave_one_out(all_rows)
            if self.ridge is not None:
                return all_rows.y - leave_one_out.predict(self.ridge), all_rows.weight
            scorer = Scorer(self.scoring, self._known_moments(), is_complete=True)
            return leave_one_out.residuals(scorer, all_rows), all_rows.weight
        residual_slice = self._residual_slice()
        rows = self._held_out_rows(residual_slice)
        if not len(rows.weight):
            return rows.y, rows.weight
        if self._refined is None:
            fit = self._solve(self._residual_ridge(fitted.choice), exclude_residual_rows=True)
        else:
            coef = np.ascontiguousarray(self._refined.steps.solution[:, self.n_targets :])
            fit = with_intercepts(coef, self._moments_excluding(residual_slice)[0], self.rank)
        return rows.y - fit.predict(rows.x), rows.weight

    # -- reading the rows again ------------------------------------------------------------------------------------
    def _check_passes(self, passes: int) -> None:
        """Raise ValueError if the model uses decay. Further passes need weights that do not depend on the age of
        rows.
        """
        if self.decay != 1.0:
            raise ValueError(f"refine needs a model without decay, got decay={self.decay:g}: give weights to the rows")

    def _read_again(
        self, rows: Source, sample_weight: Any, *, passes: int, tolerance: float, if_better: bool = False
    ) -> None:
        """Read the rows in at most `passes` further passes, and store refined coefficients in this model.

        With `if_better` the refinement is stored only if it lowers the error on held-out rows.
        """
        moments, steps = (
            self._require_rows(),
            self._refine_by_conjugate_gradients(passes, tolerance, if_better=if_better),
        )
        checked_product = MomentCheckingProduct(
            len(moments.mean), DOUBLE, moments.mean, 1.0, self.fit_intercept, [moments.faded(0.0)]
        )
        rereader = RowsAgain(rows, checked_product, sample_weight, feature_names=self._feature_names)
        image: Any = None  # a generator is first sent None
        try:
            while True:
                read = rereader.multiply(steps.send(image))
                checked_product.check_same_rows(moments, self._n, read.n_rows)
                image = read.product
        except StopIteration as end:
            self._refined, self._last, self._residuals = end.value, None, None

    def _refine_by_conjugate_gradients(
        self, passes: int, tolerance: float, *, if_better: bool
    ) -> Generator[Matrix, Matrix, Refined | None]:
        """Refine the coefficients by conjugate gradients, as a generator that returns the refined state.

        It yields vectors (d, m), and its caller must send their products with X'X of all rows. With `if_better` it
        returns None if the sketch's coefficients have no larger error on held-out rows.
        """
        moments, refined, n_choosing, problem = self._known_moments(), self._refined, 0, None
        choice = sketch_choice = self._choose_without_held_out_rows() if refined is None else refined.choice
        if choice is None:
            n_choosing, choice = yield from self._choose_by_lanczos(int(MAX_CHOOSING_SHARE * passes))
            if if_better:
                problem = self._normal_equations(slice(0, self._residual_slice().stop))
                sketch_choice = self._choose_on_held_out_rows(problem)
                if least_error(sketch_choice) < least_error(choice):
                    return None
        choice = choice._replace(residual_ridge=self._residual_ridge(choice))
        remaining_moments, excluded_gram = self._moments_excluding(self._residual_slice())
        if problem is None:  # a sketch without the held-out rows is as good a preconditioner
            problem = self._normal_equations(slice(0, 0 if self.is_exact else self._residual_slice().stop))
        c, penalty = len(moments.target_mean), penalty_diagonal(moments, scaled=self._scaled)[:, np.newaxis]
        penalties = choice.ridge * penalty, self._residual_ridge(choice) * penalty

        def images(right_hand_sides: Matrix) -> Generator[Matrix, Matrix, Matrix]:
            image = yield right_hand_sides
            image[:, :c] += penalties[0] * right_hand_sides[:, :c]
            image[:, c:] += penalties[1] * right_hand_sides[:, c:]
            image[:, c:] -= excluded_gram.times(
                np.ascontiguousarray(right_hand_sides[:, c:])
            )  # rows that measure residuals
            return image

        # the second half of the columns is the fit without the rows that measure residuals
        right_hand_sides = np.hstack([moments.cross, remaining_moments.cross])
        lengths = np.maximum(column_lengths(right_hand_sides), TINY)
        solve = one_blas_thread(problem.preconditioner(choice.ridge, n_rows=self._n))
        steps = ConjugateGradients.start(right_hand_sides, solve) if refined is None else refined.steps
        for k in range(passes - n_choosing):
            if (column_lengths(steps.residual) <= tolerance * lengths).all():
                if k or n_choosing:
                    break
                # already converged: compute the residual from the rows
                residual = right_hand_sides - (yield from images(steps.solution))
                steps = steps._replace(residual=residual, passes=steps.passes + 1)
            else:
                steps = steps.step((yield from images(steps.direction)), solve)
        if if_better and (column_lengths(steps.residual) > tolerance * lengths).any():
            sketch_errors = self._errors_on_residual_rows(None, self._residual_ridge(sketch_choice or choice))
            refined_errors = self._errors_on_residual_rows(steps.solution[:, c:])
            if len(refined_errors) and sketch_errors.mean() <= refined_errors.mean():
                return None
        return Refined(steps, choice, n_choosing if refined is None else refined.to_choose)

    def _errors_on_residual_rows(self, coef: Matrix | None, ridge: float = 0.0) -> Matrix:
        """Return the errors (n,) on the held-out rows that have not chosen the ridge penalty.

        The predictions use the coefficients `coef` (d, c), or if it is None those of the sketch at `ridge`.
        """
        rows, (remaining_moments, _) = (
            self._held_out_rows(self._residual_slice()),
            self._moments_excluding(self._residual_slice()),
        )
        if not len(rows.weight):
            return np.zeros(0)
        if coef is None:
            fit = self._solve(ridge, exclude_residual_rows=True)
        else:
            fit = with_intercepts(np.ascontiguousarray(coef), remaining_moments, self.rank)
        return Scorer(self.scoring, remaining_moments, is_complete=True).errors(fit.predict(rows.x), rows)

    def _choose_by_lanczos(self, passes: int) -> Generator[Matrix, Matrix, tuple[int, Choice]]:
        """Choose the ridge penalty by Lanczos steps, as a generator that returns (number of products, choice).

        It yields vectors (d, c), and its caller must send their products with X'X of all rows. The number of products
        is at most `passes`.
        """
        n = self._residual_slice().stop
        if self.is_exact or not passes:
            return 0, self._choose_and_solve().choice
        remaining_moments, excluded_gram = self._moments_excluding(slice(0, n))
        first_ridge, scorer = (
            self._first_ridge(remaining_moments),
            Scorer(self.scoring, remaining_moments, is_complete=True),
        )
        max_rows = max(MIN_ROWS, MAX_HELD_OUT_NUMBERS // (passes * len(remaining_moments.target_mean)))
        rows = self._held_out_rows(slice(0, n)).first(max_rows)
        lanczos = LanczosIteration(remaining_moments, penalty_diagonal(remaining_moments, scaled=self._scaled), rows.x)
        n_made = 0
        while True:
            n_made, direction = n_made + 1, lanczos.direction
            lanczos.step((yield direction) - excluded_gram.times(direction))
            solutions = lanczos.solutions()
            smallest_ridge = solutions.smallest_accurate_ridge(first_ridge)
            largest_ridge = max(first_ridge, smallest_ridge * RIDGE_RATIO)
            choice = search_ridge(
                solutions.predict,
                scorer,
                rows,
                largest_ridge,
                low_ridge=self._low_ridge(remaining_moments),
                min_ratio=smallest_ridge / largest_ridge,
            )
            # ends once smaller ridges have been judged and are worse, at least down to the first ridge
            if n_made >= passes or smallest_ridge * RIDGE_RATIO <= min(choice.ridge, first_ridge):
                return n_made, choice

    def _passes_again(self, passes: int) -> Generator[SecondPass, SecondPass, Any]:
        """Refine the coefficients in at most `passes` passes of a distributed job, as a generator that returns self.

        It yields a ``SecondPass`` for each pass over the rows, and the job sends it back with the products of all rows.
        Since a job multiplies orthonormal vectors, the requested vectors are replaced by their QR decomposition.
        """
        if self.is_exact:
            return self
        sketch = self._learn_held_out_rows(
            self._sketch.copy(), self._decayed_reservoir()
        )  # to have the mean of all rows
        steps = self._refine_by_conjugate_gradients(passes, TOLERANCE, if_better=True)
        image: Any = None  # a generator is first sent None
        while True:
            try:
                q, triangle = np.linalg.qr(steps.send(image))
            except StopIteration as end:
                self._refined, self._last, self._residuals = end.value, None, None
                return self
            read = yield SecondPass._along(sketch, np.ascontiguousarray(q.T))
            image = read._sum.product / read._begun()[1].scale ** 2 @ triangle

    # -- facts -----------------------------------------------------------------------------------------------------
    def _resolved(self) -> dict[str, Any]:
        known = {} if self._moments is None else {"scale": self._scaled}
        return known if self._last is None else {**known, "ridge": self._last.choice.ridge}

    def _facts(self) -> dict[str, Any]:
        if not self._n:
            return {}
        fitted = self._cached_fit()
        out: dict[str, Any] = {"n_targets": self.n_targets, "is_exact": self.is_exact, "scale": self._scaled}
        out["ridge"] = fitted.choice.ridge
        if self._refined is not None:
            out["passes"] = self._refined.passes
        path = fitted.choice.path
        return out if path is None else {**out, "ridge_path": path._asdict()}


def least_error(choice: Choice) -> float:
    """Return the smallest error among the ridge penalties that were tried; infinity if none was."""
    return np.inf if choice.path is None else float(choice.path.errors.min())
